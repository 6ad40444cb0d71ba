//! How long jobs stood in the queue before their first GPUs.

use headway_types::{Seconds, Timestamp};

use super::column::time;
use super::{Store, StoreError};

/// Of some jobs: how many, and the median, the last decile and the last percentile of their waits; `None` without any.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Waits {
    pub jobs: u64,
    pub quantiles: [Option<Seconds>; 3],
}

impl Store {
    /// Of jobs that got GPUs for the first time within a span, found by the index of spans. A wait begins as the job enters the queue, or where it came after
    /// others as they are done: its events are read for that alone. Of a job that was placed as it came no row says that it waited.
    pub async fn first_waits(&self, from: Timestamp, to: Timestamp) -> Result<Waits, StoreError> {
        let row = sqlx::query!(
            r#"WITH first AS (
                SELECT job_id, granted_at FROM allocations AS came
                WHERE (ended_at IS NULL OR ended_at IS NOT NULL
                        AND tstzrange(granted_at, GREATEST(ended_at, granted_at), '[]') && tstzrange($1, $2))
                    AND granted_at >= $1 AND granted_at < $2
                    AND NOT EXISTS (SELECT FROM allocations AS former
                        WHERE former.job_id = came.job_id AND former.generation < came.generation)
            )
            SELECT count(*) AS "jobs!",
                percentile_cont(ARRAY[0.5, 0.9, 0.99]) WITHIN GROUP (
                    ORDER BY EXTRACT(epoch FROM granted_at - COALESCE(GREATEST(queued_at, freed_at), granted_at))::double precision
                ) AS quantiles
            FROM first JOIN jobs USING (job_id)
            LEFT JOIN LATERAL (
                SELECT valid_from AS queued_at FROM transitions
                WHERE subject = 'job' AND subject_id = first.job_id AND generation = 0
                    AND valid_from <= first.granted_at AND entered ->> 'state' = 'queued'
                ORDER BY valid_from DESC LIMIT 1
            ) AS stood ON true
            LEFT JOIN LATERAL (
                SELECT max(happened_at) AS freed_at FROM events
                WHERE (jobs.depends_on IS NOT NULL OR jobs.array_id IS NOT NULL) AND events.job_id = first.job_id
                    AND verb = 'job.unblocked' AND happened_at <= first.granted_at
            ) AS freed ON true"#,
            time(from),
            time(to),
        )
        .fetch_one(&self.pool)
        .await
        .map_err(StoreError::during("reading how long jobs waited"))?;
        let quantile = |at: usize| row.quantiles.as_ref().and_then(|all| all.get(at)).map(|wait| Seconds(*wait));
        Ok(Waits { jobs: u64::try_from(row.jobs).unwrap_or(0), quantiles: [quantile(0), quantile(1), quantile(2)] })
    }
}
