//! Table `predicted_starts`: the first start that was predicted of each wait, beside the start that came.

use headway_types::{Generation, JobId, Timestamp};

use super::column::{integer, moment, time};
use super::{Store, StoreError};

/// What was predicted of a job that waits.
#[derive(Clone, Debug, PartialEq)]
pub struct PredictedStart {
    pub job: JobId,
    /// Its newest generation then.
    pub generation: Generation,
    pub made_at: Timestamp,
    pub model_family: String,
    pub p10: Timestamp,
    /// `None`: later than was looked.
    pub p50: Option<Timestamp>,
    pub p90: Option<Timestamp>,
}

/// A prediction and what became of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Awaited {
    pub made_at: Timestamp,
    pub model_family: String,
    pub p10: Timestamp,
    pub p50: Option<Timestamp>,
    pub p90: Option<Timestamp>,
    /// When GPUs were granted, and of which type where that is known.
    pub started: Option<(Timestamp, Option<String>)>,
    /// Whether it still waits in the queue.
    pub waits: bool,
    /// When the job ended, if it has.
    pub ended_at: Option<Timestamp>,
}

/// A start, beside what had been said of it first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetStart {
    /// When GPUs were granted.
    pub at: Timestamp,
    pub p10: Timestamp,
    /// `None`: later than was looked.
    pub p50: Option<Timestamp>,
    pub p90: Option<Timestamp>,
}

impl Store {
    /// Keeps predictions; of a wait that has one the first stays.
    pub async fn add_predicted_starts(&self, starts: &[PredictedStart]) -> Result<(), StoreError> {
        let jobs: Vec<_> = starts.iter().map(|one| one.job.0).collect();
        let generations: Vec<_> = starts.iter().map(|one| integer(one.generation.0)).collect();
        let made: Vec<_> = starts.iter().map(|one| time(one.made_at)).collect();
        let families: Vec<_> = starts.iter().map(|one| one.model_family.clone()).collect();
        let p10: Vec<_> = starts.iter().map(|one| time(one.p10)).collect();
        let p50: Vec<_> = starts.iter().map(|one| one.p50.map(time)).collect();
        let p90: Vec<_> = starts.iter().map(|one| one.p90.map(time)).collect();
        sqlx::query!(
            "INSERT INTO predicted_starts (job_id, generation, made_at, model_family, p10_at, p50_at, p90_at)
            SELECT * FROM UNNEST($1::uuid[], $2::bigint[], $3::timestamptz[], $4::text[], $5::timestamptz[],
                $6::timestamptz[], $7::timestamptz[])
            ON CONFLICT DO NOTHING",
            &jobs,
            &generations,
            &made,
            &families,
            &p10,
            &p50 as &[Option<chrono::DateTime<chrono::Utc>>],
            &p90 as &[Option<chrono::DateTime<chrono::Utc>>],
        )
        .execute(&self.pool)
        .await
        .map_err(StoreError::during("saving predicted starts"))?;
        Ok(())
    }

    /// Predictions made within a span with what became of them, the newest first, at most so many.
    pub async fn awaited_starts(&self, from: Timestamp, to: Timestamp, most: u32) -> Result<Vec<Awaited>, StoreError> {
        let rows = sqlx::query!(
            r#"SELECT made_at, model_family, p10_at, p50_at, p90_at, state = 'queued' AS "waits!", jobs.ended_at,
                granted_at AS "granted_at?", gpu_type AS "gpu_type?"
            FROM predicted_starts AS said JOIN jobs USING (job_id)
            LEFT JOIN LATERAL (
                SELECT granted_at, body ->> 'gpu_type' AS gpu_type FROM allocations
                WHERE allocations.job_id = said.job_id AND allocations.generation > said.generation
                ORDER BY allocations.generation LIMIT 1
            ) AS came ON true
            WHERE made_at >= $1 AND made_at < $2 ORDER BY made_at DESC LIMIT $3"#,
            time(from),
            time(to),
            i64::from(most),
        )
        .fetch_all(&self.pool)
        .await
        .map_err(StoreError::during("reading predicted starts"))?;
        let awaited = rows.into_iter().map(|row| Awaited {
            made_at: moment(row.made_at),
            model_family: row.model_family,
            p10: moment(row.p10_at),
            p50: row.p50_at.map(moment),
            p90: row.p90_at.map(moment),
            started: row.granted_at.map(|at| (moment(at), row.gpu_type)),
            waits: row.waits,
            ended_at: row.ended_at.map(moment),
        });
        Ok(awaited.collect())
    }

    /// Waits that ended by a grant within a span, and of which a start had been predicted.
    pub async fn met_starts(&self, from: Timestamp, to: Timestamp) -> Result<Vec<MetStart>, StoreError> {
        // The range is what the index is by: all that held GPUs then, of which few began.
        let rows = sqlx::query!(
            r#"SELECT granted_at AS "granted_at!", p10_at, p50_at, p90_at
            FROM allocations AS came JOIN predicted_starts AS said
                ON said.job_id = came.job_id AND said.generation < came.generation
            WHERE (ended_at IS NULL OR ended_at IS NOT NULL
                    AND tstzrange(granted_at, GREATEST(ended_at, granted_at), '[]') && tstzrange($1, $2))
                AND granted_at >= $1 AND granted_at < $2
                AND NOT EXISTS (SELECT FROM allocations AS former
                    WHERE former.job_id = said.job_id AND former.generation > said.generation
                        AND former.generation < came.generation)"#,
            time(from),
            time(to),
        )
        .fetch_all(&self.pool)
        .await
        .map_err(StoreError::during("reading starts that were predicted"))?;
        let met = rows.into_iter().map(|row| MetStart {
            at: moment(row.granted_at),
            p10: moment(row.p10_at),
            p50: row.p50_at.map(moment),
            p90: row.p90_at.map(moment),
        });
        Ok(met.collect())
    }

    /// Counts predictions whose last decile lies within a span, and by which no GPUs had been granted although the job
    /// waited on. What came later, or never, is late in any case.
    pub async fn overdue_starts(&self, from: Timestamp, to: Timestamp) -> Result<u64, StoreError> {
        let row = sqlx::query!(
            r#"SELECT count(*) AS "overdue!" FROM predicted_starts AS said JOIN jobs USING (job_id)
            WHERE p90_at >= $1 AND p90_at < $2 AND state <> 'held' AND (ended_at IS NULL OR ended_at > p90_at)
                AND NOT EXISTS (SELECT FROM allocations AS came
                    WHERE came.job_id = said.job_id AND came.generation > said.generation AND came.granted_at <= p90_at)"#,
            time(from),
            time(to),
        )
        .fetch_one(&self.pool)
        .await
        .map_err(StoreError::during("counting overdue starts"))?;
        Ok(u64::try_from(row.overdue).unwrap_or_default())
    }

    /// Forgets what was predicted before this moment; returns how many.
    pub async fn prune_predicted_starts(&self, before: Timestamp) -> Result<u64, StoreError> {
        let pruned = sqlx::query!("DELETE FROM predicted_starts WHERE made_at < $1", time(before))
            .execute(&self.pool)
            .await
            .map_err(StoreError::during("pruning predicted starts"))?;
        Ok(pruned.rows_affected())
    }
}
