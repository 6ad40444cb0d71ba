//! What may be asked of a job that exists.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Body of `PATCH /jobs/{id}`: what is absent stays.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct JobPatch {
    /// 0 to 100; above 75 is for admins to give.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<u8>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpus_min: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpus_max: Option<u32>,
    /// Instead of all labels it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<BTreeMap<String, String>>,
    /// Running time after which it is stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_limit_seconds: Option<f64>,
    /// How often it may be moved: what is absent stays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub elastic: Option<ElasticPatch>,
}

/// As `elastic` of a specification.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ElasticPatch {
    /// No move before it has run this long on its present GPUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_runtime_seconds: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_resizes_per_hour: Option<u32>,
    /// Share of its time that moves may cost, in per cent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_overhead_pct: Option<f64>,
    /// Share of its fair share that it is sure of, above 0 and at most 1; 0 takes it away.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_share: Option<f64>,
}

/// Body of `POST /jobs/{id}/resize`: `gpus`, or `min` and `max`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ResizeRequest {
    /// This many, no fewer and no more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpus: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CancelRequest {
    #[serde(default)]
    pub reason: Option<String>,
    /// Seconds from SIGTERM to SIGKILL; absent: the job's own.
    #[serde(default)]
    pub grace_s: Option<f64>,
}

/// Body of an action that people may explain.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReasonRequest {
    #[serde(default)]
    pub reason: Option<String>,
}
