//! A start from an earlier point than the checkpoint that the job was to resume from.

use headway_types::{CheckpointRef, Generation, Sequences, Timestamp};
use serde::{Deserialize, Serialize};

/// What a generation went on from in place of the committed checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fallback {
    pub at: Timestamp,
    pub generation: Generation,
    /// Step before its first one.
    pub step: u64,
    /// Seen by then.
    pub samples_seen: Sequences,
    /// The checkpoint that its order named.
    pub named: CheckpointRef,
}

impl Fallback {
    /// Sequences that are trained again.
    #[must_use]
    pub fn lost(&self) -> Sequences {
        self.named.samples_seen.saturating_sub(self.samples_seen)
    }
}
