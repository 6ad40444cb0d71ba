//! What is forgotten when its time is over, and what stays because something depends on it.

use std::collections::BTreeMap;
use std::sync::Arc;

use headway_engine::record::{
    Awaited, Checkpoint, Dependency, DependencyStanding, EventRecord, Job, JobState, Release, ReleaseProof,
};
use headway_engine::{Actor, Change};
use headway_scheduler::store::{EventFilter, JobFilter};
use headway_types::spec::Condition;
use headway_types::{Generation, IdSource, JobId, Seconds, Timestamp, Tokens};
use sqlx::ConnectOptions;

use crate::support::{START, TestDatabase, allocation, checkpoint, job};

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
