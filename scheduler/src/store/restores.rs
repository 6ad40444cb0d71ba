//! The mark of a restore that has not finished: the empty table `unfinished_restore`, whose comment names the backup.
//!
//! `headway admin restore` commits the mark before it loads anything. The transaction that raises the term removes it.
//! Servers refuse a database that has the mark, so a restore that was killed can never be taken for a whole one. The
//! mark is a table of its own because the dump brings all other tables; its comment is readable without any grant.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use sqlx::{AssertSqlSafe, PgConnection};

use super::{Store, StoreError, Unled};

/// The name by which sessions of a restore are known to Postgres.
pub const RESTORE_SESSIONS: &str = "headway admin restore";

/// A restore that began and has not finished.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnfinishedRestore {
    pub began_at: DateTime<Utc>,
    /// Of the dump, in hexadecimal digits.
    pub backup_sha256: String,
}

impl Unled {
    /// Returns the restore that began on this database and has not finished.
    pub async fn unfinished_restore(&mut self) -> Result<Option<UnfinishedRestore>, StoreError> {
        let connection = self.connection();
        read_mark(connection).await.map_err(StoreError::during("looking for an unfinished restore"))
    }

    /// Marks this database as one whose restore has not finished, instead of any earlier mark.
    pub async fn mark_unfinished(&mut self, restore: &UnfinishedRestore) -> Result<(), StoreError> {
        let comment = serde_json::to_string(restore).expect("two texts").replace('\'', "''");
        // Postgres runs the statements of one text in one transaction.
        let sql = format!(
            "CREATE TABLE IF NOT EXISTS unfinished_restore (); COMMENT ON TABLE unfinished_restore IS '{comment}'"
        );
        let marked = sqlx::raw_sql(AssertSqlSafe(sql)).execute(self.connection()).await;
        marked.map(|_| ()).map_err(StoreError::during("marking the restore as unfinished"))
    }

    /// Removes the mark of a restore that has left nothing behind.
    pub async fn remove_mark(&mut self) -> Result<(), StoreError> {
        let removed = remove_mark(self.connection()).await;
        removed.map_err(StoreError::during("removing the mark of the restore"))
    }

    /// Returns the processes of Postgres in which an earlier restore still works.
    pub async fn restoring_processes(&mut self) -> Result<Vec<i32>, StoreError> {
        let processes = sqlx::query_scalar(
            "SELECT pid FROM pg_stat_activity
            WHERE datname = current_database() AND application_name = $1 AND pid <> pg_backend_pid() ORDER BY pid",
        );
        let processes = processes.bind(RESTORE_SESSIONS).fetch_all(self.connection()).await;
        processes.map_err(StoreError::during("looking for sessions of an earlier restore"))
    }
}

impl Store {
    /// Refuses a database whose restore has not finished.
    pub(super) async fn refuse_unfinished_restore(&self) -> Result<(), StoreError> {
        let looking = || StoreError::during("looking for an unfinished restore");
        let mut connection = self.writer.acquire().await.map_err(looking())?;
        match read_mark(&mut connection).await.map_err(looking())? {
            Some(restore) => Err(StoreError::RestoreUnfinished { began_at: restore.began_at }),
            None => Ok(()),
        }
    }
}

/// A mark without a comment that this release understands is a mark all the same, of a backup that no file matches.
pub(super) async fn read_mark(connection: &mut PgConnection) -> Result<Option<UnfinishedRestore>, sqlx::Error> {
    let comment: Option<String> = sqlx::query_scalar(
        "SELECT COALESCE(obj_description(oid, 'pg_class'), '') FROM pg_class
        WHERE oid = to_regclass('unfinished_restore')",
    )
    .fetch_optional(connection)
    .await?;
    let unknown = || UnfinishedRestore { began_at: DateTime::UNIX_EPOCH, backup_sha256: String::new() };
    Ok(comment.map(|text| serde_json::from_str(&text).unwrap_or_else(|_| unknown())))
}

pub(super) async fn remove_mark(connection: &mut PgConnection) -> Result<(), sqlx::Error> {
    sqlx::query("DROP TABLE IF EXISTS unfinished_restore").execute(connection).await?;
    Ok(())
}
