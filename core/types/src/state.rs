//! Names of the states that jobs, nodes and plans are in: one word each for columns, the wire, metrics, filters and people.
//! What a state carries stands in the engine's records; here is only which one it is.

use crate::word::words;

words! {
    /// Where a job is in its life.
    pub enum JobStateKind {
        Queued,
        Held,
        Starting,
        Running,
        Stopping,
        Succeeded,
        Failed,
        Cancelled,
    }

    /// What has become of a plan.
    pub enum PlanStateKind {
        Proposed,
        Adopted,
        Superseded,
        Rejected,
        Stale,
    }

    /// What users want of a node.
    pub enum NodePolicyKind {
        Schedulable,
        Cordoned,
        Draining,
    }

    /// What is seen of a node.
    pub enum AvailabilityKind {
        Registering,
        Available,
        Unreachable,
        Lost,
    }

    /// What the scheduler has come to think of a node.
    #[derive(Default)]
    pub enum StandingKind {
        #[default]
        Good,
        Quarantined,
        Probation,
    }
}

impl JobStateKind {
    /// Whether the job is over for good.
    #[must_use]
    pub fn is_final(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::Cancelled)
    }
}
