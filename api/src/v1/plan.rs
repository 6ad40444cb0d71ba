//! Plans and explanations.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use super::history::SliceRecord;
use super::job::Configuration;

/// A plan in one line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PlanSummary {
    pub id: Uuid,
    /// The target it was made from.
    pub parent_id: Option<Uuid>,
    /// `proposed`, `adopted`, `superseded`, `rejected` or `stale`.
    pub state: String,
    pub state_reason: Option<String>,
    pub made_at: DateTime<Utc>,
    pub decided_at: Option<DateTime<Utc>>,
    pub decided_by: Option<String>,
    /// Why the round ran, in words.
    pub trigger: String,
    pub objective_before: f64,
    pub objective: f64,
    /// Upper bound on any plan's objective.
    pub bound: f64,
    /// (bound − objective) / |bound|; 0 when proven optimal.
    pub gap: f64,
    pub moves: u32,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PlanList {
    pub items: Vec<PlanSummary>,
    pub next_cursor: Option<String>,
}

/// One decision for the whole cluster, with its reasons.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Plan {
    pub id: Uuid,
    /// The target it was made from.
    pub parent_id: Option<Uuid>,
    /// `proposed`, `adopted`, `superseded`, `rejected` or `stale`.
    pub state: String,
    pub state_reason: Option<String>,
    pub made_at: DateTime<Utc>,
    pub decided_at: Option<DateTime<Utc>>,
    pub decided_by: Option<String>,
    /// Why the round ran, in words.
    pub trigger: String,
    /// Objective of staying as it was.
    pub objective_before: f64,
    pub objective: f64,
    /// Upper bound on any plan's objective.
    pub bound: f64,
    /// (bound − objective) / |bound|; 0 when proven optimal.
    pub gap: f64,
    /// Candidates offered to the solver.
    pub candidates: u32,
    /// Value of one more GPU by GPU type, in objective units.
    pub shadow_prices: BTreeMap<String, f64>,
    pub assignments: Vec<Assignment>,
    pub moves: Vec<Move>,
    pub verdicts: Vec<Verdict>,
}

/// What one job gets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Assignment {
    pub job_id: Uuid,
    pub job_name: String,
    pub gpus: u32,
    pub slices: Vec<SliceRecord>,
    pub configuration: Option<Configuration>,
    pub predicted: Prediction,
}

/// What the model expects; zero throughput means "not modelled".
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Prediction {
    pub step_time_seconds: f64,
    pub throughput_tokens_per_second: f64,
    pub efficiency: f64,
    pub goodput_tokens_per_second: f64,
    /// Goodput over that of the job's fair share.
    pub speed_up: f64,
}

/// One job's change, with gain and cost before it happens.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Move {
    pub job_id: Uuid,
    pub job_name: String,
    /// `start`, `preempt`, `batch`, `micro_batch`, `layout` or `migration`.
    pub kind: String,
    pub from_gpus: u32,
    pub to_gpus: u32,
    pub from_configuration: Option<Configuration>,
    pub to_configuration: Option<Configuration>,
    pub goodput_before_tokens_per_second: f64,
    pub goodput_after_tokens_per_second: f64,
    /// Including rework since the last checkpoint.
    pub downtime_seconds: f64,
    /// When the gain has paid for the downtime; `null`: never for this job alone.
    pub pays_back_after_seconds: Option<f64>,
    pub reason: String,
}

/// Why a job got what it got.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Verdict {
    pub job_id: Uuid,
    pub job_name: String,
    pub headline: String,
    pub gpus: u32,
    pub runner_up: Option<Alternative>,
    pub marginal_speed_up: Option<f64>,
    pub reasons: Vec<Reason>,
}

/// A choice not taken.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Alternative {
    pub gpus: u32,
    pub configuration: Option<Configuration>,
    pub speed_up: f64,
}

/// A cause with its numbers in words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Reason {
    /// "not_enough_free", "cooldown", "best_for_cluster", …
    pub code: String,
    /// Whether lifting this alone would change the outcome.
    pub binding: bool,
    pub detail: String,
}

/// Why a job is where it is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Explanation {
    pub job_id: Uuid,
    /// One sentence.
    pub headline: String,
    pub reasons: Vec<Reason>,
    pub runner_up: Option<Alternative>,
    /// Speed-up gained by the next larger feasible size.
    pub marginal_speed_up: Option<f64>,
    /// What the model expects of what the job has or gets.
    pub prediction: Option<Prediction>,
    /// The plan this was decided in.
    pub plan_id: Option<Uuid>,
}

/// Body of `POST /plans/rebalance`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RebalanceRequest {
    /// Least gain for a move, percent; absent: the policy's.
    #[serde(default)]
    pub min_gain_pct: Option<f64>,
}
