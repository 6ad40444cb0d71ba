//! What one user may have at most, and what of it is in use.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The most that one user may have, by whatever tokens it comes. In a change, what is absent stays what it is; in the quota of one
/// user, what is absent is as everybody's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UserQuota {
    /// Jobs that have not ended; elements of arrays count one by one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unfinished_jobs: Option<u32>,
    /// Bytes of their specifications, as they are stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub specification_bytes: Option<u64>,
    /// Requests that are answered in the long run, of each server; at least 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests_per_second: Option<u32>,
    /// Requests that may come at once after a silence; at least 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_burst: Option<u32>,
}

/// What a user's unfinished jobs come to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UserLoad {
    pub unfinished_jobs: u32,
    /// Of their specifications, as they are stored.
    pub specification_bytes: u64,
}
