//! Table `plans`.

use std::collections::BTreeMap;

use headway_engine::record::{PlanRecord, PlanSummary};
use headway_types::{Move, PlanId, Timestamp};
use sqlx::PgConnection;
use sqlx::types::Json;

use super::column::{document, time};
use super::{Page, Store, StoreError};

impl Store {
    /// Plans in a line each, newest first; only of those in `among`, where it is given. Whole plans are read only where
    /// an earlier binary wrote no line.
    pub async fn plans(
        &self,
        among: Option<&[PlanId]>,
        before: Option<PlanId>,
        limit: u32,
    ) -> Result<Page<PlanSummary, PlanId>, StoreError> {
        let among = among.map(|plans| plans.iter().map(|plan| plan.0).collect::<Vec<_>>());
        let rows = sqlx::query!(
            r#"SELECT summary AS "summary: Json<PlanSummary>",
                CASE WHEN summary IS NULL THEN body END AS "body: Json<PlanRecord>"
            FROM plans
            WHERE ($1::uuid IS NULL OR plan_id < $1) AND ($2::uuid[] IS NULL OR plan_id = ANY($2))
            ORDER BY plan_id DESC LIMIT $3"#,
            before.map(|plan| plan.0),
            among.as_deref() as Option<&[uuid::Uuid]>,
            i64::from(limit) + 1,
        )
        .fetch_all(&self.pool)
        .await
        .map_err(StoreError::during("listing plans"))?;
        let lines = rows.into_iter().filter_map(|row| {
            let summary = row.summary.map(|summary| summary.0);
            summary.or_else(|| row.body.map(|body| body.0.summary()))
        });
        Ok(Page::of(lines.collect(), limit, |line: &PlanSummary| line.id))
    }

    pub async fn plan(&self, plan: PlanId) -> Result<Option<PlanRecord>, StoreError> {
        let row = sqlx::query!(r#"SELECT body AS "body: Json<PlanRecord>" FROM plans WHERE plan_id = $1"#, plan.0)
            .fetch_optional(&self.pool)
            .await
            .map_err(StoreError::during("reading a plan"))?;
        Ok(row.map(|row| row.body.0))
    }

    /// The moves of these plans. Not the rest: of a plan of 1,000 jobs that is a megabyte.
    pub async fn moves_of(&self, plans: &[PlanId]) -> Result<BTreeMap<PlanId, Vec<Move>>, StoreError> {
        let plans: Vec<_> = plans.iter().map(|plan| plan.0).collect();
        let rows = sqlx::query!(
            r#"SELECT plan_id, body #> '{plan,report,moves}' AS "moves!: Json<Vec<Move>>" FROM plans WHERE plan_id = ANY($1)"#,
            &plans,
        )
        .fetch_all(&self.pool)
        .await
        .map_err(StoreError::during("reading the moves of plans"))?;
        Ok(rows.into_iter().map(|row| (PlanId(row.plan_id), row.moves.0)).collect())
    }

    /// Forgets plans made before this moment that have been decided, at most so many; returns how many. Whoever runs, or whose GPUs
    /// are not proven free, keeps the plans that it was granted them by, and a plan stays as long as its input.
    pub async fn prune_plans(&self, before: Timestamp, most: u32) -> Result<u64, StoreError> {
        const PRUNING: &str = "pruning plans";
        let mut transaction = self.pool.begin().await.map_err(StoreError::during(PRUNING))?;
        // An input that is being stored is waited for, or its plan would be taken for one without.
        sqlx::query("LOCK TABLE plan_inputs IN SHARE MODE")
            .execute(&mut *transaction)
            .await
            .map_err(StoreError::during(PRUNING))?;
        let done = sqlx::query!(
            "WITH named AS MATERIALIZED (
                SELECT plan_id FROM jobs JOIN allocations USING (job_id)
                WHERE state IN ('queued', 'held', 'starting', 'running', 'stopping') AND plan_id IS NOT NULL
                UNION SELECT plan_id FROM allocations WHERE holds AND plan_id IS NOT NULL
                UNION SELECT target_plan_id FROM cluster WHERE target_plan_id IS NOT NULL
            )
            DELETE FROM plans WHERE state NOT IN ('proposed', 'adopted') AND plan_id IN (
                SELECT plan_id FROM plans
                WHERE made_at < $1 AND state NOT IN ('proposed', 'adopted') AND plan_id NOT IN (SELECT plan_id FROM named)
                    AND NOT EXISTS (SELECT FROM plan_inputs WHERE plan_inputs.plan_id = plans.plan_id)
                ORDER BY made_at LIMIT $2
            )",
            time(before),
            i64::from(most),
        )
        .execute(&mut *transaction)
        .await
        .map_err(StoreError::during(PRUNING))?;
        transaction.commit().await.map_err(StoreError::during(PRUNING))?;
        Ok(done.rows_affected())
    }
}

/// Writes whole rows; only what became of a plan changes.
pub(super) async fn upsert(connection: &mut PgConnection, plans: &[&PlanRecord]) -> Result<(), sqlx::Error> {
    if plans.is_empty() {
        return Ok(());
    }
    let ids: Vec<_> = plans.iter().map(|record| record.plan.id.0).collect();
    let parents: Vec<_> = plans.iter().map(|record| record.plan.parent.map(|plan| plan.0)).collect();
    let states: Vec<_> = plans.iter().map(|record| record.state.kind().to_string()).collect();
    let made: Vec<_> = plans.iter().map(|record| time(record.plan.made_at)).collect();
    let decided: Vec<_> = plans.iter().map(|record| record.decided_at.map(time)).collect();
    let summaries: Vec<_> = plans.iter().map(|record| document(&record.summary())).collect();
    let bodies: Vec<_> = plans.iter().map(document).collect();
    sqlx::query!(
        "INSERT INTO plans (plan_id, parent_plan_id, state, made_at, decided_at, summary, body)
        SELECT plan_id, parent_plan_id, state, made_at, decided_at, summary::jsonb, body::jsonb
        FROM UNNEST($1::uuid[], $2::uuid[], $3::text[], $4::timestamptz[], $5::timestamptz[], $6::text[], $7::text[])
            AS new (plan_id, parent_plan_id, state, made_at, decided_at, summary, body)
        ON CONFLICT (plan_id) DO UPDATE SET
            state = excluded.state, decided_at = excluded.decided_at, summary = excluded.summary, body = excluded.body",
        &ids,
        &parents as &[Option<uuid::Uuid>],
        &states,
        &made,
        &decided as &[Option<chrono::DateTime<chrono::Utc>>],
        &summaries,
        &bodies,
    )
    .execute(connection)
    .await?;
    Ok(())
}

/// The target and everything that waits for approval.
pub(super) async fn live(
    connection: &mut PgConnection,
    target: Option<PlanId>,
) -> Result<Vec<PlanRecord>, sqlx::Error> {
    let rows = sqlx::query!(
        r#"SELECT body AS "body: Json<PlanRecord>" FROM plans
        WHERE state = 'proposed' OR plan_id = $1 ORDER BY plan_id"#,
        target.map(|plan| plan.0),
    )
    .fetch_all(connection)
    .await?;
    Ok(rows.into_iter().map(|row| row.body.0).collect())
}
