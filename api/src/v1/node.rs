//! Nodes and their GPUs.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use headway_types::{AvailabilityKind, NodePolicyKind, StandingKind};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use super::reservation::NodeReservation;

/// A machine with GPUs and an agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Node {
    pub id: Uuid,
    pub name: String,
    pub gpu_type: String,
    pub gpus: Vec<Gpu>,
    /// What one of its GPUs can do, as the goodput model counts; `null`: nobody says (only jobs with a curve of their own run there),
    /// or devices are emulated.
    #[serde(default)]
    pub hardware: Option<NodeHardware>,
    /// Devices that keep time instead of computing fast.
    pub emulated: bool,
    pub fabric_domain: String,
    pub cpus: u32,
    pub memory_bytes: u64,
    /// Of `/dev/shm`; `null`: its agent does not say.
    #[serde(default)]
    pub shm_bytes: Option<u64>,
    /// Of the disk of its own; `null`: its agent does not say.
    #[serde(default)]
    pub local_disk_bytes: Option<u64>,
    pub address: String,
    /// Whether a device filter keeps jobs from GPUs that they were not granted.
    pub isolated: bool,
    /// Why there is none; `null` where there is one, or its agent does not say.
    #[serde(default)]
    #[schema(required = true)]
    pub not_isolated_reason: Option<String>,
    /// The one Unix user that all jobs run as there; `null`: each job runs as its owner, workers are emulated, or its agent does not say.
    #[serde(default)]
    pub runs_as: Option<String>,
    /// Whether jobs of any owner run there. `false`: only those of the owner called like `runs_as`.
    #[serde(default)]
    pub takes_all_owners: bool,
    pub agent_version: String,
    /// What users want: `schedulable`, `cordoned` or `draining`.
    #[schema(value_type = String)]
    pub policy: NodePolicyKind,
    pub policy_by: Option<String>,
    pub policy_reason: Option<String>,
    pub policy_since: Option<DateTime<Utc>>,
    /// Until then jobs that have nowhere else to go may stay on a node that is drained.
    #[serde(default)]
    pub drain_deadline: Option<DateTime<Utc>>,
    /// 1: nothing is held against the node; incidents lower it, time heals it.
    #[serde(default)]
    #[schema(required = true)]
    pub health_score: f64,
    /// What the scheduler has come to think of it: `good`, `quarantined` (nothing new starts) or `probation`.
    #[serde(default)]
    #[schema(required = true, value_type = String)]
    pub standing: StandingKind,
    #[serde(default)]
    pub standing_reason: Option<String>,
    #[serde(default)]
    pub standing_until: Option<DateTime<Utc>>,
    /// What the node says ails it, so that nothing new starts there: a full disk, no memory left.
    #[serde(default)]
    #[schema(required = true)]
    pub conditions: Vec<String>,
    /// What else a person should know of it: GPUs slowed down by heat, workers without bounds on memory.
    #[serde(default)]
    #[schema(required = true)]
    pub remarks: Vec<String>,
    /// Why its agent says that the node goes away soon, so that jobs leave it; `null`: it stays.
    #[serde(default)]
    pub leaving_reason: Option<String>,
    /// What is seen: `registering`, `available`, `unreachable` or `lost`.
    #[schema(value_type = String)]
    pub availability: AvailabilityKind,
    /// Whether its agent has a session now. A node without one stays `available` until its lease is over.
    #[serde(default)]
    #[schema(required = true)]
    pub connected: bool,
    pub availability_since: Option<DateTime<Utc>>,
    /// What jobs may choose it by: its agent's word, and over it that of operators.
    #[serde(default)]
    #[schema(required = true)]
    pub labels: BTreeMap<String, String>,
    /// Of these, what its agent says.
    #[serde(default)]
    #[schema(required = true)]
    pub declared_labels: BTreeMap<String, String>,
    /// Reservations of the node that are not over, the next one first.
    #[serde(default)]
    #[schema(required = true)]
    pub reservations: Vec<NodeReservation>,
    pub registered_at: DateTime<Utc>,
    /// Rises with every stored change.
    pub version: u64,
}

/// What one GPU of a node can do. Rates per direction.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct NodeHardware {
    /// Whose word it is: `built_in` (the built-in catalog), `stated` (a file of the scheduler's or the agent's) or `measured` (such a
    /// file, from a probe).
    pub source: String,
    /// Half-precision, dense.
    pub peak_flop_per_second: f64,
    /// Best matrix multiplication in half precision.
    pub matmul_flop_per_second: f64,
    pub memory_bytes: f64,
    pub memory_bytes_per_second: f64,
    /// Between GPUs of the node.
    pub link_bytes_per_second: f64,
    /// To other nodes, per GPU.
    pub network_bytes_per_second: f64,
}

/// What is to change of a node; what is absent stays.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NodePatch {
    /// Labels to set; `null` takes one away, also one that its agent declares.
    pub labels: BTreeMap<String, Option<String>>,
}

/// How a node is to be emptied.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DrainRequest {
    #[serde(default)]
    pub reason: Option<String>,
    /// Until then a job that has nowhere else to go may stay; without one, every job leaves at once.
    #[serde(default)]
    pub deadline: Option<DateTime<Utc>>,
    /// The same as a time from now by the scheduler's clock; instead of `deadline`.
    #[serde(default)]
    pub within_seconds: Option<f64>,
}

/// One GPU (or emulated slot).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Gpu {
    pub uuid: String,
    pub index: u32,
    pub memory_bytes: u64,
    pub healthy: bool,
    /// Why it must not be granted.
    pub broken_cause: Option<String>,
    /// Who holds it.
    pub job_id: Option<Uuid>,
    pub job_name: Option<String>,
    pub generation: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct NodeList {
    pub items: Vec<Node>,
}

/// A node that was deleted, and what named it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DeletedNode {
    pub id: Uuid,
    pub name: String,
    /// Reservations that go on without it.
    pub reservations: Vec<String>,
    /// Reservations that are cancelled, since it was their last node.
    pub reservations_cancelled: Vec<String>,
    /// Rows of the policy that still name it; they bind nothing until a node of that name or id is there again.
    pub policy_rows: Vec<String>,
}

/// Nodes that follow this scheduler again though they had followed a newer term.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Readmission {
    /// The next term is this one or above.
    pub term: u64,
    pub nodes: Vec<ReadmittedNode>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReadmittedNode {
    pub id: Uuid,
    pub name: String,
    /// The term that it followed.
    pub term: u64,
}

/// A node that is no more, on the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeGone {
    pub id: Uuid,
}
