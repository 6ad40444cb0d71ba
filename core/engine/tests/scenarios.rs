//! One job's life and its accidents, told by hand.

use headway_engine::Reply;
use headway_engine::event::{Known, Request};
use headway_engine::record::{JobState, ReleaseProof, StopCause};
use headway_types::{
    AgentCommand, BootId, Fault, Generation, GpuCount, GroupOutcome, GroupPhase, JobId, NodeReport, NoiseSample,
    Seconds, StopMode, Tokens,
};

use crate::harness::{Cluster, inventory, node_id, resize, rigid, spec, training};

fn failed(message: &str) -> GroupOutcome {
    GroupOutcome::Failed { exit_code: Some(1), fault: Fault::of_job(message) }
}

/// Gradient norms as a noise scale of `per_sequence` sequences gives them.
fn noise(per_sequence: f64) -> NoiseSample {
    NoiseSample {
        small_sqr: 1.0 + per_sequence / 4.0,
        big_sqr: 1.0 + per_sequence / 16.0,
        small_batch: 4.0,
        big_batch: 16.0,
    }
}

#[test]
fn a_gang_is_launched_once_every_node_is_prepared() {
    let mut cluster = Cluster::new(&[4, 4]);
    let job = cluster.submit(rigid("wide", 8));
    let prepares = |cluster: &Cluster| {
        cluster.commands.iter().filter(|(_, one)| matches!(one, AgentCommand::Prepare { .. })).count()
    };
    let launches = |cluster: &Cluster| {
        cluster.commands.iter().filter(|(_, one)| matches!(one, AgentCommand::Launch { .. })).count()
    };
    assert_eq!(prepares(&cluster), 2);
    let nodes = cluster.nodes_of(job);
    cluster.group(nodes[0], job, GroupPhase::Prepared { rendezvous_port: Some(29_500) });
    assert_eq!(launches(&cluster), 0);
    cluster.group(nodes[1], job, GroupPhase::Prepared { rendezvous_port: None });
    assert_eq!(launches(&cluster), 2);
    cluster.group(nodes[0], job, GroupPhase::Running);
    cluster.group(nodes[1], job, GroupPhase::Running);
    cluster.end(job, &GroupOutcome::Succeeded);
    assert!(matches!(cluster.state(job), JobState::Succeeded { .. }));
    assert!(cluster.commands.iter().any(|(_, one)| matches!(one, AgentCommand::Forget { .. })));
}

#[test]
fn a_command_is_repeated_until_its_effect_is_seen() {
    let mut cluster = Cluster::new(&[4]);
    let job = cluster.submit(rigid("one", 2));
    cluster.feed(headway_engine::Event::Tick);
    assert_eq!(cluster.commands.len(), 1, "{:?}", cluster.messages);
    cluster.pass(2.5);
    assert_eq!(cluster.commands.len(), 2);
    assert_eq!(cluster.commands[0], cluster.commands[1]);
    cluster.group(0, job, GroupPhase::Preparing);
    cluster.pass(2.5);
    assert_eq!(cluster.commands.len(), 2);
}

/// What has ended never runs again, whatever was asked of it while it ended.
#[test]
fn a_job_that_ended_by_itself_while_it_was_to_stop_has_succeeded() {
    let hold = |job| Request::Hold { job, reason: None };
    let cancel = |job| Request::Cancel { job, reason: None, grace: None };
    let requeue = |job| Request::Requeue { job, reason: None, known: Known::default() };
    type LateRequest = (fn(JobId) -> Request, GroupOutcome, &'static str);
    let cases: [LateRequest; 5] = [
        (hold, GroupOutcome::Succeeded, "succeeded"),
        (hold, GroupOutcome::Stopped, "held"),
        (cancel, GroupOutcome::Succeeded, "succeeded"),
        (cancel, GroupOutcome::Stopped, "cancelled"),
        (requeue, GroupOutcome::Succeeded, "succeeded"),
    ];
    for (request, outcome, ends) in cases {
        let mut cluster = Cluster::new(&[4]);
        let job = cluster.submit(rigid("one", 2));
        cluster.start(job);
        cluster.request(request(job));
        assert!(matches!(cluster.state(job), JobState::Stopping { .. }));
        cluster.end(job, &outcome);
        assert_eq!(<&str>::from(&cluster.state(job).kind()), ends);
    }
}

#[test]
fn a_job_follows_its_noise_scale_yields_and_finishes() {
    let mut cluster = Cluster::new(&[4]);
    let job = cluster.submit(spec("first", 1, 4, Some(training(true))));
    cluster.start(job);
    assert_eq!(cluster.allocation(job).placement.gpus(), GpuCount(4));
    let mut samples = 0;
    for _ in 0..60 {
        samples += 256;
        cluster.now = cluster.now + headway_types::Seconds(1.0);
        cluster.steps(job, samples, Some(noise(400.0)));
    }
    cluster.pass_beating(61.0, &[0]);
    assert!(cluster.count("job.batch_changed") > 0, "{:#?}", cluster.messages);
    assert!(cluster.allocation(job).revision > 1);
    assert!(cluster.commands.iter().any(|(_, one)| matches!(one, AgentCommand::Configure { .. })));

    cluster.checkpoint(job, Generation(1), samples);
    let second = cluster.submit(rigid("second", 2));
    cluster.pass_beating(5.0, &[0]);
    assert!(matches!(cluster.state(job), JobState::Stopping { .. }), "{:#?}", cluster.messages);
    assert_eq!(cluster.stops(job), vec![StopMode::Checkpoint; cluster.stops(job).len()]);
    cluster.end(job, &GroupOutcome::Stopped);
    cluster.pass_beating(5.0, &[0]);
    cluster.start(second);
    cluster.start(job);
    assert_eq!(cluster.jobs[&job].generation, Generation(2));
    assert_eq!(cluster.allocation(job).resumed_from.as_ref().unwrap().samples_seen.0, samples);
    assert!(cluster.jobs[&job].last_change.is_some());

    cluster.steps(job, samples + 1_000_000, None);
    assert!(matches!(cluster.state(job), JobState::Stopping { cause: StopCause::TargetReached, .. }));
    cluster.checkpoint(job, Generation(2), samples + 1_000_000);
    cluster.end(job, &GroupOutcome::Stopped);
    assert!(matches!(cluster.state(job), JobState::Succeeded { .. }));
}

#[test]
fn training_goes_on_over_a_restart_of_the_scheduler() {
    let mut cluster = Cluster::new(&[4]);
    let job = cluster.submit(rigid("one", 2));
    cluster.start(job);
    cluster.restart();
    let running = cluster.status(job, Generation(1), GroupPhase::Running);
    cluster.register(inventory(0, 4), vec![running]);
    cluster.pass_beating(120.0, &[0]);
    assert!(matches!(cluster.state(job), JobState::Running { .. }));
    assert_eq!(cluster.stops(job), vec![]);
    cluster.end(job, &GroupOutcome::Succeeded);
    assert!(matches!(cluster.state(job), JobState::Succeeded { .. }));
}

#[test]
fn a_start_survives_a_restart_of_the_scheduler_between_its_phases() {
    let mut cluster = Cluster::new(&[4, 4]);
    let job = cluster.submit(rigid("wide", 8));
    let nodes = cluster.nodes_of(job);
    cluster.restart();
    let prepared =
        |cluster: &Cluster, port| cluster.status(job, Generation(1), GroupPhase::Prepared { rendezvous_port: port });
    let first = prepared(&cluster, Some(29_500));
    cluster.register(inventory(nodes[0], 4), vec![first]);
    cluster.register(inventory(nodes[1], 4), vec![]);
    assert!(matches!(cluster.state(job), JobState::Starting { .. }));
    let prepare = cluster.commands.iter().find(|(_, one)| matches!(one, AgentCommand::Prepare { .. })).unwrap();
    assert_eq!(prepare.0, node_id(nodes[1]));
    cluster.start(job);
}

#[test]
fn a_group_missing_from_the_ledger_frees_its_gpus_and_breaks_the_gang() {
    let mut cluster = Cluster::new(&[4]);
    let job = cluster.submit(rigid("one", 2));
    cluster.start(job);
    cluster.register(inventory(0, 4), vec![]);
    assert_eq!(cluster.allocation(job).released[&node_id(0)].proof, ReleaseProof::NotInLedger);
    assert!(matches!(cluster.state(job), JobState::Queued { .. }));
    assert_eq!((cluster.jobs[&job].failures, cluster.jobs[&job].disruptions), (0, 1));
}

#[test]
fn a_failed_rank_takes_the_gang_down_and_the_job_starts_again_after_a_pause() {
    let mut cluster = Cluster::new(&[4, 4]);
    let job = cluster.submit(rigid("wide", 8));
    cluster.start(job);
    let nodes = cluster.nodes_of(job);
    cluster.group(nodes[0], job, GroupPhase::Ended { outcome: failed("rank 0 exited with code 1") });
    assert!(matches!(cluster.state(job), JobState::Stopping { cause: StopCause::GangBroken { .. }, .. }));
    let graces: Vec<f64> = cluster
        .commands
        .iter()
        .filter_map(|(_, command)| match command {
            AgentCommand::Stop { grace, .. } => Some(grace.0),
            _ => None,
        })
        .collect();
    assert_eq!(graces, [3.0], "ranks that hang in a collective cannot save, so they are not waited for");
    cluster.group(nodes[1], job, GroupPhase::Ended { outcome: GroupOutcome::Stopped });
    assert!(matches!(cluster.state(job), JobState::Queued { .. }));
    cluster.pass_beating(3.0, &[0, 1]);
    assert!(matches!(cluster.state(job), JobState::Queued { .. }));
    cluster.pass_beating(10.0, &[0, 1]);
    assert!(matches!(cluster.state(job), JobState::Starting { generation: Generation(2), .. }));
}

#[test]
fn an_odd_loss_is_told_once_a_minute_and_a_start_once() {
    let mut cluster = Cluster::new(&[4]);
    let job = cluster.submit(rigid("one", 2));
    cluster.start(job);
    let generation = Generation(1);
    let phases = || [("startup", 0.1), ("import", 3.0)].map(|(name, one)| (name.to_owned(), Seconds(one))).into();
    for loss in [Some(9.0), None] {
        cluster.report(0, NodeReport::LossAnomaly { job, generation, step: 7, loss, usual: Some(2.5) });
        cluster.report(0, NodeReport::StartPhases { job, generation, phases: phases() });
    }
    assert_eq!((cluster.count("job.loss_spike"), cluster.count("job.loss_not_finite")), (1, 1));
    assert_eq!(cluster.count("job.start_measured"), 1);
    assert_eq!(cluster.jobs[&job].downtime, Some(Seconds(3.1)), "until a move is measured");
    cluster.pass_beating(61.0, &[0]);
    cluster.report(0, NodeReport::LossAnomaly { job, generation, step: 9, loss: None, usual: None });
    assert_eq!(cluster.count("job.loss_not_finite"), 2);
}

#[test]
fn a_first_step_that_is_heard_of_after_the_next_stop_ends_no_move() {
    let mut cluster = Cluster::new(&[4]);
    let job = cluster.submit(spec("moved", 2, 2, Some(training(true))));
    cluster.start(job);
    resize(&mut cluster, job, 4);
    cluster.pass_beating(1.0, &[0]);
    assert!(
        matches!(cluster.state(job), JobState::Stopping { cause: StopCause::Rescale, .. }),
        "{:?}",
        cluster.state(job)
    );
    cluster.steps(job, 16, None);
    assert_eq!((cluster.count("job.training"), cluster.jobs[&job].downtime), (1, None));
    cluster.pass_beating(4.0, &[0]);
    cluster.end(job, &GroupOutcome::Stopped);
    cluster.pass_beating(1.0, &[0]);
    cluster.start(job);
    cluster.pass_beating(5.0, &[0]);
    cluster.steps(job, 32, None);
    let downtime = cluster.jobs[&job].downtime.unwrap().0;
    assert!((9.0..=11.0).contains(&downtime), "asked to stop 11 s ago, and the first step took one: {downtime}");
}

#[test]
fn a_job_that_only_fails_has_failed_after_its_restarts() {
    let mut cluster = Cluster::new(&[4]);
    let job = cluster.submit(rigid("one", 2));
    for _ in 0..3 {
        cluster.group(
            0,
            job,
            GroupPhase::Ended { outcome: GroupOutcome::NotStarted { fault: Fault::of_job("no such file") } },
        );
        cluster.pass_beating(60.0, &[0]);
    }
    assert!(matches!(cluster.state(job), JobState::Failed { .. }), "{:?}", cluster.state(job));
}

#[test]
fn a_start_that_misses_its_deadline_is_aborted() {
    let mut cluster = Cluster::new(&[4]);
    let job = cluster.submit(rigid("one", 2));
    cluster.group(0, job, GroupPhase::Preparing);
    cluster.pass_beating(125.0, &[0]);
    assert!(matches!(cluster.state(job), JobState::Stopping { cause: StopCause::GangBroken { .. }, .. }));
    assert_eq!(cluster.stops(job)[0], StopMode::Kill);
}

#[test]
fn a_fenced_job_starts_elsewhere_while_the_lost_gpus_stay_granted() {
    let mut cluster = Cluster::new(&[4]);
    let job = cluster.submit(spec("fenced", 4, 4, Some(training(true))));
    cluster.start(job);
    cluster.register(inventory(1, 4), vec![]);
    cluster.steps(job, 160, None);
    cluster.checkpoint(job, Generation(1), 160);
    let lost = cluster.nodes_of(job)[0];
    let other = 1 - lost;
    cluster.pass_beating(40.0, &[other]);
    assert_eq!(cluster.count("node.unreachable"), 1);
    cluster.pass_beating(5.0, &[other]);
    assert!(
        matches!(cluster.state(job), JobState::Starting { generation: Generation(2), .. }),
        "{:#?}",
        cluster.messages
    );
    assert_eq!(cluster.nodes_of(job), vec![other]);
    assert!(cluster.allocations[&(job, Generation(1))].holds());
    // What the old generation saves now is too late.
    let stale = cluster.jobs[&job].checkpoint.clone();
    cluster.commands.clear();
    let status = cluster.status(job, Generation(1), GroupPhase::Running);
    cluster.register(inventory(lost, 4), vec![status]);
    cluster.checkpoint(job, Generation(1), 320);
    assert_eq!(cluster.jobs[&job].checkpoint, stale);
    assert_eq!(cluster.stops(job), vec![StopMode::Kill]);
    let status = cluster.status(job, Generation(1), GroupPhase::Ended { outcome: GroupOutcome::Stopped });
    cluster.report(lost, NodeReport::Group { status });
    assert!(!cluster.allocations[&(job, Generation(1))].holds());
}

#[test]
fn a_job_without_fenced_checkpoints_waits_for_proof() {
    let mut cluster = Cluster::new(&[4, 4]);
    let job = cluster.submit(rigid("unfenced", 4));
    cluster.start(job);
    let lost = cluster.nodes_of(job)[0];
    cluster.pass_beating(100.0, &[1 - lost]);
    assert!(matches!(cluster.state(job), JobState::Running { .. }));
    let reply = cluster.request(Request::MarkLost { node: node_id(lost), reason: None });
    assert!(matches!(reply, Reply::Node(_)));
    assert!(!cluster.engine.view().nodes[&node_id(lost)].connected, "its stream ends, though it stood");
    assert_eq!(cluster.refused.len(), 1);
    cluster.pass_beating(5.0, &[1 - lost]);
    assert!(matches!(cluster.state(job), JobState::Starting { generation: Generation(2), .. }));
    assert_eq!(cluster.jobs[&job].failures, 0);
}

#[test]
fn a_reboot_proves_that_nothing_is_left() {
    let mut cluster = Cluster::new(&[4]);
    let job = cluster.submit(rigid("one", 4));
    cluster.start(job);
    let mut rebooted = inventory(0, 4);
    rebooted.boot = BootId("second".into());
    cluster.register(rebooted, vec![]);
    assert_eq!(cluster.allocations[&(job, Generation(1))].released[&node_id(0)].proof, ReleaseProof::NewBoot);
    cluster.pass_beating(5.0, &[0]);
    assert!(matches!(cluster.state(job), JobState::Starting { generation: Generation(2), .. }));
}

#[test]
fn after_a_restore_nobody_is_lost_for_a_whole_lease() {
    let mut cluster = Cluster::new(&[4]);
    let job = cluster.submit(rigid("one", 4));
    cluster.start(job);
    cluster.now = cluster.now + headway_types::Seconds(3_600.0);
    cluster.restart();
    cluster.pass(29.0);
    assert_eq!(cluster.count("node.unreachable"), 0);
    cluster.pass(2.0);
    assert_eq!(cluster.count("node.unreachable"), 1);
    assert!(matches!(cluster.state(job), JobState::Running { .. }));
}

#[test]
fn the_schedulers_own_pause_loses_nobody() {
    let mut cluster = Cluster::new(&[4]);
    let job = cluster.submit(rigid("one", 4));
    cluster.start(job);
    // Stopped for two minutes: the first thing it sees is its own late timer.
    cluster.now = cluster.now + headway_types::Seconds(120.0);
    cluster.feed(headway_engine::Event::Tick);
    assert_eq!(cluster.count("node.unreachable"), 0);
    cluster.pass(29.0);
    assert_eq!(cluster.count("node.unreachable"), 0);
    // A node that stays silent while the scheduler listens is lost as ever.
    cluster.pass(2.0);
    assert_eq!(cluster.count("node.unreachable"), 1);
    assert!(matches!(cluster.state(job), JobState::Running { .. }));
}

#[test]
fn a_checkpoint_wipes_out_earlier_failures() {
    let mut cluster = Cluster::new(&[4]);
    let job = cluster.submit(spec("first", 4, 4, Some(training(true))));
    cluster.start(job);
    cluster.end(job, &failed("rank 0 exited with code 1"));
    cluster.pass_beating(10.0, &[0]);
    cluster.start(job);
    assert_eq!(cluster.jobs[&job].failures, 1);
    cluster.steps(job, 160, None);
    cluster.checkpoint(job, Generation(2), 160);
    assert_eq!(cluster.jobs[&job].failures, 0);
    assert!(cluster.jobs[&job].progress > Tokens(0.0));
}

#[test]
fn a_stale_session_says_nothing() {
    let mut cluster = Cluster::new(&[4]);
    let job = cluster.submit(rigid("one", 4));
    let status = cluster.status(job, Generation(1), GroupPhase::Ended { outcome: failed("late") });
    let report = NodeReport::Group { status };
    cluster.register(inventory(0, 4), vec![]);
    cluster.feed(headway_engine::Event::Agent { node: node_id(0), session: headway_engine::SessionId(1), report });
    assert!(matches!(cluster.state(job), JobState::Starting { .. }));
}

#[test]
fn a_job_whose_numbers_are_none_is_left_out_and_the_others_run() {
    let mut cluster = Cluster::new(&[4]);
    let mut odd = training(true);
    odd.kappa = f64::NAN;
    let bad = cluster.submit(spec("bad", 1, 2, Some(odd)));
    let good = cluster.submit(rigid("good", 2));
    cluster.pass_beating(10.0, &[0]);
    assert!(matches!(cluster.state(good), JobState::Starting { .. }), "{:?}", cluster.state(good));
    assert!(matches!(cluster.state(bad), JobState::Queued { .. }), "{:?}", cluster.state(bad));
    assert_eq!(cluster.count("job.left_out"), 1, "it is told once, however many rounds");
}
