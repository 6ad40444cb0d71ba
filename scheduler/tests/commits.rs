//! What a commit costs: answers of Postgres that it waits for, and rows that Postgres looks at.

use std::collections::BTreeMap;
use std::sync::Arc;

use headway_engine::record::{Entered, EventRecord, IdempotencyRecord, Transition};
use headway_engine::{Actor, Change, IdempotencyKey};
use headway_scheduler::store::Store;
use headway_types::{Generation, IdSource, JobStateKind, Seconds};
use sqlx::ConnectOptions;

use crate::support::{START, TestDatabase, Wire, job};

/// Makes what the engine would have committed for submits, one after the other.
struct Submits {
    ids: IdSource,
    last: u64,
}

impl Submits {
    fn new() -> Self {
        Self { ids: IdSource::seeded(1), last: 0 }
    }

    fn next(&mut self) -> Vec<Change> {
        self.last += 1;
        let at = START + Seconds(self.last as f64);
        let name = format!("job-{}", self.last);
        let job = job(self.ids.job(at), &name);
        let event = EventRecord {
            seq: self.last,
            at,
            actor: Actor::User("ada".into()),
            verb: "job.submitted".into(),
            job: Some(job.id),
            node: None,
            plan: None,
            message: "ada submitted".into(),
            detail: BTreeMap::new(),
        };
        let key = IdempotencyKey {
            principal: "ada".into(),
            route: "POST /api/v1/jobs".into(),
            key: name,
            request_hash: "ab".repeat(32),
        };
        let key = IdempotencyRecord { key, subjects: vec![job.id.0], at, reply: Some("{}".into()) };
        let entered = Entered::Job { job: job.id, state: JobStateKind::Queued, generation: Generation(0) };
        vec![
            Change::Job(Arc::new(job)),
            Change::Event(event),
            Change::Idempotency(key),
            Change::Transition(Transition { at, entered }),
        ]
    }
}

#[tokio::test]
async fn a_commit_of_a_submit_waits_for_four_answers() {
    let database = TestDatabase::create().await;
    let wire = Wire::to(&database.options).await;
    let store = Store::connect(wire.options.clone()).await.unwrap();
    let term = store.begin_term().await.unwrap();
    let mut admin = database.options.connect().await.unwrap();
    let mut submits = Submits::new();
    let mut fewest = u64::MAX;
    for _ in 0..20 {
        let changes = submits.next();
        let before = wire.answers();
        store.commit(term, &changes).await.unwrap();
        // The first ones prepare statements.
        fewest = fewest.min(wire.answers() - before);
        // Off the way of any commit the connection is tested before it is used again.
        let mut settled = 0;
        while settled != wire.answers() {
            settled = wire.answers();
            for _ in 0..50 {
                sqlx::query("SELECT count(*) FROM jobs").execute(&mut admin).await.unwrap();
            }
        }
    }
    // The beginning, jobs, history, the end. On a busy machine the test of the connection after the commit before may
    // be counted with each of them.
    assert!((4..=5).contains(&fewest), "a commit waited for {fewest} answers");
}

#[tokio::test]
async fn a_new_database_is_filled_without_a_look_at_all_rows() {
    const WAITING: u64 = 2_000;
    const THEN: u64 = 200;
    let database = TestDatabase::create().await;
    let mut admin = database.options.connect().await.unwrap();
    for table in ["jobs", "events", "transitions", "idempotency_keys"] {
        // As in the first minutes of a new database, where nothing has been analysed yet.
        let off = format!("ALTER TABLE {table} SET (autovacuum_enabled = off)");
        sqlx::query(sqlx::AssertSqlSafe(off)).execute(&mut admin).await.unwrap();
    }
    let store = database.store().await;
    let term = store.begin_term().await.unwrap();
    let mut submits = Submits::new();
    // Postgres decides about plans that it keeps while the tables are nearly empty.
    for _ in 0..20 {
        store.commit(term, &submits.next()).await.unwrap();
    }
    let many: Vec<Change> = (0..WAITING).flat_map(|_| submits.next()).collect();
    store.commit(term, &many).await.unwrap();
    for _ in 0..THEN {
        store.commit(term, &submits.next()).await.unwrap();
    }
    // What connections have counted is seen once they have ended.
    store.close().await;
    let scanned = "SELECT relname::text, seq_tup_read FROM pg_stat_user_tables
        WHERE relname IN ('jobs', 'events', 'transitions', 'idempotency_keys') ORDER BY 1";
    let written = "SELECT sum(n_tup_ins)::bigint FROM pg_stat_user_tables WHERE relname = 'transitions'";
    let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(60);
    while sqlx::query_scalar::<_, i64>(written).fetch_one(&mut admin).await.unwrap() < (WAITING + THEN) as i64 {
        assert!(tokio::time::Instant::now() < deadline, "statistics of the closed connections");
        tokio::task::yield_now().await;
    }
    let scanned: Vec<(String, i64)> = sqlx::query_as(scanned).fetch_all(&mut admin).await.unwrap();
    println!("{scanned:?}");
    for (table, rows) in scanned {
        let most = (THEN * WAITING / 20) as i64;
        assert!(rows < most, "{table}: {rows} rows were scanned for {THEN} submits, at most {most} are right");
    }
}
