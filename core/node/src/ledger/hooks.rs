//! What runs around a group: its prolog before it is prepared, its epilog before it has ended.

use headway_types::{Generation, GroupOutcome, JobId};

use super::Ledger;
use crate::group::Phase;
use crate::outcome::{NodeAction, NodeOutcome};

impl Ledger {
    /// A group that is stopped while it is prepared: one whose prolog may run has ended only once that is over.
    pub(super) fn withdraw(&mut self, job: JobId, generation: Generation, out: &mut NodeOutcome) {
        let Some(group) = self.group_mut(job, generation) else { return };
        if group.phase != Phase::Preparing || group.order.run.hooks.prolog.is_none() {
            return self.finish(job, generation, GroupOutcome::Stopped, out);
        }
        group.phase = Phase::Withdrawn;
        out.persist = true;
        out.actions.push(NodeAction::Withdraw { job, generation });
        self.report(job, generation, out);
    }

    /// A group that had processes has none left.
    pub(super) fn conclude(
        &mut self,
        job: JobId,
        generation: Generation,
        outcome: GroupOutcome,
        out: &mut NodeOutcome,
    ) {
        let Some(group) = self.group_mut(job, generation) else { return };
        if group.order.run.hooks.epilog.is_none() {
            return self.finish(job, generation, outcome, out);
        }
        group.phase = Phase::Epilog { outcome: outcome.clone() };
        out.persist = true;
        out.actions.push(NodeAction::Epilog { order: Box::new(group.order.clone()), outcome });
        self.report(job, generation, out);
    }

    pub(super) fn epilog_done(&mut self, job: JobId, generation: Generation, out: &mut NodeOutcome) {
        if let Some(Phase::Epilog { outcome }) = self.group(job, generation).map(|group| group.phase.clone()) {
            self.finish(job, generation, outcome, out);
        }
    }
}
