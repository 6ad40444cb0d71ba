//! Gangs: what the nodes' reports together mean for one generation of a job.

use headway_types::{GroupOutcome, GroupPhase, JobSpec, NodeId};

use super::Situation;
use crate::record::{Allocation, Availability, ReleaseProof};
use crate::seen::Contact;

/// One node's part of a gang, as far as it is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// The node has not spoken in this term, or its session is gone but its lease still holds.
    Unknown,
    /// The node's lease ran out, or an operator or a reboot wrote it off.
    Lost,
    /// The node is there and knows nothing of the group (yet).
    Absent,
    /// Proven free, but how the group ended is not known.
    Vanished,
    Preparing,
    Prepared,
    Running,
    Stopping,
    Ended(GroupOutcome),
}

impl Part {
    pub fn is_up(&self) -> bool {
        matches!(self, Part::Running) || self.has_succeeded()
    }

    pub fn has_succeeded(&self) -> bool {
        *self == Part::Ended(GroupOutcome::Succeeded)
    }
}

impl Situation<'_> {
    /// The parts of a gang in rank order.
    pub fn parts(self, allocation: &Allocation) -> Vec<(NodeId, Part)> {
        let slices = allocation.placement.slices();
        slices.iter().map(|slice| (slice.node, self.part(allocation, slice.node))).collect()
    }

    fn part(self, allocation: &Allocation, id: NodeId) -> Part {
        let release = allocation.released.get(&id).map(|release| release.proof);
        let (Some(node), Some(seen)) = (self.facts.nodes.get(&id), self.seen.nodes.get(&id)) else { return Part::Lost };
        if matches!(release, Some(ReleaseProof::NewBoot | ReleaseProof::Operator)) {
            return Part::Lost;
        }
        match self.seen.group(id, (allocation.job, allocation.generation)).map(|group| &group.phase) {
            Some(GroupPhase::Ended { outcome }) => return Part::Ended(outcome.clone()),
            Some(_) if release.is_some() => return Part::Vanished,
            _ if matches!(node.availability, Availability::Unreachable { .. } | Availability::Lost { .. }) => {
                return Part::Lost;
            }
            Some(GroupPhase::Preparing) => return Part::Preparing,
            Some(GroupPhase::Prepared { .. }) => return Part::Prepared,
            Some(GroupPhase::Running) => return Part::Running,
            Some(GroupPhase::Stopping) => return Part::Stopping,
            None => {}
        }
        match (&seen.contact, release) {
            (Contact::Never, _) => Part::Unknown,
            (Contact::Had { .. }, Some(_)) => Part::Vanished,
            (Contact::Had { .. }, None) => Part::Absent,
        }
    }
}

/// Whether generations write apart and only committed checkpoints count, so that an old one can do no harm. A job that is
/// never started again gains nothing by an early end: it lasts until its end is proven.
pub(crate) fn is_fenced(spec: &JobSpec) -> bool {
    !spec.limits.forbid_restart() && spec.training().is_some_and(|training| training.checkpoint.fenced)
}
