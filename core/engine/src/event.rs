//! What enters the engine.

use core::fmt;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use headway_planner::{Force, Verified};
use headway_types::spec::Priority;
use headway_types::{
    ArrayId, GpuCount, JobId, JobSpec, NodeId, NodeReport, PlanId, ProjectRole, ReservationId, Seconds, Term, Timestamp,
};
use serde::{Deserialize, Serialize};

use crate::record::{Array, Awaited, Job, NoticeId, PolicySettings, ProjectRules};
use crate::takeover::Cause;

/// One fact for the engine to digest.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A person or script wants something; answered by `Outcome::replies` under the same id.
    Request { request: RequestId, actor: Actor, body: Request },
    /// An agent speaks. `session` names the stream; reports of an older session than the node's newest are dropped.
    Agent { node: NodeId, session: SessionId, report: NodeReport },
    /// An agent was refused since it follows a newer term than this one.
    AgentAhead { node: NodeId, name: String, term: Term },
    /// Somebody said that it is this node, and was not believed.
    AgentRefused { node: NodeId, name: String, why: String },
    /// The stream ended.
    AgentDisconnected { node: NodeId, session: SessionId },
    /// The planning thread has finished, and the plan keeps the rules of its round.
    PlanReady { plan: Verified },
    /// The round's plan breaks a rule: a fault of the planner. The current plan stays, and the next round asks less and waits a while.
    PlanRefused { plan: PlanId, violation: String },
    /// The round gave no plan; likewise.
    PlanFailed { plan: PlanId, message: String },
    /// The round took too long and is given up; the current plan stays, and the next round asks less.
    PlanGivenUp { plan: PlanId, message: String },
    /// A webhook could not be told something of a job for so long that nobody tries again.
    NoticeGivenUp { notice: NoticeId, job: JobId, message: String },
    /// The machine's clock is so far ahead of what is stored that it is not believed.
    ClockDoubted { beyond: Seconds },
    /// It is right again.
    ClockBelieved,
    /// The store could not be written to since then, for this reason; now it can, if this is stored.
    StoreAway { since: Timestamp, message: String },
    /// Another server led before. `from`, `to`: where that one was reached, and where this one is.
    TookOver { from: String, to: String, cause: Cause },
    /// Something of the server itself that people should find in the log.
    Told { verb: &'static str, message: String },
    /// The timer asked for by `Outcome::wake_at`, or any later moment.
    Tick,
}

/// Correlates a request with its reply; unique within a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// One gRPC stream of an agent; rises with every stream of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub u64);

/// Who acts, as the audit log names them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "actor", content = "name")]
pub enum Actor {
    User(String),
    Scheduler,
    Node(NodeId),
}

impl Actor {
    /// As events and the audit tell it: "user:ada", "scheduler", "node:<id>".
    #[must_use]
    pub fn told(&self) -> String {
        match self {
            Self::User(name) => format!("user:{name}"),
            Self::Scheduler => "scheduler".into(),
            Self::Node(node) => format!("node:{node}"),
        }
    }
}

impl fmt::Display for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Actor::User(name) => name.fmt(f),
            Actor::Scheduler => "scheduler".fmt(f),
            Actor::Node(node) => node.fmt(f),
        }
    }
}

/// What a request asks for.
#[derive(Clone, Debug, PartialEq)]
pub enum Request {
    /// All of them or none.
    Submit {
        jobs: Vec<JobSpec>,
        idempotency: Option<IdempotencyKey>,
        /// Of the jobs that they name as their dependencies.
        known: Known,
    },
    Cancel {
        job: JobId,
        reason: Option<String>,
        grace: Option<Seconds>,
    },
    Hold {
        job: JobId,
        reason: Option<String>,
    },
    Release {
        job: JobId,
    },
    /// Something is done with all elements of an array that it concerns.
    Array {
        array: ArrayId,
        deed: ArrayDeed,
    },
    /// How many elements may run at once; `None`: all.
    ChangeArray {
        array: ArrayId,
        parallel: Option<u32>,
        /// Only if it is at this version now.
        expected: Option<u64>,
    },
    /// What runs saves and waits for its turn again; what has failed or was cancelled goes on.
    Requeue {
        job: JobId,
        reason: Option<String>,
        /// Of the job, where it has ended, and of those that it depends on.
        known: Known,
    },
    /// Save now and go on.
    Checkpoint {
        job: JobId,
    },
    Change {
        job: JobId,
        change: JobChange,
        /// Only if it is at this version now.
        expected: Option<u64>,
    },
    /// Its owner wants other sizes: they hold from now on, and what bounds how often it is moved keeps it from none of them in the next round.
    Resize {
        job: JobId,
        min: GpuCount,
        max: GpuCount,
        reason: Option<String>,
    },
    /// Keeps a job on the GPUs it has, or will have next.
    Pin {
        job: JobId,
        reason: Option<String>,
    },
    Unpin {
        job: JobId,
    },
    /// Running jobs leave (checkpoint first), nothing new starts. With a deadline they may stay until then if they
    /// have nowhere to go.
    Drain {
        node: NodeId,
        reason: Option<String>,
        deadline: Option<Timestamp>,
    },
    /// Nothing new starts; what runs stays.
    Cordon {
        node: NodeId,
        reason: Option<String>,
    },
    /// Takes a node back into service.
    Uncordon {
        node: NodeId,
    },
    /// What jobs may choose a node by; `None` takes a label away, what is not named stays.
    LabelNode {
        node: NodeId,
        labels: BTreeMap<String, Option<String>>,
        /// Only if it is at this version now.
        expected: Option<u64>,
    },
    /// An operator vouches that nothing runs on this unreachable node any more.
    MarkLost {
        node: NodeId,
        reason: Option<String>,
    },
    /// Forgets a node that is gone for good and holds nothing. Should it come back, it is a new one.
    DeleteNode {
        node: NodeId,
        reason: Option<String>,
    },
    /// An operator vouches for the store: nodes that follow a newer term are to follow this scheduler again.
    Readmit {
        reason: Option<String>,
    },
    /// A round now; the plan comes back as a proposal and waits for approval.
    Rebalance {
        terms: Box<Rebalancing>,
    },
    Approve {
        plan: PlanId,
    },
    Reject {
        plan: PlanId,
        reason: Option<String>,
    },
    /// No rounds until somebody says so.
    Pause {
        reason: Option<String>,
    },
    /// Rounds as before the pause.
    Resume {
        reason: Option<String>,
    },
    SetPolicy {
        settings: Box<PolicySettings>,
        /// Only if it is at this version now.
        expected: Option<u64>,
    },
    /// Creates a project or replaces its rules.
    PutProject {
        name: String,
        rules: ProjectRules,
        /// Only if it is at this version now; 0: only if there is none.
        expected: Option<u64>,
    },
    DeleteProject {
        name: String,
        expected: Option<u64>,
    },
    /// Opens a project to somebody with this role, or to somebody no longer.
    SetMember {
        project: String,
        user: String,
        role: Option<ProjectRole>,
        expected: Option<u64>,
        /// Why, where groups at an identity provider decide and nobody's hand: a project that they leave without members does not open by that.
        groups: Option<String>,
    },
    /// Hides a project's jobs from all but its members, or shows that they exist.
    SetPrivate {
        project: String,
        private: bool,
        expected: Option<u64>,
    },
    /// Sets nodes aside.
    Reserve {
        reservation: ReservationRequest,
    },
    CancelReservation {
        reservation: ReservationId,
    },
    /// Any other request, answered as it would be, and not done.
    DryRun {
        body: Box<Request>,
    },
    /// Any other request, with why it is made: told with what it does, and kept nowhere else. A reason that is part of what is asked for (a hold's) is in the request itself.
    Because {
        reason: String,
        body: Box<Request>,
    },
    /// Any other request, done only if this key has not been used for it before.
    Once {
        key: IdempotencyKey,
        body: Box<Request>,
    },
}

/// What is done with elements of an array.
#[derive(Clone, Debug, PartialEq)]
pub enum ArrayDeed {
    Cancel {
        reason: Option<String>,
        /// Seconds from SIGTERM to SIGKILL; `None`: each job's own.
        grace: Option<f64>,
    },
    Hold {
        reason: Option<String>,
    },
    Release,
}

/// What a shell has read of jobs that a request names, since the engine keeps none that have ended.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Known {
    pub jobs: BTreeMap<JobId, Arc<Job>>,
    pub arrays: BTreeMap<ArrayId, Arc<Array>>,
    /// By project and name, the caller's newest.
    pub names: BTreeMap<(String, String), Awaited>,
}

/// What somebody asks of a rebalancing. By default: whatever is best for everybody.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Rebalancing {
    /// Least gain for a move; `None`: the policy's.
    pub min_gain: Option<f64>,
    /// Most jobs that are moved; `None`: the policy's.
    pub max_moves: Option<u32>,
    /// Running jobs beyond it stay as they are.
    pub scope: Scope,
    /// Running jobs that stay as they are.
    pub exclude: BTreeSet<JobId>,
    /// What jobs are to get in any case. Without it there is no proposal.
    pub force: Vec<Force>,
    /// The plan whose moves are taken back by it.
    pub undoes: Option<PlanId>,
    pub reason: Option<String>,
}

impl Rebalancing {
    /// Whether somebody forces an allocation on a job.
    #[must_use]
    pub fn is_forced(&self) -> bool {
        !self.force.is_empty()
    }
}

/// Which running jobs a rebalancing may move: those of all that is named here. What names nothing names everybody.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Scope {
    /// With all below them.
    pub projects: BTreeSet<String>,
    /// On any of which they run.
    pub nodes: BTreeSet<NodeId>,
    pub jobs: BTreeSet<JobId>,
}

impl Scope {
    #[must_use]
    pub fn is_everything(&self) -> bool {
        self.projects.is_empty() && self.nodes.is_empty() && self.jobs.is_empty()
    }
}

/// What is to change of a job; what is `None` stays.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JobChange {
    pub priority: Option<Priority>,
    pub min: Option<GpuCount>,
    pub max: Option<GpuCount>,
    pub labels: Option<BTreeMap<String, String>>,
    /// The time limit.
    pub time: Option<Seconds>,
    pub elastic: ElasticChange,
}

/// What is to change of how often a job is moved; what is `None` stays.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ElasticChange {
    pub min_runtime: Option<Seconds>,
    pub max_resizes_per_hour: Option<u32>,
    /// Share of its time that moves may cost, 0 to 1.
    pub max_overhead: Option<f64>,
    /// Above 0, at most 1; 0 takes it away.
    pub min_share: Option<f64>,
}

/// When a reservation is to end.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Ends {
    At(Timestamp),
    /// This long after it began.
    After(Seconds),
}

/// A reservation as it is asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct ReservationRequest {
    pub name: String,
    pub reason: Option<String>,
    pub nodes: BTreeSet<NodeId>,
    /// `None`: from now on.
    pub from: Option<Timestamp>,
    pub ends: Ends,
    /// For nobody: its nodes are worked on. Only then it names no members.
    pub maintenance: bool,
    pub projects: BTreeSet<String>,
    pub users: BTreeSet<String>,
    pub jobs: BTreeSet<JobId>,
}

/// Unique per principal and route; kept for a week with what it made or acted on.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct IdempotencyKey {
    pub principal: String,
    pub route: String,
    pub key: String,
    /// SHA-256 of the request body, hex: the same key with another body is a conflict.
    pub request_hash: String,
}
