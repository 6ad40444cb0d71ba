//! A restore that is killed leaves nothing, or a database that servers refuse and the next restore finishes.
#![allow(clippy::unwrap_used)]

use std::io::Write as _;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use headway_scheduler::PrivatePostgres;
use headway_scheduler::store::{Store, StoreError};
use headway_tests::databases::program;
use headway_tests::process::binary;
use headway_tests::until;

const PATIENCE: Duration = Duration::from_secs(60);

/// One Postgres with a database of its own for each restore.
struct Restores {
    dir: tempfile::TempDir,
    postgres: PrivatePostgres,
}

/// A restore that Postgres holds at one statement, until the lock is let go.
struct HeldRestore {
    restore: Child,
    lock: Child,
}

impl Restores {
    async fn start() -> Self {
        let dir = tempfile::Builder::new().prefix("hw").tempdir_in("/tmp").unwrap();
        headway_tests::cluster::open_to_postgres(dir.path());
        let postgres = PrivatePostgres::start(&dir.path().join("pg")).await.unwrap();
        Self { dir, postgres }
    }

    fn url(&self, database: &str) -> String {
        format!("postgres://headway@localhost/{database}?host={}", self.postgres.dir().display())
    }

    fn psql(&self, database: &str) -> Command {
        let mut psql = Command::new(program("psql"));
        psql.args(["-U", "headway", "-AtqX", "-v", "ON_ERROR_STOP=1", "-d", database, "-h"]).arg(self.postgres.dir());
        psql
    }

    fn ask(&self, database: &str, query: &str) -> String {
        let Output { stdout, stderr, status } = self.psql(database).args(["-c", query]).output().unwrap();
        assert!(status.success(), "{query}: {}", String::from_utf8_lossy(&stderr));
        String::from_utf8_lossy(&stdout).trim().to_owned()
    }

    fn admin(&self, command: &str, file: &str, database: &str) -> Command {
        let mut headway = Command::new(binary());
        let file = self.dir.path().join(file);
        headway.args(["admin", command]).arg(file).args(["--database-url", &self.url(database)]);
        headway.env("XDG_CONFIG_HOME", self.dir.path().join("config"));
        headway
    }

    async fn store(&self, database: &str) -> Store {
        Store::connect(self.url(database).parse().unwrap()).await.unwrap()
    }

    /// Starts a restore into a new database. Postgres holds it where it has made or dropped this object.
    async fn hold(&self, database: &str, event: &str, object: &str) -> HeldRestore {
        self.ask("headway", &format!("CREATE DATABASE {database}"));
        self.ask(database, "CREATE SCHEMA held");
        let objects = match event {
            "sql_drop" => "pg_event_trigger_dropped_objects",
            _ => "pg_event_trigger_ddl_commands",
        };
        self.ask(
            database,
            &format!(
                "CREATE FUNCTION held.hold() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN
                    IF EXISTS (SELECT FROM {objects}() WHERE object_identity = '{object}') THEN
                        PERFORM pg_advisory_xact_lock_shared(4711);
                    END IF;
                END $$"
            ),
        );
        self.ask(database, &format!("CREATE EVENT TRIGGER hold ON {event} EXECUTE FUNCTION held.hold()"));
        let mut lock = self.psql(database).stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        lock.stdin.as_mut().unwrap().write_all(b"SELECT pg_advisory_lock(4711);\n").unwrap();
        let locks = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = 4711";
        let counted = |condition: &str, expected: &str| {
            (self.ask(database, &format!("{locks} AND {condition}")) == expected).then_some(())
        };
        until("the lock", PATIENCE, || async { counted("granted", "1") }).await;
        let quiet = |command: &mut Command| command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let restore = quiet(&mut self.admin("restore", "one.backup", database));
        until(object, PATIENCE, || async { counted("NOT granted", "1") }).await;
        HeldRestore { restore, lock }
    }

    async fn wait_for_no_session(&self, database: &str) {
        let query = format!("SELECT count(*) FROM pg_stat_activity WHERE datname = '{database}'");
        until("all sessions to end", PATIENCE, || async { (self.ask("headway", &query) == "0").then_some(()) }).await;
    }

    /// Tables of the backup that are there, and whether the mark is.
    fn tables(&self, database: &str) -> (u32, bool) {
        let tables = "SELECT count(*) FROM pg_tables WHERE schemaname = 'public' AND tablename <> 'unfinished_restore'";
        let mark = "SELECT to_regclass('unfinished_restore') IS NOT NULL";
        (self.ask(database, tables).parse().unwrap(), self.ask(database, mark) == "t")
    }

    fn term(&self, database: &str) -> u64 {
        let waits = "SELECT term FROM cluster WHERE restored_backup_at IS NOT NULL";
        self.ask(database, waits).parse().expect("nodes are waited for")
    }

    fn run(command: &mut Command) -> (bool, String) {
        let Output { status, stdout, stderr } = command.output().unwrap();
        (status.success(), format!("{}{}", String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr)))
    }
}

impl HeldRestore {
    fn kill(&mut self) {
        self.restore.kill().unwrap();
        self.restore.wait().unwrap();
    }

    fn let_go(mut self) {
        drop(self.lock.stdin.take());
        self.lock.wait().unwrap();
    }
}

fn backup(restores: &Restores, file: &str) {
    let (done, told) = Restores::run(&mut restores.admin("backup", file, "headway"));
    assert!(done, "{told}");
}

async fn is_refused(restores: &Restores, database: &str) {
    let store = restores.store(database).await;
    let refusals = [store.migrate().await.unwrap_err(), store.begin_term().await.unwrap_err()];
    store.close().await;
    for refusal in refusals {
        assert!(matches!(refusal, StoreError::RestoreUnfinished { .. }), "{refusal}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_restore_leaves_nothing_or_what_servers_refuse_and_the_next_restore_finishes() {
    let restores = Restores::start().await;
    let store = restores.store("headway").await;
    store.migrate().await.unwrap();
    let term = store.begin_term().await.unwrap();
    backup(&restores, "one.backup");
    store.begin_term().await.unwrap();
    backup(&restores, "two.backup");
    let last = restores.ask(
        "headway",
        "SELECT schemaname || '.' || indexname FROM pg_indexes WHERE schemaname = 'public'
            AND indexname NOT IN (SELECT conname FROM pg_constraint) ORDER BY indexname DESC LIMIT 1",
    );
    let moments = [
        ("marking", "ddl_command_end", "public.unfinished_restore"),
        ("first_table", "ddl_command_end", "public.allocations"),
        ("last_index", "ddl_command_end", last.as_str()),
        ("finishing", "sql_drop", "public.unfinished_restore"),
    ];
    for (database, event, object) in moments {
        let mut held = restores.hold(database, event, object).await;
        held.kill();
        held.let_go();
        restores.wait_for_no_session(database).await;
        let (tables, marked) = restores.tables(database);
        println!("{database}: {tables} tables, marked: {marked}");
        assert!(tables == 0 || marked, "{database}: {tables} tables that a server would use");
        if marked {
            is_refused(&restores, database).await;
        }
        if ["last_index", "finishing"].contains(&database) {
            assert!(tables > 0, "{database}: the orphan has loaded everything");
            let (done, told) = Restores::run(&mut restores.admin("restore", "two.backup", database));
            assert!(!done && told.contains("a restore of another backup began at"), "{told}");
            refuses_to_serve(&restores, database);
        }

        let (done, told) = Restores::run(&mut restores.admin("restore", "one.backup", database));
        assert!(done, "{database}: {told}");
        assert!(!restores.tables(database).1, "{database}");
        assert!(restores.term(database) >= term.0 + 1_000, "{database}");
        let store = restores.store(database).await;
        store.migrate().await.unwrap();
        store.begin_term().await.unwrap();
        store.close().await;
    }
    store.close().await;
    restores.postgres.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restore_waits_for_what_a_killed_one_left_running() {
    let restores = Restores::start().await;
    let store = restores.store("headway").await;
    store.migrate().await.unwrap();
    let term = store.begin_term().await.unwrap();
    store.close().await;
    backup(&restores, "one.backup");
    let mut held = restores.hold("orphan", "ddl_command_end", "public.allocations").await;
    held.kill();
    let mut second = restores.admin("restore", "one.backup", "orphan").stderr(Stdio::piped()).spawn().unwrap();
    let sessions = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'headway admin restore'
        AND state = 'idle'";
    until("the second restore", PATIENCE, || async { (restores.ask("orphan", sessions) != "0").then_some(()) }).await;
    assert!(second.try_wait().unwrap().is_none());
    held.let_go();
    let output = second.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(restores.term("orphan") >= term.0 + 1_000);
    assert!(!restores.tables("orphan").1);
    restores.postgres.stop().await.unwrap();
}

fn refuses_to_serve(restores: &Restores, database: &str) {
    let data: &Path = restores.dir.path();
    let mut server = Command::new(binary());
    server.args(["server", "--agent-tokens", "--listen", "127.0.0.1:0", "--agent-listen", "127.0.0.1:0"]);
    server.arg("--checkpoint-root").arg(data.join("checkpoints")).args(["--database-url", &restores.url(database)]);
    let (served, told) = Restores::run(&mut server);
    assert!(!served && told.contains("has not finished") && told.contains("headway admin restore"), "{told}");
}
