//! Everything one round may look at. Serialisable: a stored input replays to the same plan, byte for byte.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use headway_goodput::{JobModel, Lessons};
use headway_types::report::Capabilities;
use headway_types::spec::{GpuRange, NodeResources, Priority};
use headway_types::{Assignment, GpuUuid, JobId, NodeAccount, NodeClass, NodeId, PlanId, Seconds, Timestamp, Tokens};
use serde::{Deserialize, Serialize};

use crate::claim::{Bounds, Claim, Needs};
use crate::ending::Departure;
use crate::force::Force;
use crate::policy::Policy;
use crate::project::PlanProject;
use crate::reservation::Reservation;
use crate::table::GoodputTable;

/// All that the planner may know of one round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlanInput {
    /// Name of the plan to be made.
    pub plan: PlanId,
    /// The target it will replace.
    pub parent: Option<PlanId>,
    pub now: Timestamp,
    /// Why the round runs, in words.
    pub trigger: String,
    pub policy: Policy,
    /// Ascending by id.
    pub nodes: Vec<PlanNode>,
    /// Ascending by id. Live jobs that want GPUs: neither held nor ending for good.
    pub jobs: Vec<PlanJob>,
    /// Ascending by name. A job whose project is not among them is bound by none.
    #[serde(default)]
    pub projects: Vec<PlanProject>,
    /// Those that matter now; whoever makes the input drops the past ones.
    #[serde(default)]
    pub reservations: Vec<Reservation>,
    /// What measured jobs have taught those alike, for jobs that come.
    #[serde(default, skip_serializing_if = "nothing_taught")]
    pub lessons: Arc<Lessons>,
    /// Jobs whose curves were not ready when the round had to begin: it leaves them as they are. Whoever asks for the round says so, since
    /// the planner knows no clock.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub deferred: BTreeSet<JobId>,
    /// What people force on jobs, one of each at most ([`PlanInput::force`]).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub forced: Vec<Force>,
}

fn nothing_taught(lessons: &Arc<Lessons>) -> bool {
    lessons.is_empty()
}

/// A node's usable GPUs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlanNode {
    pub node: NodeId,
    pub name: String,
    pub class: NodeClass,
    /// Healthy GPUs that may be granted, by index. GPUs a job of this input holds are in the list; GPUs that a former
    /// generation on an unreachable node still holds are not. Empty on nodes that are cordoned or draining,
    /// except for GPUs held by jobs that may stay until they move.
    pub gpus: Vec<GpuUuid>,
    /// Draining: what runs here should leave; nothing new starts here.
    pub draining: bool,
    /// What the host has for jobs besides GPUs; what it does not say is not counted.
    #[serde(default)]
    pub host: NodeResources,
    /// What jobs may choose it by.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Whether its agent tells workers of uneven shares.
    #[serde(default)]
    pub tells_shares: bool,
    /// The one account that all jobs run as there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<NodeAccount>,
}

impl PlanNode {
    /// Whether the node may run jobs of this owner: not where they would run as somebody else.
    #[must_use]
    pub fn takes_owner(&self, owner: &str) -> bool {
        self.account.as_ref().is_none_or(|account| account.takes(owner))
    }
}

/// One job as the planner sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlanJob {
    pub job: JobId,
    pub name: String,
    pub priority: Priority,
    pub submitted_at: Timestamp,
    pub range: GpuRange,
    pub work: PlanWork,
    pub capabilities: Capabilities,
    /// What it holds or is about to hold.
    pub current: Option<Assignment>,
    /// What a change would cost it.
    pub downtime: Downtime,
    /// Work that a restart now would redo (time since the last committed checkpoint, zero if it saves before stopping).
    pub rework: Seconds,
    /// Reference tokens still to do, where the job has a target; of one that counts tokens seen, what those bring at its present batch.
    pub remaining: Option<Tokens>,
    pub freedom: Freedom,
    /// Why its batch stays as it is for now, though its script takes another live.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch_bound: Option<String>,
    /// Who it belongs to, and what it is owed.
    #[serde(default)]
    pub claim: Claim,
    /// Until when, and for how much, it may run.
    #[serde(default)]
    pub bounds: Bounds,
    /// How it leaves its GPUs. A round stored by an earlier release does not know: then it does not save.
    #[serde(default, skip_serializing_if = "Departure::is_unknown")]
    pub departure: Departure,
    /// What its nodes must have, or must not be.
    #[serde(default)]
    pub needs: Needs,
}

/// How a job's goodput depends on what it gets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PlanWork {
    /// Rigid: speed-up 1 at the largest size of its range, which is the only one it runs at.
    Opaque,
    /// Modelled, or measured by size alone.
    Model(Arc<JobModel>),
    /// Told for each allocation.
    Table(Arc<GoodputTable>),
}

impl PlanWork {
    #[must_use]
    pub fn model(&self) -> Option<&Arc<JobModel>> {
        match self {
            Self::Model(model) => Some(model),
            Self::Opaque | Self::Table(_) => None,
        }
    }

    /// Whether the job has a size of its own that nothing tunes.
    #[must_use]
    pub fn is_opaque(&self) -> bool {
        matches!(self, Self::Opaque)
    }
}

impl Freedom {
    /// Why the job keeps its GPUs, if it does.
    #[must_use]
    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::Free => None,
            Self::Settled { reason } | Self::Fixed { reason } => Some(reason),
        }
    }
}

/// Seconds a job stands still per tier of change; learned per job, defaulted before.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Downtime {
    pub batch: Seconds,
    pub micro_batch: Seconds,
    /// Another layout on the same GPUs, taken in memory: only of a script whose layout is live. `None`: as long as a restart.
    #[serde(default)]
    pub layout: Option<Seconds>,
    /// Layout change or migration: checkpoint, stop, start, load, first step.
    pub restart: Seconds,
}

/// Whether this round may move the job's GPUs. Live changes (batch, micro-batch) are always allowed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "freedom")]
pub enum Freedom {
    Free,
    /// Keeps its GPUs and layout from other jobs, for this reason. What is owed may still stop it: quotas, floors of
    /// projects, reclaimed GPUs, and nodes that it must leave.
    Settled {
        reason: String,
    },
    /// Must keep its GPUs and layout (minimum runtime, resize budget, a pin, a start or stop in flight), for this reason.
    Fixed {
        reason: String,
    },
}
