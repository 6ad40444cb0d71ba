//! Who held GPUs within a span of time: tables `allocations` and `jobs` together.

use std::collections::BTreeSet;

use futures::{Stream, StreamExt};
use headway_engine::Tenure;
use headway_engine::record::Allocation;
use headway_types::{JobId, Timestamp};
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

/// What an account of GPU-time needs of an allocation, and whose it was.
#[derive(Clone, Debug, PartialEq)]
pub struct HeldFor {
    pub job: JobId,
    pub owner: String,
    pub project: String,
    pub tenure: Tenure,
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

    /// The same for an account of GPU-time, those of one job after another.
    pub fn tenures(&self, from: Timestamp, to: Timestamp) -> impl Stream<Item = Result<HeldFor, StoreError>> {
        let rows = sqlx::query!(
            r#"SELECT job_id, owner, project, tenure AS "tenure: Json<Tenure>"
            FROM allocations JOIN jobs USING (job_id)
            WHERE granted_at < $2 AND (allocations.ended_at IS NULL OR allocations.ended_at IS NOT NULL
                AND tstzrange(granted_at, GREATEST(allocations.ended_at, granted_at), '[]') && tstzrange($1, $2))
            ORDER BY job_id, allocations.generation"#,
            time(from),
            time(to),
        );
        rows.fetch(&self.pool).map(|row| {
            let row = row.map_err(StoreError::during("reading what was held"))?;
            Ok(HeldFor { job: JobId(row.job_id), owner: row.owner, project: row.project, tenure: row.tenure.0 })
        })
    }

    /// The jobs that got GPUs which others gave up, of what was held within a span of time.
    pub async fn takers(&self, from: Timestamp, to: Timestamp) -> Result<BTreeSet<JobId>, StoreError> {
        let jobs = sqlx::query_scalar!(
            r#"SELECT DISTINCT (tenure -> 'displaced_by' ->> 'job')::uuid AS "job!"
            FROM allocations
            WHERE tenure ? 'displaced_by' AND granted_at < $2
                AND (allocations.ended_at IS NULL OR allocations.ended_at IS NOT NULL
                AND tstzrange(granted_at, GREATEST(allocations.ended_at, granted_at), '[]') && tstzrange($1, $2))"#,
            time(from),
            time(to),
        );
        let jobs = jobs.fetch_all(&self.pool).await.map_err(StoreError::during("reading who took GPUs"))?;
        Ok(jobs.into_iter().map(JobId).collect())
    }
}
