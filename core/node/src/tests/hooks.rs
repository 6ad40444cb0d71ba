//! Prologs, epilogs and notices: what the ledger does around a group's processes.

use headway_types::spec::{Hooks, Notice, NoticeSignal, NoticeTo};
use headway_types::{Fault, GroupOutcome, GroupPhase};

use super::*;
use crate::event::Exit;
use crate::group::Phase;
use crate::outcome::{NodeAction, Signal};

fn hooked() -> LaunchOrder {
    let mut order = order(1, 1, &["a"]);
    order.run.hooks = Hooks { prolog: Some("p".into()), epilog: Some("e".into()), ..Hooks::default() };
    order
}

fn restarted(boot: &str) -> NodeEvent {
    NodeEvent::Restarted { boot: BootId(boot.into()) }
}

fn exited(order: &LaunchOrder, exit: Exit) -> NodeEvent {
    NodeEvent::Exited { job: order.job, generation: order.generation, rank: 0, exit, fault: None }
}

#[test]
fn a_group_has_ended_once_its_epilog_is_over() {
    let order = hooked();
    let mut ledger = running(&order);
    let out = ledger.handle(at(1), exited(&order, Exit::Code(3)));
    assert_eq!(status(&out).phase, GroupPhase::Stopping);
    assert!(matches!(
        &out.actions[..],
        [NodeAction::Epilog { outcome: GroupOutcome::Failed { exit_code: Some(3), .. }, .. }]
    ));
    // A stop changes nothing, and the next generation waits.
    assert_eq!(ledger.handle(at(2), stop(&order, StopMode::Kill)).actions, []);
    let next = LaunchOrder { generation: Generation(2), ..order.clone() };
    assert_eq!(ledger.handle(at(3), prepare(&next)).actions, []);
    let done = NodeEvent::EpilogDone { job: order.job, generation: order.generation };
    let out = ledger.handle(at(4), done);
    assert!(out.actions.iter().any(|action| matches!(action, NodeAction::Prepare { .. })), "{:?}", out.actions);
    let phase = &ledger.group(order.job, order.generation).unwrap().phase;
    assert!(matches!(phase, Phase::Ended { outcome: GroupOutcome::Failed { exit_code: Some(3), .. } }));
}

#[test]
fn an_epilog_that_was_cut_short_runs_again_but_not_on_another_boot() {
    let order = hooked();
    let mut ledger = running(&order);
    let _ = ledger.handle(at(1), exited(&order, Exit::Code(0)));
    let out = ledger.clone().handle(at(2), restarted("boot-1"));
    assert!(matches!(&out.actions[..], [NodeAction::Epilog { outcome: GroupOutcome::Succeeded, .. }]));
    let out = ledger.handle(at(2), restarted("boot-2"));
    assert_eq!(status(&out).phase, GroupPhase::Ended { outcome: GroupOutcome::Succeeded });
}

#[test]
fn a_group_that_is_stopped_in_its_prolog_has_ended_once_that_is_over() {
    let order = hooked();
    let mut ledger = ledger();
    let _ = ledger.handle(at(0), prepare(&order));
    let out = ledger.handle(at(1), stop(&order, StopMode::Kill));
    assert_eq!(status(&out).phase, GroupPhase::Stopping);
    assert!(matches!(out.actions[..], [NodeAction::Withdraw { .. }]));
    let fault = Fault::of_infrastructure("stopped");
    let out = ledger
        .handle(at(2), NodeEvent::PrepareDone { job: order.job, generation: order.generation, result: Err(fault) });
    assert_eq!(status(&out).phase, GroupPhase::Ended { outcome: GroupOutcome::Stopped });
}

#[test]
fn an_agent_that_died_in_a_prolog_ends_what_is_left_of_it_before_it_says_so() {
    let order = hooked();
    let mut ledger = ledger();
    let _ = ledger.handle(at(0), prepare(&order));
    let out = ledger.handle(at(1), restarted("boot-1"));
    assert!(matches!(out.actions[..], [NodeAction::Sweep { .. }]) && out.reports.is_empty());
    let fault = Fault::of_infrastructure("the agent restarted");
    let out = ledger.handle(at(2), NodeEvent::SpawnFailed { job: order.job, generation: order.generation, fault });
    assert!(matches!(status(&out).phase, GroupPhase::Ended { outcome: GroupOutcome::NotStarted { .. } }));
}

#[test]
fn a_notice_is_passed_on_once() {
    let mut order = order(1, 1, &["a"]);
    let notice = Notice { signal: NoticeSignal::Usr1, before: Seconds(60.0), to: NoticeTo::Command };
    order.notice = Some(notice);
    let mut ledger = running(&order);
    let notify = |number| command(AgentCommand::Notify { job: order.job, generation: order.generation, number });
    let out = ledger.handle(at(1), notify(1));
    let signal = Signal::Notice { signal: NoticeSignal::Usr1, to: NoticeTo::Command };
    let sent = NodeAction::Signal { job: order.job, generation: order.generation, signal };
    assert_eq!((out.actions, out.persist), (vec![sent.clone()], true));
    let out = ledger.handle(at(2), notify(1));
    assert_eq!((out.actions.len(), status(&out).notice), (0, 1));
    assert_eq!(ledger.handle(at(3), notify(2)).actions, [sent]);
}

#[test]
fn a_group_that_cannot_be_asked_hears_its_notice_before_it_is_told_to_end() {
    let mut order = order(1, 1, &["a"]);
    order.notice = Some(Notice { signal: NoticeSignal::Usr2, before: Seconds(60.0), to: NoticeTo::Handlers });
    let mut ledger = running(&order);
    let signals = |out: NodeOutcome| -> Vec<Signal> {
        let signals = out.actions.into_iter().filter_map(|action| match action {
            NodeAction::Signal { signal, .. } => Some(signal),
            _ => None,
        });
        signals.collect()
    };
    let out = ledger.handle(at(0), stop(&order, StopMode::Checkpoint));
    assert_eq!(signals(out), [Signal::Notice { signal: NoticeSignal::Usr2, to: NoticeTo::Handlers }]);
    assert_eq!(signals(ledger.handle(at(14), NodeEvent::Tick)), []);
    assert_eq!(signals(ledger.handle(at(15), NodeEvent::Tick)), [Signal::Terminate]);
    assert_eq!(signals(ledger.handle(at(20), NodeEvent::Tick)), [Signal::Kill]);
    // Who has heard it is not asked twice, and a broken group is not asked at all.
    for (heard, mode) in [(true, StopMode::Checkpoint), (false, StopMode::Terminate)] {
        let mut ledger = running(&order);
        if heard {
            let number = 1;
            let notify = AgentCommand::Notify { job: order.job, generation: order.generation, number };
            let _ = ledger.handle(at(0), command(notify));
        }
        assert_eq!(signals(ledger.handle(at(1), stop(&order, mode))), [Signal::Terminate]);
    }
}
