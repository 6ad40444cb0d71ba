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
    /// One baseline per job that has a model; none with a history.
    pub items: Vec<Baseline>,
    /// Jobs that hold GPUs.
    pub jobs: Vec<JobGoodput>,
    /// Where it was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub history: Option<GoodputHistory>,
}

/// Goodput over time, in steps that begin at whole multiples of their length. What has no samples has no point.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct GoodputHistory {
    pub from: DateTime<Utc>,
    pub to: DateTime<Utc>,
    pub step_seconds: f64,
    /// `cluster`, `project` or `job`.
    pub group: String,
    /// The most goodput first.
    pub series: Vec<GoodputLine>,
    /// Projects beyond those told.
    pub left_out: u32,
}

/// Of the cluster, a project or a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct GoodputLine {
    /// Its own jobs, not those of projects that are part of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_id: Option<Uuid>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_name: Option<String>,
    pub points: Vec<GoodputPoint>,
}

/// Means over one step. Of the cluster and of projects they are means of samples by the minute of what running jobs make; of a job, what it made within the step
/// over the step's length, standstill included.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct GoodputPoint {
    /// Beginning of the step.
    pub at: DateTime<Utc>,
    /// Reference tokens per second.
    pub goodput_tokens_per_second: f64,
    /// Raw tokens per second; `null`: not kept.
    pub throughput_tokens_per_second: Option<f64>,
    /// Goodput over throughput: statistical efficiency per token.
    pub efficiency: Option<f64>,
    /// What the jobs of each minute were predicted to make on a static split of its nodes: an equal share each at the reference batch, never a change. Predicted, not
    /// measured; `null`: not worked out (of jobs, where more than 200 wanted GPUs, or where that failed).
    pub baseline_tokens_per_second: Option<f64>,
    /// What they were predicted to make in the order of submission with backfill, each at the size it asks for (the largest it accepts) and its reference batch. `null`
    /// as of the static split, and of what earlier releases kept.
    pub first_come_tokens_per_second: Option<f64>,
    /// What they were predicted to make by our own planner for throughput: it tunes sizes and layouts, and leaves each batch at the reference. `null` likewise.
    pub throughput_only_tokens_per_second: Option<f64>,
}

/// `GET /goodput/calibration`: how predictions turned out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Calibration {
    pub from: DateTime<Utc>,
    pub to: DateTime<Utc>,
    /// Of expectations that were over within the span, and of those that jobs run under where it ends now: first all, then by model family, then by GPU type.
    pub goodput: Vec<GoodputCalibration>,
    /// Of predictions made within the span, the first of each wait; likewise.
    pub starts: Vec<StartCalibration>,
    /// Whether there was more than is read at once, so that the oldest are missing.
    pub left_out: bool,
}

/// Expected goodput against what came: one expectation per grant, and per change of batch or layout in place.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct GoodputCalibration {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_type: Option<String>,
    /// `under_1b`, `1b_to_10b`, `10b_to_100b`, `over_100b` (decoders by parameters), `curve` (its user gave its throughput).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model_family: Option<String>,
    /// How many were measured for a minute or more.
    pub predictions: u64,
    /// Of them with a band.
    pub with_band: u64,
    /// Share of those that came between the first and the last decile; 0.8 is as it should be.
    pub coverage: Option<f64>,
    /// Median of how far goodput was from what was predicted, in percent of the latter.
    pub median_error_pct: Option<f64>,
    /// The same with its sign: above 0 more came than was predicted.
    pub median_bias_pct: Option<f64>,
    /// Measured for less than a minute, and not counted.
    pub too_short: u64,
}

/// Predicted starts against those that came.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct StartCalibration {
    /// What the job got; `unknown` of those that have got nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_type: Option<String>,
    /// As of goodput, and `opaque`: nothing is known of the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model_family: Option<String>,
    /// How many came true or are late.
    pub predictions: u64,
    /// Share of them that started between the first and the last decile.
    pub coverage: Option<f64>,
    /// Median of how far starts were from the median that was predicted. A late start that has not come counts with the error
    /// that it has at least.
    pub median_error_seconds: Option<f64>,
    /// The same with its sign: above 0 they came later.
    pub median_bias_seconds: Option<f64>,
    /// Misses whose start has not come: still waiting after the last decile, or ended without a start after it.
    pub late: u64,
    /// Still waiting within what was predicted: not counted.
    pub open: u64,
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
