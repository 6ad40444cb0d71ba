//! What the database takes, table by table.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// `GET /space`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Space {
    pub at: DateTime<Utc>,
    /// The largest first.
    pub tables: Vec<TableSpace>,
    /// The whole database, with what belongs to no table.
    pub bytes: u64,
    /// Free bytes of the disk that holds the database; null where the server cannot see that disk.
    pub disk_free_bytes: Option<u64>,
}

/// One table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TableSpace {
    pub table: String,
    /// As Postgres estimates it.
    pub rows: u64,
    /// With indexes.
    pub bytes: u64,
    /// The moment of the oldest row; null where rows have no age, or there are none.
    pub oldest_at: Option<DateTime<Utc>>,
    /// The option of `headway server` that says how long rows are kept; null where none does.
    pub option: Option<String>,
    /// What bounds the table, in words; null of a table that this release does not know.
    pub bound: Option<String>,
}
