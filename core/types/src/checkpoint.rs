//! Checkpoints as the scheduler and its nodes name them.

use serde::{Deserialize, Serialize};

use crate::id::Generation;
use crate::unit::Sequences;

/// A checkpoint the scheduler has committed, or one a worker offers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointRef {
    /// The generation that wrote it; it lies below `<dir>/g<N>/`.
    pub generation: Generation,
    pub path: String,
    pub step: u64,
    pub samples_seen: Sequences,
    /// SHA-256 of its manifest, hex.
    pub manifest_sha256: String,
}

/// The answer of a node that does not find the checkpoint which it was to resume a job from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MissingCheckpoint {
    /// The newest whole checkpoint of the job that the node found instead.
    pub newest: Option<CheckpointRef>,
}
