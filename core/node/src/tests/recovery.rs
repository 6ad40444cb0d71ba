//! Successes that a lost ledger does not tell of.

use headway_types::{GroupOutcome, GroupPhase};

use super::*;

const SUCCEEDED: GroupPhase = GroupPhase::Ended { outcome: GroupOutcome::Succeeded };

fn restarted() -> NodeEvent {
    NodeEvent::Restarted { boot: BootId("boot-1".into()) }
}

#[test]
fn a_success_that_the_ledger_does_not_know_is_reported_and_does_not_run_again() {
    let order = order(1, 3, &["a"]);
    let mut before_launch = ledger();
    let _ = before_launch.handle(at(0), prepare(&order));
    for mut ledger in [ledger(), before_launch] {
        assert!(ledger.recover_success(order.clone()));
        let _ = ledger.handle(at(1), restarted());
        let [status] = ledger.statuses().try_into().unwrap();
        assert_eq!((status.generation, status.phase), (Generation(3), SUCCEEDED));
        let again = ledger.handle(at(2), prepare(&order));
        assert!(again.actions.is_empty(), "{again:?}");
        let older = ledger.handle(at(2), prepare(&super::order(1, 2, &["a"])));
        assert!(older.actions.is_empty() && older.refusal.is_some(), "{older:?}");
        let _ = ledger.handle(at(3), command(AgentCommand::Forget { job: order.job, generation: order.generation }));
        assert!(ledger.statuses().is_empty());
    }
}

#[test]
fn what_the_ledger_knows_of_a_launch_stands() {
    let order = order(1, 3, &["a"]);
    let mut ledger = running(&order);
    let before = ledger.clone();
    assert!(!ledger.recover_success(order));
    assert!(!ledger.recover_success(LaunchOrder { job: job(2), ..elsewhere() }));
    assert_eq!(ledger, before);
}

/// An order whose placement does not name this node.
fn elsewhere() -> LaunchOrder {
    let gpus = vec![GpuUuid("b".into())];
    example::order(job(2), 1, NodeId(id(2000)), gpus)
}
