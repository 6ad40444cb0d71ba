//! What breaks, and what the scheduler hears of it.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_reboot_ends_the_groups_and_comes_back_as_a_new_boot() {
    let mut fleet = Fleet::new(&["H100-80Gx8=2"]);
    let before = fleet.inventories();
    let order = order(&before, 1);
    fleet.train(&order).await;
    let now = fleet.0.clock.now();
    fleet.heard(1).await;
    fleet.0.happen(now, 1, Mishap::Reboot { down: Seconds(300.0) });
    fleet.pass(290.0).await;
    assert!(!fleet.0.nodes()[1].is_up());
    assert!(fleet.heard(1).await.is_empty(), "a node that is down says nothing");
    fleet.pass(20.0).await;
    let NodeReport::Registered { inventory, groups } = fleet.0.nodes()[1].registered() else { panic!("no inventory") };
    assert_eq!(inventory.node, before[1].node);
    assert_ne!(inventory.boot, before[1].boot);
    let GroupPhase::Ended { outcome: GroupOutcome::Failed { fault, .. } } = &groups[0].phase else {
        panic!("{groups:?}")
    };
    assert_eq!(fault.blame, Blame::Node);
    // The rest of the gang waits until it is stopped.
    fleet.heard(0).await;
    fleet.pass(600.0).await;
    assert!(fleet.heard(0).await.is_empty());
    fleet.stop(0, &order, StopMode::Checkpoint);
    assert_eq!(fleet.ended(0).await, GroupOutcome::Stopped);
    assert_eq!(fleet.0.nodes()[0].inventory().boot, before[0].boot);
}

#[tokio::test(start_paused = true)]
async fn a_broken_gpu_takes_its_rank_and_cannot_be_granted_until_it_is_repaired() {
    let mut fleet = Fleet::new(&["H100-80Gx8=1"]);
    let order = order(&fleet.inventories(), 1);
    fleet.train(&order).await;
    let now = fleet.0.clock.now();
    fleet.0.happen(now, 0, Mishap::GpuBreak { gpu: 0.5, cause: "XID 79".into(), repair: Seconds(3_600.0) });
    let broken = |report: &NodeReport| match report {
        NodeReport::Inventory { inventory } => Some(inventory.gpus[4].health != GpuHealth::Healthy),
        _ => None,
    };
    let reports = fleet.heard(0).await;
    assert_eq!(reports.iter().find_map(broken), Some(true), "{reports:?}");
    let ended = reports.into_iter().find_map(|report| match report {
        NodeReport::Group { status: GroupStatus { phase: GroupPhase::Ended { outcome }, .. } } => Some(outcome),
        _ => None,
    });
    let outcome = match ended {
        Some(outcome) => outcome,
        None => fleet.ended(0).await,
    };
    let GroupOutcome::Failed { fault, .. } = outcome else { panic!("{outcome:?}") };
    assert_eq!(fault.blame, Blame::Node);
    assert!(fault.message.contains("XID 79"), "{}", fault.message);

    let again = LaunchOrder { generation: order.generation.next(), ..order };
    let phase = fleet.prepare(0, &again).await;
    assert!(matches!(phase, GroupPhase::Ended { outcome: GroupOutcome::NotStarted { .. } }), "{phase:?}");
    let mended = fleet.until(0, broken).await;
    assert!(!mended);
}

#[tokio::test(start_paused = true)]
async fn a_hung_gang_hears_nothing_but_the_kill() {
    let mut fleet = Fleet::new(&["H100-80Gx8=1"]);
    let order = order(&fleet.inventories(), 1);
    fleet.train(&order).await;
    let now = fleet.0.clock.now();
    fleet.0.happen(now, 0, Mishap::Hang);
    fleet.heard(0).await;
    fleet.pass(1_200.0).await;
    assert!(!fleet.heard(0).await.iter().any(|report| steps(report).is_some()));
    fleet.stop(0, &order, StopMode::Checkpoint);
    fleet.pass(order.grace.0 - 1.0).await;
    assert!(!fleet.heard(0).await.iter().any(|report| saved(report).is_some()));
    let asked = fleet.0.clock.now();
    assert_eq!(fleet.ended(0).await, GroupOutcome::Stopped);
    assert!(fleet.0.clock.now().since(asked).0 < 3.0);
}

#[tokio::test(start_paused = true)]
async fn a_crash_is_the_jobs_own() {
    let mut fleet = Fleet::new(&["H100-80Gx8=2"]);
    let order = order(&fleet.inventories(), 1);
    fleet.train(&order).await;
    let now = fleet.0.clock.now();
    fleet.0.happen(now, 1, Mishap::Crash { code: 7 });
    let GroupOutcome::Failed { exit_code, fault } = fleet.ended(1).await else { panic!("it did not fail") };
    assert_eq!((exit_code, fault.blame), (Some(7), Blame::Job));
    fleet.stop(0, &order, StopMode::Terminate);
    assert_eq!(fleet.ended(0).await, GroupOutcome::Stopped);
}

#[tokio::test(start_paused = true)]
async fn a_straggler_shows_in_the_time_of_its_rank() {
    let mut fleet = Fleet::new(&["H100-80Gx8=1"]);
    let order = order(&fleet.inventories(), 1);
    fleet.train(&order).await;
    let now = fleet.0.clock.now();
    fleet.0.happen(now, 0, Mishap::Straggler { rank: 0.4, factor: 2.0, lasts: Seconds(1_800.0) });
    fleet.heard(0).await;
    let busy = fleet
        .until(0, |report| if let NodeReport::RankTimes { busy, .. } = report { Some(busy.clone()) } else { None })
        .await;
    assert!(busy[&3].0 > 1.8 * busy[&2].0, "{busy:?}");
}

#[tokio::test(start_paused = true)]
async fn training_goes_on_without_a_scheduler() {
    let mut fleet = Fleet::new(&["H100-80Gx8=1"]);
    let order = order(&fleet.inventories(), 1);
    let first = fleet.train(&order).await;
    fleet.0.nodes()[0].outbox().close();
    fleet.pass(1_800.0).await;
    fleet.open(0);
    let reports = fleet.heard(0).await;
    let newest = reports.iter().filter_map(steps).next_back().unwrap();
    assert!(newest.step > first.step + 20, "{}", newest.step);
    assert!(reports.iter().any(|report| saved(report).is_some()), "the newest checkpoint is told again");
}
