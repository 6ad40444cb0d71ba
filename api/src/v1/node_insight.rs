//! One node looked at closely: its GPUs, and what is held against it.

use chrono::{DateTime, Utc};
use headway_types::{AvailabilityKind, NodePolicyKind, StandingKind};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use super::reservation::NodeReservation;

/// `GET /nodes/{node}/gpus`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct NodeGpus {
    pub at: DateTime<Utc>,
    pub node_id: Uuid,
    pub node_name: String,
    pub gpu_type: String,
    /// The reservation that closes the node now to jobs that are no members: its idle GPUs are `reserved`.
    #[serde(default)]
    pub reservation: Option<NodeReservation>,
    /// In the order of their indices.
    pub gpus: Vec<GpuDetail>,
}

/// One GPU, what it does and what has befallen it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct GpuDetail {
    pub uuid: String,
    pub index: u32,
    pub memory_bytes: u64,
    pub healthy: bool,
    /// Why it must not be granted.
    pub broken_cause: Option<String>,
    /// As in `gpus_by_activity` of the overview.
    pub activity: String,
    /// Who holds it.
    pub job_id: Option<Uuid>,
    pub job_name: Option<String>,
    pub generation: Option<u64>,
    /// When it last told what follows; `null`: its driver tells none of it, or its agent is not connected.
    pub measured_at: Option<DateTime<Utc>>,
    /// Share of the ten seconds before in which some kernel ran: not how much of the GPU did work.
    pub utilisation_pct: Option<f64>,
    pub temperature_celsius: Option<f64>,
    pub power_watts: Option<f64>,
    /// By whomever.
    pub memory_used_bytes: Option<u64>,
    /// When it broke and was well again, the newest first, as far as the log is kept: 20 at most.
    pub faults: Vec<GpuFault>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct GpuFault {
    pub at: DateTime<Utc>,
    /// Number of the event that tells of it.
    pub seq: u64,
    /// Whether it was well again.
    pub healed: bool,
    /// The driver's error number, where that was the cause.
    pub xid: Option<u64>,
    pub message: String,
}

/// `GET /nodes/{node}/health`: whether a node is in reach and trusted, why not, and how that has changed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct NodeHealth {
    pub at: DateTime<Utc>,
    pub node_id: Uuid,
    pub node_name: String,
    /// Whether jobs of everybody may start here now. `false` also where a reservation has begun: its members start here all the
    /// same, unless it is a maintenance.
    pub takes_work: bool,
    /// The reservation that closes the node now to jobs that are no members.
    #[serde(default)]
    pub reservation: Option<NodeReservation>,
    /// Each reason why not, in a sentence; none where it takes work.
    pub why_not: Vec<String>,
    #[schema(value_type = String)]
    pub availability: AvailabilityKind,
    pub availability_since: Option<DateTime<Utc>>,
    /// Whether its agent's session stands.
    pub connected: bool,
    /// When it was last heard of since this scheduler leads.
    pub heard_at: Option<DateTime<Utc>>,
    #[schema(value_type = String)]
    pub policy: NodePolicyKind,
    #[schema(value_type = String)]
    pub standing: StandingKind,
    /// 1: nothing is held against it; incidents lower it, time heals it.
    pub health_score: f64,
    pub standing_since: Option<DateTime<Utc>>,
    pub standing_until: Option<DateTime<Utc>>,
    pub standing_reason: Option<String>,
    /// Quarantines in a row, this one or the one before probation included; each lasts twice as long as the one before.
    pub quarantines_in_a_row: u32,
    /// What the node says ails it, so that nothing new starts there.
    pub conditions: Vec<String>,
    /// What else it says a person should know.
    pub remarks: Vec<String>,
    /// Why rounds do without it.
    pub left_out: Option<String>,
    pub gpus_total: u32,
    pub gpus_healthy: u32,
    /// States of the last 30 days, or as long as the history is kept: the newest first, 100 at most.
    pub history: Vec<NodeState>,
    /// Incidents and what became of them, the newest first, as far as the log is kept: 100 at most.
    pub incidents: Vec<NodeIncident>,
}

/// A node's state until the next.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct NodeState {
    pub since: DateTime<Utc>,
    #[schema(value_type = String)]
    pub availability: AvailabilityKind,
    #[schema(value_type = String)]
    pub policy: NodePolicyKind,
    #[schema(value_type = String)]
    pub standing: StandingKind,
    pub gpus: u32,
    pub gpus_healthy: u32,
}

/// Something that tells of a node's health.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct NodeIncident {
    pub at: DateTime<Utc>,
    /// Number of the event.
    pub seq: u64,
    /// `node.quarantined`, `gpu.broken`, `node.unreachable` and their like.
    pub verb: String,
    /// The driver's error number, where that was the cause.
    pub xid: Option<u64>,
    pub message: String,
}
