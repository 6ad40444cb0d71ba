//! Rounds: the one in flight, what operators asked for, and what the newest said of each job.

mod adopt;
mod claim;
mod consider;
mod fits;
mod input;
mod request;
mod resizes;
mod terms;
mod trouble;

use core::fmt;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use headway_types::{JobId, NodeId, PlanId, Seconds, Timestamp};

use crate::event::{Actor, Rebalancing};
use crate::verdicts::Verdicts;
pub use request::RoundRequest;
use trouble::Restraint;
pub use trouble::{Aside, Trouble};

#[derive(Clone, Debug, Default)]
pub(crate) struct Rounds {
    in_flight: Option<InFlight>,
    last_at: Option<Timestamp>,
    /// A round that somebody asked for.
    manual: Option<Asked>,
    /// The next automatic round moves no running job, since a proposal that does waits for approval.
    pinned: bool,
    /// The newest moved none, since no window for moves was open.
    shut: bool,
    verdicts: Verdicts,
    /// While rounds gave no plan of late.
    trouble: Option<Trouble>,
    /// Nodes that the newest rounds left out, as the log was told.
    nodes_left_out: BTreeSet<NodeId>,
    /// Jobs that have to leave for a reservation, for which a round was asked.
    departing: BTreeSet<JobId>,
    newest: Option<Arc<RoundRequest>>,
    /// That it takes running jobs for.
    step_times: BTreeMap<JobId, Seconds>,
    /// Touched since the newest round, and not known to it though they wanted GPUs.
    newcomers: BTreeSet<JobId>,
}

#[derive(Clone, Debug)]
struct InFlight {
    request: Arc<RoundRequest>,
    kind: RoundKind,
    asked_by: Option<Actor>,
}

/// A round that somebody asked for, and how.
#[derive(Clone, Debug)]
struct Asked {
    plan: PlanId,
    by: Actor,
    terms: Arc<Rebalancing>,
}

/// Which round an input is for.
#[derive(Clone, Debug)]
struct RoundKind {
    plan: PlanId,
    trigger: String,
    /// What somebody asks of it.
    terms: Option<Arc<Rebalancing>>,
    /// Why running jobs keep their GPUs, where they do.
    pinned: Option<Pinned>,
    /// After rounds that gave no plan.
    restraint: Restraint,
}

/// Why a round moves no running job.
#[derive(Clone, Debug, PartialEq)]
enum Pinned {
    ForApproval,
    /// None of the policy's windows is open.
    Outside {
        windows: String,
    },
}

impl fmt::Display for Pinned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ForApproval => "moves of running jobs wait for approval".fmt(f),
            Self::Outside { windows } => write!(f, "running jobs are moved only at set times: {windows} (UTC)"),
        }
    }
}

impl Rounds {
    /// The round in flight, if it is this one: it has ended.
    fn end(&mut self, plan: PlanId) -> Option<InFlight> {
        self.in_flight.take_if(|round| round.kind.plan == plan)
    }

    /// Rounds that gave no plan, if any were of late.
    pub fn trouble(&self) -> Option<&Trouble> {
        self.trouble.as_ref()
    }

    /// As of when the round is that is under way.
    pub fn under_way_since(&self) -> Option<Timestamp> {
        self.in_flight.as_ref().map(|round| round.request.asked_at())
    }

    /// From the newest plan made, adopted or not.
    pub fn verdicts(&self) -> &Verdicts {
        &self.verdicts
    }

    /// Whether the newest round looks at the job, or leaves it out on purpose.
    fn knows(&self, job: JobId) -> bool {
        self.newest.as_ref().is_some_and(|round| round.knows(job))
    }

    /// Whether the newest rounds could not be planned with a node.
    pub fn leaves_out(&self, node: NodeId) -> bool {
        self.nodes_left_out.contains(&node)
    }

    /// Notes which jobs have to leave for reservations, and returns those that had not to before.
    pub fn newly_departing(&mut self, leaving: &BTreeMap<JobId, String>) -> Vec<JobId> {
        let before = std::mem::replace(&mut self.departing, leaving.keys().copied().collect());
        self.departing.difference(&before).copied().collect()
    }

    /// The node was deleted: should it come back wrong again, that is told again.
    pub fn forget_node(&mut self, node: NodeId) {
        self.nodes_left_out.remove(&node);
    }

    /// The job is over.
    pub fn forget(&mut self, job: JobId) {
        self.newcomers.remove(&job);
        if let Some(trouble) = &mut self.trouble {
            trouble.forget(job);
        }
    }
}
