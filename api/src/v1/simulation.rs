//! What would come of something: what-ifs, simulations and what the planner foresees.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use super::submission::JobSpecification;

/// What would come of something that is not so, found by solving the round once more.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Counterfactual {
    /// "if it accepted 4 GPUs".
    pub question: String,
    /// The same as data, all of it together; none of a server of before.
    #[serde(default)]
    #[schema(required = true)]
    pub changes: Vec<SupposedChange>,
    /// "starts now at 4 GPUs, shrinks b (8 → 4): objective −3.1 %".
    pub answer: String,
    pub possible: bool,
    /// What the job would have.
    pub gpus: Option<u32>,
    /// Jobs that would have fewer GPUs.
    pub losers: Vec<Shift>,
    /// Other jobs that would have more.
    pub winners: Vec<Shift>,
    /// Percent; `null` where plans do not compare.
    pub objective_change_pct: Option<f64>,
    /// Change of the sum of speed-ups, percent.
    pub goodput_change_pct: f64,
    /// Jobs that would stand still beyond those of the plan.
    pub moves: i64,
    pub downtime_seconds: f64,
}

/// One thing that a question supposes or forces. Members that its kind does not speak of are absent; those of a job are named as in a job's `PATCH`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SupposedChange {
    /// Of a job: `priority`, `gpus_min` (it accepts so few), `gpu_type` (it accepts that type as well), `time_limit`, `resize`, `force` (it gets GPUs in any case), `submit`
    /// (it is one more) or `gone`; of others `quota`, `row`, `node_back`, `node_gone` or `more_nodes`. There may be more kinds one day.
    pub kind: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_id: Option<Uuid>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<u8>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpus_min: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpus_max: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_type: Option<String>,
    /// Of a job: the running time after which it is stopped, what it has run included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_limit_seconds: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
    /// A row of the site's own, by name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub row: Option<String>,
    /// Of a quota or a row: what it allows, absent where there would be none. Of `force`: how many, absent where any number will do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpus: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_id: Option<Uuid>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_name: Option<String>,
    /// Of `more_nodes`: so many more that are like the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u32>,
}

/// A job's size now and then.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Shift {
    pub job_id: Uuid,
    pub job_name: String,
    pub from_gpus: u32,
    pub to_gpus: u32,
}

/// Body of `POST /plans/simulate`: what to suppose, all of it together, and what to force on top. At most 1,000 suppositions in all, each job counted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SimulationRequest {
    /// Jobs that would be submitted now.
    #[schema(max_items = 1000)]
    pub jobs: Vec<JobSpecification>,
    /// Jobs that would be gone.
    #[schema(max_items = 1000)]
    pub jobs_gone: Vec<Uuid>,
    /// Priorities by job, 0 to 100.
    pub priorities: BTreeMap<Uuid, u8>,
    /// Quotas by project, in GPUs; `null`: none.
    pub quotas: BTreeMap<String, Option<u32>>,
    /// What rows of the site's own would allow, by name, in GPUs; `null`: no such row.
    pub rows: BTreeMap<String, Option<u32>>,
    /// Nodes all of whose GPUs would be usable.
    #[schema(max_items = 1000)]
    pub nodes_back: Vec<Uuid>,
    #[schema(max_items = 1000)]
    pub nodes_gone: Vec<Uuid>,
    /// How many more nodes like one there would be, by that one; 1,000 in all at most.
    pub more_nodes: BTreeMap<Uuid, u32>,
    pub force: Option<ForcedJob>,
}

/// What a job must get in any case; all other rules are kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ForcedJob {
    pub job_id: Uuid,
    /// Absent: any number.
    #[serde(default)]
    pub gpus: Option<u32>,
    #[serde(default)]
    pub gpu_type: Option<String>,
}

/// What would come of a simulation, against the newest plan. Nothing is changed by it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Simulation {
    /// The plan it was compared with.
    pub plan_id: Uuid,
    pub outcome: Counterfactual,
}

/// What the planner says would come of a request: `foreseen` in the reply to its dry run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Foreseen {
    /// The plan it was compared with.
    pub plan_id: Option<Uuid>,
    pub outcome: Option<Counterfactual>,
    /// Of a drain: what becomes of those who are on the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain: Option<DrainEffect>,
    /// Why there is no outcome.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_out: Option<String>,
}

/// What would become of those who are on a node that drains, by the plan of a round without it. Predicted: by the time it is drained another round may find better.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DrainEffect {
    pub jobs: Vec<DrainedJob>,
    /// Held on the node now.
    pub gpus: u32,
    /// Σ over the jobs of what their standstill costs.
    pub gpu_hours: f64,
    /// When the last of them would be gone, at the latest: the time to start elsewhere is counted in. `null`: not known of some job.
    pub free_at: Option<DateTime<Utc>>,
}

/// A job on a node that drains.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DrainedJob {
    pub job_id: Uuid,
    pub job_name: String,
    /// `moves`, `shrinks`, `grows`, `stops` (it waits for room), `stays` (it has nowhere to go until the deadline) or `unknown` (the newest round did not know it).
    pub effect: String,
    /// All of its GPUs, on other nodes as well.
    pub from_gpus: u32,
    pub to_gpus: u32,
    pub to_nodes: Vec<String>,
    /// Saving, stopping, starting, and doing again what was not saved.
    pub standstill_seconds: Option<f64>,
    /// All of its GPUs over that time.
    pub gpu_hours: Option<f64>,
}
