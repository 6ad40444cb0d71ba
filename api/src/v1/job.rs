//! Jobs: what a table or page shows.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use headway_types::{Execution, JobStateKind};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use super::array::{Array, JobArray};
use super::dependency::{Dependency, Dependent};
use super::efficiency::EfficiencyReport;

/// Degrees of data, tensor and pipeline parallelism.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Layout {
    pub dp: u32,
    pub tp: u32,
    pub pp: u32,
}

/// How a job trains on the GPUs it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Configuration {
    pub layout: Layout,
    /// Absent where it is plain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub execution: Option<Execution>,
    pub micro_batch_sequences: u64,
    pub global_batch_sequences: u64,
}

/// A job with its newest numbers. What has not been measured or does not apply is `null`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Job {
    pub id: Uuid,
    pub name: String,
    pub project: String,
    pub owner: String,
    /// 0 (yields to all) to 100 (first); 50 is normal.
    pub priority: u8,
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// `queued`, `held`, `starting`, `running`, `stopping`, `succeeded`, `failed` or `cancelled`.
    #[schema(value_type = String)]
    pub state: JobStateKind,
    pub state_since: DateTime<Utc>,
    /// Why it is in this state: the cause of a stop, the message of a failure, the reason of a hold.
    pub state_cause: Option<String>,
    /// GPUs it holds; 0 while it waits.
    pub gpus: u32,
    pub gpus_min: u32,
    pub gpus_max: u32,
    /// Allowed sizes; empty: every size of the range.
    pub gpu_sizes: Vec<u32>,
    /// Names of the nodes it holds GPUs on, in rank order.
    pub nodes: Vec<String>,
    pub layout: Option<Layout>,
    /// What the layout is beyond dp, tp and pp; absent where it is plain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub execution: Option<Execution>,
    pub micro_batch_sequences: Option<u64>,
    pub global_batch_sequences: Option<u64>,
    pub global_batch_tokens: Option<f64>,
    /// Micro-batches each replica accumulates per optimizer step; absent where not all do as many (`execution.shares`).
    pub accumulation: Option<u64>,
    pub throughput_tokens_per_second: Option<f64>,
    /// Throughput × statistical efficiency, in reference tokens.
    pub goodput_tokens_per_second: Option<f64>,
    pub efficiency: Option<f64>,
    /// Gradient noise scale φ.
    pub noise_scale_tokens: Option<f64>,
    /// Standard error of ln φ: its 95 % interval there over 2 · 1.96.
    pub noise_error: Option<f64>,
    /// Lower end of φ's 95 % interval; also where φ itself is not known well enough to be told.
    #[serde(default)]
    pub noise_low_tokens: Option<f64>,
    /// Its upper end; `null` beside a lower one: noise drowns the gradient, and φ may be as large as can be.
    #[serde(default)]
    pub noise_high_tokens: Option<f64>,
    /// Where φ comes from, and what is left out of it; `null` for a job that is not modelled or has ended.
    #[serde(default)]
    pub noise_reports: Option<NoiseReports>,
    /// Nodes of a job that holds GPUs which the scheduler cannot reach; what its processes do there is not known.
    #[serde(default)]
    pub unreachable: Option<Unreachable>,
    pub loss: Option<f64>,
    /// Step since which the loss is not a finite number; `loss` is `null` then.
    #[serde(default)]
    pub loss_not_finite_since_step: Option<u64>,
    pub step: Option<u64>,
    pub samples_seen: Option<u64>,
    /// Tokens it has seen.
    #[serde(default)]
    #[schema(required = true)]
    pub seen_tokens: f64,
    /// Reference tokens reached.
    pub progress_tokens: f64,
    /// Of those what the theory credits to batches below the reference, beyond the tokens seen: only where the target counts
    /// `reference`, and unconfirmed, since nothing compares it with the job's own loss.
    #[serde(default)]
    #[schema(required = true)]
    pub credit_tokens: f64,
    /// Tokens at which the job is done.
    pub target_tokens: Option<f64>,
    /// Which tokens count towards the target: those seen and those of progress (`both`), those seen (`raw`) or those of progress
    /// (`reference`).
    #[serde(default)]
    pub target_count: Option<String>,
    /// Of the target, as it counts.
    pub progress_fraction: Option<f64>,
    pub eta_seconds: Option<f64>,
    pub last_change: Option<LastChange>,
    /// Times GPUs or layout changed while it lived.
    pub reconfigurations: u32,
    /// Live batch changes.
    pub batch_changes: u32,
    /// Starts that ended in a failure of its own, in all its life.
    pub restarts: u32,
    /// Ends that were not its fault: nodes that broke or vanished, launches that did not come about.
    #[serde(default)]
    #[schema(required = true)]
    pub disruptions: u32,
    /// Times it gave up all its GPUs since others needed them more.
    #[serde(default)]
    #[schema(required = true)]
    pub preemptions: u32,
    /// GPU-time of steps that were lost with their generation and had to be done again: nothing had saved them.
    #[serde(default)]
    #[schema(required = true)]
    pub lost_gpu_hours: f64,
    /// When others took GPUs of it, the newest last; of many the last five.
    #[serde(default)]
    #[schema(required = true)]
    pub displaced: Vec<Displacement>,
    /// How its processes last ended before their time.
    #[serde(default)]
    pub last_failure: Option<LastFailure>,
    /// The newest start from an earlier point than its committed checkpoint, which was damaged or not read.
    #[serde(default)]
    pub last_fallback: Option<Fallback>,
    /// No start before this moment, after a failure.
    #[serde(default)]
    pub not_before: Option<DateTime<Utc>>,
    /// Of a job that waits: why, and when it is predicted to start.
    #[serde(default)]
    pub waiting: Option<Waiting>,
    /// Fencing number of the newest allocation; 0 before the first.
    pub generation: u64,
    pub submitted_at: DateTime<Utc>,
    pub started_at: Option<DateTime<Utc>>,
    pub ended_at: Option<DateTime<Utc>>,
    /// The one the next generation resumes from.
    pub checkpoint: Option<CheckpointSummary>,
    /// Share of its fair share that it is sure of.
    #[serde(default)]
    pub min_share: Option<f64>,
    /// By when its target should be reached.
    #[serde(default)]
    pub deadline: Option<DateTime<Utc>>,
    /// GPU-time after which it is stopped.
    #[serde(default)]
    pub budget_gpu_hours: Option<f64>,
    /// GPU-time it has had, from grants to proofs that its GPUs were free.
    #[serde(default)]
    #[schema(required = true)]
    pub used_gpu_hours: f64,
    /// Names of nodes it must not start on.
    #[serde(default)]
    #[schema(required = true)]
    pub excluded_nodes: Vec<String>,
    /// Names of the nodes that it takes no others than; empty: it names none.
    #[serde(default)]
    #[schema(required = true)]
    pub included_nodes: Vec<String>,
    /// Labels that its nodes have to have.
    #[serde(default)]
    #[schema(required = true)]
    pub node_labels: BTreeMap<String, String>,
    /// `prefer_rack` or `require_rack`.
    #[serde(default)]
    #[schema(required = true)]
    pub topology: String,
    /// Of an element of an array: which.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub array: Option<JobArray>,
    /// In a list with `arrays=collapsed`: the array that the row stands for. The rest of the row is its first element's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stands_for: Option<Array>,
    /// Who keeps it on the GPUs it has.
    #[serde(default)]
    pub pin: Option<Pin>,
    /// Rises with every stored change; the ETag.
    pub version: u64,
}

/// Which noise a job goes by, and what came of its reports.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NoiseReports {
    /// Gradients as they are (`raw`), or as Adam scales them (`adam`).
    pub kind: String,
    /// Why there is no φ, where there is none.
    pub missing: Option<String>,
    /// Reports left out because they cannot be: negative, not finite, too large, or of batches that are none.
    pub impossible: u64,
    /// Left out because they lay far from those before.
    pub outlying: u64,
    /// Left out because they are of the other kind.
    pub other_kind: u64,
}

/// Why a job waits, by the newest round, and when it starts, by the newest forecast. Nothing is planned for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Waiting {
    /// Code of the most telling reason; `null` before a round has looked at it.
    pub code: Option<String>,
    /// One sentence.
    pub headline: String,
    /// Place in the order of predicted starts, the first is 1; `null`: the forecast does not tell a start.
    pub position: Option<u32>,
    /// Predicted start; `null`: not predicted, or later than was looked.
    pub p10: Option<DateTime<Utc>>,
    pub p50: Option<DateTime<Utc>>,
    pub p90: Option<DateTime<Utc>>,
    /// When that was predicted.
    pub predicted_at: Option<DateTime<Utc>>,
}

/// Nodes of a job that are out of contact.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Unreachable {
    /// Their names.
    pub nodes: Vec<String>,
    /// The scheduler has not heard of one of them since.
    pub since: DateTime<Utc>,
}

/// A generation that ended since others took GPUs of the job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Displacement {
    pub at: DateTime<Utc>,
    pub generation: u64,
    /// Who took most first, as they were called then.
    pub by: Vec<Displacer>,
    /// GPU-time of its steps that nothing had saved.
    pub lost_gpu_hours: f64,
}

/// A job that got GPUs which another gave up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Displacer {
    pub job_id: Uuid,
    pub job_name: String,
    pub owner: String,
    pub gpus: u32,
}

/// A start from an earlier point than the committed checkpoint.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Fallback {
    pub at: DateTime<Utc>,
    pub generation: u64,
    /// Step that it went on from.
    pub step: u64,
    pub samples_seen: u64,
    /// Step of the committed checkpoint.
    pub committed_step: u64,
    pub committed_path: String,
    /// Samples that are trained again.
    pub lost_samples: u64,
}

/// How the processes of a generation ended before their time, whoever's fault it was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LastFailure {
    pub at: DateTime<Utc>,
    pub generation: u64,
    /// One sentence.
    pub message: String,
    /// Name of the node where it began, where one is known.
    #[serde(default)]
    pub node: Option<String>,
    /// Of the process that failed; 128 and the signal where one killed it.
    pub exit_code: Option<i32>,
}

/// A person's word that a job stays where it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Pin {
    pub by: String,
    pub reason: Option<String>,
    pub since: DateTime<Utc>,
}

/// What changed last and why, in words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LastChange {
    pub at: DateTime<Utc>,
    pub reason: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CheckpointSummary {
    pub generation: u64,
    pub step: u64,
    pub samples_seen: u64,
    pub path: String,
    pub committed_at: Option<DateTime<Utc>>,
}

/// A job and what was asked for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct JobDetail {
    #[serde(flatten)]
    pub job: Job,
    /// As admitted, defaults filled in; it can be submitted again. To others than the owner the values of `run.env` are null.
    #[serde(default)]
    #[schema(value_type = Object)]
    pub spec: serde_json::Value,
    /// Of a job that has ended and had GPUs: what they went into, and what would have gone better.
    #[serde(default)]
    pub report: Option<EfficiencyReport>,
    /// Jobs that come before it, in the order of its specification.
    #[serde(default)]
    #[schema(required = true)]
    pub after: Vec<Dependency>,
    /// Jobs that name it as one that comes before them, the oldest first; at most 100, those that the reader may see.
    #[serde(default)]
    #[schema(required = true)]
    pub dependents: Vec<Dependent>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct JobList {
    pub items: Vec<Job>,
    pub next_cursor: Option<String>,
    /// With `totals=true`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub totals: Option<JobTotals>,
}

/// How many jobs a filter admits, pages aside.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct JobTotals {
    /// With all conditions.
    pub jobs: u64,
    /// With all conditions but that on the state: what each state would show.
    pub by_state: BTreeMap<String, u64>,
    /// As of when; totals are counted at most every two seconds.
    pub counted_at: DateTime<Utc>,
}

/// What a job's GPU-time went into.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct GpuTime {
    pub job_id: Uuid,
    /// All the time its GPUs were granted to it; the parts below add up to it.
    pub total_gpu_hours: f64,
    /// From grants to first steps: checks, launch, imports, loading.
    pub starting_gpu_hours: f64,
    /// Steps that counted.
    pub training_gpu_hours: f64,
    /// Steps lost with their generation and done again: nothing had saved them.
    pub rework_gpu_hours: f64,
    /// From the last step of processes that hung until that was noticed.
    #[serde(default)]
    #[schema(required = true)]
    pub idle_gpu_hours: f64,
    /// From decisions to stop until the GPUs were proven free.
    pub stopping_gpu_hours: f64,
}

/// The goodput curve: what more GPUs would bring.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Curve {
    pub job_id: Uuid,
    /// The GPU type of all points; `null` where sizes differ in it.
    pub gpu_type: Option<String>,
    /// What chose the batches: `goodput` or `norm_test`; `null` where the script does.
    #[serde(default)]
    pub batch_policy: Option<String>,
    /// Ascending by GPUs.
    pub points: Vec<CurvePoint>,
    /// Why it can run at no size.
    #[serde(default)]
    pub reason: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct CurvePoint {
    /// Where the size brings most, of what the job accepts.
    #[serde(default)]
    pub gpu_type: Option<String>,
    pub gpus: u32,
    /// Nodes it would be spread over.
    #[serde(default)]
    #[schema(required = true)]
    pub nodes: u32,
    /// The best configuration at this size.
    pub configuration: Option<Configuration>,
    pub throughput_tokens_per_second: f64,
    pub efficiency: f64,
    pub goodput_tokens_per_second: f64,
    /// Of the goodput what the theory credits to a batch below the reference; unconfirmed.
    #[serde(default)]
    #[schema(required = true)]
    pub credit_tokens_per_second: f64,
    /// Of an optimizer step; `null` where the job's own curve decides.
    #[serde(default)]
    pub step_time_seconds: Option<f64>,
    pub speed_up: Option<f64>,
    /// The size the job has now.
    pub chosen: bool,
    /// Why this size cannot be had.
    pub infeasible: Option<String>,
    /// First and last decile of the goodput, by what reports have taught of the step time.
    #[serde(default)]
    pub goodput_low_tokens_per_second: Option<f64>,
    #[serde(default)]
    pub goodput_high_tokens_per_second: Option<f64>,
    /// The next best layouts, each at its best batch, best first.
    #[serde(default)]
    pub runner_ups: Vec<RunnerUp>,
}

/// A configuration that was not the best.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RunnerUp {
    pub configuration: Configuration,
    pub goodput_tokens_per_second: f64,
    /// Over the best configuration's.
    pub relative_goodput: f64,
}
