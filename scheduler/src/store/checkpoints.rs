//! Table `checkpoints`: committed ones only.

use headway_engine::record::Checkpoint;
use headway_types::JobId;
use sqlx::PgConnection;
use sqlx::types::Json;

use super::column::{document, integer, text, time};
use super::{Store, StoreError};

impl Store {
    /// The job's committed checkpoints, newest first.
    pub async fn checkpoints(&self, job: JobId) -> Result<Vec<Checkpoint>, StoreError> {
        let rows = sqlx::query!(
            r#"SELECT body AS "body: Json<Checkpoint>" FROM checkpoints
            WHERE job_id = $1 ORDER BY generation DESC, step DESC"#,
            job.0
        )
        .fetch_all(&self.pool)
        .await
        .map_err(StoreError::during("reading checkpoints"))?;
        Ok(rows.into_iter().map(|row| row.body.0).collect())
    }
}

/// Adds rows; a committed checkpoint never changes.
pub(super) async fn insert(connection: &mut PgConnection, checkpoints: &[&Checkpoint]) -> Result<(), sqlx::Error> {
    if checkpoints.is_empty() {
        return Ok(());
    }
    let jobs: Vec<_> = checkpoints.iter().map(|row| row.job.0).collect();
    let generations: Vec<_> = checkpoints.iter().map(|row| integer(row.checkpoint.generation.0)).collect();
    let steps: Vec<_> = checkpoints.iter().map(|row| integer(row.checkpoint.step)).collect();
    let paths: Vec<_> = checkpoints.iter().map(|row| text(&row.checkpoint.path)).collect();
    let committed: Vec<_> = checkpoints.iter().map(|row| time(row.committed_at)).collect();
    let bodies: Vec<_> = checkpoints.iter().map(document).collect();
    sqlx::query!(
        "INSERT INTO checkpoints (job_id, generation, step, path, committed_at, body)
        SELECT job_id, generation, step, path, committed_at, body::jsonb
        FROM UNNEST($1::uuid[], $2::bigint[], $3::bigint[], $4::text[], $5::timestamptz[], $6::text[])
            AS new (job_id, generation, step, path, committed_at, body)
        ON CONFLICT (job_id, generation, step) DO NOTHING",
        &jobs,
        &generations,
        &steps,
        &paths,
        &committed,
        &bodies,
    )
    .execute(connection)
    .await?;
    Ok(())
}
