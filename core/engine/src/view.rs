//! What readers see: a consistent snapshot of the live cluster, published by the shell after each commit.

use std::collections::BTreeMap;
use std::sync::Arc;

use headway_goodput::JobModel;
use headway_types::{
    Generation, GpuUuid, JobId, JobVerdict, NodeId, PlanId, Seconds, Sequences, Term, Timestamp, Tokens,
    TokensPerSecond,
};

use crate::record::{Allocation, Job, Node, PlanRecord, PolicySettings};

/// Live jobs only; ended ones are read from the store.
#[derive(Clone, Debug, PartialEq)]
pub struct View {
    pub at: Timestamp,
    pub term: Term,
    pub jobs: BTreeMap<JobId, JobView>,
    pub nodes: BTreeMap<NodeId, NodeView>,
    /// The adopted plan.
    pub target: Option<Arc<PlanRecord>>,
    /// Plans that wait for approval.
    pub proposals: BTreeMap<PlanId, Arc<PlanRecord>>,
    pub policy: PolicySettings,
}

/// A live job with its newest numbers.
#[derive(Clone, Debug, PartialEq)]
pub struct JobView {
    pub job: Arc<Job>,
    /// Of the newest generation, while it holds GPUs.
    pub allocation: Option<Arc<Allocation>>,
    /// From the newest plan made, adopted or not.
    pub verdict: Option<JobVerdict>,
    pub model: Option<Arc<JobModel>>,
    pub live: LiveNumbers,
}

/// Newest measurements; `None` where nothing has been measured yet.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LiveNumbers {
    pub reported_at: Option<Timestamp>,
    pub step: u64,
    pub samples_seen: Sequences,
    pub loss: Option<f64>,
    /// Raw tokens per second, smoothed.
    pub throughput: Option<TokensPerSecond>,
    pub efficiency: Option<f64>,
    pub goodput: Option<TokensPerSecond>,
    /// GNS φ in tokens.
    pub noise_scale: Option<f64>,
    /// Relative standard error of φ.
    pub noise_error: Option<f64>,
    /// Reference tokens, including those since the last checkpoint.
    pub progress: Tokens,
    /// Until the target at the present goodput.
    pub remaining: Option<Seconds>,
}

/// A node and who holds its GPUs.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeView {
    pub node: Arc<Node>,
    pub heard_at: Option<Timestamp>,
    pub held: BTreeMap<GpuUuid, (JobId, Generation)>,
}
