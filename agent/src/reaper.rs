//! An agent that is process 1 of its container gets every process whose parent has ended, and nobody else can reap them. Daemons of
//! jobs would stay as zombies until no process can be started any more.
//!
//! A task waits all the time for each child whose exit status the agent needs, and reaps it at once. This takes no status away from those: it
//! reaps a zombie only if it was one at the look before too.

use std::collections::BTreeSet;
use std::time::Duration;

use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::{Pid, getpid};

use crate::process::zombies_of;

/// Between two looks. The tasks that wait for children reap them within milliseconds of their end, far sooner than this.
const EVERY: Duration = Duration::from_secs(10);

/// Never ends. Does nothing in any process but process 1.
pub(crate) async fn run() {
    if getpid().as_raw() != 1 {
        return std::future::pending().await;
    }
    let mut waiting = BTreeSet::new();
    loop {
        tokio::time::sleep(EVERY).await;
        let looked = tokio::task::spawn_blocking(move || reap(&waiting)).await;
        waiting = looked.unwrap_or_default();
    }
}

/// Reaps the zombies that were there before; returns those that are new, as pid and start time.
fn reap(before: &BTreeSet<(u32, u64)>) -> BTreeSet<(u32, u64)> {
    let zombies = match zombies_of(std::process::id()) {
        Ok(zombies) => zombies,
        Err(error) => {
            tracing::warn!(%error, "cannot look for ended processes that nobody waits for");
            return BTreeSet::new();
        }
    };
    let (left_over, new): (BTreeSet<_>, BTreeSet<_>) = zombies.into_iter().partition(|zombie| before.contains(zombie));
    for (pid, _) in left_over {
        // Whoever waited for it meanwhile was first.
        let _reaped_already = waitpid(Pid::from_raw(pid.cast_signed()), Some(WaitPidFlag::WNOHANG));
    }
    new
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::process::Command;
    use std::time::Instant;

    use super::*;

    #[test]
    fn a_zombie_that_nobody_waits_for_is_reaped_at_the_second_look() {
        let mut child = Command::new("true").spawn().unwrap();
        let mine = |zombies: &BTreeSet<(u32, u64)>| zombies.iter().any(|(pid, _)| *pid == child.id());
        let deadline = Instant::now() + Duration::from_secs(20);
        let mut first = BTreeSet::new();
        while !mine(&first) {
            assert!(Instant::now() < deadline);
            first = zombies_of(std::process::id()).unwrap();
        }
        // Other tests of this process wait for theirs.
        first.retain(|(pid, _)| *pid == child.id());
        assert!(mine(&reap(&BTreeSet::new())), "one look leaves whoever waits for it the time to");
        let after = reap(&first);
        assert!(!mine(&after) && !mine(&zombies_of(std::process::id()).unwrap()));
        assert!(child.try_wait().is_err(), "its status is gone with it");
    }
}
