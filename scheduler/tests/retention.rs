//! What is forgotten when its time is over, and what stays because something depends on it.

use std::collections::BTreeMap;
use std::sync::Arc;

use headway_engine::record::{
    Awaited, Checkpoint, Dependency, DependencyStanding, EventRecord, Job, JobState, Release, ReleaseProof,
};
use headway_engine::{Actor, Change};
use headway_scheduler::store::{EventFilter, JobFilter, NewToken, Revocation, Store, TABLES, TokenHash};
use headway_types::spec::Condition;
use headway_types::{Generation, IdSource, JobId, Seconds, Timestamp, TokenScope, Tokens};
use sqlx::{ConnectOptions, PgConnection};
use uuid::Uuid;

use crate::support::{START, TestDatabase, allocation, checkpoint, job, node};

fn day(number: f64) -> Timestamp {
    START + Seconds(number * 86_400.0)
}

fn ended(id: JobId, name: &str, at: Timestamp) -> Job {
    Job { state: JobState::Succeeded { at }, generation: Generation(1), ..job(id, name) }
}

fn event(seq: u64, at: Timestamp) -> EventRecord {
    EventRecord {
        seq,
        at,
        actor: Actor::Scheduler,
        verb: "job.succeeded".into(),
        job: None,
        node: None,
        plan: None,
        message: "succeeded".into(),
        detail: BTreeMap::new(),
    }
}

#[tokio::test]
async fn jobs_go_with_all_that_is_theirs_unless_something_still_needs_them() {
    let database = TestDatabase::create().await;
    let store = database.store().await;
    let term = store.begin_term().await.unwrap();
    let mut ids = IdSource::seeded(1);
    let node = ids.node(START);
    let [old, older, holds, awaited, waits, young] = std::array::from_fn(|_| ids.job(START));
    let dependency = Dependency {
        of: Awaited::Job(awaited),
        name: "awaited".into(),
        project: "nlp".into(),
        owner: "ada".into(),
        on: Condition::Success,
        standing: DependencyStanding::Open,
    };
    let jobs = [
        ended(old, "old", day(1.0)),
        ended(older, "older", day(0.0)),
        ended(holds, "holds", day(0.0)),
        ended(awaited, "awaited", day(0.0)),
        Job { after: vec![dependency], ..job(waits, "waits") },
        ended(young, "young", day(20.0)),
    ];
    let mut changes: Vec<Change> = jobs.into_iter().map(|job| Change::Job(Arc::new(job))).collect();
    for id in [old, older, awaited, young] {
        let mut released = allocation(id, node, 1);
        released.released.insert(node, Release { at: START, proof: ReleaseProof::Reported });
        changes.push(Change::Allocation(Arc::new(released)));
        let saved = Checkpoint {
            job: id,
            checkpoint: checkpoint(1, 20),
            duration: Seconds(0.7),
            committed_at: START,
            progress: Tokens(1e6),
        };
        changes.push(Change::Checkpoint(Arc::new(saved)));
    }
    changes.push(Change::Allocation(Arc::new(allocation(holds, node, 1))));
    store.commit(term, &changes).await.unwrap();

    let names = async || {
        let all = store.jobs(&JobFilter { limit: 100, ..JobFilter::default() }).await.unwrap().items;
        let mut names: Vec<String> = all.into_iter().map(|job| job.spec.name).collect();
        names.sort();
        names
    };
    assert_eq!(store.prune_jobs(day(10.0), 1).await.unwrap(), 1, "the first that ended, one at a time");
    assert_eq!(names().await, ["awaited", "holds", "old", "waits", "young"]);
    assert_eq!(store.prune_jobs(day(10.0), 100).await.unwrap(), 1);
    assert_eq!(store.prune_jobs(day(10.0), 100).await.unwrap(), 0);
    assert_eq!(names().await, ["awaited", "holds", "waits", "young"]);
    let mut admin = database.options.connect().await.unwrap();
    for table in ["allocations", "checkpoints"] {
        let count = format!("SELECT count(*) FROM {table} WHERE job_id = ANY($1)");
        let left: i64 =
            sqlx::query_scalar(sqlx::AssertSqlSafe(count)).bind([old.0, older.0]).fetch_one(&mut admin).await.unwrap();
        assert_eq!(left, 0, "{table}");
    }
    let loaded = store.load(START).await.unwrap();
    assert_eq!(loaded.jobs.len(), 2, "what waits, and what holds GPUs");
}

#[tokio::test]
async fn the_oldest_events_go_first_and_a_few_at_a_time() {
    let database = TestDatabase::create().await;
    let store = database.store().await;
    let term = store.begin_term().await.unwrap();
    let events: Vec<Change> = (1..=10).map(|seq| Change::Event(event(seq, day(seq as f64)))).collect();
    store.commit(term, &events).await.unwrap();
    assert_eq!(store.prune_events(day(5.0), 3).await.unwrap(), 3);
    assert_eq!(store.prune_events(day(5.0), 3).await.unwrap(), 1);
    assert_eq!(store.prune_events(day(5.0), 3).await.unwrap(), 0);
    let all = EventFilter { after: Some(0), limit: 100, ..EventFilter::default() };
    let left: Vec<u64> = store.events(&all).await.unwrap().items.iter().map(|event| event.seq).collect();
    assert_eq!(left, [5, 6, 7, 8, 9, 10]);
    assert_eq!(store.load(START).await.unwrap().last_event_seq, 10, "numbers are never used again");
}

#[tokio::test]
async fn what_was_learnt_and_measured_of_a_job_goes_with_it() {
    let database = TestDatabase::create().await;
    let store = database.store().await;
    let term = store.begin_term().await.unwrap();
    let mut ids = IdSource::seeded(1);
    let [old, lives] = std::array::from_fn(|_| ids.job(START));
    let jobs = [ended(old, "old", day(0.0)), job(lives, "lives")];
    let changes: Vec<Change> = jobs.into_iter().map(|job| Change::Job(Arc::new(job))).collect();
    store.commit(term, &changes).await.unwrap();
    let mut admin = database.options.connect().await.unwrap();
    for id in [old, lives] {
        let learnt = "INSERT INTO job_models (job_id, updated_at, body) VALUES ($1, now(), '{}')";
        sqlx::query(learnt).bind(id.0).execute(&mut admin).await.unwrap();
        let measured = "INSERT INTO job_series (job_id, resolution_seconds, bucket_at, generation, gpus, dp, tp, pp,
                micro_batch_sequences, global_batch_sequences, last_step, samples_seen, steps, tokens, reference_tokens,
                duration_seconds)
            SELECT $1, 3600, to_timestamp($2) + n * interval '1 hour', 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1
            FROM generate_series(0, 4) AS n";
        let measured = sqlx::query(measured).bind(id.0).bind(START.0 as f64 / 1e6);
        measured.execute(&mut admin).await.unwrap();
    }
    assert_eq!(store.prune_series_without_job(day(10.0), 100).await.unwrap(), 0, "both jobs are kept");
    assert_eq!(store.prune_jobs(day(10.0), 100).await.unwrap(), 1);
    assert_eq!(store.prune_series_without_job(day(10.0), 3).await.unwrap(), 3, "a few at a time");
    assert_eq!(store.prune_series_without_job(day(10.0), 3).await.unwrap(), 2);
    for (table, rows) in [("job_models", 1), ("job_series", 5)] {
        let count = format!("SELECT count(*) FROM {table}");
        let left: i64 = sqlx::query_scalar(sqlx::AssertSqlSafe(count)).fetch_one(&mut admin).await.unwrap();
        assert_eq!(left, rows, "{table}");
    }
}

#[tokio::test]
async fn names_of_deleted_nodes_go_once_nothing_names_them() {
    let database = TestDatabase::create().await;
    let store = database.store().await;
    let term = store.begin_term().await.unwrap();
    let mut ids = IdSource::seeded(1);
    let [forgotten, told, held, young] = std::array::from_fn(|_| ids.node(START));
    let nodes = [forgotten, told, held, young].map(|id| Change::Node(Arc::new(node(id))));
    store.commit(term, &nodes).await.unwrap();
    let done = ended(ids.job(START), "done", day(2.0));
    let mut ran = allocation(done.id, held, 1);
    ran.released.insert(held, Release { at: START, proof: ReleaseProof::Reported });
    ran.ended_at = Some(START);
    store.commit(term, &[Change::Job(Arc::new(done)), Change::Allocation(Arc::new(ran))]).await.unwrap();
    let gone = [forgotten, told, held, young].map(Change::NodeGone);
    store.commit(term, &gone).await.unwrap();
    store.commit(term, &[Change::Event(EventRecord { node: Some(told), ..event(1, START) })]).await.unwrap();
    let mut admin = database.options.connect().await.unwrap();
    let age = "UPDATE former_nodes SET deleted_at = to_timestamp($2) WHERE node_id = ANY($1)";
    let age = sqlx::query(age).bind([forgotten.0, told.0, held.0]).bind(START.0 as f64 / 1e6);
    age.execute(&mut admin).await.unwrap();
    let named =
        async || store.former_names(&[forgotten, told, held, young]).await.unwrap().into_keys().collect::<Vec<_>>();
    assert_eq!(store.prune_former_nodes(START + Seconds(1.0)).await.unwrap(), 1);
    assert_eq!(named().await, [told, held, young]);
    store.prune_events(day(1.0), 10).await.unwrap();
    assert_eq!(store.prune_former_nodes(START + Seconds(1.0)).await.unwrap(), 1);
    assert_eq!(named().await, [held, young], "what a job held is shown with its node's name");
    store.prune_jobs(day(3.0), 10).await.unwrap();
    assert_eq!(store.prune_former_nodes(START + Seconds(1.0)).await.unwrap(), 1);
    assert_eq!(named().await, [young]);
}

/// Makes a token whose name is its secret.
async fn create_token(store: &Store, name: &str, expires_at: Option<Timestamp>) -> Uuid {
    let scope = TokenScope::User;
    let new = NewToken { name, user: Some("ada"), scope, expires_at, identity: None, of_session: false };
    store.create_token(&new, &TokenHash::of(name), START, None).await.unwrap().id
}

/// Tokens that the database has, whether they open anything or not.
async fn token_names(admin: &mut PgConnection) -> Vec<String> {
    sqlx::query_scalar("SELECT name FROM tokens ORDER BY name").fetch_all(admin).await.unwrap()
}

#[tokio::test]
async fn tokens_go_some_time_after_their_end_and_those_of_servers_stay() {
    let database = TestDatabase::create().await;
    let store = database.store().await;
    let mut admin = database.options.connect().await.unwrap();
    let revoke = async |id: Uuid, at: Timestamp| {
        assert_eq!(store.revoke_token(id, at, None).await.unwrap(), Revocation::Done);
    };
    create_token(&store, "endless", None).await;
    create_token(&store, "expired", Some(day(1.0))).await;
    create_token(&store, "expires-later", Some(day(9.0))).await;
    revoke(create_token(&store, "revoked", None).await, day(2.0)).await;
    revoke(create_token(&store, "revoked-after-its-end", Some(day(1.5))).await, day(9.0)).await;
    revoke(create_token(&store, "revoked-later", None).await, day(9.0)).await;
    for name in ["agent", "given-after-its-end"] {
        if name == "given-after-its-end" {
            create_token(&store, name, Some(day(1.0))).await;
        }
        store.ensure_token(name, TokenScope::Agent, name, START).await.unwrap();
    }
    let agent = store.find_token(&TokenHash::of("agent"), START).await.unwrap().unwrap();
    revoke(agent.id, day(1.0)).await;

    assert_eq!(store.prune_tokens(day(1.0), 10).await.unwrap(), 0, "one that ends at this moment is no older");
    assert_eq!(store.prune_tokens(day(5.0), 2).await.unwrap(), 2, "so many at a time");
    let left = ["agent", "endless", "expires-later", "given-after-its-end", "revoked", "revoked-later"];
    assert_eq!(token_names(&mut admin).await, left, "those that ended first go first");
    assert_eq!(store.prune_tokens(day(5.0), 10).await.unwrap(), 1);
    assert_eq!(store.prune_tokens(day(5.0), 10).await.unwrap(), 0);
    assert_eq!(store.prune_tokens(day(500.0), 10).await.unwrap(), 2);
    assert_eq!(token_names(&mut admin).await, ["agent", "endless", "given-after-its-end"]);
    assert!(!store.ensure_token("agent", TokenScope::Agent, "agent", day(500.0)).await.unwrap(), "revoked is revoked");
}

#[tokio::test]
async fn a_token_of_a_former_release_stays_where_a_server_may_have_been_started_with_it() {
    let database = TestDatabase::before_migration(79).await;
    let mut admin = database.options.connect().await.unwrap();
    let add = "INSERT INTO tokens (token_id, name, scope, secret_sha256, created_at, expires_at, revoked_at)
        VALUES (gen_random_uuid(), $1, 'agent', sha256(convert_to($1, 'UTF8')), to_timestamp(1), to_timestamp($2), to_timestamp(3))";
    for (name, expires_at) in [("of-a-server", None), ("of-a-person", Some(2.0))] {
        sqlx::query(add).bind(name).bind(expires_at).execute(&mut admin).await.unwrap();
    }
    let store = database.store().await;
    store.migrate().await.unwrap();
    assert_eq!(store.prune_tokens(START, 10).await.unwrap(), 1);
    assert_eq!(token_names(&mut admin).await, ["of-a-server"]);
}

/// Tables of the schema, as the database has them.
async fn tables(database: &TestDatabase) -> Vec<String> {
    let mut admin = database.options.connect().await.unwrap();
    let named = "SELECT table_name::text FROM information_schema.tables
        WHERE table_schema = current_schema() AND table_type = 'BASE TABLE' ORDER BY table_name COLLATE \"C\"";
    sqlx::query_scalar(named).fetch_all(&mut admin).await.unwrap()
}

/// Whoever adds a table says what bounds it: in `TABLES`, and in the table of docs/operations.md.
#[tokio::test]
async fn every_table_names_what_bounds_it() {
    let database = TestDatabase::create().await;
    let listed: Vec<&str> = TABLES.iter().map(|bound| bound.table).collect();
    assert_eq!(tables(&database).await, listed, "store/space.rs, TABLES");
    let docs = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/operations.md")).unwrap();
    let rows: Vec<&str> = docs.lines().filter(|line| line.starts_with("| `")).collect();
    for bound in TABLES {
        let name = format!("`{}`", bound.table);
        let documented = rows.iter().find(|row| row.split('|').nth(1).is_some_and(|cell| cell.contains(&name)));
        let row = documented.unwrap_or_else(|| panic!("docs/operations.md has no row for {name}"));
        if let Some(option) = bound.option {
            assert!(row.contains(&format!("`{option}`")), "{option} is not in the row of {name}: {row}");
        }
    }
}

#[tokio::test]
async fn the_space_of_each_table_is_measured_with_its_oldest_row_and_its_bound() {
    let database = TestDatabase::create().await;
    let store = database.store().await;
    let term = store.begin_term().await.unwrap();
    let events: Vec<Change> = (1..=2_000).map(|seq| Change::Event(event(seq, day(seq as f64)))).collect();
    store.commit(term, &events).await.unwrap();
    let mut admin = database.options.connect().await.unwrap();
    sqlx::raw_sql("ANALYZE; CREATE TABLE notes_of_the_site (note text)").execute(&mut admin).await.unwrap();
    let space = store.space().await.unwrap();
    let sizes: Vec<u64> = space.tables.iter().map(|table| table.bytes).collect();
    assert!(sizes.is_sorted_by(|one, next| one >= next), "{sizes:?}");
    assert!(space.bytes >= sizes.iter().sum());
    let find = |name: &str| space.tables.iter().find(|table| table.table == name).unwrap();
    let events = find("events");
    assert_eq!(space.tables[0], *events, "the largest");
    assert_eq!((events.rows, events.oldest), (2_000, Some(day(1.0))));
    assert_eq!(events.bound.unwrap().option, Some("--event-days"));
    assert_eq!((find("jobs").rows, find("jobs").oldest), (0, None));
    assert_eq!(find("notes_of_the_site").bound, None, "a table of somebody else");
    assert_eq!(space.tables.len(), TABLES.len() + 1);
}
