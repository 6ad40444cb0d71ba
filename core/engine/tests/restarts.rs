//! What a new leader must still know, and what churn must not stop.

use headway_engine::event::Request;
use headway_engine::record::{JobState, PolicyMode, PolicySettings, StopCause};
use headway_engine::{Activity, Change, Event, Refusal, Reply};
use headway_types::{AgentCommand, GpuCount, GroupOutcome, GroupPhase, NodeReport, Seconds};

use crate::harness::{Cluster, answer, inventory, node_id, resize, rigid, spec, training};

#[test]
fn a_launch_cut_short_by_a_new_leader_is_finished_with_the_same_port() {
    let mut cluster = Cluster::new(&[4, 4]);
    let job = cluster.submit(rigid("wide", 8));
    let nodes = cluster.nodes_of(job);
    cluster.group(nodes[0], job, GroupPhase::Prepared { rendezvous_port: Some(31_000) });
    cluster.group(nodes[1], job, GroupPhase::Prepared { rendezvous_port: None });
    cluster.restart();
    let generation = cluster.jobs[&job].generation;
    // The first node had been launched already and no longer names its port.
    let running = cluster.status(job, generation, GroupPhase::Running);
    cluster.register(inventory(nodes[0], 4), vec![running]);
    let prepared = cluster.status(job, generation, GroupPhase::Prepared { rendezvous_port: None });
    cluster.register(inventory(nodes[1], 4), vec![prepared]);
    let launch = cluster.commands.iter().find_map(|(node, command)| match command {
        AgentCommand::Launch { rendezvous_port, .. } if *node == node_id(nodes[1]) => Some(*rendezvous_port),
        _ => None,
    });
    assert_eq!(launch, Some(31_000));
}

#[test]
fn a_new_leader_repeats_a_launch_order_to_the_letter() {
    let mut cluster = Cluster::new(&[4]);
    let job = cluster.submit(spec("one", 4, 4, Some(training(true))));
    let order = |cluster: &Cluster| {
        cluster.commands.iter().find_map(|(_, command)| match command {
            AgentCommand::Prepare { order } if order.job == job => Some(order.clone()),
            _ => None,
        })
    };
    let before = order(&cluster).unwrap();
    cluster.restart();
    cluster.register(inventory(0, 4), vec![]);
    assert_eq!(order(&cluster).unwrap(), before);
}

#[test]
fn queueing_does_not_count_against_the_time_limit() {
    let mut cluster = Cluster::new(&[4]);
    let mut limited = rigid("limited", 4);
    limited.limits.time = Some(Seconds(600.0));
    let job = cluster.submit(limited);
    cluster.start(job);
    cluster.pass_beating(300.0, &[0]);
    cluster.request(Request::Hold { job, reason: None });
    cluster.end(job, &headway_types::GroupOutcome::Stopped);
    cluster.pass_beating(2_000.0, &[0]);
    cluster.request(Request::Release { job });
    cluster.pass_beating(3.0, &[0]);
    cluster.start(job);
    cluster.pass_beating(250.0, &[0]);
    assert!(matches!(cluster.state(job), JobState::Running { .. }), "{:?}", cluster.state(job));
    cluster.pass_beating(60.0, &[0]);
    assert!(matches!(cluster.state(job), JobState::Stopping { cause: StopCause::TimeLimit, .. }));
}

#[test]
fn a_drain_with_a_deadline_leaves_a_job_that_has_nowhere_to_go_until_then() {
    let mut cluster = Cluster::new(&[4]);
    let job = cluster.submit(rigid("one", 4));
    cluster.start(job);
    let deadline = Some(cluster.now + Seconds(300.0));
    cluster.request(Request::Drain { node: node_id(0), reason: None, deadline });
    cluster.pass_beating(200.0, &[0]);
    assert!(matches!(cluster.state(job), JobState::Running { .. }));
    cluster.pass_beating(110.0, &[0]);
    assert!(
        matches!(cluster.state(job), JobState::Stopping { cause: StopCause::Drain, .. }),
        "{:?}",
        cluster.state(job)
    );
}

#[test]
fn a_heartbeat_changes_no_fact_and_touches_nobody_else() {
    let mut cluster = Cluster::new(&[4, 4]);
    let job = cluster.submit(rigid("one", 4));
    cluster.start(job);
    cluster.pass_beating(2.0, &[0, 1]);
    let before = cluster.engine.view();
    let event = cluster.event(1, NodeReport::Heartbeat);
    let outcome = cluster.engine.handle(cluster.now, vec![event]);
    assert!(outcome.changes.is_empty() && outcome.commands.is_empty());
    let after = cluster.engine.view();
    let shared = |id| std::ptr::eq(&*before.nodes[&node_id(id)], &*after.nodes[&node_id(id)]);
    assert!(shared(0) && !shared(1));
}

#[test]
fn a_plan_outrun_by_events_is_adopted_as_far_as_it_still_holds() {
    let mut cluster = Cluster::new(&[4, 4]);
    let (jobs, input) = cluster.submit_unplanned(vec![rigid("one", 4), rigid("two", 4)]);
    let plan = cluster.plan(&input);
    let second = plan.assignments[&jobs[1]].placement.first_node();
    // The node of the second job's assignment goes while the round is under way.
    cluster.feed_unplanned(Event::Request {
        request: headway_engine::RequestId(9),
        actor: headway_engine::Actor::Scheduler,
        body: Request::Cordon { node: second, reason: None },
    });
    let outcome = cluster.feed_unplanned(answer(&input, plan));
    assert!(outcome.iter().any(|change| matches!(change, Change::Target(_))));
    assert!(matches!(cluster.state(jobs[0]), JobState::Starting { .. }));
    assert!(matches!(cluster.state(jobs[1]), JobState::Queued { .. }));
}

#[test]
fn a_job_that_ended_well_out_of_sight_does_not_run_again() {
    let mut cluster = Cluster::new(&[4]);
    let job = cluster.submit(spec("one", 4, 4, Some(training(true))));
    cluster.start(job);
    let generation = cluster.jobs[&job].generation;
    // The lease runs out, so the fenced job waits for GPUs elsewhere.
    cluster.pass(40.0);
    assert!(matches!(cluster.state(job), JobState::Queued { .. }), "{:?}", cluster.state(job));
    let over = GroupPhase::Ended { outcome: headway_types::GroupOutcome::Succeeded };
    let status = cluster.status(job, generation, over);
    cluster.register(inventory(0, 4), vec![status]);
    assert!(matches!(cluster.state(job), JobState::Succeeded { .. }), "{:?}", cluster.state(job));
}

#[test]
fn a_gang_that_ended_well_partly_out_of_sight_does_not_run_again() {
    let mut cluster = Cluster::new(&[4, 4]);
    let job = cluster.submit(spec("wide", 8, 8, Some(training(true))));
    cluster.start(job);
    let (generation, nodes) = (cluster.jobs[&job].generation, cluster.nodes_of(job));
    let over = GroupPhase::Ended { outcome: headway_types::GroupOutcome::Succeeded };
    cluster.group(nodes[0], job, over.clone());
    cluster.pass_beating(40.0, &[nodes[0]]);
    assert!(matches!(cluster.state(job), JobState::Queued { .. }), "{:?}", cluster.state(job));
    let status = cluster.status(job, generation, over);
    cluster.register(inventory(nodes[1], 4), vec![status]);
    assert!(matches!(cluster.state(job), JobState::Succeeded { .. }), "{:?}", cluster.state(job));
}

#[test]
fn what_a_lingering_gang_holds_is_offered_to_nobody() {
    let mut cluster = Cluster::new(&[4, 4]);
    let wide = cluster.submit(rigid("wide", 8));
    cluster.start(wide);
    let deadline = Some(cluster.now + Seconds(300.0));
    cluster.request(Request::Drain { node: node_id(0), reason: None, deadline });
    let waiting = cluster.submit(rigid("waiting", 4));
    cluster.pass_beating(60.0, &[0, 1]);
    assert!(matches!(cluster.state(wide), JobState::Running { .. }));
    assert!(matches!(cluster.state(waiting), JobState::Queued { .. }));
    let plan = cluster.engine.view().target.expect("a plan is adopted");
    assert!(!plan.plan.assignments.contains_key(&waiting), "its GPUs are not to be had yet");
}

#[test]
fn a_proposal_is_approved_only_as_it_was_shown() {
    let mut cluster = Cluster::new(&[4, 4]);
    let settings = PolicySettings { mode: PolicyMode::Paused, ..PolicySettings::default() };
    cluster.request(Request::SetPolicy { settings: settings.into(), expected: None });
    let job = cluster.submit(rigid("one", 4));
    cluster.request(Request::Rebalance { terms: Box::default() });
    cluster.pass_beating(3.0, &[0, 1]);
    let view = cluster.engine.view();
    let (plan, shown) = view.proposals.iter().next().map(|(id, record)| (*id, record.clone())).expect("a proposal");
    let home = shown.plan.assignments[&job].placement.first_node();
    cluster.request(Request::Cordon { node: home, reason: None });
    let reply = cluster.request(Request::Approve { plan });
    assert!(matches!(reply, Reply::Refused(Refusal::StalePlan { .. })), "{reply:?}");
    cluster.request(Request::Uncordon { node: home });
    assert!(matches!(cluster.request(Request::Approve { plan }), Reply::Plan(_)));
}

#[test]
fn a_node_whose_session_ended_shows_as_out_of_contact_at_once() {
    let mut cluster = Cluster::new(&[4]);
    cluster.disconnect(0);
    assert!(cluster.engine.view().nodes[&node_id(0)].is_away());
    assert_eq!(cluster.engine.view().census()[&Activity::Unreachable], GpuCount(4));
}

#[test]
fn what_a_job_waits_for_gpus_between_two_runs_is_no_part_of_what_its_move_costs() {
    let mut cluster = Cluster::new(&[4]);
    let job = cluster.submit(spec("moved", 2, 2, Some(training(true))));
    cluster.start(job);
    cluster.steps(job, 16, None);
    resize(&mut cluster, job, 4);
    cluster.pass_beating(1.0, &[0]);
    assert!(matches!(cluster.state(job), JobState::Stopping { cause: StopCause::Rescale, .. }));
    cluster.pass_beating(4.0, &[0]);
    cluster.request(Request::Cordon { node: node_id(0), reason: None });
    cluster.end(job, &GroupOutcome::Stopped);
    cluster.pass_beating(3_000.0, &[0]);
    assert!(matches!(cluster.state(job), JobState::Queued { .. }));
    cluster.request(Request::Uncordon { node: node_id(0) });
    cluster.pass_beating(1.0, &[0]);
    cluster.start(job);
    cluster.pass_beating(20.0, &[0]);
    cluster.steps(job, 32, None);
    let (downtime, moved_for) = (cluster.jobs[&job].downtime.unwrap().0, cluster.jobs[&job].moved_for.0);
    assert!((20.0..=40.0).contains(&downtime), "4 s to stop and 20 s to start: {downtime}");
    assert!((20.0..=40.0).contains(&moved_for), "{moved_for}");
}

#[test]
fn one_move_that_took_very_long_teaches_little() {
    let mut cluster = Cluster::new(&[4]);
    let job = cluster.submit(spec("moved", 2, 2, Some(training(true))));
    cluster.start(job);
    cluster.steps(job, 16, None);
    resize(&mut cluster, job, 4);
    cluster.pass_beating(5.0, &[0]);
    cluster.end(job, &GroupOutcome::Stopped);
    cluster.pass_beating(1.0, &[0]);
    cluster.start(job);
    cluster.pass_beating(250.0, &[0]);
    cluster.steps(job, 32, None);
    let downtime = cluster.jobs[&job].downtime.unwrap().0;
    assert!(downtime <= 4.0 * 30.0, "of 30 s assumed one measurement makes no {downtime} s");
    assert!(cluster.jobs[&job].moved_for.0 > 240.0, "it has cost that all the same");
}
