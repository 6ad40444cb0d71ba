//! Table `idempotency_keys`: what a key made or acted on, and what was replied. The column `job_ids` holds ids of nodes, plans and reservations
//! as well: the route says which.

use chrono::{DateTime, Utc};
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

/// The columns of keys to be kept; a key used again after it was forgotten replaces its former row.
pub(super) struct KeyColumns {
    pub principals: Vec<String>,
    pub routes: Vec<String>,
    pub keys: Vec<String>,
    pub hashes: Vec<String>,
    pub subjects: Vec<String>,
    pub used: Vec<DateTime<Utc>>,
    pub replies: Vec<Option<String>>,
}

impl KeyColumns {
    pub fn from_records(records: &[&IdempotencyRecord]) -> Self {
        Self {
            principals: records.iter().map(|record| text(&record.key.principal)).collect(),
            routes: records.iter().map(|record| text(&record.key.route)).collect(),
            keys: records.iter().map(|record| text(&record.key.key)).collect(),
            hashes: records.iter().map(|record| text(&record.key.request_hash)).collect(),
            subjects: records.iter().map(|record| array(&record.subjects)).collect(),
            used: records.iter().map(|record| time(record.at)).collect(),
            replies: records.iter().map(|record| record.reply.clone()).collect(),
        }
    }
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
