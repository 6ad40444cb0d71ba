//! Who held GPUs within a span of time: tables `allocations` and `jobs` together.

use futures::{Stream, StreamExt};
use headway_engine::record::Allocation;
use headway_types::Timestamp;
use sqlx::types::Json;

use super::column::time;
use super::{Store, StoreError};

/// An allocation and whose it was.
#[derive(Clone, Debug, PartialEq)]
pub struct Held {
    pub owner: String,
    pub project: String,
    pub allocation: Allocation,
}

impl Store {
    /// What was granted before `to` and had not ended before `from`, one after another: a year of a large cluster is more than memory should hold.
    pub fn held(&self, from: Timestamp, to: Timestamp) -> impl Stream<Item = Result<Held, StoreError>> {
        let rows = sqlx::query!(
            r#"SELECT owner, project, allocations.body AS "body: Json<Allocation>"
            FROM allocations JOIN jobs USING (job_id)
            WHERE granted_at < $2 AND (allocations.ended_at IS NULL OR allocations.ended_at IS NOT NULL
                AND tstzrange(granted_at, GREATEST(allocations.ended_at, granted_at), '[]') && tstzrange($1, $2))"#,
            time(from),
            time(to),
        );
        rows.fetch(&self.pool).map(|row| {
            let row = row.map_err(StoreError::during("reading what was held"))?;
            Ok(Held { owner: row.owner, project: row.project, allocation: row.body.0 })
        })
    }
}
