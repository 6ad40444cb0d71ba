//! Table `plan_inputs`: what plans were made from, compressed.

use headway_types::{PlanId, Timestamp};

use super::column::time;
use super::{Store, StoreError};

impl Store {
    /// Keeps the input of a plan that is stored. What is there already stays.
    pub async fn add_plan_input(&self, plan: PlanId, made_at: Timestamp, body: &[u8]) -> Result<(), StoreError> {
        sqlx::query!(
            "INSERT INTO plan_inputs (plan_id, made_at, body) VALUES ($1, $2, $3) ON CONFLICT (plan_id) DO NOTHING",
            plan.0,
            time(made_at),
            body,
        )
        .execute(&self.pool)
        .await
        .map_err(StoreError::during("saving the input of a plan"))?;
        Ok(())
    }

    /// As it was added; `None` where it was lost or has been pruned.
    pub async fn plan_input(&self, plan: PlanId) -> Result<Option<Vec<u8>>, StoreError> {
        sqlx::query_scalar!("SELECT body FROM plan_inputs WHERE plan_id = $1", plan.0)
            .fetch_optional(&self.pool)
            .await
            .map_err(StoreError::during("reading the input of a plan"))
    }

    /// Forgets the inputs of plans made before this moment; returns how many.
    pub async fn prune_plan_inputs(&self, before: Timestamp) -> Result<u64, StoreError> {
        let done = sqlx::query!("DELETE FROM plan_inputs WHERE made_at < $1", time(before))
            .execute(&self.pool)
            .await
            .map_err(StoreError::during("pruning inputs of plans"))?;
        Ok(done.rows_affected())
    }
}
