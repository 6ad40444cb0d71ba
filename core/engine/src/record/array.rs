//! An array's row, and what each of its elements, which are jobs like any other, knows of it.

use headway_types::spec::Indices;
use headway_types::{ArrayId, Timestamp};
use serde::{Deserialize, Serialize};

/// Jobs of one specification that differ in their index. Elements keep the rest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Array {
    pub id: ArrayId,
    pub name: String,
    pub project: String,
    pub owner: String,
    pub submitted_at: Timestamp,
    pub indices: Indices,
    /// Elements that may run at once; `None`: all.
    pub parallel: Option<u32>,
    pub tally: Tally,
    /// Rises with every stored change; the ETag.
    pub version: u64,
}

/// How many elements have come so far. Kept with the array, since whoever waits for it outlives the rows of its elements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// Started, or ended without.
    pub begun: u32,
    pub succeeded: u32,
    pub failed: u32,
    pub cancelled: u32,
}

/// Which element of an array a job is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Element {
    pub array: ArrayId,
    pub index: u32,
    /// Among the array's elements, from 0.
    pub place: u32,
    /// Elements of the array.
    pub count: u32,
    /// It waits until fewer run than the array allows at once.
    pub waits: bool,
}

impl Array {
    #[must_use]
    pub fn count(&self) -> u32 {
        self.indices.count()
    }

    /// Whether all elements have ended.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.tally.ended() >= self.count()
    }

    /// "sweep[0-99]%8".
    #[must_use]
    pub fn in_words(&self) -> String {
        let parallel = self.parallel.map_or(String::new(), |parallel| format!("%{parallel}"));
        format!("{}[{}]{parallel}", self.name, self.indices)
    }
}

impl Tally {
    #[must_use]
    pub fn ended(self) -> u32 {
        self.succeeded + self.failed + self.cancelled
    }
}
