//! Table `job_models`: what reports have taught, newest per job.

use std::collections::BTreeMap;
use std::sync::Arc;

use headway_goodput::JobModel;
use headway_types::{JobId, Timestamp};
use sqlx::PgConnection;

use super::column::{document, time};
use super::{Store, StoreError};

impl Store {
    /// Replaces the models of these jobs.
    pub async fn save_models(&self, at: Timestamp, models: &BTreeMap<JobId, Arc<JobModel>>) -> Result<(), StoreError> {
        if models.is_empty() {
            return Ok(());
        }
        let jobs: Vec<_> = models.keys().map(|job| job.0).collect();
        let bodies: Vec<_> = models.values().map(|model| document(model.as_ref())).collect();
        sqlx::query!(
            "INSERT INTO job_models (job_id, updated_at, body)
            SELECT job_id, $2, body::jsonb FROM UNNEST($1::uuid[], $3::text[]) AS new (job_id, body)
            ON CONFLICT (job_id) DO UPDATE SET updated_at = excluded.updated_at, body = excluded.body",
            &jobs,
            time(at),
            &bodies,
        )
        .execute(&self.pool)
        .await
        .map_err(StoreError::during("saving models"))?;
        Ok(())
    }
}

/// Models of jobs that have not ended.
pub(super) async fn live(connection: &mut PgConnection) -> Result<BTreeMap<JobId, JobModel>, sqlx::Error> {
    let rows = sqlx::query!(
        r#"SELECT job_models.job_id, job_models.body::text AS "body!"
        FROM job_models JOIN jobs USING (job_id)
        WHERE jobs.state IN ('queued', 'held', 'starting', 'running', 'stopping')"#
    )
    .fetch_all(connection)
    .await?;
    // A model is an observation: one that cannot be read is learnt anew, and never keeps the scheduler from starting.
    let read = |(job, body): (JobId, String)| match serde_json::from_str::<JobModel>(&body) {
        Ok(model) => Some((job, model)),
        Err(error) => {
            tracing::warn!(job_id = %job, %error, "what was learnt of a job cannot be read and is learnt anew");
            None
        }
    };
    Ok(rows.into_iter().map(|row| (JobId(row.job_id), row.body)).filter_map(read).collect())
}
