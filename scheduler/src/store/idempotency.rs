//! Table `idempotency_keys`: what a key made or acted on. The column `job_ids` holds ids of nodes, plans and reservations
//! as well: the route says which.

use headway_engine::IdempotencyKey;
use headway_engine::record::IdempotencyRecord;
use headway_types::Timestamp;
use sqlx::PgConnection;
use uuid::Uuid;

use super::column::{moment, text, time};
use super::{Store, StoreError};

impl Store {
    /// Forgets keys used before this moment; returns how many.
    pub async fn prune_idempotency_keys(&self, before: Timestamp) -> Result<u64, StoreError> {
        let done = sqlx::query!("DELETE FROM idempotency_keys WHERE used_at < $1", time(before))
            .execute(&self.pool)
            .await
            .map_err(StoreError::during("pruning idempotency keys"))?;
        Ok(done.rows_affected())
    }
}

/// Adds rows; a key used again after it was forgotten replaces its former row.
pub(super) async fn insert(connection: &mut PgConnection, records: &[&IdempotencyRecord]) -> Result<(), sqlx::Error> {
    if records.is_empty() {
        return Ok(());
    }
    let principals: Vec<_> = records.iter().map(|record| text(&record.key.principal)).collect();
    let routes: Vec<_> = records.iter().map(|record| text(&record.key.route)).collect();
    let keys: Vec<_> = records.iter().map(|record| text(&record.key.key)).collect();
    let hashes: Vec<_> = records.iter().map(|record| text(&record.key.request_hash)).collect();
    let jobs: Vec<_> = records.iter().map(|record| array(&record.subjects)).collect();
    let used: Vec<_> = records.iter().map(|record| time(record.at)).collect();
    sqlx::query!(
        "INSERT INTO idempotency_keys (principal, route, key, request_hash, job_ids, used_at)
        SELECT principal, route, key, request_hash, job_ids::uuid[], used_at
        FROM UNNEST($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::timestamptz[])
            AS new (principal, route, key, request_hash, job_ids, used_at)
        ON CONFLICT (principal, route, key) DO UPDATE SET
            request_hash = excluded.request_hash, job_ids = excluded.job_ids, used_at = excluded.used_at",
        &principals,
        &routes,
        &keys,
        &hashes,
        &jobs,
        &used,
    )
    .execute(connection)
    .await?;
    Ok(())
}

/// A list of ids as Postgres writes an array: arrays of arrays of different lengths cannot be parameters.
fn array(subjects: &[Uuid]) -> String {
    let ids: Vec<_> = subjects.iter().map(Uuid::to_string).collect();
    format!("{{{}}}", ids.join(","))
}

pub(super) async fn since(
    connection: &mut PgConnection,
    since: Timestamp,
) -> Result<Vec<IdempotencyRecord>, sqlx::Error> {
    let rows = sqlx::query!(
        "SELECT principal, route, key, request_hash, job_ids, used_at FROM idempotency_keys
        WHERE used_at >= $1 ORDER BY used_at",
        time(since),
    )
    .fetch_all(connection)
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| IdempotencyRecord {
            key: IdempotencyKey {
                principal: row.principal,
                route: row.route,
                key: row.key,
                request_hash: row.request_hash,
            },
            subjects: row.job_ids,
            at: moment(row.used_at),
        })
        .collect())
}
