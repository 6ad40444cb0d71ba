//! What a new leader loads before its first event.

use headway_engine::Snapshot;
use headway_types::Timestamp;

use super::{
    LOADING_TIME, Store, StoreError, allocations, arrays, cluster, idempotency, job_models, jobs, nodes, peer_lessons,
    plans, projects, reservations, within,
};

impl Store {
    /// Reads the live facts as of one moment. Idempotency keys used before `keys_since` are left out.
    pub async fn load(&self, keys_since: Timestamp) -> Result<Snapshot, StoreError> {
        within(LOADING_TIME, self.all(keys_since)).await
    }

    async fn all(&self, keys_since: Timestamp) -> Result<Snapshot, StoreError> {
        let failed = StoreError::during;
        let mut tx = self.writer.begin().await.map_err(failed("opening a transaction"))?;
        sqlx::query!("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            .execute(&mut *tx)
            .await
            .map_err(failed("opening a snapshot"))?;
        // It locks nothing that anybody waits for, and many rows take a while to be understood.
        sqlx::query!("SET LOCAL idle_in_transaction_session_timeout = '60s'")
            .execute(&mut *tx)
            .await
            .map_err(failed("opening a snapshot"))?;
        let row = cluster::read(&mut tx).await.map_err(failed("loading the cluster row"))?;
        let plans = plans::live(&mut tx, row.target).await.map_err(failed("loading plans"))?;
        let (target, proposals) = plans.into_iter().partition::<Vec<_>, _>(|plan| Some(plan.plan.id) == row.target);
        Ok(Snapshot {
            jobs: jobs::live(&mut tx).await.map_err(failed("loading jobs"))?,
            nodes: nodes::all(&mut tx).await.map_err(failed("loading nodes"))?,
            allocations: allocations::live(&mut tx).await.map_err(failed("loading allocations"))?,
            target: target.into_iter().next(),
            proposals,
            idempotency: idempotency::since(&mut tx, keys_since).await.map_err(failed("loading idempotency keys"))?,
            policy: row.policy.unwrap_or_default(),
            projects: projects::all(&mut tx).await.map_err(failed("loading projects"))?,
            reservations: reservations::all(&mut tx).await.map_err(failed("loading reservations"))?,
            arrays: arrays::live(&mut tx).await.map_err(failed("loading arrays"))?,
            models: job_models::live(&mut tx).await.map_err(failed("loading models"))?,
            lessons: peer_lessons::read(&mut tx).await.map_err(failed("loading the lessons of peers"))?,
            last_event_seq: row.last_event_seq,
            restored: row.restored,
        })
    }
}
