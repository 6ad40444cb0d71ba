//! Table `nodes`.

use headway_engine::record::Node;
use sqlx::PgConnection;
use sqlx::types::Json;

use super::column::{document, text, time};

/// Writes whole rows.
pub(super) async fn upsert(connection: &mut PgConnection, nodes: &[&Node]) -> Result<(), sqlx::Error> {
    if nodes.is_empty() {
        return Ok(());
    }
    let ids: Vec<_> = nodes.iter().map(|node| node.inventory.node.0).collect();
    let names: Vec<_> = nodes.iter().map(|node| text(&node.inventory.name)).collect();
    let policies: Vec<_> = nodes.iter().map(|node| node.policy.kind().to_string()).collect();
    let availabilities: Vec<_> = nodes.iter().map(|node| node.availability.kind().to_string()).collect();
    let registered: Vec<_> = nodes.iter().map(|node| time(node.registered_at)).collect();
    let bodies: Vec<_> = nodes.iter().map(document).collect();
    sqlx::query!(
        "INSERT INTO nodes (node_id, name, policy, availability, registered_at, body)
        SELECT node_id, name, policy, availability, registered_at, body::jsonb
        FROM UNNEST($1::uuid[], $2::text[], $3::text[], $4::text[], $5::timestamptz[], $6::text[])
            AS new (node_id, name, policy, availability, registered_at, body)
        ON CONFLICT (node_id) DO UPDATE SET
            name = excluded.name, policy = excluded.policy, availability = excluded.availability,
            registered_at = excluded.registered_at, body = excluded.body",
        &ids,
        &names,
        &policies,
        &availabilities,
        &registered,
        &bodies,
    )
    .execute(connection)
    .await?;
    Ok(())
}

pub(super) async fn all(connection: &mut PgConnection) -> Result<Vec<Node>, sqlx::Error> {
    let rows =
        sqlx::query!(r#"SELECT body AS "body: Json<Node>" FROM nodes ORDER BY node_id"#).fetch_all(connection).await?;
    Ok(rows.into_iter().map(|row| row.body.0).collect())
}
