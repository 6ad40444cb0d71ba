//! Table `nodes`, and `former_nodes`: who those were that have been deleted.

use std::collections::BTreeMap;

use headway_engine::record::Node;
use headway_types::{NodeId, Timestamp};
use sqlx::PgConnection;
use sqlx::types::Json;

use super::column::{document, text, time};
use super::{Store, StoreError};

impl Store {
    /// Names of nodes that have been deleted; of others nothing.
    pub async fn former_names(&self, nodes: &[NodeId]) -> Result<BTreeMap<NodeId, String>, StoreError> {
        if nodes.is_empty() {
            return Ok(BTreeMap::new());
        }
        let ids: Vec<_> = nodes.iter().map(|node| node.0).collect();
        let rows = sqlx::query!("SELECT node_id, name FROM former_nodes WHERE node_id = ANY($1)", &ids)
            .fetch_all(&self.pool)
            .await
            .map_err(StoreError::during("reading names of deleted nodes"))?;
        Ok(rows.into_iter().map(|row| (NodeId(row.node_id), row.name)).collect())
    }

    /// Deleted nodes that had this name, oldest id first.
    pub async fn formerly_named(&self, name: &str) -> Result<Vec<NodeId>, StoreError> {
        let ids = sqlx::query_scalar!("SELECT node_id FROM former_nodes WHERE name = $1 ORDER BY node_id", text(name))
            .fetch_all(&self.pool)
            .await
            .map_err(StoreError::during("looking for a deleted node"))?;
        Ok(ids.into_iter().map(NodeId).collect())
    }
}

impl Store {
    /// Forgets the names of nodes that were deleted before this moment; returns how many. A node that an
    /// event or an allocation still names keeps its own. Few allocations are as old, and an index finds them by their
    /// span: on a node that is deleted all have ended.
    pub async fn prune_former_nodes(&self, before: Timestamp) -> Result<u64, StoreError> {
        let gone = sqlx::query!(
            "DELETE FROM former_nodes WHERE deleted_at < $1
                AND NOT EXISTS (SELECT FROM events WHERE events.node_id = former_nodes.node_id)
                AND NOT EXISTS (
                    SELECT FROM allocations
                    WHERE ended_at IS NOT NULL
                        AND tstzrange(granted_at, GREATEST(ended_at, granted_at), '[]') && tstzrange(NULL, deleted_at, '[]')
                        AND body->'placement' @> jsonb_build_array(jsonb_build_object('node', former_nodes.node_id))
                )",
            time(before),
        )
        .execute(&self.pool)
        .await
        .map_err(StoreError::during("pruning names of deleted nodes"))?;
        Ok(gone.rows_affected())
    }
}

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

/// Deletes nodes and remembers who they were.
pub(super) async fn delete(connection: &mut PgConnection, nodes: &[NodeId]) -> Result<(), sqlx::Error> {
    if nodes.is_empty() {
        return Ok(());
    }
    let ids: Vec<_> = nodes.iter().map(|node| node.0).collect();
    sqlx::query!(
        "WITH gone AS (DELETE FROM nodes WHERE node_id = ANY($1) RETURNING node_id, name)
        INSERT INTO former_nodes (node_id, name) SELECT node_id, name FROM gone
        ON CONFLICT (node_id) DO UPDATE SET name = excluded.name, deleted_at = excluded.deleted_at",
        &ids,
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
