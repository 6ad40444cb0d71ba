//! Jobs that must not run twice (`limits.restartable: false`), and jobs that other jobs do not stop.

use headway_engine::Reply;
use headway_engine::event::{Rebalancing, Request};
use headway_engine::record::{JobState, ProjectRules, StopCause};
use headway_planner::Force;
use headway_types::spec::{Limits, Priority};
use headway_types::{AgentCommand, Fault, GpuCount, GroupOutcome, GroupPhase, JobId, JobSpec, Seconds};

use crate::harness::{Cluster, elastic, follow, inventory, node_id, of, rigid, spec, training};

fn once(spec: JobSpec) -> JobSpec {
    JobSpec { limits: Limits { restartable: Some(false), max_restarts: 0, ..spec.limits }, ..spec }
}

/// A job that must not run twice and runs on the first of these nodes that has room.
fn running(nodes: &[u32], spec: JobSpec) -> (Cluster, JobId) {
    let mut cluster = Cluster::new(nodes);
    let job = cluster.submit(once(spec));
    cluster.start(job);
    (cluster, job)
}

/// How many times processes of the job were launched.
fn launches(cluster: &Cluster, job: JobId) -> usize {
    let launch = |command: &AgentCommand| matches!(command, AgentCommand::Launch { job: one, .. } if *one == job);
    cluster.commands.iter().filter(|(_, command)| launch(command)).count()
}

fn failure(cluster: &Cluster, job: JobId) -> &str {
    match cluster.state(job) {
        JobState::Failed { message, .. } => message,
        other => panic!("{other:?}\n{:#?}", cluster.messages),
    }
}

fn refusal(cluster: &mut Cluster, request: Request) -> String {
    match cluster.request(request) {
        Reply::Refused(refusal) => refusal.to_string(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_process_that_fails_is_not_started_again() {
    for fault in [Fault::of_job("exit code 3"), Fault::of_node("a GPU is gone"), Fault::of_infrastructure("odd")] {
        let (mut cluster, job) = running(&[4, 4], rigid("one", 4));
        let message = fault.message.clone();
        cluster.end(job, &GroupOutcome::Failed { exit_code: Some(3), fault });
        cluster.pass_beating(900.0, &[0, 1]);
        assert!(failure(&cluster, job).contains(&message), "{}", failure(&cluster, job));
        assert!(!cluster.messages.iter().any(|message| message.contains("the next start waits")));
        assert_eq!(launches(&cluster, job), 1);
    }
}

#[test]
fn a_lost_node_is_the_end_of_it_and_the_reason_says_so() {
    let (mut cluster, job) = running(&[4, 4], rigid("one", 4));
    let node = cluster.nodes_of(job)[0];
    cluster.disconnect(node);
    cluster.pass_beating(60.0, &[1 - node]);
    assert!(matches!(cluster.state(job), JobState::Running { .. }), "nothing proves that it has ended");
    cluster.request(Request::MarkLost { node: node_id(node), reason: None });
    cluster.pass_beating(60.0, &[1 - node]);
    let name = cluster.node(node).inventory.name.clone();
    let told = format!("node {name} is lost, and it must not run twice (limits.restartable: false)");
    assert_eq!(failure(&cluster, job), told);
}

#[test]
fn an_agent_without_its_ledger_ends_it() {
    let (mut cluster, job) = running(&[4], rigid("one", 4));
    cluster.register(inventory(0, 4), Vec::new());
    cluster.pass_beating(60.0, &[0]);
    assert!(failure(&cluster, job).contains("must not run twice"), "{}", failure(&cluster, job));
    assert_eq!(launches(&cluster, job), 1);
}

#[test]
fn fenced_checkpoints_move_no_such_job_from_a_silent_node() {
    let (mut cluster, job) = running(&[4, 4], spec("one", 4, 4, Some(training(true))));
    let node = cluster.nodes_of(job)[0];
    let generation = cluster.jobs[&job].generation;
    cluster.checkpoint(job, generation, 320);
    cluster.disconnect(node);
    cluster.pass_beating(120.0, &[1 - node]);
    assert!(matches!(cluster.state(job), JobState::Running { .. }), "{:?}", cluster.state(job));
    let alive = cluster.status(job, generation, GroupPhase::Running);
    cluster.register(inventory(node, 4), vec![alive]);
    cluster.pass_beating(10.0, &[0, 1]);
    assert!(matches!(cluster.state(job), JobState::Running { .. }), "{:?}", cluster.state(job));
    assert_eq!((launches(&cluster, job), cluster.stops(job).len()), (1, 0));
}

#[test]
fn a_start_that_reached_no_process_is_tried_again() {
    let mut cluster = Cluster::new(&[4, 4]);
    let job = cluster.submit(once(rigid("one", 4)));
    let node = cluster.nodes_of(job)[0];
    let outcome = GroupOutcome::Failed { exit_code: None, fault: Fault::of_node("the disk is full") };
    cluster.group(node, job, GroupPhase::Ended { outcome });
    cluster.pass_beating(60.0, &[0, 1]);
    assert!(matches!(cluster.state(job), JobState::Starting { .. }), "{:?}", cluster.state(job));
    cluster.start(job);
    assert_eq!(launches(&cluster, job), 1);
}

#[test]
fn a_new_leader_knows_that_a_process_may_run() {
    let mut cluster = Cluster::new(&[4, 4]);
    let job = cluster.submit(once(rigid("one", 4)));
    let node = cluster.nodes_of(job)[0];
    cluster.group(node, job, GroupPhase::Prepared { rendezvous_port: Some(29_500) });
    assert_eq!(launches(&cluster, job), 1);
    cluster.restart();
    cluster.register(inventory(1 - node, 4), Vec::new());
    cluster.pass_beating(300.0, &[1 - node]);
    assert!(matches!(cluster.state(job), JobState::Starting { .. }), "{:?}", cluster.state(job));
    cluster.request(Request::MarkLost { node: node_id(node), reason: None });
    cluster.pass_beating(300.0, &[1 - node]);
    assert!(failure(&cluster, job).contains("is lost, and it must not run twice"), "{}", failure(&cluster, job));
}

#[test]
fn a_drain_waits_for_it_and_names_it() {
    let (mut cluster, job) = running(&[4, 4], rigid("one", 4));
    let node = cluster.nodes_of(job)[0];
    let deadline = Some(cluster.now + Seconds(60.0));
    cluster.request(Request::Drain { node: node_id(node), reason: None, deadline });
    let told = "one must not run twice and holds it to the end: cancel it to free it sooner";
    assert!(cluster.messages.iter().any(|message| message.ends_with(told)), "{:#?}", cluster.messages);
    cluster.pass_beating(600.0, &[0, 1]);
    cluster.request(Request::Drain { node: node_id(node), reason: None, deadline: None });
    cluster.pass_beating(600.0, &[0, 1]);
    assert!(matches!(cluster.state(job), JobState::Running { .. }), "{:?}", cluster.state(job));
    cluster.end(job, &GroupOutcome::Succeeded);
    assert!(matches!(cluster.state(job), JobState::Succeeded { .. }), "{:?}", cluster.state(job));
}

#[test]
fn nothing_that_others_are_owed_stops_it() {
    let mut cluster = Cluster::new(&[4]);
    let rules = |quota: u32| ProjectRules {
        quota: Some(GpuCount(quota)),
        borrow: GpuCount(4 - quota),
        ..ProjectRules::default()
    };
    for (name, quota) in [("lender", 4), ("borrower", 0)] {
        cluster.request(Request::PutProject { name: name.into(), rules: rules(quota), expected: None });
    }
    let job = cluster.submit(of("borrower", once(rigid("one", 4))));
    cluster.start(job);
    let urgent = JobSpec { priority: Priority(100), ..of("lender", rigid("urgent", 4)) };
    let urgent = cluster.submit(urgent);
    cluster.pass_beating(20_000.0, &[0]);
    assert!(matches!(cluster.state(job), JobState::Running { .. }), "{:?}", cluster.state(job));
    assert!(matches!(cluster.state(urgent), JobState::Queued { .. }));
}

#[test]
fn what_would_start_it_again_is_refused_with_the_reason() {
    let (mut cluster, job) = running(&[4, 4], spec("one", 2, 4, Some(training(true))));
    let force = Rebalancing { force: vec![Force::size(job, GpuCount(2))], ..Rebalancing::default() };
    let known = cluster.known();
    let told = [
        Request::Requeue { job, reason: None, known },
        Request::Hold { job, reason: None },
        Request::Resize { job, min: GpuCount(2), max: GpuCount(2), reason: None },
        Request::Rebalance { terms: Box::new(force) },
    ]
    .map(|request| refusal(&mut cluster, request));
    insta::assert_snapshot!(told.join("\n"), @r"
    job must not run twice (limits.restartable: false); submit it again as a new job
    job must not run twice (limits.restartable: false), so it cannot be held once it runs; cancel it instead
    job must not run twice (limits.restartable: false), so it keeps its GPUs until it ends
    one must not run twice (limits.restartable: false), so it keeps its 4 GPUs until it ends
    ");
    cluster.pass_beating(60.0, &[0, 1]);
    assert!(matches!(cluster.state(job), JobState::Running { .. }));
    cluster.end(job, &GroupOutcome::Failed { exit_code: Some(1), fault: Fault::of_job("exit code 1") });
    cluster.pass_beating(5.0, &[0, 1]);
    let known = cluster.known();
    let told = refusal(&mut cluster, Request::Requeue { job, reason: None, known });
    assert_eq!(told, "job must not run twice (limits.restartable: false); submit it again as a new job");
}

#[test]
fn after_a_restore_its_owner_says_whether_it_has_run() {
    let mut cluster = Cluster::new(&[4]);
    cluster.restart();
    let job = cluster.submit(once(rigid("one", 4)));
    cluster.restored = Some(cluster.now - Seconds(600.0));
    cluster.restart();
    cluster.register(inventory(0, 4), Vec::new());
    cluster.pass_beating(60.0, &[0]);
    let JobState::Held { reason: Some(reason), .. } = cluster.state(job) else { panic!("{:?}", cluster.state(job)) };
    assert!(reason.contains("the job may have run since"), "{reason}");
    cluster.request(Request::Release { job });
    cluster.pass_beating(10.0, &[0]);
    assert!(matches!(cluster.state(job), JobState::Starting { .. }), "{:?}", cluster.state(job));
}

#[test]
fn after_a_restore_a_job_that_waits_can_be_held_again() {
    let mut cluster = Cluster::new(&[4]);
    cluster.restart();
    let job = cluster.submit(once(rigid("one", 4)));
    cluster.restored = Some(cluster.now - Seconds(600.0));
    cluster.restart();
    cluster.request(Request::Release { job });
    assert!(matches!(cluster.state(job), JobState::Queued { .. }), "its node is not back");
    cluster.request(Request::Hold { job, reason: Some("later".into()) });
    assert!(matches!(cluster.state(job), JobState::Held { .. }), "{:?}", cluster.state(job));
}

#[test]
fn a_job_that_was_on_hold_in_a_backup_may_have_run_since_as_well() {
    let mut cluster = Cluster::new(&[4]);
    cluster.restart();
    let job = cluster.submit(once(rigid("one", 4)));
    cluster.request(Request::Hold { job, reason: Some("the data is not there".into()) });
    let held = cluster.count("job.held");
    for _ in 0..2 {
        cluster.restored = Some(cluster.now - Seconds(600.0));
        cluster.restart();
        let JobState::Held { reason: Some(reason), .. } = cluster.state(job) else {
            panic!("{:?}", cluster.state(job))
        };
        assert!(reason.contains("the job may have run since"), "{reason}");
    }
    let JobState::Held { reason: Some(reason), .. } = cluster.state(job) else { panic!("{:?}", cluster.state(job)) };
    assert_eq!(reason.matches("the job may have run since").count(), 1, "{reason}");
    assert_eq!(cluster.count("job.held"), held + 2);
}

/// A script on all GPUs, and jobs that want them: one of the highest priority, and one that is elastic.
fn crowded(script: JobSpec) -> (Cluster, JobId, [JobId; 2]) {
    let mut cluster = Cluster::new(&[4]);
    let script = cluster.submit(script);
    cluster.start(script);
    let urgent = cluster.submit(JobSpec { priority: Priority(100), ..rigid("urgent", 4) });
    let elastic = cluster.submit(elastic("elastic", 4));
    (cluster, script, [urgent, elastic])
}

#[test]
fn a_script_that_cannot_resume_is_not_stopped_for_peers() {
    let (mut cluster, script, peers) = crowded(rigid("script", 4));
    for _ in 0..40 {
        cluster.pass_beating(1_000.0, &[0]);
        assert!(matches!(cluster.state(script), JobState::Running { .. }), "{:#?}", cluster.messages);
    }
    assert!(peers.iter().all(|peer| matches!(cluster.state(*peer), JobState::Queued { .. })));
    let view = cluster.engine.view();
    let told = view.verdict(script).unwrap().reasons.iter().any(|reason| reason.detail.contains("it cannot resume"));
    assert!(told, "its verdict says why it keeps its GPUs");
    cluster.end(script, &GroupOutcome::Succeeded);
    follow(&mut cluster, &[0]);
    assert!(peers.iter().any(|peer| matches!(cluster.state(*peer), JobState::Running { .. })));
}

#[test]
fn a_script_whose_owner_allows_restarts_gives_way() {
    let mut restartable = rigid("script", 4);
    restartable.limits.restartable = Some(true);
    let (mut cluster, script, _) = crowded(restartable);
    cluster.pass_beating(30.0, &[0]);
    assert!(matches!(cluster.state(script), JobState::Stopping { cause: StopCause::Preempt, .. }));
}

#[test]
fn a_script_that_cannot_resume_gives_back_what_it_borrowed_and_leaves_a_drained_node() {
    let mut cluster = Cluster::new(&[4]);
    let rules = |quota: u32| ProjectRules {
        quota: Some(GpuCount(quota)),
        borrow: GpuCount(4 - quota),
        ..ProjectRules::default()
    };
    for (name, quota) in [("lender", 4), ("borrower", 0)] {
        cluster.request(Request::PutProject { name: name.into(), rules: rules(quota), expected: None });
    }
    let script = cluster.submit(of("borrower", rigid("script", 4)));
    cluster.start(script);
    cluster.pass_beating(30.0, &[0]);
    cluster.submit(of("lender", rigid("own", 4)));
    cluster.pass_beating(30.0, &[0]);
    assert!(matches!(cluster.state(script), JobState::Stopping { cause: StopCause::Preempt, .. }));

    let mut cluster = Cluster::new(&[4, 4]);
    let script = cluster.submit(rigid("script", 4));
    cluster.start(script);
    let node = cluster.nodes_of(script)[0];
    cluster.request(Request::Drain { node: node_id(node), reason: None, deadline: None });
    cluster.pass_beating(10.0, &[0, 1]);
    assert!(matches!(cluster.state(script), JobState::Stopping { cause: StopCause::Drain, .. }));
}
