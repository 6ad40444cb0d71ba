//! Where GPUs are: fabric domains, their nodes, their GPUs.

use chrono::{DateTime, Utc};
use headway_types::{AvailabilityKind, NodePolicyKind, StandingKind};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use super::reservation::NodeReservation;

/// `GET /topology`. Of the network nodes have the name of their fabric domain, so there is one level above them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Topology {
    pub at: DateTime<Utc>,
    /// By name.
    pub domains: Vec<TopologyDomain>,
}

/// Nodes that talk to each other at full bandwidth.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TopologyDomain {
    pub name: String,
    pub nodes_total: u32,
    pub nodes_available: u32,
    pub gpus_total: u32,
    pub gpus_healthy: u32,
    /// Held by jobs.
    pub gpus_busy: u32,
    /// Jobs could start on them now, whoever's they are.
    pub gpus_free: u32,
    /// Free, but their nodes are reserved: only members start there.
    #[serde(default)]
    #[schema(required = true)]
    pub gpus_reserved: u32,
    /// The most of the free ones that one node has.
    pub gpus_free_on_one_node: u32,
    /// By name.
    pub nodes: Vec<TopologyNode>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TopologyNode {
    pub id: Uuid,
    pub name: String,
    pub gpu_type: String,
    #[schema(value_type = String)]
    pub availability: AvailabilityKind,
    #[schema(value_type = String)]
    pub policy: NodePolicyKind,
    #[schema(value_type = String)]
    pub standing: StandingKind,
    /// The reservation that closes the node now to jobs that are no members.
    #[serde(default)]
    pub reservation: Option<NodeReservation>,
    /// In the order of their indices.
    pub gpus: Vec<TopologyGpu>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TopologyGpu {
    pub uuid: String,
    pub index: u32,
    /// `training`, `starting`, `stopping`, `idle_no_demand`, `idle_waiting`, `reserved`, `withheld`, `unreachable` or `broken`, as `gpus_by_activity` of the overview.
    pub activity: String,
    /// Who holds it.
    pub job_id: Option<Uuid>,
    pub job_name: Option<String>,
}

/// `GET /gpus`: columns of one length, a row of which is one GPU.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct GpuColumns {
    pub at: DateTime<Utc>,
    /// By name.
    pub nodes: Vec<GpusNode>,
    /// Those that hold GPUs.
    pub jobs: Vec<GpusJob>,
    /// Words of what GPUs do, as in `/topology`.
    pub activities: Vec<String>,
    /// Places in `nodes`.
    pub node: Vec<u32>,
    /// On its node.
    pub index: Vec<u32>,
    /// Places in `activities`.
    pub activity: Vec<u32>,
    /// Places in `jobs`; `null`: nobody holds it.
    pub job: Vec<Option<u32>>,
    pub healthy: Vec<bool>,
    /// Share of the time in which some kernel ran, when its node measured last; `null`: not measured.
    pub utilisation_pct: Vec<Option<f64>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GpusNode {
    pub id: Uuid,
    pub name: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GpusJob {
    /// `null`: all jobs that the reader may not know of.
    pub job_id: Option<Uuid>,
    pub job_name: String,
}
