//! A stop and the end of what it is to stop, in every order. What has ended well by itself does not run again.

use headway_types::{AgentCommand, GroupOutcome, GroupPhase, StopMode};

use super::*;
use crate::{Exit, NodeAction, WorkerMessage};

fn left(order: &LaunchOrder, rank: u32, code: i32) -> NodeEvent {
    NodeEvent::Left { job: order.job, generation: order.generation, rank, exit: Exit::Code(code) }
}

fn exited(order: &LaunchOrder, rank: u32, code: i32) -> NodeEvent {
    let exit = Exit::Code(code);
    NodeEvent::Exited { job: order.job, generation: order.generation, rank, exit, fault: None }
}

/// How a group of two ranks ends after these events.
fn outcome(order: &LaunchOrder, events: Vec<NodeEvent>) -> GroupOutcome {
    let mut ledger = running(order);
    let outcomes: Vec<_> = events.into_iter().map(|event| ledger.handle(at(1), event)).collect();
    let mut ends = outcomes.iter().flat_map(|outcome| &outcome.reports).filter_map(|report| match report {
        NodeReport::Group { status } => match &status.phase {
            GroupPhase::Ended { outcome } => Some(outcome.clone()),
            _ => None,
        },
        _ => None,
    });
    ends.next_back().expect("the group has ended")
}

fn announced(order: &LaunchOrder) -> NodeEvent {
    let message = WorkerMessage::Stopped { step: 7, samples_seen: headway_types::Sequences(8) };
    NodeEvent::Worker { job: order.job, generation: order.generation, message }
}

const MODES: [StopMode; 3] = [StopMode::Checkpoint, StopMode::Terminate, StopMode::Kill];

#[test]
fn a_stop_in_any_place_after_all_ranks_ended_well_is_a_success() {
    let order = order(1, 1, &["a", "b"]);
    let end = [left(&order, 0, 0), left(&order, 1, 0), exited(&order, 0, 0), exited(&order, 1, 0)];
    for mode in MODES {
        for place in 0..=end.len() {
            let mut events = end.to_vec();
            events.insert(place, stop(&order, mode));
            let expected = if place < 2 { GroupOutcome::Stopped } else { GroupOutcome::Succeeded };
            assert_eq!(outcome(&order, events), expected, "{mode:?} in place {place}");
        }
    }
}

#[test]
fn a_rank_that_is_gone_already_counts_beside_one_that_has_just_ended() {
    let order = order(1, 1, &["a", "b"]);
    let events = vec![exited(&order, 0, 0), left(&order, 1, 0), stop(&order, StopMode::Kill), exited(&order, 1, 0)];
    assert_eq!(outcome(&order, events), GroupOutcome::Succeeded);
}

#[test]
fn what_ends_after_the_stop_ends_because_of_it() {
    let order = order(1, 1, &["a", "b"]);
    let events = vec![
        stop(&order, StopMode::Terminate),
        left(&order, 0, 0),
        left(&order, 1, 0),
        stop(&order, StopMode::Kill),
        exited(&order, 0, 0),
        exited(&order, 1, 0),
    ];
    assert_eq!(outcome(&order, events), GroupOutcome::Stopped, "workers that save and exit 0 on SIGTERM go on later");
}

#[test]
fn a_rank_that_failed_or_announced_an_early_end_is_stopped() {
    let order = order(1, 1, &["a", "b"]);
    let failed = vec![
        left(&order, 0, 0),
        left(&order, 1, 3),
        stop(&order, StopMode::Terminate),
        exited(&order, 0, 0),
        exited(&order, 1, 3),
    ];
    assert_eq!(outcome(&order, failed), GroupOutcome::Stopped);
    let early = vec![
        announced(&order),
        left(&order, 0, 0),
        left(&order, 1, 0),
        stop(&order, StopMode::Checkpoint),
        exited(&order, 0, 0),
        exited(&order, 1, 0),
    ];
    assert_eq!(outcome(&order, early), GroupOutcome::Stopped);
}

#[test]
fn an_early_end_whose_announcement_comes_after_the_stop_is_stopped() {
    let order = order(1, 1, &["a", "b"]);
    let ends = [left(&order, 0, 0), left(&order, 1, 0)];
    let exits = [exited(&order, 0, 0), exited(&order, 1, 0)];
    for mode in MODES {
        let late = [&ends[..], &[stop(&order, mode), announced(&order)], &exits].concat();
        assert_eq!(outcome(&order, late), GroupOutcome::Stopped, "{mode:?}");
    }
    let without_stop = [&ends[..], &[announced(&order)], &exits].concat();
    assert!(matches!(outcome(&order, without_stop), GroupOutcome::Failed { .. }), "nobody asked it to");
}

#[test]
fn a_stop_of_a_launch_whose_processes_have_ended_is_remembered() {
    let order = order(1, 1, &["a"]);
    let mut ledger = ledger();
    let launching = [prepare(&order), prepared(&order), launch(&order), stop(&order, StopMode::Terminate)];
    for event in launching.into_iter().chain([left(&order, 0, 0), spawned(&order), announced(&order)]) {
        let _ = ledger.handle(at(0), event);
    }
    let mut next: Ledger = serde_json::from_str(&serde_json::to_string(&ledger).unwrap()).unwrap();
    let ended = status(&next.handle(at(1), exited(&order, 0, 0))).phase;
    assert_eq!(ended, GroupPhase::Ended { outcome: GroupOutcome::Stopped }, "also by the next agent");
}

#[test]
fn how_ranks_left_is_not_stored() {
    let order = order(1, 1, &["a", "b"]);
    let mut ledger = running(&order);
    let before = serde_json::to_string(&ledger).unwrap();
    assert!(!ledger.handle(at(1), left(&order, 0, 0)).persist);
    assert_eq!(serde_json::to_string(&ledger).unwrap(), before);
}

#[test]
fn a_stop_that_comes_too_late_signals_nobody_and_repeats_nothing() {
    let order = order(1, 1, &["a"]);
    let mut ledger = running(&order);
    let _ = ledger.handle(at(1), left(&order, 0, 0));
    let first = ledger.handle(at(1), stop(&order, StopMode::Kill));
    assert_eq!((first.actions, first.persist, first.wake_at), (Vec::new(), true, None), "that it came is kept");
    let before = ledger.clone();
    let outcome = ledger.handle(at(1), stop(&order, StopMode::Kill));
    assert_eq!((outcome.actions, outcome.persist, outcome.wake_at), (Vec::new(), false, None));
    assert_eq!(ledger, before);
}

#[test]
fn a_launch_whose_processes_ended_before_they_were_reported_is_not_stopped() {
    let order = order(1, 1, &["a", "b"]);
    for codes in [[0, 0], [0, 1]] {
        let mut ledger = ledger();
        for event in [prepare(&order), prepared(&order), launch(&order), stop(&order, StopMode::Terminate)] {
            let _ = ledger.handle(at(0), event);
        }
        let _ = ledger.handle(at(0), left(&order, 0, codes[0]));
        let _ = ledger.handle(at(0), left(&order, 1, codes[1]));
        let signals = !ledger.handle(at(0), spawned(&order)).actions.is_empty();
        assert_eq!(signals, codes != [0, 0]);
        let _ = ledger.handle(at(1), exited(&order, 0, codes[0]));
        let ended = status(&ledger.handle(at(1), exited(&order, 1, codes[1]))).phase;
        let expected = if codes == [0, 0] { GroupOutcome::Succeeded } else { GroupOutcome::Stopped };
        assert_eq!(ended, GroupPhase::Ended { outcome: expected });
    }
}

#[test]
fn a_newer_generation_still_waits_for_what_an_ended_one_left_behind() {
    let (old, new) = (order(1, 1, &["a"]), order(1, 2, &["a"]));
    let mut ledger = running(&old);
    let _ = ledger.handle(at(1), left(&old, 0, 0));
    assert!(ledger.handle(at(1), prepare(&new)).actions.is_empty());
    let outcome = ledger.handle(at(1), exited(&old, 0, 0));
    assert!(outcome.actions.contains(&NodeAction::Prepare { order: Box::new(new) }));
    let forget = AgentCommand::Forget { job: old.job, generation: old.generation };
    assert!(ledger.handle(at(1), command(forget)).refusal.is_none());
}
