//! Table `allocations`.

use headway_engine::record::Allocation;
use headway_types::{Generation, JobId, Timestamp};
use sqlx::PgConnection;
use sqlx::types::Json;

use super::column::{document, integer, small, time};
use super::{Store, StoreError};

impl Store {
    /// Everything the job held or holds, oldest first.
    pub async fn allocations(&self, job: JobId) -> Result<Vec<Allocation>, StoreError> {
        let rows = sqlx::query!(
            r#"SELECT body AS "body: Json<Allocation>" FROM allocations WHERE job_id = $1 ORDER BY generation"#,
            job.0
        )
        .fetch_all(&self.pool)
        .await
        .map_err(StoreError::during("reading allocations"))?;
        Ok(rows.into_iter().map(|row| row.body.0).collect())
    }

    /// Of these jobs the last allocation granted before a moment, and the first granted since.
    pub async fn allocations_around(
        &self,
        jobs: &[JobId],
        at: Timestamp,
    ) -> Result<(Vec<Allocation>, Vec<Allocation>), StoreError> {
        const READING: &str = "reading allocations";
        let jobs: Vec<_> = jobs.iter().map(|job| job.0).collect();
        let before = sqlx::query!(
            r#"SELECT DISTINCT ON (job_id) body AS "body: Json<Allocation>" FROM allocations
            WHERE job_id = ANY($1) AND granted_at < $2 ORDER BY job_id, generation DESC"#,
            &jobs,
            time(at),
        );
        let after = sqlx::query!(
            r#"SELECT DISTINCT ON (job_id) body AS "body: Json<Allocation>" FROM allocations
            WHERE job_id = ANY($1) AND granted_at >= $2 ORDER BY job_id, generation"#,
            &jobs,
            time(at),
        );
        let before = before.fetch_all(&self.pool).await.map_err(StoreError::during(READING))?;
        let after = after.fetch_all(&self.pool).await.map_err(StoreError::during(READING))?;
        let before = before.into_iter().map(|row| row.body.0).collect();
        Ok((before, after.into_iter().map(|row| row.body.0).collect()))
    }

    /// These, in the order of their jobs.
    pub async fn allocations_of(&self, keys: &[(JobId, Generation)]) -> Result<Vec<Allocation>, StoreError> {
        let jobs: Vec<_> = keys.iter().map(|(job, _)| job.0).collect();
        let generations: Vec<_> = keys.iter().map(|(_, generation)| integer(generation.0)).collect();
        let rows = sqlx::query!(
            r#"SELECT body AS "body: Json<Allocation>" FROM allocations
            WHERE (job_id, generation) IN (SELECT * FROM UNNEST($1::uuid[], $2::bigint[]))
            ORDER BY job_id, generation"#,
            &jobs,
            &generations,
        )
        .fetch_all(&self.pool)
        .await
        .map_err(StoreError::during("reading allocations"))?;
        Ok(rows.into_iter().map(|row| row.body.0).collect())
    }
}

/// Writes whole rows; who was granted what never changes under one generation.
pub(super) async fn upsert(connection: &mut PgConnection, allocations: &[&Allocation]) -> Result<(), sqlx::Error> {
    if allocations.is_empty() {
        return Ok(());
    }
    let jobs: Vec<_> = allocations.iter().map(|allocation| allocation.job.0).collect();
    let generations: Vec<_> = allocations.iter().map(|allocation| integer(allocation.generation.0)).collect();
    let plans: Vec<_> = allocations.iter().map(|allocation| allocation.plan.map(|plan| plan.0)).collect();
    let gpus: Vec<_> = allocations.iter().map(|allocation| small(allocation.placement.gpus().0)).collect();
    let holds: Vec<_> = allocations.iter().map(|allocation| allocation.holds()).collect();
    let granted: Vec<_> = allocations.iter().map(|allocation| time(allocation.granted_at)).collect();
    let ended: Vec<_> = allocations.iter().map(|allocation| allocation.ended_at.map(time)).collect();
    let bodies: Vec<_> = allocations.iter().map(document).collect();
    sqlx::query!(
        "INSERT INTO allocations (job_id, generation, plan_id, gpus, holds, granted_at, ended_at, body)
        SELECT job_id, generation, plan_id, gpus, holds, granted_at, ended_at, body::jsonb
        FROM UNNEST($1::uuid[], $2::bigint[], $3::uuid[], $4::integer[], $5::boolean[], $6::timestamptz[],
            $7::timestamptz[], $8::text[])
            AS new (job_id, generation, plan_id, gpus, holds, granted_at, ended_at, body)
        ON CONFLICT (job_id, generation) DO UPDATE SET
            holds = excluded.holds, ended_at = excluded.ended_at, body = excluded.body",
        &jobs,
        &generations,
        &plans as &[Option<uuid::Uuid>],
        &gpus,
        &holds,
        &granted,
        &ended as &[Option<chrono::DateTime<chrono::Utc>>],
        &bodies,
    )
    .execute(connection)
    .await?;
    Ok(())
}

/// What still holds GPUs, and the newest allocation of every live job.
pub(super) async fn live(connection: &mut PgConnection) -> Result<Vec<Allocation>, sqlx::Error> {
    let rows = sqlx::query!(
        r#"SELECT allocations.body AS "body: Json<Allocation>"
        FROM allocations JOIN jobs USING (job_id)
        WHERE allocations.holds
           OR (allocations.generation = jobs.generation
               AND jobs.state IN ('queued', 'held', 'starting', 'running', 'stopping'))
        ORDER BY job_id, allocations.generation"#
    )
    .fetch_all(connection)
    .await?;
    Ok(rows.into_iter().map(|row| row.body.0).collect())
}
