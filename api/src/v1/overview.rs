//! What the overview tells besides the cluster's figures: what to look at, how planning goes, and how the figures came about.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use headway_types::PolicyMode;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

/// Something that a person should look at.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AttentionItem {
    /// `rounds_given_up`, `round_late`, `planning_paused`, `plan_waits_approval`, `node_lost`, `node_unreachable`, `node_quarantined`, `node_left_out`,
    /// `node_ailing`, `gpus_broken`, `certificate_refused`, `certificate_expires`, `audit_unsealed`, `job_set_aside`, `job_left_out`, `job_hangs`, `job_fails`, `job_never`, `job_starves`, `job_mispredicted`, `took_over`;
    /// `node_authority_ends`, `node_certificates_end`, `agent_tokens`.
    pub kind: String,
    /// `critical`: nobody is served as long as it lasts, or hardware is gone; `warning`: GPUs or jobs stand still until somebody acts; `notice`.
    pub severity: String,
    /// The node or job it is about, by name.
    pub name: Option<String>,
    pub job_id: Option<Uuid>,
    pub node_id: Option<Uuid>,
    pub plan_id: Option<Uuid>,
    pub since: Option<DateTime<Utc>>,
    /// GPU-hours that stood still, were lost or were waited for on its account so far; `null`: nobody can tell.
    pub gpu_hours: Option<f64>,
    /// One sentence for people.
    pub headline: String,
    /// What they can do about it.
    pub next_step: String,
}

/// How planning goes. What is counted is counted since the server started.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PlannerHealth {
    pub mode: PolicyMode,
    /// The newest plan made, adopted or not.
    pub newest_plan_id: Option<Uuid>,
    pub newest_plan_at: Option<DateTime<Utc>>,
    pub newest_plan_age_seconds: Option<f64>,
    /// The round under way has taken so long so far; wall time, as the two below.
    pub under_way_seconds: Option<f64>,
    /// Of the last rounds, at most 256.
    pub round_median_seconds: Option<f64>,
    pub round_p99_seconds: Option<f64>,
    /// How many rounds these are.
    pub rounds_measured: u32,
    /// Rounds that took too long or broke down.
    pub rounds_given_up: u64,
    pub last_given_up_at: Option<DateTime<Utc>>,
    /// What was said of it.
    pub last_given_up: Option<String>,
    /// Jobs that the newest round left as they are, since their goodput curves were not ready.
    pub curves_left_out: u32,
}

/// The cluster's figures over time, kept once a minute.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ClusterSeries {
    pub step_seconds: f64,
    /// Oldest first. A gap is a gap: nobody led, or nothing could be written.
    pub points: Vec<ClusterPoint>,
    /// Of all jobs that got GPUs for the first time within the window, where it was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits: Option<QueueWaits>,
}

/// How long jobs stood in the queue before their first GPUs: since they were submitted or released, or since those were over that they waited for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct QueueWaits {
    pub jobs: u64,
    /// `null` without any.
    pub p50_seconds: Option<f64>,
    pub p90_seconds: Option<f64>,
    pub p99_seconds: Option<f64>,
}

/// Means over one step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ClusterPoint {
    /// Beginning of the step.
    pub at: DateTime<Utc>,
    pub gpus_total: f64,
    pub gpus_healthy: f64,
    pub gpus_busy: f64,
    pub gpus_training: f64,
    pub jobs_waiting: f64,
    pub jobs_running: f64,
    /// GPUs that waiting jobs ask for at least.
    pub gpus_waited_for: f64,
    pub goodput_tokens_per_second: f64,
    /// Speed-up over a static fair share, per job that runs or waits: 1 is what an equal split would give; `null`: nobody wanted GPUs.
    pub goodput_relative: Option<f64>,
    /// Training GPUs over healthy ones; `null` without any.
    pub useful_share: Option<f64>,
    /// Useful model FLOP/s over the peak of all healthy GPUs; `null`: not known, or not kept then.
    #[serde(default)]
    pub goodput_mfu: Option<f64>,
    /// Every GPU once, by what it did, as in `gpus_by_activity` of the overview: idle ones by why; `null`: not kept then.
    #[serde(default)]
    pub gpus_by_activity: Option<BTreeMap<String, f64>>,
}
