//! What happens while a round is under way: its input stays as it was, and what comes back is held against what is.

use headway_engine::event::{Event, Known, Request};
use headway_engine::record::JobState;
use headway_types::{JobId, Seconds};

use crate::harness::{Cluster, answer, rigid};

fn cancel(job: JobId) -> Request {
    Request::Cancel { job, reason: None, grace: None }
}

fn submit(name: &str, gpus: u32) -> Request {
    Request::Submit { jobs: vec![rigid(name, gpus)], idempotency: None, known: Known::default() }
}

#[test]
fn a_rounds_input_is_of_the_moment_it_was_asked_for_whenever_it_is_made() {
    let mut cluster = Cluster::new(&[4]);
    let running = cluster.submit(rigid("runs", 2));
    cluster.start(running);
    cluster.now = cluster.now + Seconds(2.0);
    let round = cluster.asked_for(submit("waits", 4));
    let at_once = round.input();
    assert_eq!(at_once.jobs.len(), 2);
    let waits = at_once.jobs[1].job;
    cluster.now = cluster.now + Seconds(30.0);
    for body in [submit("comes", 1), cancel(waits), cancel(running)] {
        cluster.act(body);
    }
    assert_eq!(round.input(), at_once);
}

#[test]
fn who_comes_or_goes_while_a_round_is_under_way_keeps_nobody_else_from_starting() {
    let mut cluster = Cluster::new(&[4, 4]);
    let jobs = ["goes", "stays"].map(|name| rigid(name, 4)).to_vec();
    let (jobs, input) = cluster.submit_unplanned(jobs);
    let plan = cluster.plan(&input);
    cluster.act(cancel(jobs[0]));
    cluster.act(submit("comes", 4));
    cluster.feed_unplanned(answer(&input, plan));
    assert!(matches!(cluster.state(jobs[0]), JobState::Cancelled { .. }));
    assert!(matches!(cluster.state(jobs[1]), JobState::Starting { .. }));
}

#[test]
fn a_plan_that_breaks_a_rule_is_refused_by_name_and_the_next_round_may_begin() {
    let mut cluster = Cluster::new(&[4]);
    let (jobs, input) = cluster.submit_unplanned(vec![rigid("one", 4)]);
    let mut plan = cluster.plan(&input);
    plan.parent = Some(plan.id);
    let refused = answer(&input, plan);
    assert!(matches!(refused, Event::PlanRefused { .. }));
    cluster.feed_unplanned(refused);
    assert!(matches!(cluster.state(jobs[0]), JobState::Queued { .. }));
    assert!(cluster.messages.iter().any(|told| told.starts_with("the plan is refused, the target stays: ")));
    cluster.now = cluster.now + Seconds(2.0);
    assert_eq!(cluster.asked_for(submit("two", 4)).input().jobs.len(), 1);
}

#[test]
fn a_job_released_from_hold_is_told_of_the_newest_round_only_once_that_has_looked_at_it() {
    let mut cluster = Cluster::new(&[4]);
    cluster.submit(rigid("first", 4));
    let job = cluster.submit(rigid("second", 4));
    let told = |cluster: &Cluster| cluster.engine.view().verdict(job).map(|verdict| verdict.headline.clone());
    assert!(told(&cluster).unwrap().starts_with("Needs 4 GPUs"));
    cluster.request(Request::Hold { job, reason: Some("later".into()) });
    assert_eq!(told(&cluster).as_deref(), Some("on hold until it is released: later"));
    cluster.request(submit("third", 4));
    cluster.pass_beating(2.0, &[0]);
    cluster.act(Request::Release { job });
    assert_eq!(told(&cluster), None, "no round since has looked at it");
}
