//! Table `plan_transitions`.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use headway_types::PlanId;
use sqlx::PgConnection;

use super::column::{moment, text};
use super::transitions::{PlanStateAt, Row};

/// What a plan entered.
pub(super) struct Entry {
    pub state: String,
}

/// Ends each subject's former row and adds the new ones. A row that is there already keeps its end.
pub(super) async fn write(connection: &mut PgConnection, rows: &[Row<'_, PlanId, Entry>]) -> Result<(), sqlx::Error> {
    if rows.is_empty() {
        return Ok(());
    }
    let plans: Vec<_> = rows.iter().map(|row| row.key.0).collect();
    let starts: Vec<_> = rows.iter().map(|row| row.from).collect();
    let ends: Vec<_> = rows.iter().map(|row| row.to).collect();
    let states: Vec<_> = rows.iter().map(|row| text(&row.state.state)).collect();
    sqlx::query!(
        "WITH new AS (
            SELECT plan_id, valid_from, valid_to, state
            FROM UNNEST($1::uuid[], $2::timestamptz[], $3::timestamptz[], $4::text[])
                AS new (plan_id, valid_from, valid_to, state)
        ), closed AS (
            UPDATE plan_transitions AS former SET valid_to = first.valid_from
            FROM (SELECT plan_id, min(valid_from) AS valid_from FROM new GROUP BY plan_id) AS first
            WHERE former.plan_id = first.plan_id AND former.valid_to IS NULL AND former.valid_from < first.valid_from
        )
        INSERT INTO plan_transitions (plan_id, valid_from, valid_to, state)
        SELECT plan_id, valid_from, valid_to, state FROM new
        ON CONFLICT (plan_id, valid_from) DO UPDATE SET
            valid_to = COALESCE(plan_transitions.valid_to, excluded.valid_to), state = excluded.state",
        &plans,
        &starts,
        &ends as &[Option<DateTime<Utc>>],
        &states,
    )
    .execute(connection)
    .await?;
    Ok(())
}

pub(super) async fn at(
    connection: &mut PgConnection,
    at: DateTime<Utc>,
) -> Result<BTreeMap<PlanId, PlanStateAt>, sqlx::Error> {
    let rows = sqlx::query!(
        "SELECT plan_id, valid_from, state FROM plan_transitions
        WHERE tstzrange(valid_from, valid_to) @> $1::timestamptz AND state IN ('proposed', 'adopted')",
        at,
    )
    .fetch_all(connection)
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| {
            let state = PlanStateAt { since: moment(row.valid_from), state: row.state };
            (PlanId(row.plan_id), state)
        })
        .collect())
}
