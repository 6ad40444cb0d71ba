//! What a job waits for before it may start.

use serde::{Deserialize, Serialize};

use crate::word::words;

/// Jobs that one may wait for.
pub const MOST_DEPENDENCIES: usize = 100;

/// Another job that is to have come so far first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct After {
    /// An id, or a name: that of a job submitted with this one, else of its owner's newest in its project.
    pub job: String,
    pub on: Condition,
}

words! {
    /// How far a job is to have come before another may start.
    #[derive(Default)]
    pub enum Condition {
        #[default]
        Success,
        /// It failed or was cancelled.
        Failure,
        /// It ended, however.
        Any,
        /// It started, or ended without.
        Start,
    }
}
