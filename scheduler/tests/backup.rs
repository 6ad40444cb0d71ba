//! Backups on a real Postgres: what is in one, what comes back of it, and what is refused.

use std::time::Duration;

use chrono::{DateTime, Utc};
use headway_engine::Change;
use headway_scheduler::backup::{BackupFile, RestoreError, restore, write};
use headway_scheduler::store::AuditFilter;
use headway_types::{IdSource, Timestamp};
use sqlx::{AssertSqlSafe, ConnectOptions};

use crate::support::TestDatabase;

fn moment(seconds: i64) -> DateTime<Utc> {
    DateTime::from_timestamp(1_790_000_000 + seconds, 0).unwrap()
}

/// A database like that of a machine that is new.
async fn empty() -> TestDatabase {
    let database = TestDatabase::create().await;
    run(&database, "DROP SCHEMA public CASCADE; CREATE SCHEMA public").await;
    database
}

async fn run(database: &TestDatabase, sql: &str) {
    let mut connection = database.options.connect().await.unwrap();
    sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(&mut connection).await.unwrap();
}

/// A line of the audit, as any release adds it.
fn deed(action: &str) -> String {
    format!(
        "INSERT INTO audit (done_at, actor, action, subjects, result) VALUES (now(), 'user:ada', '{action}', '{{}}', 'done')"
    )
}

#[tokio::test]
async fn what_comes_back_is_what_was_backed_up_under_a_term_above_all_and_says_that_it_was_restored() {
    let (from, to) = (TestDatabase::create().await, empty().await);
    let store = from.store().await;
    let term = store.begin_term().await.unwrap();
    let job = crate::support::job(IdSource::seeded(1).job(crate::support::START), "one");
    store.commit(term, &[Change::Job(std::sync::Arc::new(job.clone()))]).await.unwrap();
    let sealed = async |action: &str| {
        run(&from, &deed(action)).await;
        assert_eq!(store.seal_audit(10).await.unwrap(), 1);
        store.audit_head().await.unwrap().unwrap().anchor
    };
    let kept = sealed("before").await;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("one");
    let manifest = write(&from.url(), &file, "abc", moment(0)).await.unwrap();
    assert_eq!((manifest.rows_of("jobs"), manifest.term), (1, term.0));
    let lost = sealed("after").await;
    // Whatever came after it is not in it.
    for _ in 0..3 {
        store.begin_term().await.unwrap();
    }

    let restored = restore(&to.url(), &file, moment(600)).await.unwrap();
    assert_eq!(restored.term.0, term.0 + 600 + 1_000);
    assert!(restored.migrated.is_empty());
    let store = to.store().await;
    let audit = store.audit(&AuditFilter { limit: 10, ..AuditFilter::default() }).await.unwrap().items;
    let told: Vec<&str> = audit.iter().map(|line| line.entry.action.as_str()).collect();
    assert_eq!(told, ["restore", "before"]);
    assert_eq!(store.seal_audit(10).await.unwrap(), 1, "the chain goes on");
    assert_eq!(store.verify_audit(0, 10).await.unwrap().broken, None);
    assert_eq!(store.verify_anchor(kept).await.unwrap(), None);
    assert!(
        store.verify_anchor(lost).await.unwrap().is_some(),
        "what came after the backup is gone, and the anchor tells"
    );
    let next = store.begin_term().await.unwrap();
    assert!(next.0 > term.0 + 1_600);
    let snapshot = store.load(Timestamp(0)).await.unwrap();
    assert_eq!(snapshot.jobs, [job]);
    assert_eq!(snapshot.restored, Some(Timestamp(1_790_000_000_000_000)));
    store.commit(next, &[Change::Returned]).await.unwrap();
    assert_eq!(store.load(Timestamp(0)).await.unwrap().restored, None);
}

#[tokio::test]
async fn a_backup_of_an_older_schema_is_migrated_and_one_of_a_newer_is_refused() {
    let from = TestDatabase::before_migration(49).await;
    run(&from, &deed("of_before_the_chain")).await;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("old");
    write(&from.url(), &file, "abc", moment(0)).await.unwrap();
    let to = empty().await;
    let restored = restore(&to.url(), &file, moment(0)).await.unwrap();
    assert_eq!(restored.migrated.first(), Some(&49));
    // What was there before the chain is part of it, and so is what a release of before adds.
    run(&to, &deed("of_the_release_before")).await;
    let store = to.store().await;
    assert_eq!(store.seal_audit(10).await.unwrap(), 3, "with the restore");
    assert_eq!(store.verify_audit(0, 10).await.unwrap().broken, None);

    run(
        &to,
        "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time) \
         VALUES (9999, 'of tomorrow', true, '', 0)",
    )
    .await;
    let newer = dir.path().join("newer");
    write(&to.url(), &newer, "abc", moment(0)).await.unwrap();
    let told = restore(&empty().await.url(), &newer, moment(0)).await.unwrap_err();
    assert!(matches!(&told, RestoreError::NewerSchema { unknown, .. } if *unknown == [9999]), "{told}");
    assert!(BackupFile::open(&newer).unwrap().check_schema().is_err());
}

#[tokio::test]
async fn a_database_that_is_used_or_not_empty_is_left_as_it_is() {
    let from = TestDatabase::create().await;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("one");
    write(&from.url(), &file, "abc", moment(0)).await.unwrap();
    let told = restore(&from.url(), &file, moment(0)).await.unwrap_err();
    assert!(matches!(told, RestoreError::NotEmpty { .. }), "{told}");
    let to = empty().await;
    let mut leader = to.options.connect().await.unwrap();
    sqlx::query("SELECT pg_advisory_lock(29384866549686649)").execute(&mut leader).await.unwrap();
    let told = restore(&to.url(), &file, moment(0)).await.unwrap_err();
    assert!(matches!(told, RestoreError::InUse), "{told}");
}

#[tokio::test]
async fn what_fails_in_the_middle_leaves_the_database_empty() {
    let from = TestDatabase::create().await;
    // Restored into a role without the right to make it, it fails after some tables.
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("one");
    write(&from.url(), &file, "abc", moment(0)).await.unwrap();
    let to = empty().await;
    run(&to, "CREATE FUNCTION tenure_of(body jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT body'").await;
    let told = restore(&to.url(), &file, moment(0)).await.unwrap_err();
    assert!(told.to_string().contains("tenure_of"), "{told}");
    run(&to, "DROP FUNCTION tenure_of").await;
    tokio::time::timeout(Duration::from_secs(60), restore(&to.url(), &file, moment(0))).await.unwrap().unwrap();
}
