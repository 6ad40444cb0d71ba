//! Goodput of the cluster now, job by job.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use super::cluster::Baseline;

/// `GET /goodput`: what is measured, and what a static split is predicted to give.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Goodput {
    pub at: DateTime<Utc>,
    /// Σ over running jobs, reference tokens per second.
    pub goodput_tokens_per_second: f64,
    /// Σ over running jobs, raw tokens per second.
    pub throughput_tokens_per_second: f64,
    /// Σ of the running jobs' speed-up over their fair share.
    pub speed_up_sum: f64,
    /// One baseline per job that has a model.
    pub items: Vec<Baseline>,
    /// Jobs that hold GPUs.
    pub jobs: Vec<JobGoodput>,
}

/// What one job makes of its GPUs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct JobGoodput {
    pub job_id: Uuid,
    pub job_name: String,
    pub gpus: u32,
    pub throughput_tokens_per_second: Option<f64>,
    pub efficiency: Option<f64>,
    /// Measured.
    pub goodput_tokens_per_second: Option<f64>,
    /// Of the goodput what the theory credits to a batch below the reference; unconfirmed.
    #[serde(default)]
    pub credit_tokens_per_second: Option<f64>,
    /// What the plan expected.
    pub predicted_goodput_tokens_per_second: Option<f64>,
    /// Goodput over that of the job's fair share, scaled by what was measured.
    pub speed_up: Option<f64>,
}
