//! What leaves the engine: facts to commit, then answers and commands to send, a plan to make, a time to wake.

use std::collections::BTreeMap;
use std::sync::Arc;

use headway_goodput::{JobModel, Lessons};
use headway_types::{AgentCommand, ArrayId, JobId, NodeId, PlanId, ReservationId, StepReport, Term, Timestamp};
use uuid::Uuid;

use crate::event::{RequestId, SessionId};
use crate::record::{
    Allocation, Array, Checkpoint, Deed, EventRecord, IdempotencyRecord, Job, Node, Notice, NoticeId, OverQuota,
    PlanRecord, PolicySettings, Project, Realised, Reservation, Transition,
};
use crate::rounds::RoundRequest;
use crate::terms::Ahead;

/// The result of one batch of events. The shell commits `changes` in one transaction guarded by the term, then
/// sends `replies` and `commands`; a crash between the two loses nothing, since the next reconcile sends them again.
#[must_use]
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// 1. Committed together or not at all. At most one per subject: later states replace earlier ones.
    pub changes: Vec<Change>,
    /// 2. Sent only after the commit.
    pub replies: Vec<(RequestId, Reply)>,
    /// 2. Sent only after the commit.
    pub commands: Vec<(NodeId, AgentCommand)>,
    /// 2. Sessions to end, with the reason their agent is told; sent only after the commit.
    pub refused: Vec<(NodeId, SessionId, String)>,
    /// 3. Made into an input and solved off the loop; comes back as one of the events `Plan…`.
    pub plan_request: Option<Arc<RoundRequest>>,
    /// 4. The only timer.
    pub wake_at: Option<Timestamp>,
    /// Lossy: for the batched observation writer and the live stream.
    pub observations: Vec<Observation>,
}

/// A fact, as a whole row: writing it twice changes nothing.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    Job(Arc<Job>),
    Node(Arc<Node>),
    /// The node was deleted.
    NodeGone(NodeId),
    Allocation(Arc<Allocation>),
    Checkpoint(Arc<Checkpoint>),
    Plan(Arc<PlanRecord>),
    /// The plan that reconcile steers towards.
    Target(PlanId),
    Policy(PolicySettings),
    /// The store takes this term for the newest: whoever leads begins another, above it.
    Term(Term),
    /// Nodes are waited for no longer after a restore.
    Returned,
    Project(Arc<Project>),
    Array(Arc<Array>),
    /// The project was deleted.
    ProjectGone(String),
    Reservation(Arc<Reservation>),
    /// The reservation was cancelled or is over.
    ReservationGone(ReservationId),
    Idempotency(IdempotencyRecord),
    Event(EventRecord),
    /// A request that was done.
    Deed(Box<Deed>),
    Transition(Transition),
    /// What came of an expectation.
    Realised(Box<Realised>),
    /// To be told to a webhook, by whoever leads.
    Notice(Box<Notice>),
    /// It will not be tried again.
    NoticeGivenUp {
        notice: NoticeId,
        at: Timestamp,
    },
}

/// Seen, not decided; may be lost at a crash.
#[derive(Clone, Debug, PartialEq)]
pub enum Observation {
    /// One report with the estimates after it.
    Steps {
        at: Timestamp,
        report: Box<StepReport>,
        /// GNS φ in tokens after this report, once known.
        noise_scale: Option<f64>,
        /// Statistical efficiency at the report's batch.
        efficiency: Option<f64>,
        gpus: u32,
    },
    /// What has been learnt about a job (noise scale, step-time correction), to survive a restart of the scheduler.
    Model { job: JobId, model: Arc<JobModel> },
    /// What measured jobs teach jobs of the same shape, all of it, to survive a restart of the scheduler and the jobs.
    Lessons { lessons: Arc<Lessons> },
}

/// The answer to one request.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// In the order of the request.
    Submitted {
        jobs: Vec<Arc<Job>>,
    },
    /// The idempotency key was known and nothing was stored: these are the jobs it made, which may have ended.
    Replayed {
        jobs: Vec<JobId>,
    },
    /// Likewise of another request: the id of what it made or acted on.
    Repeated {
        subjects: Vec<Uuid>,
    },
    Job(Arc<Job>),
    Array(ArrayDone),
    Node(Arc<Node>),
    NodeDeleted(NodeDeleted),
    /// A round was requested; its plan will appear under this id as a proposal.
    Rebalance(PlanId),
    Plan(Arc<PlanRecord>),
    Policy(Box<PolicySettings>),
    Project(Arc<Project>),
    Reservation(Arc<Reservation>),
    Readmitted(Readmission),
    /// What the request would have been answered; its subject as it would be.
    DryRun(Box<Reply>),
    Refused(Refusal),
}

/// Nodes that are to follow this scheduler again.
#[derive(Clone, Debug, PartialEq)]
pub struct Readmission {
    /// The least that the next term will be.
    pub term: Term,
    pub nodes: BTreeMap<NodeId, Ahead>,
}

/// An array, and those of its elements with which something was done.
#[derive(Clone, Debug, PartialEq)]
pub struct ArrayDone {
    pub array: Arc<Array>,
    pub touched: Vec<JobId>,
}

/// A node that is no more, and what named it.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeDeleted {
    /// As it was.
    pub node: Arc<Node>,
    /// Reservations that go on without it, by name.
    pub reservations: Vec<String>,
    /// Those of which it was the last node.
    pub cancelled: Vec<String>,
    /// Rows of the policy that still name it, by name.
    pub rows: Vec<String>,
}

/// Why a request was not done. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("no job {0}")]
    NoSuchJob(JobId),
    #[error("no array {0}")]
    NoSuchArray(ArrayId),
    #[error("no node {0}")]
    NoSuchNode(NodeId),
    #[error("no plan {0}")]
    NoSuchPlan(PlanId),
    #[error("no project {0}")]
    NoSuchProject(String),
    #[error("no reservation {0}")]
    NoSuchReservation(ReservationId),
    #[error("{what} is at version {now} now")]
    VersionChanged { what: String, now: u64 },
    #[error("idempotency key {key} was used with another request body")]
    KeyReused { key: String },
    /// The subject's state does not allow it ("train has ended: it has succeeded").
    #[error("{0}")]
    WrongState(String),
    #[error("plan {plan} was made from another target; the target is now {target:?}")]
    StalePlan { plan: PlanId, target: Option<PlanId> },
    #[error("{0}")]
    OverQuota(OverQuota),
    #[error("{0}")]
    Invalid(String),
}
