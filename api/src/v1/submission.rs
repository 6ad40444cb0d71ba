//! Jobs as they are submitted, and what is said of them before they are.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::job::{CurvePoint, Job};
use super::plan::PredictedStart;

/// Body of `POST /jobs`: one specification, or several that are accepted together or not at all.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum JobSubmission {
    Batch { jobs: Vec<JobSpecification> },
    One(JobSpecification),
}

/// A job specification, `version: 1`. Read by `headway_api::spec`, which names every field that is wrong.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(value_type = Object)]
pub struct JobSpecification(pub serde_json::Value);

/// In the order of the request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Submitted {
    pub jobs: Vec<Job>,
}

/// Reply of `POST /jobs/validate` and of a dry run, in the order of the request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Validation {
    pub jobs: Vec<JobValidation>,
}

/// What one well-formed specification would find on the present nodes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct JobValidation {
    pub name: String,
    /// Whether it can run at any size.
    pub feasible: bool,
    /// Sizes and what they would bring.
    pub points: Vec<CurvePoint>,
    /// Why it cannot run at all.
    pub reason: Option<String>,
    /// Of a job that can never run on the cluster as built: what comes closest to it that could.
    #[serde(default)]
    pub closest: Option<String>,
    /// GPU counts it could run at.
    #[serde(default)]
    pub sizes: Vec<u32>,
    /// What its project's quota, or that of a project above, says to its smallest size.
    #[serde(default)]
    pub quota: Option<QuotaVerdict>,
    /// Jobs that come before it and have not come so far: "waits for prep to succeed". When they do nobody predicts.
    #[serde(default)]
    pub waits_for: Vec<String>,
    /// GPUs it would start with at once, were it submitted now; `null`: it would wait, or `start_left_out` says why.
    #[serde(default)]
    pub starts_with_gpus: Option<u32>,
    /// When it would start, if it would wait.
    #[serde(default)]
    pub predicted_start: Option<PredictedStart>,
    /// Why nobody looked at when it would start; `null`: somebody did.
    #[serde(default)]
    pub start_left_out: Option<String>,
}

/// Whether a quota admits a job, by the tightest on its way up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct QuotaVerdict {
    pub project: String,
    /// `within`: of right; `borrows`: beyond the quota while nobody with a right to it waits; `exceeds_now`: once others of
    /// the project end; `never`: not as the quota is.
    pub verdict: String,
    pub quota_gpus: u32,
    pub borrow_gpus: u32,
    /// What the project holds now.
    pub gpus: u32,
    /// What the job needs at least.
    pub needed_gpus: u32,
}
