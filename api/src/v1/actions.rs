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
