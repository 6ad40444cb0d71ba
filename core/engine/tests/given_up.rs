//! Rounds that give no plan: an incident that people see, after which the next round asks less, and waits where it would fail at once.
#![allow(clippy::unwrap_used)]

mod harness;

use harness::{Cluster, answer, node_id, rigid};
use headway_engine::EngineConfig;
use headway_engine::event::{Actor, Event, Request, RequestId};
use headway_engine::record::JobState;
use headway_planner::{Freedom, PlanInput};
use headway_types::{GpuUuid, JobId, NodeReport, NodeSlice, Placement, PlanId, ReasonCode, Seconds};

fn submit(name: &str, gpus: u32) -> Event {
    let body = Request::Submit { jobs: vec![rigid(name, gpus)], idempotency: None };
    Event::Request { request: RequestId(1), actor: Actor::User("ada".into()), body }
}

/// The round that is asked for once the pause since the last is over.
fn next_round(cluster: &mut Cluster) -> Option<PlanInput> {
    cluster.now = cluster.now + Seconds(2.0);
    cluster.engine.handle(cluster.now, vec![Event::Tick]).plan_request.map(|round| round.input())
}

fn give_up(cluster: &mut Cluster, plan: PlanId) {
    cluster.feed_unplanned(Event::PlanGivenUp { plan, message: "no plan after 60 s".into() });
}

#[test]
fn after_a_round_that_was_given_up_the_next_asks_less_until_all_are_planned_again() {
    let mut cluster = Cluster::new(&[8]);
    cluster.feed(submit("runs", 8));
    cluster.pass(1.0);
    cluster.now = cluster.now + Seconds(2.0);
    let jobs = (0..1_100).map(|number| rigid(&format!("waits-{number}"), 8)).collect();
    let first = cluster.round_for(Request::Submit { jobs, idempotency: None });
    assert_eq!(first.jobs.len(), 1_101);
    give_up(&mut cluster, first.plan);
    assert_eq!((cluster.count("plan.given_up"), cluster.engine.view().trouble.unwrap().rounds), (1, 1));

    let second = next_round(&mut cluster).unwrap();
    assert_eq!(second.jobs.len(), 1 + 1_024, "those first in line");
    let told = |cluster: &Cluster| {
        let view = cluster.engine.view();
        let verdicts = view.jobs.keys().filter_map(|job| view.verdict(*job));
        verdicts.filter(|verdict| verdict.reasons.iter().any(|one| one.code == ReasonCode::NotReady)).count()
    };
    assert_eq!(told(&cluster), 76, "whoever is left out knows why it waits");
    give_up(&mut cluster, second.plan);

    let third = next_round(&mut cluster).unwrap();
    assert_eq!(third.jobs.len(), 1 + 256);
    assert!(third.jobs.iter().any(|job| job.current.is_some() && matches!(job.freedom, Freedom::Fixed { .. })));
    let plan = cluster.plan(&third);
    cluster.feed_unplanned(answer(&third, plan));
    assert_eq!(cluster.engine.view().trouble.unwrap().rounds, 1);

    for expected in [1 + 1_024, 1_101] {
        let round = next_round(&mut cluster).unwrap();
        assert_eq!(round.jobs.len(), expected);
        let plan = cluster.plan(&round);
        cluster.feed_unplanned(answer(&round, plan));
    }
    assert_eq!((cluster.engine.view().trouble, cluster.count("plan.recovered")), (None, 1));
    assert_eq!(told(&cluster), 0);
}

#[test]
fn a_round_that_is_nobodys_any_more_is_no_incident() {
    let mut cluster = Cluster::new(&[8]);
    cluster.feed(submit("runs", 8));
    cluster.pass(1.0);
    let known = *cluster.plans.keys().next().unwrap();
    give_up(&mut cluster, known);
    assert_eq!((cluster.count("plan.given_up"), cluster.engine.view().trouble), (0, None));
}

/// How long it takes until the next round begins, if one does within the time.
fn until_next_round(cluster: &mut Cluster, most: u32) -> Option<(u32, PlanInput)> {
    (1..=most).find_map(|second| {
        cluster.now = cluster.now + Seconds(1.0);
        let alive = cluster.event(0, NodeReport::Heartbeat);
        let round = cluster.engine.handle(cluster.now, vec![alive, Event::Tick]).plan_request;
        round.map(|round| (second, round.input()))
    })
}

fn fail(cluster: &mut Cluster, plan: PlanId) {
    cluster.feed_unplanned(Event::PlanFailed { plan, message: "the planner panicked: no such row".into() });
}

#[test]
fn a_round_that_breaks_down_is_an_incident_and_the_next_waits_longer_each_time() {
    let mut cluster = Cluster::new(&[8]);
    cluster.now = cluster.now + Seconds(2.0);
    let jobs = (0..2_000).map(|number| rigid(&format!("waits-{number}"), 8)).collect();
    let mut round = cluster.round_for(Request::Submit { jobs, idempotency: None });
    let mut waits = Vec::new();
    let mut asked = Vec::new();
    for failures in 1..=9 {
        fail(&mut cluster, round.plan);
        assert_eq!(cluster.count("plan.failed"), failures);
        let trouble = cluster.engine.view().trouble.expect("whoever looks sees that nobody plans");
        assert!(trouble.message.contains("no such row"), "{trouble:?}");
        let (waited, next) = until_next_round(&mut cluster, 120).expect("it is tried again by itself");
        waits.push(waited);
        asked.push(next.jobs.len());
        round = next;
    }
    assert_eq!(waits, [2, 4, 8, 16, 32, 60, 60, 60, 60], "seconds");
    assert_eq!(asked, [1_024, 256, 64, 16, 4, 1, 1, 1, 1]);
    let plan = cluster.plan(&round);
    cluster.feed_unplanned(answer(&round, plan));
    let (waited, _) = until_next_round(&mut cluster, 10).unwrap();
    assert_eq!(waited, 1, "a round that gave a plan is followed as soon as any other");
}

#[test]
fn a_job_that_breaks_every_round_it_is_in_keeps_nobody_else_waiting_for_ever() {
    // Nobody answers for the processes of those that start.
    let config = EngineConfig { prepare_deadline: Seconds(1e6), ..EngineConfig::default() };
    let mut cluster = Cluster::of(config, &[8]);
    cluster.now = cluster.now + Seconds(2.0);
    let jobs = (0..6).map(|number| rigid(&format!("waits-{number}"), 1)).collect();
    let mut round = cluster.round_for(Request::Submit { jobs, idempotency: None });
    let waits = |cluster: &Cluster| -> Vec<JobId> {
        let view = cluster.engine.view();
        let queued = view.jobs.values().filter(|shown| matches!(shown.job.state, JobState::Queued { .. }));
        queued.map(|shown| shown.job.id).collect()
    };
    let breaks = waits(&cluster)[0];
    for _ in 0..40 {
        if round.jobs.iter().any(|job| job.job == breaks) {
            fail(&mut cluster, round.plan);
        } else {
            let plan = cluster.plan(&round);
            cluster.feed_unplanned(answer(&round, plan));
        }
        if waits(&cluster) == [breaks] {
            return;
        }
        (_, round) = until_next_round(&mut cluster, 120).unwrap();
    }
    panic!("{:?} still wait", waits(&cluster));
}

#[test]
fn what_changes_meanwhile_does_not_hurry_rounds_that_break_down() {
    let mut cluster = Cluster::new(&[8]);
    cluster.now = cluster.now + Seconds(2.0);
    let round = cluster.round_for(Request::Submit { jobs: vec![rigid("waits", 8)], idempotency: None });
    fail(&mut cluster, round.plan);
    let (_, round) = until_next_round(&mut cluster, 10).unwrap();
    fail(&mut cluster, round.plan);
    for name in ["another", "and-another", "and-one-more"] {
        cluster.now = cluster.now + Seconds(1.0);
        let outcome = cluster.engine.handle(cluster.now, vec![submit(name, 1)]);
        assert!(outcome.plan_request.is_none(), "{name}");
    }
    let (_, round) = until_next_round(&mut cluster, 1).expect("four seconds after it broke down");
    fail(&mut cluster, round.plan);
    cluster.now = cluster.now + Seconds(1.0);
    let asked = cluster.round_for(Request::Rebalance { min_gain: None });
    assert_eq!(asked.jobs.len(), 4, "a person need not wait");
}

#[test]
fn with_the_last_who_wants_gpus_the_trouble_is_gone() {
    let mut cluster = Cluster::new(&[8]);
    cluster.now = cluster.now + Seconds(2.0);
    let round = cluster.round_for(Request::Submit { jobs: vec![rigid("waits", 8)], idempotency: None });
    fail(&mut cluster, round.plan);
    cluster.request(Request::Cancel { job: round.jobs[0].job, reason: None, grace: None });
    assert_eq!((cluster.engine.view().trouble, cluster.count("plan.recovered")), (None, 1));
}

#[test]
fn a_plan_that_is_refused_is_an_incident_too() {
    let mut cluster = Cluster::new(&[8]);
    cluster.now = cluster.now + Seconds(2.0);
    let round = cluster.round_for(Request::Submit { jobs: vec![rigid("waits", 8)], idempotency: None });
    let mut plan = cluster.plan(&round);
    for assignment in plan.assignments.values_mut() {
        let gpus = (0..8).map(|gpu| GpuUuid(format!("nowhere-{gpu}"))).collect();
        assignment.placement = Placement::try_new(vec![NodeSlice { node: node_id(0), gpus }]).unwrap();
    }
    cluster.feed_unplanned(answer(&round, plan));
    assert_eq!((cluster.count("plan.refused"), cluster.engine.view().trouble.is_some()), (1, true));
    let (waited, _) = until_next_round(&mut cluster, 120).unwrap();
    assert_eq!(waited, 2);
}
