//! The history of states on a real Postgres: any past moment can be asked for.
#![allow(clippy::unwrap_used)]

mod support;

use std::sync::Arc;

use headway_engine::Change;
use headway_engine::record::{Entered, EventRecord, Transition};
use headway_scheduler::store::{StatesAt, Store};
use headway_types::{Generation, IdSource, JobId, NodeId, PlanId, Seconds, Term, Timestamp};
use support::{START, TestDatabase};

fn second(number: u32) -> Timestamp {
    START + Seconds(f64::from(number))
}

fn entered(at: u32, entered: Entered) -> Change {
    Change::Transition(Transition { at: second(at), entered })
}

fn job(at: u32, job: JobId, state: &str, generation: u64) -> Change {
    entered(at, Entered::Job { job, state: state.into(), generation: Generation(generation) })
}

fn allocation(at: u32, job: JobId, phase: &str, gpus: u32) -> Change {
    entered(at, Entered::Allocation { job, generation: Generation(1), phase: phase.into(), gpus })
}

fn plan(at: u32, plan: PlanId, state: &str) -> Change {
    entered(at, Entered::Plan { plan, state: state.into() })
}

fn node(at: u32, node: NodeId, availability: &str, healthy: u32) -> Change {
    let (policy, standing) = ("schedulable".into(), "good".into());
    entered(at, Entered::Node { node, availability: availability.into(), policy, standing, gpus: 8, healthy })
}

async fn store() -> (Store, Term) {
    let store = TestDatabase::create().await.store().await;
    let term = store.begin_term().await.unwrap();
    (store, term)
}

async fn job_state(store: &Store, job: JobId, at: Timestamp) -> Option<(String, u64)> {
    let states = store.states_at(at).await.unwrap();
    states.jobs.get(&job).map(|state| (state.state.clone(), state.generation.0))
}

fn is(state: &str, generation: u64) -> Option<(String, u64)> {
    Some((state.into(), generation))
}

#[tokio::test]
async fn each_past_moment_shows_what_was_then() {
    let (store, term) = store().await;
    let mut ids = IdSource::seeded(1);
    let id = ids.job(START);
    store.commit(term, &[job(1, id, "queued", 0)]).await.unwrap();
    store.commit(term, &[job(5, id, "starting", 1)]).await.unwrap();
    store.commit(term, &[job(9, id, "succeeded", 1)]).await.unwrap();

    assert_eq!(store.states_at(second(0)).await.unwrap(), StatesAt::default(), "before it began");
    assert_eq!(job_state(&store, id, second(1)).await, is("queued", 0), "the moment it was submitted");
    assert_eq!(job_state(&store, id, Timestamp(second(5).0 - 1)).await, is("queued", 0), "a microsecond before");
    assert_eq!(job_state(&store, id, second(5)).await, is("starting", 1), "the very moment of the change");
    assert_eq!(job_state(&store, id, second(8)).await, is("starting", 1));
    assert_eq!(job_state(&store, id, second(9)).await, None, "it has ended");
    assert_eq!(store.states_at(second(6)).await.unwrap().jobs[&id].since, second(5));
}

#[tokio::test]
async fn all_four_histories_are_of_one_moment() {
    let (store, term) = store().await;
    let mut ids = IdSource::seeded(1);
    let (id, machine, former, present) = (ids.job(START), ids.node(START), ids.plan(START), ids.plan(START));
    let before = [
        node(1, machine, "available", 8),
        plan(1, former, "adopted"),
        allocation(1, id, "running", 4),
        job(1, id, "running", 1),
    ];
    let after = [
        node(2, machine, "unreachable", 7),
        plan(2, former, "superseded"),
        plan(2, present, "adopted"),
        allocation(2, id, "ended", 4),
    ];
    store.commit(term, &before).await.unwrap();
    store.commit(term, &after).await.unwrap();
    store.commit(term, &[allocation(3, id, "ended", 0)]).await.unwrap();

    let then = store.states_at(Timestamp(second(2).0 - 1)).await.unwrap();
    assert_eq!(then.plans.keys().copied().collect::<Vec<_>>(), [former]);
    assert_eq!((then.nodes[&machine].availability.as_str(), then.nodes[&machine].healthy_gpus), ("available", 8));
    let now = store.states_at(second(2)).await.unwrap();
    assert_eq!(now.plans.keys().copied().collect::<Vec<_>>(), [present]);
    assert_eq!((now.nodes[&machine].availability.as_str(), now.nodes[&machine].healthy_gpus), ("unreachable", 7));
    let held = &now.allocations[&(id, Generation(1))];
    assert_eq!((held.phase.as_str(), held.gpus), ("ended", 4), "ended, and its GPUs are not proven free");
    assert!(store.states_at(second(3)).await.unwrap().allocations.is_empty());
}

#[tokio::test]
async fn a_commit_repeated_leaves_one_history() {
    let (store, term) = store().await;
    let id = IdSource::seeded(1).job(START);
    let batch = [job(1, id, "queued", 0), job(3, id, "starting", 1)];
    store.commit(term, &batch).await.unwrap();
    store.commit(term, &batch).await.unwrap();
    store.commit(term, &[job(3, id, "running", 1)]).await.unwrap();
    assert_eq!(job_state(&store, id, second(2)).await, is("queued", 0));
    assert_eq!(job_state(&store, id, second(3)).await, is("running", 1), "of two at one moment the later stays");
    assert_eq!(job_state(&store, id, second(4)).await, is("running", 1));
}

#[tokio::test]
async fn a_refused_commit_leaves_no_history() {
    let (store, term) = store().await;
    let id = IdSource::seeded(1).job(START);
    store.begin_term().await.unwrap();
    store.commit(term, &[job(1, id, "queued", 0)]).await.unwrap_err();
    assert_eq!(store.states_at(second(2)).await.unwrap(), StatesAt::default());
    assert_eq!(store.newest_moment().await.unwrap(), None);
}

#[tokio::test]
async fn the_newest_moment_is_that_of_the_newest_fact() {
    let (store, term) = store().await;
    let id = IdSource::seeded(1).job(START);
    store.commit(term, &[job(9, id, "queued", 0)]).await.unwrap();
    assert_eq!(store.newest_moment().await.unwrap(), Some(second(9)));
    let event = EventRecord {
        seq: 1,
        at: second(4),
        actor: headway_engine::Actor::Scheduler,
        verb: "job.started".into(),
        job: None,
        node: None,
        plan: None,
        message: "older".into(),
        detail: Default::default(),
    };
    store.commit(term, &[Change::Event(event), Change::Job(Arc::new(support::job(id, "any")))]).await.unwrap();
    assert_eq!(store.newest_moment().await.unwrap(), Some(second(9)), "it never steps back");
}
