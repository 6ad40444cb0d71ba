//! Jobs that rounds give no plan with: they are found, set aside by name and tried again; everybody else is planned for.

use headway_engine::EngineConfig;
use headway_engine::event::{Event, Request};
use headway_engine::record::JobState;
use headway_planner::PlanInput;
use headway_types::{JobId, ReasonCode, Seconds};

use crate::harness::{Cluster, elastic, gpus, rigid};

/// Whether the round computes anything with the job.
fn plans_for(round: &PlanInput, job: JobId) -> bool {
    round.jobs.iter().any(|one| one.job == job && (one.current.is_none() || one.work.model().is_some()))
}

/// Nobody answers for the processes of those that start.
fn patient(nodes: &[u32]) -> Cluster {
    let config = EngineConfig { prepare_deadline: Seconds(1e6), ..EngineConfig::default() };
    let mut cluster = Cluster::of(config, nodes);
    cluster.now = cluster.now + Seconds(2.0);
    cluster
}

fn starts(cluster: &Cluster, job: JobId) -> bool {
    matches!(cluster.state(job), JobState::Starting { .. })
}

#[test]
fn beside_a_job_that_breaks_rounds_those_that_find_no_room_keep_nobody_from_theirs() {
    let mut cluster = patient(&[8]);
    let mut jobs = vec![rigid("breaks", 1)];
    jobs.extend((0..4).map(|number| rigid(&format!("too-large-{number}"), 16)));
    jobs.extend((0..6).map(|number| rigid(&format!("fits-{number}"), 1)));
    let (jobs, first) = cluster.submit_unplanned(jobs);
    cluster.fail(first.plan);
    let breaks = jobs[0];
    cluster.answer_rounds(20, |round| plans_for(round, breaks));
    let waits: Vec<&JobId> = jobs[5..].iter().filter(|job| !starts(&cluster, **job)).collect();
    assert!(waits.is_empty(), "{waits:?}");

    assert_eq!(cluster.count("job.set_aside"), 1);
    let view = cluster.engine.view();
    assert_eq!(view.trouble.as_ref().unwrap().aside.keys().collect::<Vec<_>>(), [&breaks]);
    let verdict = view.verdict(breaks).unwrap();
    assert_eq!(verdict.reasons[0].code, ReasonCode::Malformed, "{verdict:?}");
    let (comes, round) = cluster.submit_unplanned(vec![rigid("comes", 1)]);
    assert!(!plans_for(&round, breaks) && round.jobs.len() == jobs.len(), "all others are planned for together");
    let plan = cluster.plan(&round);
    cluster.feed_unplanned(crate::harness::answer(&round, plan));
    assert!(starts(&cluster, comes[0]));
}

#[test]
fn a_running_job_that_breaks_rounds_is_left_as_it_is_and_planning_goes_on() {
    let mut cluster = patient(&[8]);
    let runs = cluster.submit(elastic("breaks", 4));
    cluster.start(runs);
    cluster.declare(runs);
    cluster.steps(runs, 100, None);
    let other = cluster.submit(elastic("runs", 2));
    cluster.start(other);
    cluster.declare(other);
    cluster.pass_beating(2.0, &[0]);
    let before = gpus(&cluster, runs);
    let (jobs, first) = cluster.submit_unplanned(vec![rigid("one", 1), rigid("two", 1)]);
    cluster.fail(first.plan);
    cluster.answer_rounds(20, |round| plans_for(round, runs));
    assert!(jobs.iter().all(|job| starts(&cluster, *job)), "{:?}", cluster.messages);
    assert!(matches!(cluster.state(runs), JobState::Running { .. }) && gpus(&cluster, runs) == before);
    let view = cluster.engine.view();
    assert_eq!(view.trouble.as_ref().unwrap().aside.keys().collect::<Vec<_>>(), [&runs]);
    let (_, round) = cluster.submit_unplanned(vec![rigid("three", 4)]);
    let shown = |job| round.jobs.iter().find(|one| one.job == job).unwrap();
    assert!(shown(other).work.model().is_some(), "nobody else is left as he is");
    assert_eq!(cluster.allocation(runs).placement, shown(runs).current.as_ref().unwrap().placement);
}

#[test]
fn who_was_set_aside_is_tried_alone_ever_more_rarely_and_taken_back_when_that_goes_well() {
    let mut cluster = patient(&[8]);
    let (jobs, first) = cluster.submit_unplanned(vec![rigid("breaks", 1), rigid("fits", 1), rigid("fits-too", 1)]);
    cluster.fail(first.plan);
    let breaks = jobs[0];
    cluster.answer_rounds(4, |round| plans_for(round, breaks));
    let (before, from) = (cluster.count("plan.failed"), cluster.now);
    while cluster.now.since(from).0 < 3_600.0 {
        cluster.answer_rounds(1, |round| plans_for(round, breaks));
    }
    let again = cluster.count("plan.failed") - before;
    assert!((3..=7).contains(&again), "{again} times within an hour");
    assert!(!starts(&cluster, breaks));

    let from = cluster.now;
    while !starts(&cluster, breaks) {
        cluster.answer_rounds(1, |_| false);
        assert!(cluster.now.since(from).0 < 4_000.0, "it is tried again");
    }
    assert_eq!(cluster.count("job.taken_back"), 1);
    cluster.answer_rounds(2, |_| false);
    assert_eq!((cluster.engine.view().trouble, cluster.count("plan.recovered")), (None, 1));
}

#[test]
fn two_jobs_that_break_rounds_are_found_one_after_another() {
    let mut cluster = patient(&[8]);
    let names = ["breaks", "breaks-too", "a", "b", "c", "d"];
    let (jobs, first) = cluster.submit_unplanned(names.map(|name| rigid(name, 1)).to_vec());
    cluster.fail(first.plan);
    cluster.answer_rounds(40, |round| jobs[..2].iter().any(|job| plans_for(round, *job)));
    assert!(jobs[2..].iter().all(|job| starts(&cluster, *job)));
    assert_eq!(cluster.engine.view().trouble.unwrap().aside.len(), 2);
}

#[test]
fn after_an_outage_rounds_ask_everything_again_within_a_few() {
    let mut cluster = patient(&[8]);
    let jobs = (0..30).map(|number| rigid(&format!("waits-{number}"), 16)).collect();
    let (_, first) = cluster.submit_unplanned(jobs);
    cluster.fail(first.plan);
    assert_eq!(cluster.answer_rounds(100, |_| true).0, 100);
    let (_, seconds) = cluster.answer_rounds(4, |_| false);
    assert!(seconds <= 60 + 4, "{seconds} s");
    let (_, round) = cluster.submit_unplanned(vec![rigid("comes", 1)]);
    assert!(round.jobs.len() >= 30, "{} of 31", round.jobs.len());
    let from = cluster.now;
    while cluster.engine.view().trouble.is_some() {
        cluster.feed_unplanned(Event::PlanGivenUp { plan: round.plan, message: "late".into() });
        cluster.answer_rounds(1, |_| false);
        assert!(cluster.now.since(from).0 < 200.0, "who was taken for the cause is tried again soon");
    }
}

#[test]
fn a_job_that_is_over_is_no_longer_set_aside() {
    let mut cluster = patient(&[8]);
    let (jobs, first) =
        cluster.submit_unplanned(vec![rigid("breaks", 1), rigid("too-large", 16), rigid("another", 16)]);
    cluster.fail(first.plan);
    cluster.answer_rounds(20, |round| plans_for(round, jobs[0]));
    assert_eq!(cluster.count("job.set_aside"), 1);
    cluster.act(Request::Cancel { job: jobs[0], reason: None, grace: None });
    cluster.answer_rounds(1, |_| false);
    assert_eq!((cluster.engine.view().trouble, cluster.count("plan.recovered")), (None, 1));
}

#[test]
fn while_only_a_job_that_is_set_aside_wants_gpus_the_scheduler_sleeps() {
    let mut cluster = patient(&[8]);
    let (jobs, first) = cluster.submit_unplanned(vec![rigid("breaks", 1), rigid("other", 16), rigid("another", 16)]);
    cluster.fail(first.plan);
    cluster.answer_rounds(6, |round| plans_for(round, jobs[0]));
    for job in &jobs[1..] {
        cluster.request(Request::Cancel { job: *job, reason: None, grace: None });
    }
    let from = cluster.now;
    let mut woken = 0;
    while cluster.now.since(from).0 < 600.0 {
        let outcome = cluster.engine.handle(cluster.now, vec![Event::Tick]);
        let wake_at = outcome.wake_at.unwrap_or(cluster.now + Seconds(1.0));
        if let Some(round) = outcome.plan_request {
            cluster.fail(round.plan());
        }
        woken += 1;
        assert!(woken < 100, "{woken} times in {:.0} s", cluster.now.since(from).0);
        cluster.now = wake_at.max(cluster.now + Seconds(0.001));
    }
}
