//! Nodes whose agent announces that the node goes away: jobs leave them as from a node that is drained, and nobody is
//! blamed.

use headway_engine::event::Request;
use headway_engine::record::{JobState, StopCause};
use headway_types::{Fault, GroupOutcome, GroupPhase, JobSpec, NodeInventory, NodeReport, Seconds};

use crate::harness::{Cluster, inventory, node_id, rigid};

const REASON: &str = "its agent got SIGTERM and ends within 60 s";

fn leaving(node: u64) -> NodeReport {
    let inventory = NodeInventory { leaving_reason: Some(REASON.into()), ..inventory(node, 4) };
    NodeReport::Inventory { inventory: Box::new(inventory) }
}

#[test]
fn jobs_leave_a_node_that_goes_away_and_nothing_new_starts_there_until_it_registers_again() {
    let mut cluster = Cluster::new(&[4, 4]);
    let job = cluster.submit(rigid("one", 4));
    cluster.start(job);
    let left = cluster.nodes_of(job)[0];
    cluster.report(left, leaving(left));
    assert!(cluster.messages.contains(&format!("node node-{left} leaves: {REASON}")), "{:#?}", cluster.messages);
    cluster.pass_beating(3.0, &[0, 1]);
    let state = cluster.state(job);
    assert!(matches!(state, JobState::Stopping { cause: StopCause::Drain, .. }), "{state:?}");
    cluster.end(job, &GroupOutcome::Stopped);
    cluster.pass_beating(3.0, &[0, 1]);
    assert_eq!(cluster.nodes_of(job), vec![1 - left]);
    let other = cluster.submit(rigid("two", 4));
    cluster.pass_beating(3.0, &[0, 1]);
    assert!(matches!(cluster.state(other), JobState::Queued { .. }));
    cluster.register(inventory(left, 4), vec![]);
    assert!(
        cluster.messages.contains(&format!("node node-{left} is back in service: it no longer leaves")),
        "{:#?}",
        cluster.messages
    );
    cluster.pass_beating(3.0, &[0, 1]);
    assert_eq!(cluster.nodes_of(other), vec![left]);
}

#[test]
fn a_job_with_nowhere_to_go_saves_and_stops_though_an_operator_lets_it_stay() {
    let mut cluster = Cluster::new(&[4]);
    let job = cluster.submit(rigid("one", 4));
    cluster.start(job);
    let deadline = Some(cluster.now + Seconds(3_000.0));
    cluster.request(Request::Drain { node: node_id(0), reason: None, deadline });
    cluster.pass_beating(60.0, &[0]);
    assert!(matches!(cluster.state(job), JobState::Running { .. }), "{:?}", cluster.state(job));
    cluster.report(0, leaving(0));
    cluster.pass_beating(3.0, &[0]);
    let state = cluster.state(job);
    assert!(matches!(state, JobState::Stopping { cause: StopCause::Drain, .. }), "{state:?}");
}

#[test]
fn a_job_that_must_not_run_twice_is_not_stopped() {
    let mut cluster = Cluster::new(&[4]);
    let mut once: JobSpec = rigid("once", 4);
    once.limits.restartable = Some(false);
    let job = cluster.submit(once);
    cluster.start(job);
    cluster.report(0, leaving(0));
    let told = format!("node node-0 leaves: {REASON}; once must not run twice and is not stopped");
    assert!(cluster.messages.contains(&told), "{:#?}", cluster.messages);
    cluster.pass_beating(20.0, &[0]);
    assert!(matches!(cluster.state(job), JobState::Running { .. }), "{:?}", cluster.state(job));
}

#[test]
fn the_silence_of_a_node_that_has_left_is_no_incident() {
    let mut cluster = Cluster::new(&[4, 4]);
    cluster.report(0, leaving(0));
    cluster.disconnect(0);
    cluster.pass_beating(120.0, &[1]);
    assert_eq!(cluster.node(0).health.score, 1.0, "it has announced its end");
}

#[test]
fn no_round_is_waited_for_before_jobs_leave_a_node_that_goes_away() {
    let mut cluster = Cluster::new(&[4, 4]);
    let job = cluster.submit(rigid("one", 4));
    cluster.start(job);
    let (left, plans) = (cluster.nodes_of(job)[0], cluster.plans.len());
    cluster.report(left, leaving(left));
    let state = cluster.state(job);
    assert!(matches!(state, JobState::Stopping { cause: StopCause::Drain, .. }), "{state:?}");
    assert_eq!(cluster.plans.len(), plans, "its time may be shorter than the pause between rounds");
}

#[test]
fn a_job_that_starts_on_a_node_that_goes_away_starts_elsewhere_and_nobody_is_blamed() {
    let mut cluster = Cluster::new(&[4, 4]);
    let mut once: JobSpec = rigid("once", 4);
    once.limits.restartable = Some(false);
    let jobs = [cluster.submit(rigid("one", 4)), cluster.submit(once)];
    let nodes = jobs.map(|job| cluster.nodes_of(job)[0]);
    for (job, node) in jobs.into_iter().zip(nodes) {
        cluster.report(node, leaving(node));
        let state = cluster.state(job);
        assert!(matches!(state, JobState::Stopping { cause: StopCause::Drain, .. }), "{state:?}");
        cluster.end(job, &GroupOutcome::Stopped);
        assert!(matches!(cluster.state(job), JobState::Queued { .. }), "{:?}", cluster.state(job));
        assert_eq!((cluster.jobs[&job].failures, cluster.jobs[&job].setbacks), (0, 0));
        assert_eq!(cluster.node(node).health.score, 1.0);
    }
    cluster.register(inventory(nodes[0], 4), vec![]);
    cluster.pass_beating(5.0, &[0, 1]);
    assert_eq!(cluster.nodes_of(jobs[0]), vec![nodes[0]]);
}

#[test]
fn a_job_that_must_not_run_twice_and_may_have_begun_goes_on() {
    let mut cluster = Cluster::new(&[4]);
    let mut once: JobSpec = rigid("once", 4);
    once.limits.restartable = Some(false);
    let job = cluster.submit(once);
    cluster.group(0, job, GroupPhase::Prepared { rendezvous_port: Some(29_500) });
    cluster.report(0, leaving(0));
    assert!(matches!(cluster.state(job), JobState::Starting { .. }), "{:?}", cluster.state(job));
    cluster.group(0, job, GroupPhase::Running);
    cluster.pass_beating(20.0, &[0]);
    assert!(matches!(cluster.state(job), JobState::Running { .. }), "{:?}", cluster.state(job));
}

#[test]
fn a_node_that_refuses_a_start_since_it_goes_away_is_not_blamed_and_neither_is_the_job() {
    let mut cluster = Cluster::new(&[4, 4]);
    let job = cluster.submit(rigid("one", 4));
    let node = cluster.nodes_of(job)[0];
    // The refusal overtakes the announcement.
    let fault = Fault::of_infrastructure(format!("nothing new starts on a node that leaves: {REASON}"));
    cluster.end(job, &GroupOutcome::NotStarted { fault });
    cluster.report(node, leaving(node));
    cluster.pass_beating(20.0, &[0, 1]);
    assert_eq!(cluster.nodes_of(job), vec![1 - node]);
    assert_eq!((cluster.jobs[&job].failures, cluster.node(node).health.score), (0, 1.0));
}
