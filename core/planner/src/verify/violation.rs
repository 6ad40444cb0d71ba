//! Why a plan must not be adopted, in words that say where to look.

use headway_types::{GpuCount, GpuType, GpuUuid, JobId, NodeCount, NodeId, PlanId};

use crate::check::PlanError;
use crate::sound::Why;

/// Why a plan must not be adopted.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Violation {
    #[error("the round itself cannot be planned")]
    Round(#[source] PlanError),
    #[error("job {job} cannot be planned with ({why}) and the plan does not name it among those left out")]
    Unnamed { job: JobId, why: Why },
    #[error("the plan is {plan}, the round was for {expected}")]
    WrongPlan { plan: PlanId, expected: PlanId },
    #[error("the plan was made from {parent:?}, the round from {expected:?}")]
    WrongParent { parent: Option<PlanId>, expected: Option<PlanId> },
    #[error("job {0} is not part of the round")]
    UnknownJob(JobId),
    #[error("job {job} is given node {node}, which is not part of the round")]
    UnknownNode { job: JobId, node: NodeId },
    #[error("job {job} is given GPU {gpu}, which is not usable on node {node}")]
    UnusableGpu { job: JobId, node: NodeId, gpu: GpuUuid },
    #[error("GPU {gpu} is granted to job {first} and to job {second}")]
    GrantedTwice { gpu: GpuUuid, first: JobId, second: JobId },
    #[error("job {job} is given GPUs on node {node}, which is draining")]
    Draining { job: JobId, node: NodeId },
    #[error("job {job} starts on node {node}, which it must avoid")]
    Avoided { job: JobId, node: NodeId },
    #[error("job {job} starts on node {node}, which is none of those it asks for")]
    NotAskedFor { job: JobId, node: NodeId },
    #[error("job {job} does not run on {gpus} GPUs")]
    Size { job: JobId, gpus: GpuCount },
    #[error("job {job} does not run on {gpu_type}")]
    Type { job: JobId, gpu_type: GpuType },
    #[error("job {job} is spread over nodes of different classes")]
    MixedClasses { job: JobId },
    #[error("job {job} is given more GPUs on one of its nodes than on another")]
    Uneven { job: JobId },
    #[error("job {job} needs all its nodes in one fabric domain and is given several")]
    MixedDomains { job: JobId },
    #[error("job {job} must keep its GPUs and layout in this round")]
    MovedFixed { job: JobId },
    #[error("job {job} starts on node {node}, which is reserved for {reservation} before it will have left")]
    Reserved { job: JobId, node: NodeId, reservation: String },
    #[error("job {job} stays on node {node} too long to have left when the reservation {reservation} begins")]
    Overstays { job: JobId, node: NodeId, reservation: String },
    #[error("job {job} has a configuration that does not fit its allocation: {reason}")]
    Configuration { job: JobId, reason: String },
    #[error("job {job} cannot change its layout")]
    LayoutChanged { job: JobId },
    #[error("job {job} cannot change its batch like that")]
    BatchChanged { job: JobId },
    #[error("job {job} changes its batch, which has changed as often as it may for now")]
    BatchBound { job: JobId },
    #[error("the goodput table of job {job} has no row {label:?} for {gpus} GPUs of {gpu_type} on {nodes} nodes")]
    NoRow { job: JobId, gpu_type: GpuType, gpus: GpuCount, nodes: NodeCount, label: Option<String> },
    #[error("job {job} starts on node {node}, whose {resource} ({has}) are less than all its jobs need ({needed})")]
    Host { job: JobId, node: NodeId, resource: &'static str, needed: u128, has: u64 },
    #[error("the round allows {allowed} moves and the plan makes {moves}")]
    TooManyMoves { moves: usize, allowed: u32 },
    #[error("{rule} is exceeded, {used} of {limit}, and the plan does not say so among what it relaxed")]
    Exceeded { rule: String, used: f64, limit: f64 },
    #[error("{rule} is exceeded, {used} of {limit}, and job {job} is given more of it all the same")]
    AddedTo { rule: String, used: f64, limit: f64, job: JobId },
    #[error(
        "{rule} is not met, {has} of {floor}, although job {job} asks for more and the plan does not say so among what it relaxed"
    )]
    BelowFloor { rule: String, has: u64, floor: GpuCount, job: JobId },
}
