//! What a backup says of itself.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::store::Contents;

/// The newest form that this release reads.
const FORMAT: u32 = 1;

/// The second entry of a backup's archive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// Of the archive and of this manifest.
    pub format: u32,
    /// The release that made it, and what that was built from.
    pub version: String,
    pub build: String,
    pub made_at: DateTime<Utc>,
    /// Which cluster it is of.
    pub cluster: Uuid,
    /// The newest term that had begun.
    pub term: u64,
    /// Migrations that the database has been through.
    pub migrations: Vec<i64>,
    /// Jobs that had not ended.
    pub live_jobs: u64,
    /// Rows by table.
    pub rows: BTreeMap<String, u64>,
    /// Of the database that was dumped.
    pub postgres: String,
    /// Of the dump.
    pub bytes: u64,
    /// Of the dump, in hexadecimal digits.
    pub sha256: String,
}

impl Manifest {
    pub(super) fn new(build: &str, made_at: DateTime<Utc>, contents: &Contents, bytes: u64, sha256: String) -> Self {
        let contents = contents.clone();
        Self {
            format: FORMAT,
            version: env!("CARGO_PKG_VERSION").into(),
            build: build.into(),
            made_at,
            cluster: contents.cluster,
            term: contents.term.0,
            migrations: contents.migrations,
            live_jobs: contents.live_jobs,
            rows: contents.rows,
            postgres: contents.postgres,
            bytes,
            sha256,
        }
    }

    /// Whether this release knows the form of the archive.
    pub(super) fn is_known(&self) -> bool {
        self.format <= FORMAT
    }

    /// Rows of a table; none where the schema it is of had no such table.
    #[must_use]
    pub fn rows_of(&self, table: &str) -> u64 {
        self.rows.get(table).copied().unwrap_or_default()
    }

    /// "1200 jobs (14 not ended), 3 nodes, 5 projects, 8 users".
    #[must_use]
    pub fn in_words(&self) -> String {
        format!(
            "{} jobs ({} not ended), {} nodes, {} projects, {} users, {} events",
            self.rows_of("jobs"),
            self.live_jobs,
            self.rows_of("nodes"),
            self.rows_of("projects"),
            self.rows_of("users"),
            self.rows_of("events"),
        )
    }
}
