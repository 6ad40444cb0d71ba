//! Rebalancing: what people ask of it, how far a plan's moves have come, and what became of past ones.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use super::job::Configuration;
use super::simulation::ForcedJob;

/// Body of `POST /plans/rebalance`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RebalanceRequest {
    /// Least gain for a move, percent; absent: the policy's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_gain_pct: Option<f64>,
    /// Most jobs that are moved; absent: the policy's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_moves: Option<u32>,
    /// Running jobs beyond it stay as they are.
    pub scope: PlanScope,
    /// Running jobs that stay as they are.
    pub exclude: Vec<Uuid>,
    /// What jobs must get in any case. Where that cannot be there is no proposal (409, `no_plan`, with the reason).
    pub force: Vec<ForcedJob>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Which running jobs a rebalancing may move: those of all that is named. What names nothing names everybody.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PlanScope {
    /// With all below them.
    pub projects: Vec<String>,
    /// On any of which they run.
    pub nodes: Vec<Uuid>,
    pub jobs: Vec<Uuid>,
}

/// What somebody asked of a plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PlanTerms {
    pub min_gain_pct: Option<f64>,
    pub max_moves: Option<u32>,
    pub scope: PlanScope,
    pub exclude: Vec<Uuid>,
    pub force: Vec<ForcedJob>,
    /// The plan whose moves it takes back.
    pub undoes: Option<Uuid>,
    pub reason: Option<String>,
}

/// Body of `POST /plans/{id}/approve`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ApproveRequest {
    /// The plan's `hash` as it was shown: only that plan is approved.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hash: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// How far a move has come, and what it turned out to cost and to bring. What is not known, or does not apply, is `null`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct MoveOutcome {
    /// `waiting`, `stopping`, `starting`, `done`, or `overtaken`: the job got something else first, or ended.
    pub state: String,
    /// From the stop to training again, less the time that it waited for GPUs.
    pub downtime_seconds: Option<f64>,
    /// Measured over the generation before.
    pub goodput_before_tokens_per_second: Option<f64>,
    /// Measured over the generation that the move led to.
    pub goodput_after_tokens_per_second: Option<f64>,
    /// How long the latter was measured.
    pub measured_seconds: Option<f64>,
}

/// Plans that were carried out, newest first, with what was expected of them and what came of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PlanHistory {
    pub items: Vec<PastPlan>,
    pub next_cursor: Option<String>,
}

/// A plan that was carried out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PastPlan {
    pub id: Uuid,
    pub adopted_at: DateTime<Utc>,
    pub adopted_by: Option<String>,
    /// Why the round ran, in words.
    pub trigger: String,
    /// The plan whose moves it took back.
    #[serde(default)]
    pub undoes: Option<Uuid>,
    /// Whether somebody forced an allocation on a job.
    #[serde(default)]
    pub forced: bool,
    /// Jobs that it started, and running jobs that it moved or stopped.
    pub starts: u32,
    pub moves: u32,
    /// Of these, that are done, under way, or were overtaken.
    pub done: u32,
    pub under_way: u32,
    pub overtaken: u32,
    /// Of moves that were measured before and after: what their goodput was to gain together, and what it gained, percent. Preempted jobs
    /// count as having none.
    pub predicted_gain_pct: Option<f64>,
    pub realised_gain_pct: Option<f64>,
    /// GPU-hours that moved jobs were to stand still, and stood still; of those whose downtime is known.
    pub predicted_lost_gpu_hours: f64,
    pub realised_lost_gpu_hours: f64,
}

/// What one plan gives otherwise than another.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PlanDiff {
    /// The plan it is compared with.
    pub from_id: Uuid,
    pub to_id: Uuid,
    pub from_objective: f64,
    pub to_objective: f64,
    pub changes: Vec<PlanChange>,
}

/// A job that has something else by the one plan than by the other.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PlanChange {
    pub job_id: Uuid,
    pub job_name: String,
    pub from_gpus: u32,
    pub to_gpus: u32,
    /// Names of nodes.
    pub from_nodes: Vec<String>,
    pub to_nodes: Vec<String>,
    pub from_configuration: Option<Configuration>,
    pub to_configuration: Option<Configuration>,
    pub from_goodput_tokens_per_second: f64,
    pub to_goodput_tokens_per_second: f64,
}
