//! The history of states on a real Postgres: any past moment can be asked for.

use std::sync::Arc;

use headway_engine::Change;
use headway_engine::record::{AllocationPhase, Entered, EventRecord, Transition};
use headway_scheduler::store::{StatesAt, Store};
use headway_types::{
    Generation, IdSource, JobId, NodeId, NodePolicyKind, PlanId, Seconds, StandingKind, Term, Timestamp,
};
use sqlx::ConnectOptions;

use crate::support::{START, TestDatabase};

fn second(number: u32) -> Timestamp {
    START + Seconds(f64::from(number))
}

fn entered(at: u32, entered: Entered) -> Change {
    Change::Transition(Transition { at: second(at), entered })
}

fn job(at: u32, job: JobId, state: &str, generation: u64) -> Change {
    entered(at, Entered::Job { job, state: state.parse().unwrap(), generation: Generation(generation) })
}

fn allocation(at: u32, job: JobId, phase: AllocationPhase, gpus: u32) -> Change {
    entered(at, Entered::Allocation { job, generation: Generation(1), phase, gpus })
}

fn plan(at: u32, plan: PlanId, state: &str) -> Change {
    entered(at, Entered::Plan { plan, state: state.parse().unwrap() })
}

fn node(at: u32, node: NodeId, availability: &str, healthy: u32) -> Change {
    let (policy, standing) = (NodePolicyKind::Schedulable, StandingKind::Good);
    entered(at, Entered::Node { node, availability: availability.parse().unwrap(), policy, standing, gpus: 8, healthy })
}

async fn store() -> (Store, Term) {
    let store = TestDatabase::create().await.store().await;
    let term = store.begin_term().await.unwrap();
    (store, term)
}

async fn job_state(store: &Store, job: JobId, at: Timestamp) -> Option<(String, u64)> {
    let states = store.states_at(at).await.unwrap();
    states.jobs.get(&job).map(|state| (state.state.to_string(), state.generation.0))
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
        allocation(1, id, AllocationPhase::Running, 4),
        job(1, id, "running", 1),
    ];
    let after = [
        node(2, machine, "unreachable", 7),
        plan(2, former, "superseded"),
        plan(2, present, "adopted"),
        allocation(2, id, AllocationPhase::Ended, 4),
    ];
    store.commit(term, &before).await.unwrap();
    store.commit(term, &after).await.unwrap();
    store.commit(term, &[allocation(3, id, AllocationPhase::Ended, 0)]).await.unwrap();

    let then = store.states_at(Timestamp(second(2).0 - 1)).await.unwrap();
    assert_eq!(then.plans.keys().copied().collect::<Vec<_>>(), [former]);
    assert_eq!(
        (then.nodes[&machine].availability.to_string().as_str(), then.nodes[&machine].healthy_gpus),
        ("available", 8)
    );
    let now = store.states_at(second(2)).await.unwrap();
    assert_eq!(now.plans.keys().copied().collect::<Vec<_>>(), [present]);
    assert_eq!(
        (now.nodes[&machine].availability.to_string().as_str(), now.nodes[&machine].healthy_gpus),
        ("unreachable", 7)
    );
    let held = &now.allocations[&(id, Generation(1))];
    assert_eq!((held.phase, held.gpus), (AllocationPhase::Ended, 4), "ended, and its GPUs are not proven free");
    assert!(store.states_at(second(3)).await.unwrap().allocations.is_empty());
}

#[tokio::test]
async fn a_deleted_node_is_shown_by_no_moment_after_and_may_begin_anew() {
    let (store, term) = store().await;
    let machine = IdSource::seeded(1).node(START);
    store.commit(term, &[node(1, machine, "available", 8)]).await.unwrap();
    let gone = [node(5, machine, "lost", 8), entered(5, Entered::NodeGone { node: machine })];
    for _ in 0..2 {
        store.commit(term, &gone).await.unwrap();
    }
    store.commit(term, &[node(9, machine, "available", 4)]).await.unwrap();
    let shown = async |at: u32| {
        let states = store.states_at(second(at)).await.unwrap();
        states.nodes.get(&machine).map(|then| (then.availability.to_string(), then.healthy_gpus))
    };
    assert_eq!(shown(4).await, Some(("available".into(), 8)));
    assert_eq!((shown(5).await, shown(8).await), (None, None));
    assert_eq!(shown(9).await, Some(("available".into(), 4)));
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
async fn a_job_that_has_ended_is_found_by_name_and_shown_by_no_moment() {
    let (store, term) = store().await;
    let id = IdSource::seeded(1).job(START);
    store.commit(term, &[job(1, id, "running", 1), allocation(1, id, AllocationPhase::Running, 2)]).await.unwrap();
    store.commit(term, &[job(5, id, "succeeded", 1), allocation(5, id, AllocationPhase::Ended, 0)]).await.unwrap();
    let then = store.job_at(id, second(4)).await.unwrap();
    assert_eq!(
        (then.jobs[&id].state.to_string().as_str(), then.allocations[&(id, Generation(1))].gpus),
        ("running", 2)
    );
    for later in [second(5), second(500)] {
        let then = store.job_at(id, later).await.unwrap();
        assert_eq!((then.jobs[&id].state.to_string().as_str(), then.jobs[&id].since), ("succeeded", second(5)));
        assert!(then.allocations.is_empty(), "its GPUs are proven free");
        assert_eq!(store.states_at(later).await.unwrap(), StatesAt::default());
    }
    assert_eq!(store.job_at(id, second(0)).await.unwrap(), StatesAt::default());
}

#[tokio::test]
async fn what_had_ended_is_forgotten_and_what_lasts_is_kept() {
    let (store, term) = store().await;
    let mut ids = IdSource::seeded(1);
    let (ended, lasting) = (ids.job(START), ids.job(START));
    store.commit(term, &[job(1, ended, "running", 1), job(1, lasting, "running", 1)]).await.unwrap();
    store.commit(term, &[job(5, ended, "failed", 1)]).await.unwrap();
    assert_eq!(store.prune_transitions(second(5)).await.unwrap(), 0, "up to here all can be asked for");
    assert_eq!(store.prune_transitions(second(6)).await.unwrap(), 2);
    assert_eq!(job_state(&store, lasting, second(6)).await, is("running", 1));
    assert_eq!(store.job_at(ended, second(6)).await.unwrap(), StatesAt::default());
}

/// What the previous release writes when a subject enters a state.
async fn formerly(database: &TestDatabase, job: JobId, at: u32, state: &str) {
    let mut connection = database.options.connect().await.unwrap();
    let at = chrono::DateTime::from_timestamp_micros(second(at).0).unwrap();
    sqlx::query("UPDATE job_transitions SET valid_to = $2 WHERE job_id = $1 AND valid_to IS NULL AND valid_from < $2")
        .bind(job.0)
        .bind(at)
        .execute(&mut connection)
        .await
        .unwrap();
    sqlx::query("INSERT INTO job_transitions (job_id, valid_from, state, generation) VALUES ($1, $2, $3, 1)")
        .bind(job.0)
        .bind(at)
        .bind(state)
        .execute(&mut connection)
        .await
        .unwrap();
}

#[tokio::test]
async fn the_history_of_the_previous_release_is_carried_over() {
    let database = TestDatabase::before_migration(9).await;
    let mut ids = IdSource::seeded(1);
    let (lives, ended) = (ids.job(START), ids.job(START));
    let (machine, target, former) = (ids.node(START), ids.plan(START), ids.plan(START));
    formerly(&database, lives, 1, "queued").await;
    formerly(&database, lives, 3, "running").await;
    formerly(&database, ended, 2, "cancelled").await;
    let mut connection = database.options.connect().await.unwrap();
    for (sql, id) in [
        ("INSERT INTO allocation_transitions VALUES ($1, 1, $2, NULL, 'running', 4)", lives.0),
        ("INSERT INTO allocation_transitions VALUES ($1, 1, $2, NULL, 'ended', 0)", ended.0),
        ("INSERT INTO node_transitions VALUES ($1, $2, NULL, 'available', 'cordoned', 'good', 8, 7)", machine.0),
        ("INSERT INTO plan_transitions VALUES ($1, $2, NULL, 'adopted')", target.0),
        ("INSERT INTO plan_transitions VALUES ($1, $2, NULL, 'superseded')", former.0),
    ] {
        let at = chrono::DateTime::from_timestamp_micros(second(3).0).unwrap();
        sqlx::query(sql).bind(id).bind(at).execute(&mut connection).await.unwrap();
    }
    let store = database.store().await;
    store.migrate().await.unwrap();

    assert_eq!(job_state(&store, lives, second(2)).await, is("queued", 1));
    let now = store.states_at(second(4)).await.unwrap();
    assert_eq!(now.jobs.keys().collect::<Vec<_>>(), [&lives]);
    assert_eq!((now.jobs[&lives].state.to_string().as_str(), now.jobs[&lives].since), ("running", second(3)));
    assert_eq!(now.allocations.keys().collect::<Vec<_>>(), [&(lives, Generation(1))]);
    assert_eq!(now.allocations[&(lives, Generation(1))].gpus, 4);
    let node = &now.nodes[&machine];
    assert_eq!((node.policy.to_string().as_str(), node.gpus, node.healthy_gpus), ("cordoned", 8, 7));
    assert_eq!(now.plans.keys().collect::<Vec<_>>(), [&target]);
    assert_eq!(store.job_at(ended, second(4)).await.unwrap().jobs[&ended].state.to_string(), "cancelled");
}

#[tokio::test]
async fn what_the_previous_release_writes_beside_this_one_is_part_of_the_history() {
    let database = TestDatabase::create().await;
    let store = database.store().await;
    let id = IdSource::seeded(1).job(START);
    formerly(&database, id, 1, "queued").await;
    formerly(&database, id, 3, "starting").await;
    let term = store.begin_term().await.unwrap();
    store.commit(term, &[job(5, id, "running", 1)]).await.unwrap();
    formerly(&database, id, 7, "stopping").await;
    formerly(&database, id, 9, "succeeded").await;
    let expected = [(1, "queued"), (3, "starting"), (5, "running"), (7, "stopping")];
    for (at, state) in expected {
        assert_eq!(job_state(&store, id, second(at)).await, is(state, 1), "at {at} s");
        assert_eq!(job_state(&store, id, second(at + 1)).await, is(state, 1), "after {at} s");
    }
    assert_eq!(job_state(&store, id, second(9)).await, None);
    assert_eq!(store.job_at(id, second(10)).await.unwrap().jobs[&id].state.to_string(), "succeeded");
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
    store.commit(term, &[Change::Event(event), Change::Job(Arc::new(crate::support::job(id, "any")))]).await.unwrap();
    assert_eq!(store.newest_moment().await.unwrap(), Some(second(9)), "it never steps back");
}
