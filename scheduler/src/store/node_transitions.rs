//! Table `node_transitions`.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use headway_types::NodeId;
use sqlx::PgConnection;

use super::column::{count, moment, small, text};
use super::transitions::{NodeStateAt, Row};

/// What a node entered.
pub(super) struct Entry {
    pub availability: String,
    pub policy: String,
    pub standing: String,
    pub gpus: u32,
    pub healthy: u32,
}

/// Ends each subject's former row and adds the new ones. A row that is there already keeps its end.
pub(super) async fn write(connection: &mut PgConnection, rows: &[Row<'_, NodeId, Entry>]) -> Result<(), sqlx::Error> {
    if rows.is_empty() {
        return Ok(());
    }
    let nodes: Vec<_> = rows.iter().map(|row| row.key.0).collect();
    let starts: Vec<_> = rows.iter().map(|row| row.from).collect();
    let ends: Vec<_> = rows.iter().map(|row| row.to).collect();
    let availabilities: Vec<_> = rows.iter().map(|row| text(&row.state.availability)).collect();
    let policies: Vec<_> = rows.iter().map(|row| text(&row.state.policy)).collect();
    let standings: Vec<_> = rows.iter().map(|row| text(&row.state.standing)).collect();
    let gpus: Vec<_> = rows.iter().map(|row| small(row.state.gpus)).collect();
    let healthy: Vec<_> = rows.iter().map(|row| small(row.state.healthy)).collect();
    sqlx::query!(
        "WITH new AS (
            SELECT node_id, valid_from, valid_to, availability, policy, standing, gpus, healthy_gpus
            FROM UNNEST($1::uuid[], $2::timestamptz[], $3::timestamptz[], $4::text[], $5::text[], $6::text[], $7::integer[], $8::integer[])
                AS new (node_id, valid_from, valid_to, availability, policy, standing, gpus, healthy_gpus)
        ), closed AS (
            UPDATE node_transitions AS former SET valid_to = first.valid_from
            FROM (SELECT node_id, min(valid_from) AS valid_from FROM new GROUP BY node_id) AS first
            WHERE former.node_id = first.node_id AND former.valid_to IS NULL AND former.valid_from < first.valid_from
        )
        INSERT INTO node_transitions (node_id, valid_from, valid_to, availability, policy, standing, gpus, healthy_gpus)
        SELECT node_id, valid_from, valid_to, availability, policy, standing, gpus, healthy_gpus FROM new
        ON CONFLICT (node_id, valid_from) DO UPDATE SET
            valid_to = COALESCE(node_transitions.valid_to, excluded.valid_to), availability = excluded.availability, policy = excluded.policy, standing = excluded.standing, gpus = excluded.gpus, healthy_gpus = excluded.healthy_gpus",
        &nodes,
        &starts,
        &ends as &[Option<DateTime<Utc>>],
        &availabilities,
        &policies,
        &standings,
        &gpus,
        &healthy,
    )
    .execute(connection)
    .await?;
    Ok(())
}

pub(super) async fn at(
    connection: &mut PgConnection,
    at: DateTime<Utc>,
) -> Result<BTreeMap<NodeId, NodeStateAt>, sqlx::Error> {
    let rows = sqlx::query!(
        "SELECT node_id, valid_from, availability, policy, standing, gpus, healthy_gpus FROM node_transitions
        WHERE tstzrange(valid_from, valid_to) @> $1::timestamptz",
        at,
    )
    .fetch_all(connection)
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| {
            let state = NodeStateAt {
                since: moment(row.valid_from),
                availability: row.availability,
                policy: row.policy,
                standing: row.standing,
                gpus: count(row.gpus),
                healthy_gpus: count(row.healthy_gpus),
            };
            (NodeId(row.node_id), state)
        })
        .collect())
}
