//! A plan: what every job gets, and why. Immutable; names its parent; leaves no choice to execution.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::configuration::{Configuration, Tier};
use crate::hardware::GpuType;
use crate::id::{JobId, NodeId, PlanId};
use crate::placement::Placement;
use crate::time::Timestamp;
use crate::unit::{GpuCount, Seconds, TokensPerSecond};
use crate::word::words;

/// One decision for the whole cluster. A job it does not name gets nothing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    pub id: PlanId,
    /// The target this plan was made from; it is adopted only while that still is the target.
    pub parent: Option<PlanId>,
    pub made_at: Timestamp,
    pub assignments: BTreeMap<JobId, Assignment>,
    pub report: PlanReport,
}

/// What one job gets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Assignment {
    pub placement: Placement,
    /// `None` for opaque jobs: the script decides.
    pub configuration: Option<Configuration>,
    pub predicted: Prediction,
    /// The caller's name of the row chosen, where the goodput came from a table with named rows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
}

/// What the model expects of an assignment; zero throughput means "not modelled".
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Prediction {
    pub step_time: Seconds,
    pub throughput: TokensPerSecond,
    /// Statistical efficiency E(B) as it counts for the job, 0 to 1 (above 1 below the reference batch where its target counts reference
    /// tokens).
    pub efficiency: f64,
    /// Reference tokens per second.
    pub goodput: TokensPerSecond,
    /// Goodput over that of the job's fair share: comparable across jobs.
    pub speed_up: f64,
}

impl Prediction {
    /// Of the goodput what the theory credits to a batch below the reference: reference tokens beyond the tokens seen.
    #[must_use]
    pub fn credit(&self) -> TokensPerSecond {
        TokensPerSecond((self.goodput.0 - self.throughput.0).max(0.0))
    }
}

/// The plan's own account of itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PlanReport {
    /// Why the round ran, in words ("job 0192… arrived").
    pub trigger: String,
    /// Σ weight × utility of the chosen candidates.
    pub objective: f64,
    /// Objective of staying as we are.
    pub objective_before: f64,
    /// Upper bound on any plan's objective; `None` of a policy that serves in order and bounds nothing.
    #[serde(default)]
    pub bound: Option<f64>,
    /// (bound − objective) / |bound|, 0 when proven optimal.
    #[serde(default)]
    pub gap: Option<f64>,
    /// Value of one more GPU, per GPU type, in objective units.
    pub shadow_prices: BTreeMap<GpuType, f64>,
    /// Everything whose lack holds the objective down, dearest first by what all of it is worth.
    #[serde(default)]
    pub scarce: Vec<Price>,
    /// Rules that could not be kept in this round.
    #[serde(default)]
    pub relaxed: Vec<Relaxed>,
    /// Jobs that could not be planned with: they keep what they have.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<LeftOut>,
    /// Nodes that could not be planned with: nothing starts there, and what runs there keeps what it has.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes_left_out: Vec<NodeLeftOut>,
    /// Shared: of a long queue they are most of a plan, and whoever trims a plan leaves them as they are.
    pub jobs: Arc<BTreeMap<JobId, JobVerdict>>,
    pub moves: Vec<Move>,
    /// Running jobs that another size would serve better and that stay nevertheless, the greatest loss first.
    #[serde(default)]
    pub unmoved: Vec<Unmoved>,
    /// Candidates offered to the ILP.
    pub candidates: u32,
    /// Jobs that wait and are due, each with the wait after which it is.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub due: BTreeMap<JobId, Seconds>,
    /// Who solved the ILP where an exact backend was asked for; `None`: the planner's own solver, or a policy that serves in
    /// order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub solver: Option<SolvedBy>,
}

/// Who solved a round of which an exact backend was asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SolvedBy {
    /// `headway`, `microlp`, `highs`.
    pub name: String,
    pub version: String,
    /// Why it was not the solver that the policy asks for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instead: Option<String>,
}

/// What one more unit of something scarce is worth, in objective units.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Price {
    /// "GPUs of H100-80G", "the quota of project nlp".
    pub of: String,
    pub price: f64,
}

/// A rule that could not be kept, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Relaxed {
    /// "the floor of project nlp".
    pub rule: String,
    pub reason: String,
}

/// A job that could not be planned with, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOut {
    pub job: JobId,
    pub reason: String,
    /// Nothing is wrong with it: its goodput curve was not ready in time.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub deferred: bool,
}

/// A node that could not be planned with, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeLeftOut {
    pub node: NodeId,
    pub name: String,
    pub reason: String,
}

/// Why a job got what it got.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct JobVerdict {
    /// One sentence for people.
    pub headline: String,
    pub gpus: GpuCount,
    /// The next best choice for this job and what it would bring (speed-up).
    pub runner_up: Option<Alternative>,
    /// Speed-up gained by the next larger feasible size.
    pub marginal_speed_up: Option<f64>,
    pub reasons: Vec<Reason>,
    /// What keeps it from the next better choice: everything of which that takes more than is left, or that has a price.
    #[serde(default)]
    pub limits: Vec<Limit>,
}

/// Something scarce between a job and its next better choice.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Limit {
    /// "GPUs of H100-80G", "the quota of project nlp".
    pub of: String,
    /// How much more of it the choice takes.
    pub needed: f64,
    /// How much of it the plan leaves.
    pub left: f64,
    /// What others lose by that much of it, in objective units.
    pub price: f64,
}

/// A running job that stays although another size would bring more.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Unmoved {
    pub job: JobId,
    pub from_gpus: GpuCount,
    pub to_gpus: GpuCount,
    /// What its goodput would gain, as a share of what it is.
    pub gain: f64,
    /// What the objective forgoes, others' losses taken off, moving taken as free.
    pub forgone: f64,
    pub code: ReasonCode,
    pub detail: String,
}

/// A choice not taken.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Alternative {
    pub gpus: GpuCount,
    pub configuration: Option<Configuration>,
    pub speed_up: f64,
}

/// A cause with its numbers in words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reason {
    pub code: ReasonCode,
    /// Whether lifting this alone would change the outcome.
    pub binding: bool,
    pub detail: String,
}

words! {
    /// Causes the field asks for by name.
    pub enum ReasonCode {
        NotEnoughFree,
        Fragmented,
        WrongGpuType,
        MemoryInfeasible,
        /// No parallel layout that the script offers goes with its sizes.
        LayoutInfeasible,
        /// No batch that it allows goes with any such layout.
        BatchInfeasible,
        PriorityBehind,
        /// Others come before it in the order in which the policy serves.
        InLine,
        NodesUnhealthy,
        GainTooSmall,
        Cooldown,
        ProfileMissing,
        PlanWaitsApproval,
        /// Cannot run on this cluster as it is.
        Never,
        /// The chosen size is the best for the cluster.
        BestForCluster,
        AtMaximum,
        /// Waiting for GPUs that another job is giving up.
        GpusBeingFreed,
        /// The last attempts failed; the next one waits.
        BackOff,
        /// The last attempt failed, and the job waits to be tried again.
        AttemptFailed,
        /// A node that it runs on is out of contact.
        NodeUnreachable,
        Held,
        /// Another job is to come so far first.
        Dependency,
        /// As many elements of its array run or may start as it allows at once.
        ArrayLimit,
        /// The quota of its project, or of one above, is used up.
        Quota,
        /// What one user may hold in its project is used up.
        UserLimit,
        /// A row that the site states leaves too little.
        SiteRow,
        /// What it could use is set aside for others.
        Reserved,
        PowerCap,
        /// CPUs or memory of the nodes, not their GPUs.
        HostResources,
        /// The round may move no more jobs.
        MoveBudget,
        /// Only nodes are left that it must not use.
        Excluded,
        /// Too few nodes are left in one fabric domain.
        FabricDomain,
        /// Nothing it could get meets its deadline.
        Deadline,
        /// More would cost more GPU-time than it may still use.
        Budget,
        /// It moved lately; going on to another size must gain more than that.
        Hysteresis,
        /// It has waited so long that it goes before others.
        Patient,
        /// It is sure of a number of GPUs.
        Floor,
        /// It gets back what others borrowed.
        Reclaim,
        /// What is known of it contradicts itself, so that rounds leave it as it is.
        Malformed,
        /// What it could do was not known in time: the round leaves it as it is, and the next looks again.
        NotReady,
        /// Its step time rests on what no measurement has confirmed.
        Unconfirmed,
        /// It may run out of memory, and nothing else is possible.
        UnlikelyToFit,
        /// A better batch has micro-batches far from any in which steps were measured.
        BatchUntried,
        /// Its batch has changed as often as it may for now.
        BatchBound,
        /// Steps of a batch took longer than the band of what was expected of them.
        BatchContradicted,
    }
}

/// One job's change from the present to the plan. It shows gain and cost before it happens.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Move {
    pub job: JobId,
    pub kind: MoveKind,
    pub from_gpus: GpuCount,
    pub to_gpus: GpuCount,
    pub from_configuration: Option<Configuration>,
    pub to_configuration: Option<Configuration>,
    pub goodput_before: TokensPerSecond,
    pub goodput_after: TokensPerSecond,
    /// Predicted downtime including rework since the last checkpoint.
    pub downtime: Seconds,
    /// When the gain has paid for the downtime; `None`: never for this job alone (it yields to others).
    pub pays_back_after: Option<Seconds>,
    /// One sentence for people.
    pub reason: String,
}

impl Move {
    /// Returns how much the goodput of running jobs changes by these moves, as a share of what it is: −0.25 is a loss of a
    /// quarter. `None` if they disturb no job whose goodput is known.
    #[must_use]
    pub fn goodput_change(moves: &[Self]) -> Option<f64> {
        let disturbed = || moves.iter().filter(|one| one.kind.disturbs());
        let before: f64 = disturbed().map(|one| one.goodput_before.0).sum();
        let after: f64 = disturbed().map(|one| one.goodput_after.0).sum();
        (before > 0.0).then(|| after / before - 1.0).filter(|share| share.is_finite())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MoveKind {
    /// From nothing to GPUs.
    Start,
    /// From GPUs to nothing.
    Preempt,
    /// A change of the given tier.
    Reconfigure(Tier),
}

impl MoveKind {
    /// Whether a running job stands still for it.
    #[must_use]
    pub fn disturbs(self) -> bool {
        match self {
            MoveKind::Start => false,
            MoveKind::Preempt => true,
            MoveKind::Reconfigure(tier) => !tier.is_live(),
        }
    }

    /// One word: of a reconfiguration, its tier.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            MoveKind::Start => "start",
            MoveKind::Preempt => "preempt",
            MoveKind::Reconfigure(tier) => tier.into(),
        }
    }
}
