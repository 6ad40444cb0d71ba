//! What was decided, and why. Nothing in it depends on when or where it was computed.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

use super::allocation::Allocation;
use crate::v1::{Alternative, Configuration, Limit, Objective, Price, Reason, Relaxed, SolvedBy};

/// The answer to one document.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Reply {
    pub version: u32,
    /// The planner that decided.
    pub planner: String,
    /// The document's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub round: Option<Value>,
    pub policy: Objective,
    /// Σ weight × value of what was chosen.
    pub objective: f64,
    /// The same had nothing changed.
    pub objective_before: f64,
    /// No plan's objective is higher; `null`: the policy serves in order and bounds nothing.
    pub bound: Option<f64>,
    /// (bound − objective) / |bound|; 0 when proven optimal.
    pub gap: Option<f64>,
    /// What all jobs could get, counted.
    pub candidates: u32,
    /// Who solved it; absent: the planner's own solver, or a policy that serves in order.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub solver: Option<SolvedBy>,
    /// Value of one more GPU by type, in units of the objective.
    pub shadow_prices: BTreeMap<String, f64>,
    /// Everything whose lack holds the objective down, dearest first.
    pub scarce: Vec<Price>,
    /// Rules that could not be kept.
    pub relaxed: Vec<Relaxed>,
    /// In the document's order.
    pub jobs: Vec<Decided>,
    /// What changes.
    pub moves: Vec<Step>,
    /// Running jobs that another size would serve better and that stay nevertheless, the greatest loss first.
    pub unmoved: Vec<Unmoved>,
}

/// A running job that stays although another size would bring more.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Unmoved {
    pub job: String,
    pub from_gpus: u32,
    pub to_gpus: u32,
    /// What its goodput would gain, as a share of what it is.
    pub gain: f64,
    /// What the objective forgoes, others' losses taken off.
    pub forgone: f64,
    pub code: String,
    pub detail: String,
}

/// One job and why.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Decided {
    pub name: String,
    /// `null`: it waits.
    pub allocation: Option<Allocation>,
    /// Goodput over that of the job's fair share.
    pub speed_up: f64,
    /// Of a modelled job that gets GPUs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prediction: Option<Prediction>,
    pub headline: String,
    pub reasons: Vec<Reason>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runner_up: Option<Alternative>,
    /// What keeps it from the next better choice.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub limits: Vec<Limit>,
    /// Speed-up gained by the next larger size.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub marginal_speed_up: Option<f64>,
}

/// What the model expects beside goodput.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Prediction {
    pub step_time_seconds: f64,
    pub throughput_tokens_per_second: f64,
    pub efficiency: f64,
}

/// One job's change, with gain and cost.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Step {
    pub job: String,
    /// `start`, `preempt`, `batch`, `micro_batch`, `layout` or `migration`.
    pub kind: String,
    pub from_gpus: u32,
    pub to_gpus: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from_configuration: Option<Configuration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to_configuration: Option<Configuration>,
    pub goodput_before: f64,
    pub goodput_after: f64,
    /// Including work done again.
    pub downtime_seconds: f64,
    /// When the gain has paid for the downtime; absent: never for this job alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pays_back_after_seconds: Option<f64>,
    pub reason: String,
}
