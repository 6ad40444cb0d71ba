//! Successes that a ledger does not know, since a newer one was lost. Without them the scheduler would find no trace of
//! the group, blame the node and run the job again.

use headway_types::{GroupOutcome, LaunchOrder};

use super::Ledger;
use super::fence::Fence;
use crate::group::{Group, Phase, Share};

impl Ledger {
    /// Takes up a group of which all processes on this node exited 0 before anything had asked them to stop. Returns
    /// false, and changes nothing, where the ledger knows that it was launched. The ledger must be stored before it is
    /// used, and `Restarted` comes after this.
    pub fn recover_success(&mut self, order: LaunchOrder) -> bool {
        let (job, generation) = (order.job, order.generation);
        let known = self.group(job, generation).map(|group| &group.phase);
        let was_launched = known.is_some_and(|phase| phase.may_have_processes() || phase.is_ended());
        if was_launched || Share::of(&order, self.node).is_none() {
            return false;
        }
        let fence = self.highest.entry(job).or_insert(Fence::new(generation));
        if fence.generation < generation {
            *fence = Fence::new(generation);
        }
        // Without its epilog, which comes after the end of all its processes: these are ended as orphans.
        let phase = Phase::Ended { outcome: GroupOutcome::Succeeded };
        self.groups.entry(job).or_default().insert(generation, Group::new(order, phase));
        true
    }
}
