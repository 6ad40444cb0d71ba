//! The store on a real Postgres: what is committed is what is loaded, and only the newest term commits.

use std::collections::BTreeMap;
use std::sync::Arc;

use headway_engine::record::{
    Checkpoint, EventRecord, IdempotencyRecord, JobState, PlanRecord, PlanState, PolicyMode, PolicySettings, Project,
    ProjectAccess, ProjectRules, Release, ReleaseProof, Reservation,
};
use headway_engine::{Actor, Change, IdempotencyKey};
use headway_goodput::{JobModel, Lessons};
use headway_scheduler::store::{
    EventFilter, JobFilter, NewToken, Revocation, RoleChange, Store, StoreError, TokenHash,
};
use headway_types::{
    Generation, GpuCount, GpuSeconds, GpuType, IdSource, JobId, JobStateKind, NodeId, Plan, PlanId, PlanReport,
    ProjectRole, ReservationId, Seconds, Term, Timestamp, TokenScope, Tokens,
};
use sqlx::ConnectOptions;

use crate::support::{START, TestDatabase, allocation, checkpoint, job, node, training};

fn plan(id: PlanId, state: PlanState) -> PlanRecord {
    let report = PlanReport {
        trigger: "test".into(),
        objective: 0.1 + 0.2,
        objective_before: -1.0 / 3.0,
        bound: Some(0.5),
        gap: Some(1e-9),
        shadow_prices: BTreeMap::from([(GpuType("H100-80G".into()), 0.25)]),
        candidates: 7,
        ..PlanReport::default()
    };
    let plan = Plan { id, parent: None, made_at: START, assignments: BTreeMap::new(), report };
    PlanRecord {
        plan: Arc::new(plan),
        state,
        decided_at: Some(START),
        decided_by: Some(Actor::Scheduler),
        adopted: None,
        terms: None,
    }
}

fn event(seq: u64, job: Option<JobId>) -> EventRecord {
    EventRecord {
        seq,
        at: START + Seconds(seq as f64),
        actor: Actor::User("ada".into()),
        verb: "job.submitted".into(),
        job,
        node: None,
        plan: None,
        message: "ada submitted".into(),
        detail: BTreeMap::from([("gpus".into(), "8".into())]),
    }
}

fn idempotency(jobs: Vec<JobId>, at: Timestamp) -> IdempotencyRecord {
    let key = IdempotencyKey {
        principal: "ada".into(),
        route: "POST /jobs".into(),
        key: format!("k{}", at.0),
        request_hash: "00".repeat(32),
    };
    IdempotencyRecord { key, subjects: jobs.into_iter().map(|job| job.0).collect(), at, reply: None }
}

fn project(name: &str) -> Project {
    let rules = ProjectRules {
        parent: Some("research".into()),
        quota: Some(GpuCount(64)),
        borrow: GpuCount(16),
        floor: GpuCount(8),
        weight: 0.1 + 0.2,
        max_per_user: Some(GpuCount(4)),
    };
    let access = ProjectAccess { private: true, members: [("ada".into(), ProjectRole::Admin)].into() };
    Project { name: name.into(), rules, access, used: GpuSeconds(1e6 / 3.0), used_at: START, version: 3 }
}

fn reservation(id: ReservationId, node: NodeId) -> Reservation {
    Reservation {
        id,
        name: "demo".into(),
        reason: Some("the board watches".into()),
        nodes: [node].into(),
        from: START,
        until: START + Seconds(3_600.0),
        projects: ["nlp".to_string()].into(),
        users: ["ada".to_string()].into(),
        jobs: [].into(),
        by: "root".into(),
        made_at: START,
        began: true,
    }
}

async fn store() -> (Store, Term) {
    let store = TestDatabase::create().await.store().await;
    let term = store.begin_term().await.unwrap();
    (store, term)
}

#[tokio::test]
async fn every_change_is_loaded_as_it_was_committed() {
    let (store, term) = store().await;
    let mut ids = IdSource::seeded(1);
    let (job_id, node_id, target, proposal) = (ids.job(START), ids.node(START), ids.plan(START), ids.plan(START));
    let mut running = job(job_id, "llama");
    running.state = JobState::Running { generation: Generation(2), since: START };
    running.generation = Generation(2);
    running.checkpoint = Some(checkpoint(1, 20));
    let policy = PolicySettings { mode: PolicyMode::Advisory, ..PolicySettings::default() };
    let saved = Checkpoint {
        job: job_id,
        checkpoint: checkpoint(1, 20),
        duration: Seconds(0.7),
        committed_at: START,
        progress: Tokens(1e12 + 0.25),
    };
    let changes = vec![
        Change::Job(Arc::new(running.clone())),
        Change::Node(Arc::new(node(node_id))),
        Change::Allocation(Arc::new(allocation(job_id, node_id, 2))),
        Change::Checkpoint(Arc::new(saved.clone())),
        Change::Plan(Arc::new(plan(target, PlanState::Adopted))),
        Change::Plan(Arc::new(plan(proposal, PlanState::Proposed))),
        Change::Target(target),
        Change::Policy(policy.clone()),
        Change::Project(Arc::new(project("nlp"))),
        Change::Reservation(Arc::new(reservation(ids.reservation(START), node_id))),
        Change::Idempotency(idempotency(vec![job_id], START)),
        Change::Event(event(1, Some(job_id))),
        Change::Event(event(2, None)),
    ];
    store.commit(term, &changes).await.unwrap();

    let loaded = store.load(START).await.unwrap();
    assert_eq!(loaded.jobs, [running.clone()]);
    assert_eq!(loaded.nodes, [node(node_id)]);
    assert_eq!(loaded.allocations, [allocation(job_id, node_id, 2)]);
    assert_eq!(loaded.target, Some(plan(target, PlanState::Adopted)));
    assert_eq!(loaded.proposals, [plan(proposal, PlanState::Proposed)]);
    assert_eq!(loaded.policy, policy);
    assert_eq!(loaded.projects, [project("nlp")]);
    assert_eq!(loaded.reservations, [reservation(loaded.reservations[0].id, node_id)]);
    assert_eq!(loaded.idempotency, [idempotency(vec![job_id], START)]);
    assert_eq!(loaded.last_event_seq, 2);
    assert_eq!(store.job(job_id).await.unwrap(), Some(running));
    assert_eq!(store.checkpoints(job_id).await.unwrap(), [saved]);
    assert_eq!(store.allocations(job_id).await.unwrap(), [allocation(job_id, node_id, 2)]);
    assert_eq!(store.plan(target).await.unwrap(), Some(plan(target, PlanState::Adopted)));
}

#[tokio::test]
async fn projects_and_reservations_change_and_go() {
    let (store, term) = store().await;
    let mut ids = IdSource::seeded(1);
    let (node, first, second) = (ids.node(START), ids.reservation(START), ids.reservation(START));
    let row = |project| Change::Project(Arc::new(project));
    let bare = Project { rules: ProjectRules::default(), ..project("bare") };
    let begin = [row(project("nlp")), row(bare.clone()), Change::Reservation(Arc::new(reservation(first, node)))];
    store.commit(term, &begin).await.unwrap();
    let used = Project { used: GpuSeconds(7.0), version: 4, ..project("nlp") };
    // One ends and another takes its name in the same batch.
    let go_on = [
        row(used.clone()),
        Change::ProjectGone("bare".into()),
        Change::Reservation(Arc::new(reservation(second, node))),
        Change::ReservationGone(first),
    ];
    store.commit(term, &go_on).await.unwrap();
    let loaded = store.load(START).await.unwrap();
    assert_eq!((loaded.projects, loaded.reservations), (vec![used], vec![reservation(second, node)]));
}

#[tokio::test]
async fn a_deleted_node_is_known_to_no_later_leader_and_only_by_name() {
    let (store, term) = store().await;
    let mut ids = IdSource::seeded(1);
    let (stays, gone) = (ids.node(START), ids.node(START));
    let row = |id| Change::Node(Arc::new(node(id)));
    store.commit(term, &[row(stays), row(gone)]).await.unwrap();
    for _ in 0..2 {
        store.commit(term, &[Change::NodeGone(gone)]).await.unwrap();
    }
    assert_eq!(store.load(START).await.unwrap().nodes, [node(stays)]);
    let name = node(gone).inventory.name;
    assert_eq!(store.former_names(&[stays, gone]).await.unwrap(), BTreeMap::from([(gone, name.clone())]));
    assert_eq!(store.formerly_named(&name).await.unwrap(), [gone]);
    store.commit(term, &[row(gone)]).await.unwrap();
    assert_eq!(store.load(START).await.unwrap().nodes, [node(stays), node(gone)], "it came back as a new one");
    store.commit(term, &[Change::NodeGone(gone)]).await.unwrap();
    assert_eq!(store.formerly_named(&name).await.unwrap(), [gone]);
    let older = term;
    store.begin_term().await.unwrap();
    assert!(matches!(store.commit(older, &[Change::NodeGone(stays)]).await, Err(StoreError::Fenced { .. })));
    assert_eq!(store.load(START).await.unwrap().nodes, [node(stays)]);
}

#[tokio::test]
async fn plans_are_forgotten_by_age_but_for_those_that_somebody_follows() {
    let (store, term) = store().await;
    let mut ids = IdSource::seeded(1);
    let node_id = ids.node(START);
    let names =
        ["target", "proposal", "of_a_running_job", "of_held_gpus", "with_input", "of_an_ended_job", "nobodys", "young"];
    let plans: BTreeMap<_, _> = names.map(|name| (name, ids.plan(START))).into();
    let day = |number: f64| START + Seconds(number * 86_400.0);
    let record = |name: &str, state, made_at| {
        let record = plan(plans[name], state);
        let plan = Arc::new(Plan { made_at, ..Plan::clone(&record.plan) });
        Change::Plan(Arc::new(PlanRecord { plan, ..record }))
    };
    let mut changes: Vec<Change> = names[2..7].iter().map(|name| record(name, PlanState::Superseded, START)).collect();
    changes.push(record("target", PlanState::Adopted, START));
    changes.push(record("proposal", PlanState::Proposed, START));
    changes.push(record("young", PlanState::Stale, day(20.0)));
    changes.push(Change::Target(plans["target"]));
    let ended = JobState::Succeeded { at: START };
    let running = JobState::Running { generation: Generation(2), since: START };
    let holders =
        [("of_a_running_job", running, true), ("of_held_gpus", ended.clone(), false), ("of_an_ended_job", ended, true)];
    for (name, state, released) in holders {
        let id = ids.job(START);
        changes.push(Change::Job(Arc::new(headway_engine::record::Job {
            state,
            generation: Generation(2),
            ..job(id, name)
        })));
        let mut held = allocation(id, node_id, 1);
        held.plan = Some(plans[name]);
        if released {
            held.released.insert(node_id, Release { at: START, proof: ReleaseProof::Reported });
        }
        changes.push(Change::Allocation(Arc::new(held)));
    }
    store.commit(term, &changes).await.unwrap();
    store.add_plan_input(plans["with_input"], START, b"round").await.unwrap();

    assert_eq!(store.prune_plans(START, 10).await.unwrap(), 0, "none is older");
    assert_eq!(store.prune_plans(day(10.0), 1).await.unwrap(), 1, "so many at a time");
    assert_eq!(store.prune_plans(day(10.0), 10).await.unwrap(), 1);
    assert_eq!(store.prune_plans(day(10.0), 10).await.unwrap(), 0);
    let left = store.plans(None, None, 10).await.unwrap().items;
    let left: Vec<_> = left.into_iter().map(|line| *plans.iter().find(|(_, id)| **id == line.id).unwrap().0).collect();
    assert_eq!(left, ["young", "with_input", "of_held_gpus", "of_a_running_job", "proposal", "target"]);
}

#[tokio::test]
async fn writing_a_row_twice_changes_nothing() {
    let (store, term) = store().await;
    let mut ids = IdSource::seeded(1);
    let (job_id, node_id) = (ids.job(START), ids.node(START));
    let changes = [
        Change::Job(Arc::new(job(job_id, "twice"))),
        Change::Node(Arc::new(node(node_id))),
        Change::Allocation(Arc::new(allocation(job_id, node_id, 1))),
        Change::Idempotency(idempotency(vec![job_id], START)),
    ];
    store.commit(term, &changes).await.unwrap();
    let before = store.load(START).await.unwrap();
    store.commit(term, &changes).await.unwrap();
    assert_eq!(store.load(START).await.unwrap(), before);
}

#[tokio::test]
async fn what_was_learnt_of_a_live_job_survives() {
    let (store, term) = store().await;
    let mut ids = IdSource::seeded(1);
    let (live, ended) = (ids.job(START), ids.job(START));
    let mut over = job(ended, "ended");
    over.state = JobState::Cancelled { at: START, by: "ada".into(), reason: None };
    let changes = [Change::Job(Arc::new(job(live, "live"))), Change::Job(Arc::new(over))];
    store.commit(term, &changes).await.unwrap();
    let model = JobModel::new(training());
    let models = BTreeMap::from([live, ended].map(|id| (id, Arc::new(model.clone()))));
    store.save_models(START, &models).await.unwrap();
    store.save_models(START, &models).await.unwrap();
    assert_eq!(store.load(START).await.unwrap().models, BTreeMap::from([(live, model)]));
}

#[tokio::test]
async fn what_jobs_taught_their_peers_survives() {
    let (store, _) = store().await;
    assert!(store.load(START).await.unwrap().lessons.is_empty());
    let kind = r#"[{"shape": SHAPE, "precision": "bf16"}, {"H100-80G": {"micro": 405, "step": -20, "extra": 1500}}]"#;
    let shape = serde_json::to_string(&headway_types::example::tiny()).unwrap();
    let lessons: Lessons = serde_json::from_str(&format!("[{}]", kind.replace("SHAPE", &shape))).unwrap();
    for _ in 0..2 {
        store.save_lessons(START, &lessons).await.unwrap();
        assert_eq!(store.load(START).await.unwrap().lessons, lessons);
    }
}

#[tokio::test]
async fn an_older_term_writes_nothing() {
    let (store, older) = store().await;
    let newer = store.begin_term().await.unwrap();
    assert!(newer > older);
    let id = IdSource::seeded(1).job(START);
    let refused = store.commit(older, &[Change::Job(Arc::new(job(id, "late")))]).await;
    assert!(matches!(refused, Err(StoreError::Fenced { term }) if term == older));
    assert_eq!(store.job(id).await.unwrap(), None);
    store.commit(newer, &[Change::Job(Arc::new(job(id, "in time")))]).await.unwrap();
}

#[tokio::test]
async fn a_generation_never_goes_back_and_takes_nothing_else_with_it() {
    let (store, term) = store().await;
    let mut ids = IdSource::seeded(1);
    let (first, second) = (ids.job(START), ids.job(START));
    let mut newer = job(first, "fenced");
    newer.generation = Generation(5);
    store.commit(term, &[Change::Job(Arc::new(newer))]).await.unwrap();
    let changes = [Change::Job(Arc::new(job(second, "other"))), Change::Job(Arc::new(job(first, "fenced")))];
    assert!(matches!(store.commit(term, &changes).await, Err(StoreError::Conflict { row: "job" })));
    assert_eq!(store.job(second).await.unwrap(), None);
    assert_eq!(store.job(first).await.unwrap().unwrap().generation, Generation(5));
}

#[tokio::test]
async fn an_event_number_is_used_once() {
    let (store, term) = store().await;
    store.commit(term, &[Change::Event(event(1, None))]).await.unwrap();
    assert!(matches!(store.commit(term, &[Change::Event(event(1, None))]).await, Err(StoreError::Database { .. })));
}

#[tokio::test]
async fn an_ended_job_is_loaded_while_its_gpus_are_held_and_its_key_without_it() {
    let (store, term) = store().await;
    let mut ids = IdSource::seeded(1);
    let node_id = ids.node(START);
    let jobs: Vec<JobId> = (0..3).map(|_| ids.job(START)).collect();
    let mut changes: Vec<Change> = jobs
        .iter()
        .map(|id| {
            let mut ended = job(*id, "ended");
            ended.state = JobState::Succeeded { at: START };
            ended.generation = Generation(1);
            Change::Job(Arc::new(ended))
        })
        .collect();
    let mut released = allocation(jobs[1], node_id, 1);
    released.released.insert(node_id, Release { at: START, proof: ReleaseProof::Reported });
    changes.push(Change::Allocation(Arc::new(allocation(jobs[0], node_id, 1))));
    changes.push(Change::Allocation(Arc::new(released)));
    changes.push(Change::Idempotency(idempotency(vec![jobs[2]], START)));
    store.commit(term, &changes).await.unwrap();
    let loaded = store.load(START).await.unwrap();
    assert_eq!(loaded.jobs.into_iter().map(|job| job.id).collect::<Vec<_>>(), [jobs[0]]);
    assert_eq!(loaded.idempotency.into_iter().flat_map(|record| record.subjects).collect::<Vec<_>>(), [jobs[2].0]);
    assert!(store.load(START + Seconds(1.0)).await.unwrap().idempotency.is_empty());
    assert_eq!(store.prune_idempotency_keys(START + Seconds(1.0)).await.unwrap(), 1);
}

#[tokio::test]
async fn listings_page_through_every_job_once_newest_first() {
    let (store, term) = store().await;
    let mut ids = IdSource::seeded(1);
    let mut jobs: Vec<_> = (0..7)
        .map(|number| {
            let mut one = job(ids.job(START + Seconds(f64::from(number))), &format!("Run-{number}"));
            if number % 2 == 0 {
                one.owner = "bob".into();
                one.state = JobState::Failed { at: START, message: "exit\0code 1".into() };
            }
            one
        })
        .collect();
    let changes: Vec<_> = jobs.iter().cloned().map(|one| Change::Job(Arc::new(one))).collect();
    store.commit(term, &changes).await.unwrap();
    jobs.reverse();

    let mut filter = JobFilter { limit: 3, ..JobFilter::default() };
    let mut listed = Vec::new();
    loop {
        let page = store.list_jobs(&filter).await.unwrap();
        listed.extend(page.items.into_iter().map(|one| one.id));
        filter.cursor = page.next;
        if filter.cursor.is_none() {
            break;
        }
    }
    assert_eq!(listed, jobs.iter().map(|one| one.id).collect::<Vec<_>>());

    let failed =
        JobFilter { states: vec![JobStateKind::Failed], owner: Some("bob".into()), limit: 10, ..JobFilter::default() };
    assert_eq!(store.list_jobs(&failed).await.unwrap().items.len(), 4);
    let named = JobFilter { name_contains: Some("run-3".into()), limit: 10, ..JobFilter::default() };
    assert_eq!(store.list_jobs(&named).await.unwrap().items.len(), 1);
    let elsewhere = JobFilter { project: Some("vision".into()), limit: 10, ..JobFilter::default() };
    assert!(store.list_jobs(&elsewhere).await.unwrap().items.is_empty());
}

#[tokio::test]
async fn the_event_log_reads_both_ways() {
    let (store, term) = store().await;
    let id = IdSource::seeded(1).job(START);
    let changes: Vec<_> = (1..=5).map(|seq| Change::Event(event(seq, (seq % 2 == 0).then_some(id)))).collect();
    store.commit(term, &changes).await.unwrap();
    let numbers = async |filter: EventFilter| -> (Vec<u64>, Option<u64>) {
        let page = store.events(&filter).await.unwrap();
        (page.items.iter().map(|event| event.seq).collect(), page.next)
    };
    let all = EventFilter { limit: 2, ..EventFilter::default() };
    assert_eq!(numbers(all.clone()).await, (vec![5, 4], Some(4)));
    assert_eq!(numbers(EventFilter { before: Some(4), ..all.clone() }).await, (vec![3, 2], Some(2)));
    assert_eq!(numbers(EventFilter { after: Some(3), ..all.clone() }).await, (vec![4, 5], None));
    assert_eq!(numbers(EventFilter { job: Some(id), limit: 9, ..all }).await, (vec![4, 2], None));
}

#[tokio::test]
async fn events_are_found_by_what_they_tell() {
    let (store, term) = store().await;
    let mut ids = IdSource::seeded(1);
    let (id, plan) = (ids.job(START), ids.plan(START));
    let row = job(id, "first");
    let at = |seq: u64| START + Seconds(seq as f64);
    let told =
        |seq: u64| EventRecord { at: at(seq), actor: Actor::Scheduler, verb: "node.lost".into(), ..event(seq, None) };
    let changes = [
        Change::Event(event(1, Some(id))),
        Change::Event(told(2)),
        Change::Event(EventRecord { plan: Some(plan), actor: Actor::Node(ids.node(START)), ..told(3) }),
        Change::Event(EventRecord { verb: "job.granted".into(), plan: Some(plan), job: Some(id), ..told(4) }),
        Change::Job(Arc::new(row.clone())),
    ];
    store.commit(term, &changes).await.unwrap();
    let found = async |filter: EventFilter| -> Vec<u64> {
        let page = store.events(&EventFilter { limit: 9, ..filter }).await.unwrap();
        assert_eq!(page.next, None);
        page.items.into_iter().map(|event| event.seq).collect()
    };
    let any = EventFilter::default;
    assert_eq!(found(EventFilter { project: Some(row.spec.project.clone()), ..any() }).await, [4, 1]);
    assert_eq!(found(EventFilter { actor: Some("user:ada".into()), ..any() }).await, [1]);
    assert_eq!(found(EventFilter { actor: Some("scheduler".into()), after: Some(0), ..any() }).await, [2, 4]);
    assert_eq!(found(EventFilter { plan: Some(plan), ..any() }).await, [4, 3]);
    let verbs = vec!["node.lost".to_owned(), "job.granted".to_owned()];
    assert_eq!(found(EventFilter { verbs: verbs.clone(), ..any() }).await, [4, 3, 2]);
    assert_eq!(found(EventFilter { verbs, actor: Some("scheduler".into()), ..any() }).await, [4, 2]);
    let between = EventFilter { since: Some(at(2)), until: Some(at(4)), ..any() };
    assert_eq!(found(between.clone()).await, [3, 2]);
    assert_eq!(found(EventFilter { after: Some(2), ..between }).await, [3]);
    assert!(found(EventFilter { since: Some(at(5)), ..any() }).await.is_empty());
    assert_eq!(store.event(3).await.unwrap().unwrap().seq, 3);
    assert_eq!(store.event(9).await.unwrap(), None);
}

#[tokio::test]
async fn plans_list_newest_first() {
    let (store, term) = store().await;
    let mut ids = IdSource::seeded(1);
    let plans: Vec<_> = (0..3).map(|second| ids.plan(START + Seconds(f64::from(second)))).collect();
    let changes: Vec<_> =
        plans.iter().map(|id| Change::Plan(Arc::new(plan(*id, PlanState::Rejected { reason: None })))).collect();
    store.commit(term, &changes).await.unwrap();
    let page = store.plans(None, None, 2).await.unwrap();
    assert_eq!(page.items.iter().map(|one| one.id).collect::<Vec<_>>(), [plans[2], plans[1]]);
    let rest = store.plans(None, page.next, 2).await.unwrap();
    assert_eq!(rest.items.iter().map(|one| one.id).collect::<Vec<_>>(), [plans[0]]);
    assert_eq!(rest.next, None);
}

#[tokio::test]
async fn plans_of_earlier_releases_are_listed_like_those_of_today() {
    let database = TestDatabase::before_migration(10).await;
    let mut connection = database.options.connect().await.unwrap();
    let mut ids = IdSource::seeded(1);
    let states = [PlanState::Proposed, PlanState::Rejected { reason: Some("not now".into()) }, PlanState::Adopted];
    let records: Vec<_> = states.into_iter().map(|state| plan(ids.plan(START), state)).collect();
    let insert = "INSERT INTO plans (plan_id, state, made_at, body) VALUES ($1, $2, now(), $3)";
    let mut wrote = async |record: &PlanRecord| {
        let query = sqlx::query(insert).bind(record.plan.id.0).bind(record.state.kind().to_string());
        query.bind(sqlx::types::Json(record)).execute(&mut connection).await.unwrap();
    };
    wrote(&records[0]).await;
    wrote(&records[1]).await;
    let store = database.store().await;
    store.migrate().await.unwrap();
    // And a binary of before that goes on beside this one.
    wrote(&records[2]).await;
    let mut listed = store.plans(None, None, 9).await.unwrap().items;
    listed.sort_by_key(|line| line.id);
    let mut lines: Vec<_> = records.iter().map(PlanRecord::summary).collect();
    lines.sort_by_key(|line| line.id);
    assert_eq!(listed, lines);
}

#[tokio::test]
async fn a_token_opens_until_it_expires_or_is_revoked() {
    let (store, _) = store().await;
    let hash = TokenHash::of("s3cret");
    let later = START + Seconds(60.0);
    let new = NewToken {
        name: "ci",
        user: Some("ada"),
        scope: TokenScope::User,
        expires_at: Some(later),
        identity: None,
        of_session: false,
    };
    let token = store.create_token(&new, &hash, START, None).await.unwrap();
    assert_eq!(store.find_token(&hash, START).await.unwrap(), Some(token.clone()));
    assert_eq!(store.find_token(&hash, later).await.unwrap(), None);
    assert_eq!(store.find_token(&TokenHash::of("other"), START).await.unwrap(), None);
    assert_eq!(store.revoke_token(token.id, START, None).await.unwrap(), Revocation::Done);
    assert_eq!(store.revoke_token(token.id, START, None).await.unwrap(), Revocation::Unknown);
    assert_eq!(store.find_token(&hash, START).await.unwrap(), None);

    store.ensure_token("admin", TokenScope::Viewer, "fixed", START).await.unwrap();
    store.ensure_token("admin", TokenScope::Admin, "fixed", START).await.unwrap();
    let ensured = store.find_token(&TokenHash::of("fixed"), later).await.unwrap().unwrap();
    assert_eq!(ensured.scope, TokenScope::Admin);
    assert_eq!(store.tokens(None, None, 10).await.unwrap().items, [ensured]);

    let agent = async || store.ensure_token("agent", TokenScope::Agent, "agent", START).await.unwrap();
    assert!(agent().await);
    let known = store.find_token(&TokenHash::of("agent"), START).await.unwrap().unwrap();
    assert_eq!(store.revoke_token(known.id, START, None).await.unwrap(), Revocation::Done);
    assert!(!agent().await, "revoked is revoked");
}

#[tokio::test]
async fn a_token_of_a_former_release_keeps_its_identity_and_lends_it_to_no_other() {
    let database = TestDatabase::before_migration(14).await;
    let mut connection = database.options.connect().await.unwrap();
    for (name, scope, revoked) in [
        ("admin", "admin", false),
        ("admin", "user", false),
        ("ada", "user", false),
        ("ada", "admin", true),
        ("gone", "viewer", true),
        ("agent", "agent", false),
    ] {
        let secret = TokenHash::of(&format!("{name}/{scope}"));
        sqlx::query(
            "INSERT INTO tokens (token_id, name, scope, secret_sha256, created_at, revoked_at)
            VALUES ($1, $2, $3, decode($4, 'hex'), to_timestamp(1), CASE WHEN $5 THEN to_timestamp(2) END)",
        )
        .bind(uuid::Uuid::now_v7())
        .bind(name)
        .bind(scope)
        .bind(secret.to_string())
        .bind(revoked)
        .execute(&mut connection)
        .await
        .unwrap();
    }
    let store = database.store().await;
    store.migrate().await.unwrap();
    let found = async |secret: &str| store.find_token(&TokenHash::of(secret), START).await.unwrap();
    let admin = found("admin/admin").await.unwrap();
    assert_eq!((admin.user.as_deref(), admin.scope), (Some("admin"), TokenScope::Admin));
    let lesser = found("admin/user").await.unwrap();
    assert_eq!((lesser.user.as_deref(), lesser.scope), (Some("admin"), TokenScope::User));
    assert_eq!(found("agent/agent").await.unwrap().user, None);
    assert_eq!(found("ada/admin").await, None);
    let roles: Vec<_> = store.users(START).await.unwrap().into_iter().map(|user| (user.name, user.role)).collect();
    let expected = [("ada", TokenScope::User), ("admin", TokenScope::Admin), ("gone", TokenScope::Viewer)];
    assert_eq!(roles, expected.map(|(name, role)| (name.to_owned(), role)));

    // A label is no identity any more.
    let new = NewToken {
        name: "admin",
        user: Some("bob"),
        scope: TokenScope::User,
        expires_at: None,
        identity: None,
        of_session: false,
    };
    store.create_token(&new, &TokenHash::of("bob"), START, None).await.unwrap();
    assert_eq!(found("bob").await.unwrap().user.as_deref(), Some("bob"));

    // What the binary of before makes meanwhile is nobody's.
    sqlx::query("INSERT INTO tokens (token_id, name, scope, secret_sha256, created_at) VALUES ($1, 'ada', 'admin', decode($2, 'hex'), to_timestamp(3))")
        .bind(uuid::Uuid::now_v7())
        .bind(TokenHash::of("meanwhile").to_string())
        .execute(&mut connection)
        .await
        .unwrap();
    assert_eq!(found("meanwhile").await, None);
}

#[tokio::test]
async fn a_role_bounds_what_tokens_open_and_the_last_admin_keeps_it() {
    let (store, _) = store().await;
    store.ensure_token("root", TokenScope::Admin, "root", START).await.unwrap();
    assert_eq!(store.set_role("root", TokenScope::User, START, None).await.unwrap(), RoleChange::LastAdmin);
    store.ensure_token("ada", TokenScope::Admin, "ada", START).await.unwrap();
    assert_eq!(store.set_role("root", TokenScope::User, START, None).await.unwrap(), RoleChange::Done);
    assert_eq!(store.set_role("bob", TokenScope::Operator, START, None).await.unwrap(), RoleChange::Created);
    let root = store.find_token(&TokenHash::of("root"), START).await.unwrap().unwrap();
    assert_eq!(root.scope, TokenScope::User);
    assert_eq!(store.set_role("ada", TokenScope::Viewer, START, None).await.unwrap(), RoleChange::LastAdmin);
}
