//! Table `idempotency_keys`: what a key made or acted on, and what was replied. The column `job_ids` holds ids of nodes, plans and reservations
//! as well: the route says which.

use headway_engine::IdempotencyKey;
use headway_engine::record::IdempotencyRecord;
use headway_types::Timestamp;
use sqlx::PgConnection;
use uuid::Uuid;

use super::column::{moment, text, time};
use super::{Store, StoreError};

impl Store {
    /// The first reply to a request with this key, where it is kept.
    pub async fn first_reply(&self, key: &IdempotencyKey) -> Result<Option<String>, StoreError> {
        let row = sqlx::query!(
            "SELECT reply FROM idempotency_keys WHERE principal = $1 AND route = $2 AND key = $3",
            key.principal,
            key.route,
            key.key,
        )
        .fetch_optional(&self.pool)
        .await
        .map_err(StoreError::during("reading a first reply"))?;
        Ok(row.and_then(|row| row.reply))
    }

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
    let replies: Vec<_> = records.iter().map(|record| record.reply.clone()).collect();
    let used: Vec<_> = records.iter().map(|record| time(record.at)).collect();
    sqlx::query!(
        "INSERT INTO idempotency_keys (principal, route, key, request_hash, job_ids, used_at, reply)
        SELECT principal, route, key, request_hash, job_ids::uuid[], used_at, reply
        FROM UNNEST($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::timestamptz[], $7::text[])
            AS new (principal, route, key, request_hash, job_ids, used_at, reply)
        ON CONFLICT (principal, route, key) DO UPDATE SET
            request_hash = excluded.request_hash, job_ids = excluded.job_ids, used_at = excluded.used_at,
            reply = excluded.reply",
        &principals,
        &routes,
        &keys,
        &hashes,
        &jobs,
        &used,
        &replies as &[Option<String>],
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
            reply: None,
        })
        .collect())
}
