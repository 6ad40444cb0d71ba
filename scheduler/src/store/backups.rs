//! What backups are made of and restored into. They may be of a former schema, which `query!` does not know: what is asked here holds in all.

use std::collections::BTreeMap;

use headway_types::Term;
use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, PgConnection};
use uuid::Uuid;

use super::column::unsigned;
use super::{MIGRATIONS, Store, StoreError, restores};
use crate::leader::LOCK;

/// Tables whose rows a backup counts, by which a restore is held to it.
const COUNTED: &[&str] = &[
    "jobs",
    "arrays",
    "nodes",
    "allocations",
    "checkpoints",
    "events",
    "plans",
    "projects",
    "reservations",
    "users",
    "tokens",
    "node_authorities",
    "node_identities",
    "secrets",
    "audit",
    "audit_seals",
    "deliveries",
];

/// What a database holds, as of one snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contents {
    /// Which cluster it is of.
    pub cluster: Uuid,
    /// The newest that has begun.
    pub term: Term,
    /// That it has been through.
    pub migrations: Vec<i64>,
    /// Jobs that have not ended.
    pub live_jobs: u64,
    /// By table, those alone that there are.
    pub rows: BTreeMap<String, u64>,
    /// The version of Postgres.
    pub postgres: String,
}

/// A snapshot that others may read too, until it is let go.
pub struct HeldSnapshot {
    connection: PgConnection,
    /// The name by which Postgres knows it.
    pub id: String,
    pub contents: Contents,
}

/// A database that nobody else leads while this lives.
pub struct Unled {
    connection: PgConnection,
}

impl HeldSnapshot {
    /// `None` where there is no database of Headway.
    pub async fn take(options: &PgConnectOptions) -> Result<Option<Self>, StoreError> {
        let failed = || StoreError::during("taking a snapshot for a backup");
        // Whatever the role's settings say, it lasts as long as the dump.
        let lasting = [("idle_in_transaction_session_timeout", "0"), ("statement_timeout", "0")];
        let connecting = StoreError::during("connecting to Postgres");
        let mut connection = options.clone().options(lasting).connect().await.map_err(connecting)?;
        if let Some(restore) = restores::read_mark(&mut connection).await.map_err(failed())? {
            return Err(StoreError::RestoreUnfinished { began_at: restore.began_at });
        }
        if !exists(&mut connection, "cluster").await.map_err(failed())? {
            return Ok(None);
        }
        sqlx::query("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            .execute(&mut connection)
            .await
            .map_err(failed())?;
        let id = sqlx::query_scalar("SELECT pg_export_snapshot()").fetch_one(&mut connection).await.map_err(failed())?;
        let contents = contents(&mut connection).await.map_err(failed())?;
        Ok(Some(Self { connection, id, contents }))
    }

    pub async fn release(self) -> Result<(), StoreError> {
        self.connection.close().await.map_err(StoreError::during("letting a snapshot go"))
    }
}

impl Unled {
    /// `None` where a server leads it. Waits for nobody.
    pub async fn claim(options: &PgConnectOptions) -> Result<Option<Self>, StoreError> {
        let failed = || StoreError::during("connecting to Postgres");
        let mut connection = options.clone().connect().await.map_err(failed())?;
        let taken: bool = sqlx::query_scalar("SELECT pg_try_advisory_lock($1)")
            .bind(LOCK)
            .fetch_one(&mut connection)
            .await
            .map_err(failed())?;
        Ok(taken.then_some(Self { connection }))
    }

    pub(super) fn connection(&mut self) -> &mut PgConnection {
        &mut self.connection
    }

    /// Tables and their like that are not Postgres' own, an extension's, nor the mark of a restore: none in an empty
    /// database.
    pub async fn tables(&mut self) -> Result<Vec<String>, StoreError> {
        let names = sqlx::query_scalar(
            "SELECT c.oid::regclass::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
            WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f', 'S')
                AND n.nspname <> 'information_schema' AND n.nspname NOT LIKE 'pg\\_%'
                AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.objid = c.oid AND d.deptype = 'e')
                AND c.oid IS DISTINCT FROM to_regclass('unfinished_restore')
            ORDER BY 1",
        );
        names.fetch_all(&mut self.connection).await.map_err(StoreError::during("looking for tables"))
    }

    pub async fn contents(&mut self) -> Result<Contents, StoreError> {
        contents(&mut self.connection).await.map_err(StoreError::during("counting what was restored"))
    }

    pub async fn release(self) -> Result<(), StoreError> {
        self.connection.close().await.map_err(StoreError::during("letting the leader's lock go"))
    }
}

impl Store {
    /// Migrations that this release knows, in their order, with what they are called.
    #[must_use]
    pub fn known_migrations() -> Vec<(i64, String)> {
        MIGRATIONS.iter().map(|one| (one.version, one.description.to_string())).collect()
    }
}

async fn exists(connection: &mut PgConnection, table: &str) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar("SELECT to_regclass($1) IS NOT NULL").bind(table).fetch_one(connection).await
}

/// Rows of a table under a condition.
async fn count(connection: &mut PgConnection, of: &str) -> Result<u64, sqlx::Error> {
    let rows: i64 =
        sqlx::query_scalar(AssertSqlSafe(format!("SELECT count(*) FROM {of}"))).fetch_one(connection).await?;
    Ok(unsigned(rows))
}

async fn contents(connection: &mut PgConnection) -> Result<Contents, sqlx::Error> {
    let term: i64 = sqlx::query_scalar("SELECT term FROM cluster").fetch_one(&mut *connection).await?;
    let cluster = sqlx::query_scalar("SELECT identity FROM cluster").fetch_one(&mut *connection).await?;
    let migrations = sqlx::query_scalar("SELECT version FROM _sqlx_migrations WHERE success ORDER BY version");
    let migrations = migrations.fetch_all(&mut *connection).await?;
    let postgres = sqlx::query_scalar("SHOW server_version").fetch_one(&mut *connection).await?;
    let live_jobs = count(connection, "jobs WHERE state NOT IN ('succeeded', 'failed', 'cancelled')").await?;
    let mut rows = BTreeMap::new();
    for table in COUNTED {
        if exists(connection, table).await? {
            rows.insert((*table).to_owned(), count(connection, table).await?);
        }
    }
    Ok(Contents { cluster, term: Term(unsigned(term)), migrations, live_jobs, rows, postgres })
}
