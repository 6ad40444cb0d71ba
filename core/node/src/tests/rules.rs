use headway_types::report::Flexibility;
use headway_types::{
    AgentCommand, BootId, Capabilities, CheckpointRef, Configuration, Fault, Generation, GroupOutcome, GroupPhase,
    Layout, NodeReport, Seconds, Sequences, StopMode, Term,
};

use super::*;
use crate::{Exit, NodeAction, Refusal, Signal, WorkerMessage, WorkerOrder};

fn exited(order: &LaunchOrder, rank: u32, exit: Exit) -> NodeEvent {
    NodeEvent::Exited { job: order.job, generation: order.generation, rank, exit, fault: None }
}

fn worker(order: &LaunchOrder, message: WorkerMessage) -> NodeEvent {
    NodeEvent::Worker { job: order.job, generation: order.generation, message }
}

fn hello(order: &LaunchOrder) -> NodeEvent {
    let capabilities = Some(Capabilities { batch: Flexibility::Live, layout: Flexibility::Restart });
    worker(order, WorkerMessage::Hello { rank: 0, capabilities })
}

fn configure(order: &LaunchOrder, revision: u64, batch: u64) -> AgentCommand {
    let layout = Layout { dp: 2, tp: 1, pp: 1, ..Layout::single() };
    let configuration = Configuration { layout, micro_batch: Sequences(1), global_batch: Sequences(batch) };
    let lr_scale = 0.25 * batch as f64;
    AgentCommand::Configure { job: order.job, generation: order.generation, revision, configuration, lr_scale }
}

fn signal(order: &LaunchOrder, signal: Signal) -> NodeAction {
    NodeAction::Signal { job: order.job, generation: order.generation, signal }
}

#[test]
fn a_group_goes_from_prepare_to_success() {
    let order = order(1, 1, &["a", "b"]);
    let mut ledger = ledger();
    let outcome = ledger.handle(at(0), prepare(&order));
    assert!(outcome.persist);
    assert_eq!(outcome.actions, [NodeAction::Prepare { order: Box::new(order.clone()) }]);
    assert_eq!(status(&outcome).phase, GroupPhase::Preparing);
    let outcome = ledger.handle(at(0), prepared(&order));
    assert_eq!(status(&outcome).phase, GroupPhase::Prepared { rendezvous_port: Some(PORT) });
    let outcome = ledger.handle(at(0), launch(&order));
    assert_eq!(outcome.actions, [NodeAction::Spawn { order: Box::new(order.clone()), rendezvous_port: PORT }]);
    assert_eq!(status(&ledger.handle(at(0), spawned(&order))).phase, GroupPhase::Running);
    assert!(ledger.handle(at(1), exited(&order, 0, Exit::Code(0))).reports.is_empty());
    let outcome = ledger.handle(at(1), exited(&order, 1, Exit::Code(0)));
    assert_eq!(status(&outcome).phase, GroupPhase::Ended { outcome: GroupOutcome::Succeeded });
}

#[test]
fn a_command_of_an_older_term_changes_nothing() {
    let order = order(1, 1, &["a"]);
    let mut ledger = running(&order);
    let _ = ledger.handle(at(0), NodeEvent::SessionOpened { term: Term(5) });
    let before = ledger.clone();
    let outcome = ledger.handle(at(0), stop(&order, StopMode::Kill));
    assert_eq!(outcome.refusal, Some(Refusal::OldTerm { term: TERM, highest: Term(5) }));
    assert_eq!((outcome.actions.len(), outcome.reports.len()), (0, 0));
    assert_eq!(ledger, before);
}

#[test]
fn an_older_generation_is_refused_even_after_it_was_forgotten() {
    let order = order(1, 4, &["a"]);
    let mut ledger = running(&order);
    let _ = ledger.handle(at(0), exited(&order, 0, Exit::Code(0)));
    let forget = AgentCommand::Forget { job: order.job, generation: order.generation };
    let _ = ledger.handle(at(0), command(forget));
    assert!(ledger.statuses().is_empty());
    for generation in [3, 4] {
        let outcome = ledger.handle(at(0), prepare(&super::order(1, generation, &["a"])));
        assert!(matches!(outcome.refusal, Some(Refusal::Stale { .. })));
        assert!(outcome.actions.is_empty());
        assert!(matches!(status(&outcome).phase, GroupPhase::Ended { .. }));
    }
}

#[test]
fn the_same_generation_with_another_body_is_refused() {
    let order = order(1, 1, &["a"]);
    let mut ledger = running(&order);
    let mut other = order.clone();
    other.lr_scale = 2.0;
    let outcome = ledger.handle(at(0), prepare(&other));
    assert_eq!(outcome.refusal, Some(Refusal::OtherBody { job: order.job, generation: order.generation }));
    assert_eq!(status(&outcome).phase, GroupPhase::Running);
    let port = AgentCommand::Launch { job: order.job, generation: order.generation, rendezvous_port: 1 };
    assert!(matches!(ledger.handle(at(0), command(port)).refusal, Some(Refusal::OtherBody { .. })));
}

#[test]
fn a_newer_generation_waits_until_the_older_is_dead() {
    let (old, new) = (order(1, 1, &["a"]), order(1, 2, &["a"]));
    let mut ledger = running(&old);
    let outcome = ledger.handle(at(0), prepare(&new));
    assert_eq!(outcome.actions, [signal(&old, Signal::Kill)]);
    assert_eq!(status(&outcome).phase, GroupPhase::Preparing);
    let outcome = ledger.handle(at(0), exited(&old, 0, Exit::Signal(9)));
    assert!(outcome.actions.contains(&NodeAction::Prepare { order: Box::new(new) }));
}

#[test]
fn a_gpu_of_another_live_group_is_not_given_away() {
    let mut ledger = running(&order(1, 1, &["a", "b"]));
    let outcome = ledger.handle(at(0), prepare(&order(2, 1, &["b", "c"])));
    assert!(matches!(
        status(&outcome).phase,
        GroupPhase::Ended { outcome: GroupOutcome::NotStarted { fault } } if fault.message.contains("GPU b is held")
    ));
}

#[test]
fn stopping_an_unknown_group_proves_it_gone_and_fences_it() {
    let order = order(1, 7, &["a"]);
    let mut ledger = ledger();
    let outcome = ledger.handle(at(0), stop(&order, StopMode::Checkpoint));
    assert_eq!(status(&outcome).phase, GroupPhase::Ended { outcome: GroupOutcome::Stopped });
    assert!(outcome.persist);
    let late = ledger.handle(at(0), prepare(&order));
    assert!(late.actions.is_empty() && late.refusal.is_some());
}

#[test]
fn a_stop_asks_then_terminates_then_kills() {
    let order = order(1, 1, &["a"]);
    let mut ledger = running(&order);
    let _ = ledger.handle(at(0), hello(&order));
    let outcome = ledger.handle(at(0), stop(&order, StopMode::Checkpoint));
    assert!(matches!(
        outcome.actions[..],
        [NodeAction::Send { order: WorkerOrder::Stop { checkpoint: true, grace: Seconds(20.0) }, .. }]
    ));
    assert_eq!(outcome.wake_at, Some(at(15)));
    assert!(ledger.handle(at(14), NodeEvent::Tick).actions.is_empty());
    let outcome = ledger.handle(at(15), NodeEvent::Tick);
    assert_eq!((outcome.actions, outcome.wake_at), (vec![signal(&order, Signal::Terminate)], Some(at(20))));
    assert_eq!(ledger.handle(at(20), NodeEvent::Tick).actions, [signal(&order, Signal::Kill)]);
    let outcome = ledger.handle(at(21), exited(&order, 0, Exit::Signal(9)));
    assert_eq!(status(&outcome).phase, GroupPhase::Ended { outcome: GroupOutcome::Stopped });
}

#[test]
fn a_worker_that_never_connected_is_terminated_at_once() {
    let order = order(1, 1, &["a"]);
    let mut ledger = running(&order);
    let outcome = ledger.handle(at(0), stop(&order, StopMode::Checkpoint));
    assert_eq!(outcome.actions, [signal(&order, Signal::Terminate)]);
    let outcome = ledger.handle(at(1), stop(&order, StopMode::Kill));
    assert_eq!(outcome.actions, [signal(&order, Signal::Kill)]);
}

#[test]
fn one_failed_process_takes_the_group_down_and_is_named() {
    let order = order(1, 1, &["a", "b"]);
    let mut ledger = running(&order);
    let outcome = ledger.handle(at(0), exited(&order, 1, Exit::Code(3)));
    assert_eq!(outcome.actions, [signal(&order, Signal::Terminate)]);
    assert_eq!(status(&outcome).phase, GroupPhase::Stopping);
    let outcome = ledger.handle(at(0), exited(&order, 0, Exit::Signal(15)));
    let failed = GroupOutcome::Failed { exit_code: Some(3), fault: Fault::of_job("rank 1 exited with code 3") };
    assert_eq!(status(&outcome).phase, GroupPhase::Ended { outcome: failed });
}

#[test]
fn a_stop_during_launch_takes_effect_once_processes_are_up() {
    let order = order(1, 1, &["a"]);
    let mut ledger = ledger();
    for event in [prepare(&order), prepared(&order), launch(&order)] {
        let _ = ledger.handle(at(0), event);
    }
    let outcome = ledger.handle(at(0), stop(&order, StopMode::Terminate));
    assert!(outcome.actions.is_empty());
    assert_eq!(status(&outcome).phase, GroupPhase::Stopping);
    assert_eq!(ledger.handle(at(0), spawned(&order)).actions, [signal(&order, Signal::Terminate)]);
}

#[test]
fn only_a_newer_revision_reaches_the_worker_and_hello_repeats_it() {
    let order = order(1, 1, &["a", "b"]);
    let mut ledger = running(&order);
    assert_eq!(ledger.handle(at(0), command(configure(&order, 2, 16))).actions.len(), 1);
    assert!(ledger.handle(at(0), command(configure(&order, 2, 16))).actions.is_empty());
    assert!(ledger.handle(at(0), command(configure(&order, 1, 8))).actions.is_empty());
    assert!(ledger.handle(at(0), command(configure(&order, 2, 32))).refusal.is_some());
    let repeated = |outcome: NodeOutcome| match outcome.actions[..] {
        [NodeAction::Send { order: WorkerOrder::Configure { revision, lr_scale, .. }, .. }] => (revision, lr_scale),
        _ => panic!("{:?}", outcome.actions),
    };
    assert_eq!(repeated(ledger.handle(at(0), hello(&order))), (2, 4.0));
    assert_eq!(ledger.statuses()[0].revision, 2, "the scheduler sees that the node has taken it");
    // So does the agent that comes after.
    let mut next: Ledger = serde_json::from_str(&serde_json::to_string(&ledger).unwrap()).unwrap();
    let _ = next.handle(at(1), NodeEvent::Restarted { boot: BootId("boot-1".into()) });
    assert_eq!(repeated(next.handle(at(1), hello(&order))), (2, 4.0));
}

#[test]
fn forget_drops_only_what_has_ended() {
    let order = order(1, 1, &["a"]);
    let mut ledger = running(&order);
    let forget = || command(AgentCommand::Forget { job: order.job, generation: order.generation });
    assert!(matches!(ledger.handle(at(0), forget()).refusal, Some(Refusal::WrongPhase { .. })));
    assert_eq!(ledger.statuses().len(), 1);
}

#[test]
fn a_forgotten_group_cleans_up_behind_itself_once() {
    let order = order(1, 1, &["a"]);
    let mut ledger = running(&order);
    let _ = ledger.handle(at(0), exited(&order, 0, Exit::Code(0)));
    let forget = || command(AgentCommand::Forget { job: order.job, generation: order.generation });
    let removed = [NodeAction::RemoveEmptyDirectories { order: Box::new(order.clone()) }];
    assert_eq!(ledger.handle(at(0), forget()).actions, removed);
    assert_eq!(ledger.handle(at(0), forget()).actions, []);
}

#[test]
fn checkpoints_are_pruned_for_a_group_that_is_known_and_by_the_newest_leader_alone() {
    let order = order(1, 1, &["a"]);
    let mut ledger = running(&order);
    let committed = CheckpointRef {
        generation: Generation(1),
        path: "/c/g1/step-000000009".into(),
        step: 9,
        samples_seen: Sequences(9),
        manifest_sha256: "00".into(),
    };
    let keep = std::num::NonZeroU32::MIN;
    let prune = |committed: &CheckpointRef| AgentCommand::Prune { job: order.job, committed: committed.clone(), keep };
    let before = ledger.clone();
    let outcome = ledger.handle(at(0), command(prune(&committed)));
    let action = NodeAction::Prune { order: Box::new(order.clone()), committed: committed.clone(), keep };
    assert_eq!((outcome.actions, outcome.reports.len()), (vec![action.clone()], 0));
    assert_eq!(ledger, before, "nothing is remembered of it");
    let _ = ledger.handle(at(0), exited(&order, 0, Exit::Code(0)));
    assert_eq!(ledger.handle(at(0), command(prune(&committed))).actions, [action], "its last save counts too");
    let other = CheckpointRef { generation: Generation(2), ..committed.clone() };
    let outcome = ledger.handle(at(0), command(prune(&other)));
    assert!(outcome.actions.is_empty() && matches!(outcome.refusal, Some(Refusal::Unknown { .. })));
    let _ = ledger.handle(at(0), NodeEvent::SessionOpened { term: Term(9) });
    let outcome = ledger.handle(at(0), command(prune(&committed)));
    assert!(outcome.actions.is_empty() && matches!(outcome.refusal, Some(Refusal::OldTerm { .. })));
}

#[test]
fn a_reconnected_scheduler_hears_the_last_checkpoint_again() {
    let order = order(1, 1, &["a"]);
    let mut ledger = running(&order);
    let _ = ledger.handle(at(0), hello(&order));
    let checkpoint = CheckpointRef {
        generation: Generation(1),
        path: "/c/g1/step-000000001".into(),
        step: 1,
        samples_seen: Sequences(8),
        manifest_sha256: "00".into(),
    };
    let message = WorkerMessage::Checkpoint { checkpoint: checkpoint.clone(), duration: Seconds(0.1) };
    assert!(ledger.handle(at(0), worker(&order, message)).persist);
    let _ = ledger.handle(at(0), exited(&order, 0, Exit::Code(0)));
    let outcome = ledger.handle(at(0), NodeEvent::SessionOpened { term: TERM });
    assert!(matches!(
        &outcome.reports[..],
        [NodeReport::Declared { .. }, NodeReport::CheckpointWritten { checkpoint: c, .. }, NodeReport::Group { .. }]
            if *c == checkpoint
    ));
}

#[test]
fn a_restarted_agent_adopts_what_runs_and_sweeps_what_may_run() {
    let (run, half) = (order(1, 1, &["a"]), order(2, 1, &["b"]));
    let mut ledger = running(&run);
    for event in [prepare(&half), prepared(&half), launch(&half)] {
        let _ = ledger.handle(at(0), event);
    }
    let outcome = ledger.handle(at(0), NodeEvent::Restarted { boot: BootId("boot-1".into()) });
    assert!(
        matches!(&outcome.actions[..], [NodeAction::Adopt { processes, .. }, NodeAction::Sweep { ranks, .. }] if processes[0].pid == 100 && ranks == &[0])
    );
}

#[test]
fn a_launch_that_ended_before_it_was_written_down_ends_as_its_processes_did() {
    let order = order(1, 1, &["a", "b"]);
    let ended = |stopped: bool, codes: [i32; 2]| {
        let mut ledger = ledger();
        for event in [prepare(&order), prepared(&order), launch(&order)] {
            let _ = ledger.handle(at(0), event);
        }
        if stopped {
            let _ = ledger.handle(at(0), stop(&order, StopMode::Terminate));
        }
        let restarted = ledger.handle(at(0), NodeEvent::Restarted { boot: BootId("boot-1".into()) });
        let [NodeAction::Sweep { ranks, .. }] = &restarted.actions[..] else { panic!("{restarted:?}") };
        let exits = ranks.iter().copied().zip(codes.map(Exit::Code)).collect();
        let event = NodeEvent::EndedUnseen { job: order.job, generation: order.generation, exits };
        let outcome = ledger.handle(at(1), event.clone());
        assert!(outcome.persist && ledger.handle(at(1), event).reports.is_empty());
        let GroupPhase::Ended { outcome } = status(&outcome).phase else { panic!("{outcome:?}") };
        outcome
    };
    assert_eq!(ended(false, [0, 0]), GroupOutcome::Succeeded);
    assert_eq!(ended(true, [0, 0]), GroupOutcome::Succeeded, "nothing was signalled: the stop came too late");
    assert_eq!(ended(true, [0, 7]), GroupOutcome::Stopped);
    let fault = Fault::of_job("rank 1 exited with code 7");
    assert_eq!(ended(false, [0, 7]), GroupOutcome::Failed { exit_code: Some(7), fault });
}

#[test]
fn a_new_boot_ends_everything() {
    let order = order(1, 1, &["a"]);
    let mut ledger = running(&order);
    let outcome = ledger.handle(at(0), NodeEvent::Restarted { boot: BootId("boot-2".into()) });
    assert!(matches!(status(&outcome).phase, GroupPhase::Ended { outcome: GroupOutcome::Failed { .. } }));
}

#[test]
fn the_ledger_survives_its_written_form() {
    let ledger = running(&order(1, 1, &["a", "b"]));
    let text = serde_json::to_string(&ledger).unwrap();
    assert_eq!(serde_json::from_str::<Ledger>(&text).unwrap(), ledger);
}

#[test]
fn a_group_that_fails_after_its_loss_was_no_number_says_so() {
    let order = order(1, 1, &["a"]);
    let mut ledger = running(&order);
    let said = |loss| worker(&order, WorkerMessage::LossAnomaly { step: 7, loss, usual: Some(2.5) });
    assert!(!ledger.handle(at(0), said(Some(9.0))).persist, "a spike is no cause of death");
    let outcome = ledger.handle(at(0), said(None));
    let expected =
        NodeReport::LossAnomaly { job: order.job, generation: order.generation, step: 7, loss: None, usual: Some(2.5) };
    assert_eq!((outcome.persist, outcome.reports), (true, vec![expected]));
    let outcome = ledger.handle(at(1), exited(&order, 0, Exit::Code(3)));
    let fault = Fault::of_job("rank 0 exited with code 3: its loss was no finite number at step 7");
    let failed = GroupOutcome::Failed { exit_code: Some(3), fault };
    assert_eq!(status(&outcome).phase, GroupPhase::Ended { outcome: failed });
}
