//! A real Postgres for tests: one server for all test processes, one database per test, cloned from a migrated
//! template.
//!
//! `HEADWAY_TEST_DATABASE_URL` names a server whose role may create databases; without it a private one is started
//! below the temporary directory and left running for the next test process. Databases of test processes that have
//! ended are dropped by the next one.
#![allow(clippy::unwrap_used, dead_code)]

mod wire;

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use headway_engine::record::{Allocation, Availability, Job, Node, NodeHealth, NodePolicy};
use headway_scheduler::PrivatePostgres;
use headway_scheduler::store::Store;
use headway_types::spec::{BatchRange, Training, Work};
use headway_types::{
    Capabilities, CheckpointRef, Generation, GpuCount, GpuUuid, JobId, JobSpec, NodeId, NodeSlice, Placement,
    Sequences, Timestamp, Tokens, example,
};
use sha2::{Digest, Sha256};
use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, PgConnection};
#[allow(unused_imports)] // Not every test has one.
pub use wire::Wire;

/// Any moment; tests count from here.
pub const START: Timestamp = Timestamp(1_790_000_000_000_000);

/// One test's own database.
pub struct TestDatabase {
    pub options: PgConnectOptions,
}

impl TestDatabase {
    pub async fn create() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let server = server().await;
        let mut admin = server.connect().await.unwrap();
        // Released with the connection.
        sqlx::query("SELECT pg_advisory_lock(4711)").execute(&mut admin).await.unwrap();
        drop_leftovers(&mut admin).await;
        let template = template(&server, &mut admin).await;
        let name = format!("headway_test_{}_{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        run(&mut admin, format!("CREATE DATABASE {name} TEMPLATE {template}")).await;
        admin.close().await.unwrap();
        Self { options: server.database(&name) }
    }

    /// A database with the schema of a former release: the migrations before this one.
    pub async fn before_migration(version: i64) -> Self {
        let database = Self::create().await;
        let mut admin = database.options.connect().await.unwrap();
        run(&mut admin, "DROP SCHEMA public CASCADE".into()).await;
        run(&mut admin, "CREATE SCHEMA public".into()).await;
        let all = sqlx::migrate!("../migrations");
        let former = all.iter().filter(|migration| migration.version < version).cloned().collect();
        sqlx::migrate::Migrator::with_migrations(former).run(&mut admin).await.unwrap();
        database
    }

    pub async fn store(&self) -> Store {
        Store::connect(self.options.clone()).await.unwrap()
    }

    pub fn url(&self) -> String {
        self.options.to_url_lossy().to_string()
    }
}

async fn server() -> PgConnectOptions {
    if let Ok(url) = std::env::var("HEADWAY_TEST_DATABASE_URL") {
        return url.parse().unwrap();
    }
    let dir = std::env::temp_dir().join(format!("headway-test-postgres-{}", nix::unistd::geteuid()));
    let lock = File::create(dir.with_extension("lock")).unwrap();
    lock.lock().unwrap();
    PrivatePostgres::start(&dir).await.unwrap().url().parse().unwrap()
}

/// The migrated template, named after its migrations so that a change makes a new one.
async fn template(server: &PgConnectOptions, admin: &mut PgConnection) -> String {
    let mut files: Vec<_> = std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../migrations"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    let mut hash = Sha256::new();
    files.iter().for_each(|file| hash.update(std::fs::read(file).unwrap()));
    let name = format!("headway_template_{}", hex::encode(&hash.finalize()[..8]));
    let exists: bool = sqlx::query_scalar("SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)")
        .bind(&name)
        .fetch_one(&mut *admin)
        .await
        .unwrap();
    if !exists {
        run(admin, "DROP DATABASE IF EXISTS headway_template_new WITH (FORCE)".into()).await;
        run(admin, "CREATE DATABASE headway_template_new".into()).await;
        let store = Store::connect(server.clone().database("headway_template_new")).await.unwrap();
        store.migrate().await.unwrap();
        store.close().await;
        run(admin, format!("ALTER DATABASE headway_template_new RENAME TO {name}")).await;
    }
    name
}

async fn drop_leftovers(admin: &mut PgConnection) {
    let names: Vec<String> = sqlx::query_scalar("SELECT datname FROM pg_database WHERE datname LIKE 'headway_test_%'")
        .fetch_all(&mut *admin)
        .await
        .unwrap();
    for name in names {
        let process = name.split('_').nth(2).unwrap_or_default();
        if !Path::new("/proc").join(process).exists() {
            run(admin, format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)")).await;
        }
    }
}

async fn run(admin: &mut PgConnection, sql: String) {
    sqlx::query(AssertSqlSafe(sql)).execute(admin).await.unwrap();
}

/// A rigid job's specification that admission accepts.
pub fn spec(name: &str) -> JobSpec {
    let labels = BTreeMap::from([("exp".into(), "a".into())]);
    JobSpec { project: "nlp".into(), labels, ..example::spec(name, example::gpus(1, 1), None) }
}

/// A queued job as the engine would store it.
pub fn job(id: JobId, name: &str) -> Job {
    Job { progress: Tokens(0.1 + 0.2), loss: Some(2.5), version: 1, ..Job::new(id, spec(name), "ada".into(), START) }
}

/// A node of one GPU, cordoned and silent.
pub fn node(id: NodeId) -> Node {
    let inventory = example::inventory(id, 1, 1);
    Node {
        boot: inventory.boot.clone(),
        inventory,
        policy: NodePolicy::Cordoned { by: "ada".into(), reason: Some("fan".into()), since: START },
        availability: Availability::Unreachable { since: START },
        health: NodeHealth::default(),
        registered_at: START,
        labels: BTreeMap::new(),
        version: 3,
    }
}

/// A committed checkpoint of this generation and step.
pub fn checkpoint(generation: u64, step: u64) -> CheckpointRef {
    CheckpointRef {
        generation: Generation(generation),
        path: format!("/ckpt/g{generation}/step-{step:09}"),
        step,
        samples_seen: Sequences(step * 16),
        manifest_sha256: "ab".repeat(32),
    }
}

/// The one GPU of `node`, held.
pub fn allocation(job: JobId, node: NodeId, generation: u64) -> Allocation {
    let slice = NodeSlice { node, gpus: vec![GpuUuid("GPU-1-0".into())] };
    Allocation {
        resumed_from: Some(checkpoint(1, 20)),
        cause: "job arrived".into(),
        predicted_goodput: 1_234.567_890_123,
        ..Allocation::new(job, Generation(generation), Placement::try_new(vec![slice]).unwrap(), START)
    }
}

/// A tunable job's training section.
pub fn training() -> Training {
    Training {
        batch: BatchRange { min: Sequences(8), max: Sequences(64) },
        target: Some(Tokens(1e9).into()),
        reconfigure: Capabilities::UNKNOWN_SCRIPT,
        ..example::training(Work::Curve {
            points: BTreeMap::from([(GpuCount(1), 1.0), (GpuCount(2), 1.9)]),
            seq_len: 64,
        })
    }
}
