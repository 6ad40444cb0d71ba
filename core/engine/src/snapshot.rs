//! What a new leader loads before its first event: all facts that are still alive.

use std::collections::BTreeMap;

use headway_goodput::{JobModel, Lessons};
use headway_types::{JobId, Timestamp};

use crate::record::{
    Allocation, Array, IdempotencyRecord, Job, Node, PlanRecord, PolicySettings, Project, Reservation,
};

/// The store's content as far as the engine needs it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Snapshot {
    /// Live jobs, and ended ones whose GPUs are not all proven free.
    pub jobs: Vec<Job>,
    pub nodes: Vec<Node>,
    /// All that are not fully released, and the newest of every live job.
    pub allocations: Vec<Allocation>,
    /// The adopted plan.
    pub target: Option<PlanRecord>,
    pub proposals: Vec<PlanRecord>,
    /// Not older than `EngineConfig::idempotency_kept`.
    pub idempotency: Vec<IdempotencyRecord>,
    pub policy: PolicySettings,
    pub projects: Vec<Project>,
    /// Those that are not over.
    pub reservations: Vec<Reservation>,
    /// Of which a job is among those above.
    pub arrays: Vec<Array>,
    /// Newest saved model per live job, where there is one.
    pub models: BTreeMap<JobId, JobModel>,
    /// What measured jobs, ended ones included, have taught jobs of the same shape.
    pub lessons: Lessons,
    pub last_event_seq: u64,
    /// Of when the store is a backup, while not all nodes have come back since it was restored.
    pub restored: Option<Timestamp>,
}
