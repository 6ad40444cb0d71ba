//! What is known of a past moment: the replies to `?at=`. They hold what was written down when it changed, and what never
//! changes; whatever else a present reply shows is absent, since today's value would be no answer.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use headway_types::{AvailabilityKind, JobStateKind, NodePolicyKind, StandingKind};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

/// A job as it was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PastJob {
    pub id: Uuid,
    pub name: String,
    pub project: String,
    pub owner: String,
    pub submitted_at: DateTime<Utc>,
    pub state: JobStateKind,
    pub state_since: DateTime<Utc>,
    /// Fencing number of its newest allocation then; 0 before the first.
    pub generation: u64,
    /// GPUs of that allocation that were not yet proven free.
    pub gpus: u32,
    /// Names of the nodes those were on, in rank order.
    pub nodes: Vec<String>,
}

/// Jobs that had been submitted and had not ended, newest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PastJobList {
    pub at: DateTime<Utc>,
    pub items: Vec<PastJob>,
    pub next_cursor: Option<String>,
}

/// A node as it was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PastNode {
    pub id: Uuid,
    pub name: String,
    pub availability: AvailabilityKind,
    pub policy: NodePolicyKind,
    pub standing: StandingKind,
    /// When the last of these, or of the two counts below, had changed.
    pub since: DateTime<Utc>,
    pub gpus: u32,
    pub gpus_healthy: u32,
    /// Who held GPUs of it.
    pub held: Vec<HeldGpus>,
}

/// What one allocation held on one node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HeldGpus {
    pub job_id: Uuid,
    pub job_name: String,
    pub generation: u64,
    /// Of the allocation: `preparing`, `launching`, `running`, `stopping` or `ended` (its processes are not proven gone).
    pub phase: String,
    pub gpu_uuids: Vec<String>,
}

/// Nodes that had registered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PastNodeList {
    pub at: DateTime<Utc>,
    pub items: Vec<PastNode>,
}

/// The cluster as it was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PastOverview {
    pub at: DateTime<Utc>,
    pub nodes_total: u32,
    pub nodes_available: u32,
    pub gpus_total: u32,
    pub gpus_healthy: u32,
    pub gpus_busy: u32,
    /// Number of jobs by state; states without jobs are absent.
    pub jobs_by_state: BTreeMap<String, u64>,
    /// The plan that was being carried out.
    pub plan_id: Option<Uuid>,
    /// Proposals that waited for approval.
    pub plans_waiting: Vec<Uuid>,
}
