//! Everything one round may look at. Serialisable: a stored input replays to the same plan, byte for byte.

use std::sync::Arc;

use headway_goodput::JobModel;
use headway_types::report::Capabilities;
use headway_types::spec::{GpuRange, Priority};
use headway_types::{Assignment, GpuUuid, JobId, NodeClass, NodeId, PlanId, Seconds, Timestamp, Tokens};
use serde::{Deserialize, Serialize};

/// The planner's whole world for one round.
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
}

/// One job as the planner sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlanJob {
    pub job: JobId,
    pub name: String,
    pub priority: Priority,
    pub submitted_at: Timestamp,
    pub range: GpuRange,
    /// `None`: opaque and rigid; speed-up 1 at its requested size.
    pub model: Option<Arc<JobModel>>,
    pub capabilities: Capabilities,
    /// What it holds or is about to hold.
    pub current: Option<Assignment>,
    /// What a change would cost it.
    pub downtime: Downtime,
    /// Work that a restart now would redo (time since the last committed checkpoint, zero if it saves before stopping).
    pub rework: Seconds,
    /// Reference tokens still to do, where the job has a target.
    pub remaining: Option<Tokens>,
    pub freedom: Freedom,
}

/// Seconds a job stands still per tier of change; learned per job, defaulted before.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Downtime {
    pub batch: Seconds,
    pub micro_batch: Seconds,
    /// Layout change or migration: checkpoint, stop, start, load, first step.
    pub restart: Seconds,
}

/// Whether this round may move the job's GPUs. Live changes (batch, micro-batch) are always allowed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "freedom")]
pub enum Freedom {
    Free,
    /// Must keep its GPUs and layout (minimum runtime, resize budget, a start or stop in flight), for this reason.
    Fixed {
        reason: String,
    },
}

/// The objective's constants.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Policy {
    /// Power p of the value u(s) = ((s+ε)^p − ε^p)/p; 0 is the logarithm.
    pub power: f64,
    /// ε of the value function.
    pub epsilon: f64,
    /// Longest time over which a move may pay for itself.
    pub horizon: Seconds,
    /// A move of GPUs must raise the objective by this share of one job's value, or it stays as it is.
    pub min_gain: f64,
    /// A live batch change must raise the job's goodput by this share.
    pub min_batch_gain: f64,
    /// Solver work limit: branch-and-bound nodes or the backend's equivalent.
    pub node_budget: u32,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            power: -0.5,
            epsilon: 0.1,
            horizon: Seconds(3_600.0),
            min_gain: 0.01,
            min_batch_gain: 0.03,
            node_budget: 10_000,
        }
    }
}
