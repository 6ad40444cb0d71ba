//! Brings the schema up to date beside whatever uses the database. Most migrations need a table for themselves for a
//! moment. A backup reads all tables until it is done, and whoever asks for a table that a migration waits for waits
//! behind the migration: the leader of the former release would stand still until the end of the backup. So a migration
//! gives up after a short wait, lets the others through, and tries again.

use std::time::Duration;

use sqlx::PgPool;
use sqlx::migrate::{MigrateError, Migrator};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use tokio::time::Instant;

use super::StoreError;

/// How long a statement of a migration waits for a lock, and whoever asks for the table meanwhile waits behind it.
const LOCK_TIMEOUT: (&str, &str) = ("lock_timeout", "200ms");
/// Between two attempts: whoever waited goes first.
const PAUSE: Duration = Duration::from_secs(2);
/// Between two lines of the log that a migration waits.
const TELL_AGAIN: Duration = Duration::from_secs(60);
/// Postgres' code for a lock that did not come in time.
const LOCK_NOT_AVAILABLE: &str = "55P03";

/// Runs the migrations that the database lacks, for as long as others hold what they need.
pub(super) async fn run(migrator: &Migrator, pool: &PgPool) -> Result<(), StoreError> {
    let mut told_at: Option<Instant> = None;
    loop {
        match run_once(migrator, pool).await? {
            Err(error) if is_locked(&error) => {
                if told_at.is_none_or(|at| at.elapsed() >= TELL_AGAIN) {
                    told_at = Some(Instant::now());
                    let error = &error as &dyn std::error::Error;
                    tracing::warn!(error, "the schema is not up to date: a backup or another session holds a table");
                }
            }
            ran => return ran.map_err(StoreError::Migrate),
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Runs them on a connection of their own: one on which they failed keeps the lock of migrations until it is closed.
async fn run_once(migrator: &Migrator, pool: &PgPool) -> Result<Result<(), MigrateError>, StoreError> {
    let options = PgConnectOptions::clone(&pool.connect_options()).options([LOCK_TIMEOUT]);
    let own = PgPoolOptions::new().max_connections(1).connect_with(options).await;
    let own = own.map_err(StoreError::during("connecting to Postgres for migrations"))?;
    let ran = migrator.run(&own).await;
    own.close().await;
    Ok(ran)
}

fn is_locked(error: &MigrateError) -> bool {
    let (MigrateError::Execute(source) | MigrateError::ExecuteMigration(source, _)) = error else { return false };
    source.as_database_error().and_then(|error| error.code()).is_some_and(|code| code == LOCK_NOT_AVAILABLE)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::borrow::Cow;

    use sqlx::migrate::{Migration, MigrationType};
    use sqlx::{AssertSqlSafe, ConnectOptions, SqlSafeStr};

    use super::*;
    use crate::support::TestDatabase;

    #[tokio::test]
    async fn a_migration_beside_a_backup_keeps_nobody_from_the_table_and_ends_after_it() {
        let database = TestDatabase::create().await;
        let store = database.store().await;
        // As pg_dump does.
        let mut backup = database.options.connect().await.unwrap();
        sqlx::raw_sql("BEGIN; LOCK TABLE audit IN ACCESS SHARE MODE").execute(&mut backup).await.unwrap();

        let sql = "DROP TRIGGER audit_is_kept ON audit;
            CREATE TRIGGER audit_is_kept BEFORE UPDATE OR DELETE ON audit FOR EACH ROW EXECUTE FUNCTION keep_audit_line()";
        let sql = AssertSqlSafe(sql.to_owned()).into_sql_str();
        let migration = Migration::new(9_999, "replace a trigger".into(), MigrationType::Simple, sql, false);
        let migrator = Migrator { migrations: Cow::Owned(vec![migration]), ignore_missing: true, ..Migrator::DEFAULT };
        let pool = store.writer.clone();
        let migrating = tokio::spawn(async move { run(&migrator, &pool).await });

        let mut reader = database.options.connect().await.unwrap();
        let waits = "SELECT EXISTS (SELECT FROM pg_locks WHERE relation = 'audit'::regclass AND NOT granted)";
        while !sqlx::query_scalar::<_, bool>(waits).fetch_one(&mut reader).await.unwrap() {
            assert!(!migrating.is_finished(), "it needs the table for itself");
        }
        let read = sqlx::query("SELECT count(*) FROM audit").execute(&mut reader);
        tokio::time::timeout(Duration::from_secs(15), read).await.expect("a reader waits for the backup").unwrap();
        assert!(!migrating.is_finished());

        sqlx::query("COMMIT").execute(&mut backup).await.unwrap();
        tokio::time::timeout(Duration::from_secs(20), migrating).await.unwrap().unwrap().unwrap();
        let ran = "SELECT EXISTS (SELECT FROM _sqlx_migrations WHERE version = 9999 AND success)";
        assert!(sqlx::query_scalar::<_, bool>(ran).fetch_one(&mut reader).await.unwrap());
    }
}
