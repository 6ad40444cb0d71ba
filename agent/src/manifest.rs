//! The manifest of a checkpoint, as far as the agent reads it (docs/worker-protocol.md).

use headway_types::{Generation, JobId, Sequences};
use serde::Deserialize;

/// The manifest of one checkpoint.
#[derive(Deserialize)]
pub(crate) struct Manifest {
    pub job: JobId,
    pub generation: Generation,
    pub step: u64,
    pub samples_seen: Sequences,
    pub files: Vec<ManifestFile>,
}

/// A file of the checkpoint, by its path within it.
#[derive(Deserialize)]
pub(crate) struct ManifestFile {
    pub name: String,
    pub bytes: u64,
}
