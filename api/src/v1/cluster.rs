//! The cluster as a whole: overview, policy, version.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use headway_types::{Objective, PolicyMode, Solver};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use super::overview::{AttentionItem, ClusterSeries, PlannerHealth};
use super::quota::UserQuota;
use super::server::Standby;
use super::site::SiteRow;

/// Is the cluster doing useful work?
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Overview {
    pub at: DateTime<Utc>,
    /// Seconds of the cluster's time per second: 1, but where nodes are emulated at another pace.
    #[serde(default = "super::project::one")]
    #[schema(required = true)]
    pub clock_speed: f64,
    pub nodes_total: u32,
    pub nodes_available: u32,
    pub gpus_total: u32,
    pub gpus_healthy: u32,
    pub gpus_busy: u32,
    /// Every GPU once, by what it is doing: `training`, `starting`, `stopping`, `idle_no_demand`, `idle_waiting`, `reserved`,
    /// `withheld`, `unreachable`, `broken`.
    #[serde(default)]
    #[schema(required = true)]
    pub gpus_by_activity: BTreeMap<String, u32>,
    /// Number of jobs by state; states without jobs may be absent.
    pub jobs_by_state: BTreeMap<String, u64>,
    /// GPUs that waiting jobs ask for at least.
    pub gpus_waited_for: u32,
    /// Σ of the running jobs' goodput, reference tokens per second.
    pub goodput_tokens_per_second: f64,
    /// Σ of the running jobs' throughput, raw tokens per second.
    pub throughput_tokens_per_second: f64,
    /// Σ of the running jobs' speed-up over their fair share.
    pub speed_up_sum: f64,
    /// Useful FLOP/s ÷ peak FLOP/s of all healthy GPUs, where both are known.
    pub goodput_mfu: Option<f64>,
    /// The plan being carried out.
    pub plan_id: Option<Uuid>,
    /// Proposals that wait for approval.
    pub plans_waiting: Vec<Uuid>,
    pub policy_mode: PolicyMode,
    /// While rounds gave no plan of late: an incident, since nobody plans for whoever waits.
    #[serde(default)]
    pub planning_trouble: Option<PlanningTrouble>,
    /// What to look at first: by severity, then what has most at stake. At most 20; of jobs those that the caller may read.
    #[serde(default)]
    #[schema(required = true)]
    pub attention: Vec<AttentionItem>,
    /// How much there is of each kind, listed or not.
    #[serde(default)]
    #[schema(required = true)]
    pub attention_by_kind: BTreeMap<String, u32>,
    #[serde(default)]
    pub planner: Option<PlannerHealth>,
    /// Of a server that stands by while another leads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub standby: Option<Standby>,
    /// Where a `window` was asked for.
    #[serde(default)]
    pub series: Option<ClusterSeries>,
    /// The last event this reflects: resume the stream from here.
    pub seq: u64,
}

/// Rounds that took too long, or broke down.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PlanningTrouble {
    /// How many gave no plan since `since`.
    pub rounds_given_up: u32,
    pub since: DateTime<Utc>,
    /// What was said of the newest.
    pub message: String,
    /// When the next round may begin, if the newest broke down.
    #[serde(default)]
    pub again_at: Option<DateTime<Utc>>,
}

/// A limit on what the GPUs draw together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, expecting = "a mapping of a power cap")]
pub struct PowerCap {
    pub watts: f64,
    /// What one GPU of a type draws while it trains; 700 W for a type that is absent.
    #[serde(default)]
    pub busy_watts: BTreeMap<String, f64>,
    /// What one idle GPU draws.
    #[serde(default)]
    pub idle_watts: f64,
}

/// What an operator may change while Headway runs. In a `PUT`, a field that may be absent stays what it is; `null`
/// takes a limit away.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Policy {
    pub mode: PolicyMode,
    /// Power p of the value u(s) = ((s+ε)^p − ε^p)/p; 1 is the work done itself, 0 the logarithm.
    pub power: f64,
    /// ε of the value function.
    pub epsilon: f64,
    /// Longest time over which a move may pay for itself.
    pub horizon_seconds: f64,
    /// A move to more or other GPUs must gain this share of what the job is worth now, beyond its cost: at power 1, of its goodput. Giving GPUs back
    /// need not, nor taking GPUs that nobody else wants.
    pub min_gain: f64,
    /// A live batch change must raise the job's goodput by this share.
    pub min_batch_gain: f64,
    /// Solver work limit.
    pub node_budget: u32,
    /// Longest time between rounds while jobs run.
    pub round_every_seconds: f64,
    /// Shortest time between rounds. Arrivals are gathered: a round waits until none has come for so long, five times as long at most.
    pub round_pause_seconds: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub objective: Option<Objective>,
    /// Who solves a round that optimises. Where `milp` has no answer Headway's own decides, and the plan says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub solver: Option<Solver>,
    /// What `min_gain` is right after a move; it decays to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fresh_gain: Option<f64>,
    /// Time constant of that decay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settling_seconds: Option<f64>,
    /// Weights fall with attained service as (1 + GPU-seconds/600)^−x; 0: they do not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_exponent: Option<f64>,
    /// A job is due that has waited this long (`null`: none ever is) …
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<f64>)]
    pub patience_seconds: Option<Option<f64>>,
    /// … and this many times as long as it would run at its smallest size (of one size only: half of both, a third where it needs over half of the GPUs of a type), up to sixteen times `patience_seconds`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub patience_share: Option<f64>,
    /// Seconds. For a job that is due a peer may be stopped that has run so long and will not end within as long again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn_seconds: Option<f64>,
    /// How far jobs with less left go first: 0 not at all, towards 1 strictly.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shortest_first: Option<f64>,
    /// What growth must bring per further GPU, as a share of what the job's most productive GPU does; less is left to others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_return: Option<f64>,
    /// Goodput lost per fabric domain beyond the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domain_loss: Option<f64>,
    /// Most jobs whose GPUs one round may change; `null`: no limit.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u32>)]
    pub max_moves: Option<Option<u32>>,
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<PowerCap>)]
    pub power_cap: Option<Option<PowerCap>>,
    /// The site's own rules; an empty list takes all of them away.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rows: Option<Vec<SiteRow>>,
    /// Relative gap at which the search may stop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tolerance: Option<f64>,
    /// After this long GPU-time counts half in what a project has used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage_half_life_seconds: Option<f64>,
    /// Proposals that nobody decides for so long expire.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proposals_last_seconds: Option<f64>,
    /// What needs no approval in mode `advisory`; `null`: every move of a running job needs it.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<AutoApprove>)]
    pub auto_approve: Option<Option<AutoApprove>>,
    /// Running jobs are moved only at these times of the week, in UTC ("Mon-Fri 22:00-06:00"), unless somebody asks for it; an empty list: at
    /// any time. What has to leave its node leaves it, and starts are made at all times.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub move_windows: Option<Vec<String>>,
    /// What each user may have at most …
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_quota: Option<UserQuota>,
    /// … but for these, by name. A `PATCH` changes those that it names, field by field; `null` in the place of a user or a number takes it away.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_quotas: Option<BTreeMap<String, UserQuota>>,
}

/// Plans that are adopted without approval: those that keep all of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AutoApprove {
    /// Most running jobs that are moved.
    pub max_moves: u32,
    /// Most GPU-hours that they stand still together.
    pub max_lost_gpu_hours: f64,
    /// Whether a job may lose all its GPUs.
    #[serde(default)]
    pub preempt: bool,
}

/// Tells `null` from an absent field.
pub(crate) fn given<'de, T: Deserialize<'de>, D: serde::Deserializer<'de>>(
    value: D,
) -> Result<Option<Option<T>>, D::Error> {
    Option::deserialize(value).map(Some)
}

/// What a job would do on a static share of the cluster: predicted by its model, paying for no start and no pause.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Baseline {
    pub job_id: Uuid,
    /// GPUs of the static share.
    pub gpus: u32,
    /// At the reference batch.
    pub goodput_tokens_per_second: f64,
}

/// `GET /version`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Version {
    pub version: String,
    /// The commit it was built from and that commit's date, or `unknown commit`.
    pub build: String,
    /// Version of the REST interface: `v1`.
    pub api: String,
}
