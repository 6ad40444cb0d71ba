//! What happened: allocations, checkpoints, measurements and the event log.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use super::job::Configuration;

/// What a job holds or held under one generation, why, and what came of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AllocationRecord {
    pub job_id: Uuid,
    pub generation: u64,
    pub plan_id: Option<Uuid>,
    pub gpus: u32,
    /// In rank order.
    pub slices: Vec<SliceRecord>,
    pub configuration: Option<Configuration>,
    /// Live changes within the generation.
    pub revision: u64,
    /// Step of the checkpoint it began from.
    pub resumed_from_step: Option<u64>,
    /// Why it was made, in words.
    pub cause: String,
    pub predicted_goodput_tokens_per_second: f64,
    pub granted_at: DateTime<Utc>,
    /// First step report of this generation.
    pub training_at: Option<DateTime<Utc>>,
    pub ended_at: Option<DateTime<Utc>>,
}

/// GPUs on one node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SliceRecord {
    pub node_id: Uuid,
    pub node_name: Option<String>,
    pub gpu_uuids: Vec<String>,
    /// When and how the node proved these GPUs free.
    pub released_at: Option<DateTime<Utc>>,
    pub release_proof: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AllocationList {
    pub items: Vec<AllocationRecord>,
}

/// A committed checkpoint.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Checkpoint {
    pub generation: u64,
    pub step: u64,
    pub samples_seen: u64,
    /// Reference tokens reached.
    pub progress_tokens: f64,
    pub path: String,
    pub manifest_sha256: String,
    pub duration_seconds: f64,
    pub committed_at: DateTime<Utc>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct CheckpointList {
    pub items: Vec<Checkpoint>,
}

/// Measurements of one moment, or of several merged.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SeriesPoint {
    pub at: DateTime<Utc>,
    pub generation: u64,
    pub step: u64,
    pub samples_seen: u64,
    pub throughput_tokens_per_second: f64,
    pub goodput_tokens_per_second: Option<f64>,
    /// Statistical efficiency at the batch then in use.
    pub efficiency: Option<f64>,
    pub noise_scale_tokens: Option<f64>,
    pub global_batch_sequences: u64,
    pub gpus: u32,
    pub step_time_seconds: f64,
    pub loss: Option<f64>,
    pub configuration: Configuration,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Series {
    /// Oldest first. A gap is a gap: nothing was measured.
    pub points: Vec<SeriesPoint>,
}

/// One line of the event log: who did what to what, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EventRecord {
    pub seq: u64,
    pub at: DateTime<Utc>,
    /// `user:<name>`, `scheduler` or `node:<id>`.
    pub actor: String,
    /// "job.submitted", "job.batch_changed", "plan.adopted", …
    pub verb: String,
    pub job_id: Option<Uuid>,
    /// What the job is called; `null`: it is not known any more.
    #[serde(default)]
    pub job_name: Option<String>,
    pub node_id: Option<Uuid>,
    /// What the node is called, or was when it was deleted.
    #[serde(default)]
    pub node_name: Option<String>,
    pub plan_id: Option<Uuid>,
    /// One sentence for people, with the reason.
    pub message: String,
    /// Numbers behind the sentence.
    #[serde(default)]
    pub detail: BTreeMap<String, String>,
}

/// What led to an event and what came of it, oldest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EventChain {
    pub items: Vec<EventLink>,
}

/// An event of a chain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EventLink {
    pub event: EventRecord,
    /// `seq` of the event before it that it follows from; `null` where the chain begins.
    pub because_of: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EventList {
    pub items: Vec<EventRecord>,
    pub next_cursor: Option<String>,
}
