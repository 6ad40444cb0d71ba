//! Rounds that give no plan: an incident that people see, after which the next round asks less, and waits where it would fail at once.

use headway_engine::EngineConfig;
use headway_engine::event::{Actor, Event, Known, Request, RequestId};
use headway_engine::record::JobState;
use headway_planner::{Freedom, PlanInput};
use headway_types::spec::Priority;
use headway_types::{
    GpuUuid, GroupOutcome, GroupPhase, JobId, JobSpec, NodeReport, NodeSlice, Placement, PlanId, ReasonCode, Seconds,
};

use crate::harness::{Cluster, answer, elastic, node_id, rigid};

fn submit(name: &str, gpus: u32) -> Event {
    let body = Request::Submit { jobs: vec![rigid(name, gpus)], idempotency: None, known: Known::default() };
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
    let first = cluster.round_for(Request::Submit { jobs, idempotency: None, known: Known::default() });
    assert_eq!(first.jobs.len(), 1_101);
    give_up(&mut cluster, first.plan);
    assert_eq!((cluster.count("plan.given_up"), cluster.engine.view().trouble.unwrap().rounds), (1, 1));

    let second = next_round(&mut cluster).unwrap();
    assert_eq!(second.jobs.len(), 1 + 275, "a quarter, those first in line");
    let told = |cluster: &Cluster| {
        let view = cluster.engine.view();
        let verdicts = view.jobs.keys().filter_map(|job| view.verdict(*job));
        verdicts.filter(|verdict| verdict.reasons.iter().any(|one| one.code == ReasonCode::NotReady)).count()
    };
    assert_eq!(told(&cluster), 825, "whoever is left out knows why it waits");
    give_up(&mut cluster, second.plan);

    let third = next_round(&mut cluster).unwrap();
    assert_eq!(third.jobs.len(), 1 + 68);
    assert!(third.jobs.iter().any(|job| job.current.is_some() && matches!(job.freedom, Freedom::Fixed { .. })));
    let plan = cluster.plan(&third);
    cluster.feed_unplanned(answer(&third, plan));
    assert_eq!(cluster.engine.view().trouble.unwrap().rounds, 2);

    for expected in [1 + 272, 1_088, 1_101] {
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

#[test]
fn a_round_that_breaks_down_is_an_incident_and_the_next_waits_longer_each_time() {
    let mut cluster = Cluster::new(&[8]);
    cluster.now = cluster.now + Seconds(2.0);
    let jobs = (0..2_000).map(|number| rigid(&format!("waits-{number}"), 8)).collect();
    let mut round = cluster.round_for(Request::Submit { jobs, idempotency: None, known: Known::default() });
    let mut waits = Vec::new();
    let mut asked = Vec::new();
    for failures in 1..=9 {
        cluster.fail(round.plan);
        assert_eq!(cluster.count("plan.failed"), failures);
        let trouble = cluster.engine.view().trouble.expect("whoever looks sees that nobody plans");
        assert!(trouble.message.contains("no such row"), "{trouble:?}");
        let (waited, next) = cluster.until_next_round(120).expect("it is tried again by itself");
        waits.push(waited);
        asked.push(next.jobs.len());
        round = next;
    }
    assert_eq!(waits, [2, 4, 8, 16, 32, 60, 60, 60, 60], "seconds");
    assert_eq!(asked, [500, 125, 31, 7, 1, 1, 1, 1, 1]);
    let plan = cluster.plan(&round);
    cluster.feed_unplanned(answer(&round, plan));
    let (waited, _) = cluster.until_next_round(10).unwrap();
    assert_eq!(waited, 1, "a round that gave a plan is followed as soon as any other");
}

#[test]
fn a_job_that_breaks_every_round_it_is_in_keeps_nobody_else_waiting_for_ever() {
    // Nobody answers for the processes of those that start.
    let config = EngineConfig { prepare_deadline: Seconds(1e6), ..EngineConfig::default() };
    let mut cluster = Cluster::of(config, &[8]);
    cluster.now = cluster.now + Seconds(2.0);
    let jobs = (0..6).map(|number| rigid(&format!("waits-{number}"), 1)).collect();
    let mut round = cluster.round_for(Request::Submit { jobs, idempotency: None, known: Known::default() });
    let waits = |cluster: &Cluster| -> Vec<JobId> {
        let view = cluster.engine.view();
        let queued = view.jobs.values().filter(|shown| matches!(shown.job.state, JobState::Queued { .. }));
        queued.map(|shown| shown.job.id).collect()
    };
    let breaks = waits(&cluster)[0];
    for _ in 0..40 {
        if round.jobs.iter().any(|job| job.job == breaks) {
            cluster.fail(round.plan);
        } else {
            let plan = cluster.plan(&round);
            cluster.feed_unplanned(answer(&round, plan));
        }
        if waits(&cluster) == [breaks] {
            return;
        }
        (_, round) = cluster.until_next_round(120).unwrap();
    }
    panic!("{:?} still wait", waits(&cluster));
}

#[test]
fn what_changes_meanwhile_does_not_hurry_rounds_that_break_down() {
    let mut cluster = Cluster::new(&[8]);
    cluster.now = cluster.now + Seconds(2.0);
    let round = cluster.round_for(Request::Submit {
        jobs: vec![rigid("waits", 8)],
        idempotency: None,
        known: Known::default(),
    });
    cluster.fail(round.plan);
    let (_, round) = cluster.until_next_round(10).unwrap();
    cluster.fail(round.plan);
    for name in ["another", "and-another", "and-one-more"] {
        cluster.now = cluster.now + Seconds(1.0);
        let outcome = cluster.engine.handle(cluster.now, vec![submit(name, 1)]);
        assert!(outcome.plan_request.is_none(), "{name}");
    }
    let (_, round) = cluster.until_next_round(1).expect("four seconds after it broke down");
    cluster.fail(round.plan);
    cluster.now = cluster.now + Seconds(1.0);
    let asked = cluster.round_for(Request::Rebalance { terms: Box::default() });
    assert_eq!(asked.jobs.len(), 1, "a person need not wait");
}

#[test]
fn with_the_last_who_wants_gpus_the_trouble_is_gone() {
    let mut cluster = Cluster::new(&[8]);
    cluster.now = cluster.now + Seconds(2.0);
    let round = cluster.round_for(Request::Submit {
        jobs: vec![rigid("waits", 8)],
        idempotency: None,
        known: Known::default(),
    });
    cluster.fail(round.plan);
    cluster.request(Request::Cancel { job: round.jobs[0].job, reason: None, grace: None });
    assert_eq!((cluster.engine.view().trouble, cluster.count("plan.recovered")), (None, 1));
}

#[test]
fn a_plan_that_is_refused_is_an_incident_too() {
    let mut cluster = Cluster::new(&[8]);
    cluster.now = cluster.now + Seconds(2.0);
    let round = cluster.round_for(Request::Submit {
        jobs: vec![rigid("waits", 8)],
        idempotency: None,
        known: Known::default(),
    });
    let mut plan = cluster.plan(&round);
    for assignment in plan.assignments.values_mut() {
        let gpus = (0..8).map(|gpu| GpuUuid(format!("nowhere-{gpu}"))).collect();
        assignment.placement = Placement::try_new(vec![NodeSlice { node: node_id(0), gpus }]).unwrap();
    }
    cluster.feed_unplanned(answer(&round, plan));
    assert_eq!((cluster.count("plan.refused"), cluster.engine.view().trouble.is_some()), (1, true));
    let (waited, _) = cluster.until_next_round(120).unwrap();
    assert_eq!(waited, 2);
}

#[test]
fn a_queue_without_bounds_is_planned_for_a_thousand_at_a_time() {
    let mut cluster = Cluster::new(&[8]);
    cluster.now = cluster.now + Seconds(2.0);
    let jobs = (0..5_000).map(|number| rigid(&format!("waits-{number}"), 8)).collect();
    let mut round = cluster.round_for(Request::Submit { jobs, idempotency: None, known: Known::default() });
    let mut asked = Vec::new();
    for (given_up, expected) in [(true, 5_000), (false, 1_024), (true, 4_096), (false, 1 + 1_024)] {
        assert_eq!(round.jobs.len(), expected);
        if given_up {
            give_up(&mut cluster, round.plan);
        } else {
            asked.extend(round.jobs.iter().map(|job| job.job));
            let plan = cluster.plan(&round);
            cluster.feed_unplanned(answer(&round, plan));
        }
        round = next_round(&mut cluster).unwrap();
    }
    let named: std::collections::BTreeSet<JobId> = asked.iter().copied().collect();
    assert_eq!(named.len(), 2 * 1_024, "the line goes on where the last that gave a plan ended");
}

#[test]
fn who_is_granted_gpus_while_a_later_round_leaves_him_out_waits_for_none() {
    let mut cluster = Cluster::new(&[4]);
    let runs = cluster.submit(elastic("large", 4));
    cluster.start(runs);
    cluster.declare(runs);
    cluster.steps(runs, 100, None);
    cluster.pass_beating(120.0, &[0]);
    let small = cluster.submit(rigid("small", 2));
    cluster.pass_beating(2.0, &[0]);
    assert!(matches!(cluster.state(runs), JobState::Stopping { .. }), "{:?}", cluster.messages);
    let urgent = JobSpec { priority: Priority(100), ..rigid("urgent", 8) };
    let (_, round) = cluster.submit_unplanned(vec![urgent]);
    cluster.fail(round.plan);
    let (_, round) = cluster.until_next_round(10).unwrap();
    assert!(round.jobs.iter().all(|job| job.job != small), "{:?}", round.jobs.len());
    let told = |cluster: &Cluster| {
        let view = cluster.engine.view();
        view.verdict(small).is_some_and(|verdict| verdict.headline.starts_with("Waits for a later round"))
    };
    assert!(told(&cluster));
    let generation = cluster.jobs[&runs].generation;
    let status = cluster.status(runs, generation, GroupPhase::Ended { outcome: GroupOutcome::Stopped });
    let ended = cluster.event(0, NodeReport::Group { status });
    cluster.feed_unplanned(ended);
    assert!(matches!(cluster.state(small), JobState::Starting { .. }), "{:?}", cluster.messages);
    assert!(!told(&cluster));
}

#[test]
fn when_nobody_wants_gpus_any_more_nobody_is_left_for_later() {
    let mut cluster = Cluster::new(&[8]);
    cluster.now = cluster.now + Seconds(2.0);
    let (jobs, round) = cluster.submit_unplanned(vec![rigid("first", 16), rigid("second", 16)]);
    cluster.fail(round.plan);
    cluster.until_next_round(10).unwrap();
    let told = |cluster: &Cluster| cluster.engine.view().verdict(jobs[1]).map(|verdict| verdict.headline.clone());
    assert!(told(&cluster).unwrap().starts_with("Waits for a later round"));
    for job in &jobs {
        cluster.act(Request::Hold { job: *job, reason: None });
    }
    cluster.act(Request::Release { job: jobs[1] });
    assert_eq!(told(&cluster), None, "no round has left it out since");
}
