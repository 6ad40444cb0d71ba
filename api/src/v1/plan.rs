//! Plans and explanations.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use headway_types::PlanStateKind;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use super::history::SliceRecord;
use super::job::{Configuration, LastFailure};
use super::rebalancing::{MoveOutcome, PlanTerms};
use super::simulation::Counterfactual;

/// A plan in one line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PlanSummary {
    pub id: Uuid,
    /// The target it was made from.
    pub parent_id: Option<Uuid>,
    /// `proposed`, `adopted`, `superseded`, `rejected` or `stale`.
    #[schema(value_type = String)]
    pub state: PlanStateKind,
    pub state_reason: Option<String>,
    pub made_at: DateTime<Utc>,
    pub decided_at: Option<DateTime<Utc>>,
    pub decided_by: Option<String>,
    /// Why the round ran, in words.
    pub trigger: String,
    pub objective_before: f64,
    pub objective: f64,
    /// Upper bound on any plan's objective; `null`: the policy serves in order and bounds nothing.
    pub bound: Option<f64>,
    /// (bound − objective) / |bound|; 0 when proven optimal.
    pub gap: Option<f64>,
    pub moves: u32,
    /// Whether somebody forced an allocation on a job: the objective may then fall.
    #[serde(default)]
    pub forced: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PlanList {
    pub items: Vec<PlanSummary>,
    pub next_cursor: Option<String>,
}

/// A round: what a plan was made from, and what the planner answered. Kept for some days, to be decided again by
/// `headway plan replay`. What became of the answer may hold less: what no longer fits when it comes is left out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct StoredRound {
    pub plan_id: Uuid,
    pub made_at: DateTime<Utc>,
    /// Version of the scheduler that made it, with the commit it was built from.
    pub headway_version: String,
    /// In the planner's own form, which is that of the version and no part of this interface.
    #[schema(value_type = Object)]
    pub input: serde_json::Value,
    /// Likewise.
    #[schema(value_type = Object)]
    pub plan: serde_json::Value,
}

/// One decision for the whole cluster, with its reasons.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Plan {
    pub id: Uuid,
    /// The target it was made from.
    pub parent_id: Option<Uuid>,
    /// `proposed`, `adopted`, `superseded`, `rejected` or `stale`.
    #[schema(value_type = String)]
    pub state: PlanStateKind,
    pub state_reason: Option<String>,
    pub made_at: DateTime<Utc>,
    pub decided_at: Option<DateTime<Utc>>,
    pub decided_by: Option<String>,
    /// Of what it gives to whom (SHA-256, hex): an approval that names it approves nothing else.
    #[serde(default)]
    pub hash: String,
    /// When it expires, while it waits for approval.
    #[serde(default)]
    pub valid_until: Option<DateTime<Utc>>,
    /// What somebody asked of it; `null`: the scheduler made it of its own.
    #[serde(default)]
    pub terms: Option<PlanTerms>,
    /// Why the round ran, in words.
    pub trigger: String,
    /// Objective of staying as it was.
    pub objective_before: f64,
    pub objective: f64,
    /// Expected change of the goodput of all running jobs that the plan stops or restarts, percent; `null`: it disturbs no
    /// job whose goodput is known.
    #[serde(default)]
    pub goodput_change_pct: Option<f64>,
    /// Whether somebody forced an allocation on a job: the objective may then fall.
    #[serde(default)]
    pub forced: bool,
    /// Upper bound on any plan's objective; `null`: the policy serves in order and bounds nothing.
    pub bound: Option<f64>,
    /// (bound − objective) / |bound|; 0 when proven optimal.
    pub gap: Option<f64>,
    /// Candidates offered to the solver.
    pub candidates: u32,
    /// Who solved the round where an exact backend was asked for; `null`: Headway's own solver, or a policy that serves in
    /// order.
    #[serde(default)]
    pub solver: Option<SolvedBy>,
    /// Value of one more GPU by GPU type, in objective units.
    pub shadow_prices: BTreeMap<String, f64>,
    /// Everything whose lack holds the objective down, dearest first: node classes, quotas, power.
    #[serde(default)]
    pub scarce: Vec<Price>,
    /// Rules that could not be kept in this round.
    #[serde(default)]
    pub relaxed: Vec<Relaxed>,
    /// Jobs that could not be planned with: they keep what they have.
    #[serde(default)]
    pub left_out: Vec<LeftOut>,
    /// Nodes that could not be planned with: nothing starts there.
    #[serde(default)]
    pub nodes_left_out: Vec<NodeLeftOut>,
    pub assignments: Vec<Assignment>,
    pub moves: Vec<Move>,
    /// Running jobs that another size would serve better and that stay, the greatest loss first.
    #[serde(default)]
    pub unmoved: Vec<Unmoved>,
    /// Of every job of the round, unless fewer were asked for.
    pub verdicts: Vec<Verdict>,
    /// Jobs that hold nothing and get nothing.
    #[serde(default)]
    #[schema(required = true)]
    pub jobs_left_waiting: u32,
}

/// Who solved a round of which an exact backend was asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SolvedBy {
    /// `headway`, `microlp` or `highs`.
    pub name: String,
    pub version: String,
    /// Why it was not the solver that the policy asks for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instead: Option<String>,
}

/// What one more unit of something scarce is worth.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Price {
    /// "GPUs of H100-80G", "the quota of project nlp".
    pub of: String,
    /// In objective units.
    pub price: f64,
}

/// A rule that could not be kept, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Relaxed {
    pub rule: String,
    pub reason: String,
}

/// A node that the round could not plan with, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeLeftOut {
    pub node_id: Uuid,
    pub node_name: String,
    pub reason: String,
}

/// A job that the round could not plan with, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LeftOut {
    pub job_id: Uuid,
    pub job_name: String,
    pub reason: String,
}

/// A running job that stays although another size would bring more.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Unmoved {
    pub job_id: Uuid,
    pub job_name: String,
    pub from_gpus: u32,
    pub to_gpus: u32,
    /// What its goodput would gain, percent.
    pub gain_pct: f64,
    /// What the objective forgoes, were moving free.
    pub forgone: f64,
    /// "cooldown", "hysteresis", "gain_too_small", "move_budget", "fragmented".
    pub code: String,
    pub detail: String,
}

/// Something scarce between a job and its next better choice.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Limit {
    pub of: String,
    /// How much more of it the choice takes.
    pub needed: f64,
    /// How much of it the plan leaves.
    pub left: f64,
    /// What others lose by that, in objective units.
    pub price: f64,
}

/// What is left of the cluster for a job after one more condition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FunnelStage {
    /// "of a type it accepts".
    pub name: String,
    pub left: u32,
    /// `gpus` or `sizes`.
    pub of: String,
    pub detail: String,
}

/// When a job that waits will start: percentiles over many rolled-out futures with newcomers at the rate seen, as wide as past
/// predictions turned out to need. Four of five starts should fall within p10 and p90.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PredictedStart {
    /// The cluster's time when this was asked.
    pub asked_at: DateTime<Utc>,
    pub p10: Option<DateTime<Utc>>,
    /// `null`: later than was looked.
    pub p50: Option<DateTime<Utc>>,
    pub p90: Option<DateTime<Utc>>,
    /// `planner` (every round of each future was planned) or `queue` (a queue stood in for it: large clusters).
    pub method: String,
    /// Why there is no telling, where there is none.
    pub reason: Option<String>,
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
    /// What has come of it, once the plan was adopted; told by `GET` of one plan alone.
    #[serde(default)]
    pub outcome: Option<MoveOutcome>,
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
    /// What keeps it from its next better choice.
    #[serde(default)]
    pub limits: Vec<Limit>,
    /// Why it stays, where another size would bring more.
    #[serde(default)]
    pub unmoved: Option<Unmoved>,
    /// From all GPUs to what it could start on now.
    #[serde(default)]
    pub funnel: Vec<FunnelStage>,
    /// What would change its lot.
    #[serde(default)]
    pub counterfactuals: Vec<Counterfactual>,
    /// Of a job that waits.
    #[serde(default)]
    pub predicted_start: Option<PredictedStart>,
    /// Why nobody looked at its limits, its funnel, what would change its lot and when it starts; `null`: somebody did.
    #[serde(default)]
    pub left_out: Option<String>,
    /// Of a job that waits for another attempt or has failed: how the last one ended.
    #[serde(default)]
    pub last_failure: Option<LastFailure>,
}
