//! Whether Postgres has room to write. A full disk looks like an unavailable store to everybody who asks, and its cure
//! is another one, so it is remembered and named.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// What Postgres answers where it has no room.
const DISK_FULL: &str = "53100";

/// Whether the last write failed because the disk of Postgres is full; clones are the same.
#[derive(Clone, Debug, Default)]
pub struct DiskState(Arc<AtomicBool>);

impl DiskState {
    /// Remembers an error that says that the disk is full.
    pub fn note_error(&self, error: &sqlx::Error) {
        if says_disk_full(error) {
            self.note_full();
        }
    }

    pub(super) fn note_full(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// A commit is on disk, so there is room again.
    pub fn note_room(&self) {
        self.0.store(false, Ordering::Relaxed);
    }

    #[must_use]
    pub fn is_full(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

pub(super) fn says_disk_full(error: &sqlx::Error) -> bool {
    error.as_database_error().and_then(|error| error.code()).is_some_and(|code| code == DISK_FULL)
}
