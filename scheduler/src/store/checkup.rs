//! How a database is doing, for `headway admin doctor`: asked of Postgres itself, whatever schema it has, and of one that no server uses.

use chrono::{DateTime, Utc};
use headway_types::{Bytes, Seconds};
use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions, Connection, PgConnection};

use super::column::unsigned;
use super::{MIGRATIONS, StoreError};
use crate::leader::LOCK;

/// What was found.
#[derive(Clone, Debug, PartialEq)]
pub struct Checkup {
    /// The version of Postgres.
    pub postgres: String,
    /// Settings without which it may forget what it has confirmed, that are off.
    pub not_durable: Vec<&'static str>,
    /// Open ones, and as many as there may be.
    pub connections: u64,
    pub max_connections: u64,
    pub size: Bytes,
    /// How long the oldest transaction has been open; `None` where none is.
    pub oldest_transaction: Option<Seconds>,
    /// Whether a server holds the leader's lock.
    pub led: bool,
    /// Migrations that this release would run, oldest first; all of them where the database is empty.
    pub pending: Vec<(i64, String)>,
    /// Migrations that it does not know: the database is of a newer release.
    pub unknown: Vec<i64>,
    /// By the clock of Postgres' machine.
    pub at: DateTime<Utc>,
}

impl Checkup {
    /// Looks, and changes nothing.
    pub async fn of(options: &PgConnectOptions) -> Result<Self, StoreError> {
        let connecting = StoreError::during("connecting to Postgres");
        let bounded = options.clone().options([("statement_timeout", "10s")]);
        let mut connection = bounded.connect().await.map_err(connecting)?;
        let found = look(&mut connection).await.map_err(StoreError::during("looking at the database"))?;
        connection.close().await.map_err(StoreError::during("looking at the database"))?;
        Ok(found)
    }
}

async fn look(connection: &mut PgConnection) -> Result<Checkup, sqlx::Error> {
    let mut not_durable = Vec::new();
    for setting in ["fsync", "full_page_writes"] {
        let value: String =
            sqlx::query_scalar("SELECT current_setting($1)").bind(setting).fetch_one(&mut *connection).await?;
        if value != "on" {
            not_durable.push(setting);
        }
    }
    let postgres = sqlx::query_scalar("SHOW server_version").fetch_one(&mut *connection).await?;
    let (connections, max_connections, size, oldest, at): (i64, i64, i64, Option<f64>, DateTime<Utc>) = sqlx::query_as(
        "SELECT (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'),
            current_setting('max_connections')::bigint, pg_database_size(current_database()),
            (SELECT max(extract(epoch FROM clock_timestamp() - xact_start))::float8 FROM pg_stat_activity
                WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() AND datname = current_database()),
            clock_timestamp()",
    )
    .fetch_one(&mut *connection)
    .await?;
    // A lock of 64 bits is shown in two halves.
    let led = sqlx::query_scalar(
        "SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 1
            AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
            AND classid::bigint = $1 >> 32 AND objid::bigint = $1 & 4294967295)",
    )
    .bind(LOCK)
    .fetch_one(&mut *connection)
    .await?;
    let there: bool =
        sqlx::query_scalar("SELECT to_regclass('_sqlx_migrations') IS NOT NULL").fetch_one(&mut *connection).await?;
    let done: Vec<i64> = match there {
        true => {
            sqlx::query_scalar("SELECT version FROM _sqlx_migrations WHERE success ORDER BY version")
                .fetch_all(&mut *connection)
                .await?
        }
        false => Vec::new(),
    };
    let pending = MIGRATIONS.iter().filter(|one| !done.contains(&one.version));
    Ok(Checkup {
        postgres,
        not_durable,
        connections: unsigned(connections),
        max_connections: unsigned(max_connections),
        size: Bytes(unsigned(size)),
        oldest_transaction: oldest.map(Seconds),
        led,
        pending: pending.map(|one| (one.version, one.description.to_string())).collect(),
        unknown: done.into_iter().filter(|version| !MIGRATIONS.version_exists(*version)).collect(),
        at,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::support::TestDatabase;

    #[tokio::test]
    async fn what_is_to_be_migrated_and_whether_somebody_leads_is_seen() {
        let database = TestDatabase::create().await;
        let found = Checkup::of(&database.options).await.unwrap();
        assert_eq!((found.pending.len(), found.unknown.len(), found.led), (0, 0, false));
        assert!(found.size > Bytes(0) && found.connections >= 1 && found.connections <= found.max_connections);
        let mut leader = database.options.connect().await.unwrap();
        sqlx::query("SELECT pg_advisory_lock($1)").bind(LOCK).execute(&mut leader).await.unwrap();
        assert!(Checkup::of(&database.options).await.unwrap().led);

        let former = TestDatabase::before_migration(49).await;
        let pending = Checkup::of(&former.options).await.unwrap().pending;
        assert_eq!(pending.first(), Some(&(49, "mark restored".to_owned())));
        let mut writer = former.options.connect().await.unwrap();
        sqlx::query("BEGIN").execute(&mut writer).await.unwrap();
        sqlx::query("SELECT 1").execute(&mut writer).await.unwrap();
        assert!(Checkup::of(&former.options).await.unwrap().oldest_transaction.is_some());
    }
}
