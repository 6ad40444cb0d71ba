//! REST v1: the types of bodies and replies below `/api/v1`.
//!
//! Plain wire types, additive only: nothing is renamed or removed, and readers ignore what they do not know. Units
//! stand in field names, times are RFC 3339 in UTC, an absent value is `null`. Documents are not domain types: they
//! are converted explicitly. Only words (states, policies, ways to execute a layout) are the vocabulary's own.

mod access;
mod actions;
mod array;
mod audit;
mod cluster;
mod delivery;
mod dependency;
mod efficiency;
mod enrolment;
mod exec;
mod goodput;
mod history;
mod job;
mod login;
mod node;
mod node_insight;
mod overview;
mod past;
mod plan;
mod problem;
mod project;
mod queue;
mod quota;
mod rebalancing;
mod reservation;
mod secret;
mod server;
mod simulation;
mod site;
mod space;
mod stream;
mod submission;
mod timeline;
mod topology;
mod usage;
mod vocabulary;

pub use headway_types::{
    AvailabilityKind, Execution, JobStateKind, NodePolicyKind, Objective, PlanStateKind, PolicyMode, ProjectRole,
    Recompute, Schedule, Sharding, Solver, StandingKind, TokenScope,
};

pub use access::{
    BrowserSession, BrowserSessionList, CreatedToken, Token, TokenList, TokenRequest, User, UserList, UserRequest,
};
pub use actions::{CancelRequest, ElasticPatch, JobPatch, ReasonRequest, ResizeRequest};
pub use array::{Array, ArrayDetail, ArrayDone, ArrayList, ArrayPatch, JobArray};
pub use audit::{AuditBroken, AuditHead, AuditLine, AuditList, AuditVerification, SealedAuditLine};
pub(crate) use cluster::given;
pub use cluster::{AutoApprove, Baseline, Overview, PlanningTrouble, Policy, PowerCap, Version};
pub use delivery::{Delivery, DeliveryList, DeliveryTest, TestedWebhook};
pub use dependency::{Dependency, Dependent};
pub use efficiency::{EfficiencyAdvice, EfficiencyReport};
pub use enrolment::{
    CreatedJoinToken, JoinToken, JoinTokenList, JoinTokenRequest, NodeAuthority, NodeAuthorityList,
    NodeAuthorityRequest, NodeCertificate, NodeCertificateList,
};
pub use exec::{ExecBroken, ExecCommand, ExecEnded, ExecLine, ExecStarted};
pub use goodput::{
    Calibration, Goodput, GoodputCalibration, GoodputHistory, GoodputLine, GoodputPoint, JobGoodput, StartCalibration,
};
pub use history::{
    AllocationList, AllocationRecord, Checkpoint, CheckpointList, EventChain, EventLink, EventList, EventRecord,
    Series, SeriesPoint, SliceRecord,
};
pub use job::{
    CheckpointSummary, Configuration, Curve, CurvePoint, Displacement, Displacer, Fallback, GpuTime, Job, JobDetail,
    JobList, JobTotals, LastChange, LastFailure, Layout, NoiseReports, Pin, RunnerUp, Unreachable, Waiting,
};
pub use login::{
    CodeLoginRequest, DeviceLogin, DeviceLoginReply, DeviceLoginRequest, Identity, IdentityRequest, LoginProvider,
    RoleSource,
};
pub use node::{
    DeletedNode, DrainRequest, Gpu, Node, NodeGone, NodeHardware, NodeList, NodePatch, Readmission, ReadmittedNode,
};
pub use node_insight::{GpuDetail, GpuFault, NodeGpus, NodeHealth, NodeIncident, NodeState};
pub use overview::{AttentionItem, ClusterPoint, ClusterSeries, PlannerHealth, QueueWaits};
pub use past::{HeldGpus, PastJob, PastJobList, PastNode, PastNodeList, PastOverview};
pub use plan::{
    Alternative, Assignment, Explanation, FunnelStage, LeftOut, Limit, Move, NodeLeftOut, Plan, PlanList, PlanSummary,
    PredictedStart, Prediction, Price, Reason, Relaxed, SolvedBy, StoredRound, Unmoved, Verdict,
};
pub use problem::Problem;
pub use project::{
    Member, MemberList, MemberRequest, Project, ProjectList, ProjectPatch, ProjectRequest, ProjectRules,
};
pub use queue::{GpuRoom, Queue, QueueChoices, QueueShare, QueueTotals, QueuedJob};
pub use quota::{UserLoad, UserQuota};
pub use rebalancing::{
    ApproveRequest, MoveOutcome, PastPlan, PlanChange, PlanDiff, PlanHistory, PlanScope, PlanTerms, RebalanceRequest,
};
pub use reservation::{
    DepartingJob, NodeReservation, Reservation, ReservationCost, ReservationList, ReservationRequest,
};
pub use secret::{Secret, SecretList, SecretRequest, SecretScope};
pub use server::{Leadership, Server, Standby};
pub use simulation::{
    Counterfactual, DrainEffect, DrainedJob, ForcedJob, Foreseen, Shift, Simulation, SimulationRequest, SupposedChange,
};
pub use site::{Amount, JobLabel, SiteRow};
pub use space::{Space, TableSpace};
pub use stream::{NotLeading, StreamMessage};
pub use submission::{
    JobSpecification, JobSubmission, JobValidation, QuotaVerdict, SubmissionNote, Submitted, Validation,
};
pub use timeline::{Timeline, TimelineBar, TimelineHeld, TimelineLane, TimelinePlan, TimelinePrediction};
pub use topology::{GpuColumns, GpusJob, GpusNode, Topology, TopologyDomain, TopologyGpu, TopologyNode};
pub use usage::{Usage, UsageRow, UsageStep};
