//! The departure of a node whose agent was told to end with `--leave-on-term`: for allocations and machines that are
//! taken away after a SIGTERM. The agent announces it in its inventory, and the scheduler moves the jobs as from a
//! node that is drained. This module stops no group itself: it only waits until the groups are gone, for a limited
//! time, and then lets the agent end.
//!
//! The announcement is part of the inventory, so a session that is opened meanwhile repeats it, and an agent that is
//! started again takes it back by registering without it. A report of its own would need both. Nothing new starts here
//! meanwhile (`prepare.rs`).

use std::convert::Infallible;
use std::time::Duration;

use headway_types::Seconds;
use tokio::time::{Instant, sleep_until, timeout_at};
use tokio_util::sync::CancellationToken;

use crate::housekeeping::Census;
use crate::site::Site;

/// Time for the scheduler to hear of the departure, to decide, and to record the ends of groups.
const DECISION: Seconds = Seconds(30.0);
/// The longest departure, however long the grace of a job is.
const LIMIT: Seconds = Seconds(900.0);
/// Time for the announcement to reach the scheduler, and for what it had sent before to arrive: also a node without
/// groups stays so long.
const SETTLING: Duration = Duration::from_secs(1);

/// Waits for `leave`, then for the departure of all groups, and then cancels `stop`.
pub(crate) async fn run(site: &Site, leave: &CancellationToken, stop: &CancellationToken) -> Infallible {
    leave.cancelled().await;
    depart(site).await;
    stop.cancel();
    std::future::pending().await
}

/// How long the groups of this node are waited for.
fn patience(coming_down: Seconds) -> Seconds {
    Seconds((coming_down + DECISION).0.min(LIMIT.0))
}

async fn depart(site: &Site) {
    let began = Instant::now();
    let mut census = site.census.subscribe();
    let mut longest = patience(census.borrow().coming_down);
    loop {
        announce(site, longest);
        let deadline = began + Duration::from_secs_f64(longest.0);
        // A group that was on its way when the node began to leave may need longer than those before.
        let changed = async {
            sleep_until(began + SETTLING).await;
            let wanted = |census: &Census| census.is_empty() || patience(census.coming_down).0 > longest.0;
            // It never fails: the sender is part of the site.
            census.wait_for(|census| wanted(census)).await.map_or(longest, |census| patience(census.coming_down))
        };
        let ended = timeout_at(deadline, changed).await;
        match ended {
            Ok(needed) if needed.0 > longest.0 => longest = needed,
            Ok(_) => return tracing::info!("all groups have left this node"),
            Err(_) => {
                return tracing::warn!(
                    patience_s = longest.0,
                    "groups have not left this node in time; their workers go on"
                );
            }
        }
    }
}

fn announce(site: &Site, patience: Seconds) {
    let reason = format!("its agent got SIGTERM and ends within {}", patience.words());
    tracing::info!(patience_s = patience.0, "the agent was told to leave; the scheduler moves its jobs first");
    site.inventory.change(|offer| offer.leaving_reason = Some(reason));
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use headway_node::{Ledger, NodeEvent};
    use headway_types::{AgentCommand, Fault, Generation, GroupPhase, JobId, LaunchOrder, Term, Timestamp};

    use super::*;
    use crate::node::tests::fixture;

    /// The ledger of a node on which one group is being prepared.
    fn ledger(site: &Site) -> Ledger {
        let offer = site.inventory.now();
        let mut ledger = Ledger::new(offer.node, offer.boot.clone());
        let order = Box::new(fixture::order(&offer, 1, "true"));
        let command = AgentCommand::Prepare { order };
        let _outcome = ledger.handle(Timestamp(0), NodeEvent::Command { term: Term(1), serial: None, command });
        ledger
    }

    #[tokio::test(start_paused = true)]
    async fn a_departure_is_announced_and_waits_for_the_groups() {
        let dir = tempfile::tempdir().unwrap();
        let site = fixture::site(dir.path());
        let mut ledger = ledger(&site);
        site.census.send_replace(Census::of(&ledger));
        let (leave, stop) = (CancellationToken::new(), CancellationToken::new());
        let others = async {
            tokio::time::sleep(Duration::from_secs(5)).await;
            assert_eq!(site.inventory.now().leaving_reason, None, "nobody has told it to leave");
            leave.cancel();
            tokio::time::sleep(Duration::from_secs(5)).await;
            let reason = site.inventory.now().leaving_reason.clone().unwrap();
            assert!(reason.starts_with("its agent got SIGTERM and ends within "), "{reason}");
            assert!(!stop.is_cancelled(), "its group is still there");
            let (job, generation) = (JobId(uuid::Uuid::from_u128(5)), Generation(1));
            let result = Err(Fault::of_job("x"));
            let _failed = ledger.handle(Timestamp(0), NodeEvent::PrepareDone { job, generation, result });
            assert!(matches!(ledger.statuses()[0].phase, GroupPhase::Ended { .. }));
            site.census.send_replace(Census::of(&ledger));
            tokio::time::sleep(Duration::from_secs(1)).await;
            assert!(!stop.is_cancelled(), "the scheduler has not recorded its end");
            let command = AgentCommand::Forget { job, generation };
            let _gone = ledger.handle(Timestamp(0), NodeEvent::Command { term: Term(1), serial: None, command });
            site.census.send_replace(Census::of(&ledger));
            stop.cancelled().await;
        };
        tokio::select! {
            never = run(&site, &leave, &stop) => match never {},
            () = others => {}
        }
    }

    #[tokio::test(start_paused = true)]
    async fn groups_that_stay_are_waited_for_no_longer_than_the_limit() {
        assert_eq!(patience(Seconds(180.0)), Seconds(210.0));
        assert_eq!(patience(Seconds(7_200.0)), LIMIT);
        let dir = tempfile::tempdir().unwrap();
        let site = fixture::site(dir.path());
        site.census.send_replace(Census::of(&ledger(&site)));
        let (leave, stop) = (CancellationToken::new(), CancellationToken::new());
        leave.cancel();
        let began = Instant::now();
        tokio::select! {
            never = run(&site, &leave, &stop) => match never {},
            () = stop.cancelled() => {}
        }
        let waited = began.elapsed().as_secs_f64();
        assert!((35.0..36.0).contains(&waited), "its grace is 5 s: {waited} s");
    }

    #[tokio::test(start_paused = true)]
    async fn a_group_that_was_on_its_way_is_given_its_time_too() {
        let dir = tempfile::tempdir().unwrap();
        let site = fixture::site(dir.path());
        let mut ledger = ledger(&site);
        site.census.send_replace(Census::of(&ledger));
        let (leave, stop) = (CancellationToken::new(), CancellationToken::new());
        leave.cancel();
        let began = Instant::now();
        let others = async {
            tokio::time::sleep(Duration::from_secs(20)).await;
            let order = fixture::order(&site.inventory.now(), 2, "true");
            let order = Box::new(LaunchOrder { grace: Seconds(90.0), ..order });
            let command = AgentCommand::Prepare { order };
            let _late = ledger.handle(Timestamp(0), NodeEvent::Command { term: Term(1), serial: None, command });
            site.census.send_replace(Census::of(&ledger));
            stop.cancelled().await;
        };
        tokio::select! {
            never = run(&site, &leave, &stop) => match never {},
            () = others => {}
        }
        let waited = began.elapsed().as_secs_f64();
        assert!((120.0..121.0).contains(&waited), "its grace is 90 s: {waited} s");
        let reason = site.inventory.now().leaving_reason.clone().unwrap();
        assert!(reason.ends_with(&format!("within {}", Seconds(120.0).words())), "{reason}");
    }
}
