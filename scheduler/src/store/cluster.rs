//! The single row of the cluster: term, target, policy, number of the last event.

use headway_engine::record::PolicySettings;
use headway_types::{PlanId, Term};
use sqlx::PgConnection;
use sqlx::types::Json;

use super::column::{document, integer, unsigned};
use super::{Store, StoreError};

/// What the cluster row says.
pub(super) struct ClusterRow {
    pub target: Option<PlanId>,
    pub policy: Option<PolicySettings>,
    pub last_event_seq: u64,
}

impl Store {
    /// Begins a new term; every commit under an older one is refused from now on.
    pub async fn begin_term(&self) -> Result<Term, StoreError> {
        let term = sqlx::query_scalar!("UPDATE cluster SET term = term + 1 RETURNING term")
            .fetch_one(&self.writer)
            .await
            .map_err(StoreError::during("beginning a term"))?;
        Ok(Term(unsigned(term)))
    }
}

/// Locks the row for this transaction if the term still is the newest.
pub(super) async fn guard(connection: &mut PgConnection, term: Term) -> Result<bool, sqlx::Error> {
    let row = sqlx::query_scalar!("SELECT term FROM cluster WHERE term = $1 FOR UPDATE", integer(term.0))
        .fetch_optional(connection)
        .await?;
    Ok(row.is_some())
}

pub(super) async fn read(connection: &mut PgConnection) -> Result<ClusterRow, sqlx::Error> {
    let row =
        sqlx::query!(r#"SELECT target_plan_id, policy AS "policy: Json<PolicySettings>", last_event_seq FROM cluster"#)
            .fetch_one(connection)
            .await?;
    Ok(ClusterRow {
        target: row.target_plan_id.map(PlanId),
        policy: row.policy.map(|policy| policy.0),
        last_event_seq: unsigned(row.last_event_seq),
    })
}

/// Changes what is given and keeps the rest. The transaction holds the row already (`guard`).
pub(super) async fn update(
    connection: &mut PgConnection,
    target: Option<PlanId>,
    policy: Option<&PolicySettings>,
    last_event_seq: Option<u64>,
) -> Result<(), sqlx::Error> {
    let policy = policy.map(document);
    sqlx::query!(
        "UPDATE cluster SET target_plan_id = COALESCE($1, target_plan_id), \
         policy = COALESCE($2::text::jsonb, policy), last_event_seq = GREATEST($3, last_event_seq)",
        target.map(|plan| plan.0),
        policy,
        last_event_seq.map(integer),
    )
    .execute(connection)
    .await?;
    Ok(())
}
