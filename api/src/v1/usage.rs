//! What GPU-time went into, for whom and why.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// GPU-time within a span of time. The rows add up to the total, which is all the time that GPUs were granted to jobs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Usage {
    pub from: DateTime<Utc>,
    pub to: DateTime<Utc>,
    /// What rows are told apart by.
    pub group_by: Vec<String>,
    /// The most GPU-time first.
    pub items: Vec<UsageRow>,
    pub total_gpu_hours: f64,
    /// How long steps are, where they were asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step_seconds: Option<f64>,
    /// The same of each step. Those in which nothing was held and nothing was counted are absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steps: Option<Vec<UsageStep>>,
}

/// GPU-time within one step. Steps begin at whole multiples of their length; of the first and the last only what lies within the span counts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct UsageStep {
    /// Beginning of the step.
    pub at: DateTime<Utc>,
    /// The most GPU-time first; `jobs` are those with a part in this step.
    pub items: Vec<UsageRow>,
    /// Time of healthy GPUs, whoever may know of what held them: what of it is in no row was idle, or hidden. By samples of each minute; `null`: there are none.
    #[serde(default)]
    pub healthy_gpu_hours: Option<f64>,
}

/// One group; what is not grouped by is absent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct UsageRow {
    /// Owner of the jobs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_type: Option<String>,
    /// `useful` (steps that counted), `starting` (from the grant to the first step), `saving` (from the decision to stop until the GPUs were
    /// free), `rework` (steps that nothing had saved), `displaced` (both of the latter where GPUs went to others) or `idle` (its processes hung).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    /// Owner of the job that took most of the GPUs; `-` where nobody did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub displaced_by: Option<String>,
    pub gpu_hours: f64,
    /// Jobs that have a part in it.
    pub jobs: u64,
}
