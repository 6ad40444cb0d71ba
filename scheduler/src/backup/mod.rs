//! Backups: the whole database in one file, made while a server runs, and restored into an empty database.
//!
//! The file is a `tar` archive of the dump (`pg_dump`'s custom format, which `pg_restore` reads also without Headway) and a manifest that says what is in
//! it. The dump and what the manifest counts are of one snapshot. It decides nothing: that nodes have lived on since the backup is the engine's to deal
//! with (`core/engine/src/returning.rs`), once `restore` has marked the database.

mod file;
mod manifest;
mod programs;
mod restore;
mod write;

pub use file::{BackupFile, FileError};
pub use manifest::Manifest;
pub use programs::ProgramError;
pub use restore::{RestoreError, Restored, is_unfinished, restore};
pub use write::{BackupError, write};
