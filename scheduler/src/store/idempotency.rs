//! Table `idempotency_keys`: which jobs a key made.

use headway_engine::IdempotencyKey;
use headway_engine::record::IdempotencyRecord;
use headway_types::{JobId, Timestamp};
use sqlx::PgConnection;

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

/// Adds rows. One row per key: the jobs of a batch are an array, so a row at a time is rare enough not to batch.
pub(super) async fn insert(connection: &mut PgConnection, records: &[&IdempotencyRecord]) -> Result<(), sqlx::Error> {
    for record in records {
        let jobs: Vec<_> = record.jobs.iter().map(|job| job.0).collect();
        sqlx::query!(
            "INSERT INTO idempotency_keys (principal, route, key, request_hash, job_ids, used_at)
            VALUES ($1, $2, $3, $4, $5, $6)
            ON CONFLICT (principal, route, key) DO UPDATE SET
                request_hash = excluded.request_hash, job_ids = excluded.job_ids, used_at = excluded.used_at",
            text(&record.key.principal),
            text(&record.key.route),
            text(&record.key.key),
            text(&record.key.request_hash),
            &jobs,
            time(record.at),
        )
        .execute(&mut *connection)
        .await?;
    }
    Ok(())
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
            jobs: row.job_ids.into_iter().map(JobId).collect(),
            at: moment(row.used_at),
        })
        .collect())
}
