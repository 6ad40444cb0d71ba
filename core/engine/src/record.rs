//! The facts the engine keeps: jobs, nodes, allocations, checkpoints, plans, events. Each is stored as a row and
//! shared by `Arc`, so that readers see a consistent snapshot without a copy.

use std::collections::BTreeMap;
use std::sync::Arc;

use headway_types::{
    BootId, Capabilities, CheckpointRef, Configuration, Generation, JobId, JobSpec, NodeId, NodeInventory, Placement,
    Plan, PlanId, Seconds, Timestamp, Tokens,
};
use serde::{Deserialize, Serialize};

use crate::event::{Actor, IdempotencyKey};

/// A job: what was asked (spec), what was decided (state, generation), what was reached (checkpoint, progress).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Job {
    pub id: JobId,
    pub spec: JobSpec,
    pub owner: String,
    pub submitted_at: Timestamp,
    pub state: JobState,
    /// Highest generation issued; 0 before the first.
    pub generation: Generation,
    /// What the running script can do: declared by the SDK, else the specification's.
    pub capabilities: Option<Capabilities>,
    /// The one checkpoint the next generation resumes from.
    pub checkpoint: Option<CheckpointRef>,
    pub checkpoint_at: Option<Timestamp>,
    /// Reference tokens reached at the last committed checkpoint.
    pub progress: Tokens,
    pub started_at: Option<Timestamp>,
    /// Loss at the last committed checkpoint, or at the end.
    pub loss: Option<f64>,
    /// Starts that ended in a failure of the job's own, since it last made progress.
    pub failures: u32,
    /// All such failures in the job's life.
    pub restarts: u32,
    /// No start before this moment (back-off after a failure).
    pub not_before: Option<Timestamp>,
    /// Wanted by a user while the job holds GPUs: `Held` or `Cancelled` once it has stopped.
    pub wish: Option<Wish>,
    /// Times GPUs or layout changed while the job lived.
    pub reconfigurations: u32,
    /// Live batch changes.
    pub batch_changes: u32,
    /// What changed last and why, in words.
    pub last_change: Option<LastChange>,
    /// Rises with every stored change; the ETag.
    pub version: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastChange {
    pub at: Timestamp,
    pub reason: String,
}

/// What a user wants of a job that cannot have it at once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Wish {
    Held { reason: Option<String> },
    Cancelled { by: String, reason: Option<String> },
}

/// A state carries exactly the data valid in it. The transition table is in `job.rs`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "state")]
pub enum JobState {
    Queued { since: Timestamp },
    Held { since: Timestamp, reason: Option<String> },
    Starting { generation: Generation, since: Timestamp },
    Running { generation: Generation, since: Timestamp },
    Stopping { generation: Generation, since: Timestamp, cause: StopCause },
    Succeeded { at: Timestamp },
    Failed { at: Timestamp, message: String },
    Cancelled { at: Timestamp, by: String, reason: Option<String> },
}

/// Why a generation ends before its job does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "cause")]
pub enum StopCause {
    /// Other GPUs or another layout.
    Rescale,
    Preempt,
    Drain,
    Cancel,
    Hold,
    /// A rank died or a node did not start: the rest of the gang goes down too.
    GangBroken {
        message: String,
    },
    /// A node's lease ran out.
    NodeLost {
        node: NodeId,
    },
    /// Reached its target of reference tokens.
    TargetReached,
    TimeLimit,
}

/// What a job holds or held under one generation. GPUs stay granted until every node has released its slice.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Allocation {
    pub job: JobId,
    pub generation: Generation,
    pub plan: Option<PlanId>,
    pub placement: Placement,
    /// Current configuration; live changes raise `revision`.
    pub configuration: Option<Configuration>,
    pub revision: u64,
    pub resumed_from: Option<CheckpointRef>,
    /// Why it was made, in words.
    pub cause: String,
    pub predicted_goodput: f64,
    pub granted_at: Timestamp,
    /// First step report of this generation.
    pub training_at: Option<Timestamp>,
    /// Nodes that have proven that no process is left.
    pub released: BTreeMap<NodeId, Release>,
    pub ended_at: Option<Timestamp>,
}

impl Allocation {
    /// Whether any node still holds GPUs for it.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.placement.slices().iter().any(|slice| !self.released.contains_key(&slice.node))
    }
}

/// How a node's GPUs were proven free.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Release {
    pub at: Timestamp,
    pub proof: ReleaseProof,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReleaseProof {
    /// The agent reported the processes gone.
    Reported,
    /// The agent registered without a trace of this generation in its ledger.
    NotInLedger,
    /// The node came back with another boot id.
    NewBoot,
    /// An operator confirmed `node lost`.
    Operator,
}

/// A node: what it is (inventory), what users want (policy), what we see (availability).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Node {
    pub inventory: NodeInventory,
    pub policy: NodePolicy,
    pub availability: Availability,
    pub registered_at: Timestamp,
    pub boot: BootId,
    pub version: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "policy")]
pub enum NodePolicy {
    Schedulable,
    Cordoned { by: String, reason: Option<String>, since: Timestamp },
    Draining { by: String, reason: Option<String>, since: Timestamp },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "availability")]
pub enum Availability {
    /// Known from the store, not yet heard in this term.
    Registering {
        since: Timestamp,
    },
    Available,
    /// The lease ran out.
    Unreachable {
        since: Timestamp,
    },
    /// An operator vouched that it is gone.
    Lost {
        since: Timestamp,
    },
}

/// A committed checkpoint.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Checkpoint {
    pub job: JobId,
    pub checkpoint: CheckpointRef,
    pub duration: Seconds,
    pub committed_at: Timestamp,
    pub progress: Tokens,
}

/// A plan and what became of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlanRecord {
    pub plan: Arc<Plan>,
    pub state: PlanState,
    pub decided_at: Option<Timestamp>,
    pub decided_by: Option<Actor>,
}

/// Proposed → Adopted → Superseded, or Proposed → Rejected | Stale.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "state")]
pub enum PlanState {
    Proposed,
    Adopted,
    Superseded,
    Rejected { reason: Option<String> },
    Stale,
}

/// What an operator may change while Headway runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PolicySettings {
    pub mode: PolicyMode,
    pub objective: headway_planner::Policy,
    /// Longest time between rounds while jobs run.
    pub round_every: Seconds,
    /// Shortest time between rounds.
    pub round_pause: Seconds,
}

impl Default for PolicySettings {
    fn default() -> Self {
        Self {
            mode: PolicyMode::Auto,
            objective: headway_planner::Policy::default(),
            round_every: Seconds(60.0),
            round_pause: Seconds(1.0),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PolicyMode {
    /// Plans that verify are adopted.
    Auto,
    /// Plans that move GPUs of running jobs wait for approval; starts on free GPUs do not.
    Advisory,
    /// No rounds.
    Paused,
}

/// One line of the event log: who did what to what, and why.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EventRecord {
    /// Rises by one per event, over all terms.
    pub seq: u64,
    pub at: Timestamp,
    pub actor: Actor,
    /// "job.submitted", "job.batch_changed", "plan.adopted", …
    pub verb: String,
    pub job: Option<JobId>,
    pub node: Option<NodeId>,
    pub plan: Option<PlanId>,
    /// One sentence for people, with the reason.
    pub message: String,
    /// Numbers behind the sentence.
    pub detail: BTreeMap<String, String>,
}

/// A subject entered a state: it ends the subject's state before it. The whole history of the cluster's shape.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transition {
    pub at: Timestamp,
    pub entered: Entered,
}

/// Which subject entered which state; the words are those of the API.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "subject")]
pub enum Entered {
    Job { job: JobId, state: String, generation: Generation },
    Node { node: NodeId, availability: String, policy: String, standing: String, gpus: u32, healthy: u32 },
    Allocation { job: JobId, generation: Generation, phase: String, gpus: u32 },
    Plan { plan: PlanId, state: String },
}

/// The jobs an idempotency key made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdempotencyRecord {
    pub key: IdempotencyKey,
    pub jobs: Vec<JobId>,
    pub at: Timestamp,
}
