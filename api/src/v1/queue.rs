//! What waits for GPUs, in order.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use super::job::Waiting;

/// A page of the queue, and what all of it comes to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Queue {
    /// The moment it is of.
    pub at: DateTime<Utc>,
    pub items: Vec<QueuedJob>,
    pub next_cursor: Option<String>,
    /// Of all jobs that the filter admits and the caller may know of.
    pub totals: QueueTotals,
    /// What other values of the filter's conditions would show.
    #[serde(default)]
    #[schema(required = true)]
    pub choices: QueueChoices,
    /// What the newest plan leaves free, by GPU type; `null` before the first.
    pub room: Option<Vec<GpuRoom>>,
}

/// A job that waits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct QueuedJob {
    /// In the whole queue; the first is 1. By predicted start as far as one is known, then by priority and arrival.
    pub place: u32,
    pub job_id: Uuid,
    pub name: String,
    pub project: String,
    pub owner: String,
    /// The fewest GPUs it runs on.
    pub gpus_min: u32,
    pub gpus_max: u32,
    /// GPU types it accepts; empty: any.
    pub gpu_types: Vec<String>,
    /// Since when it waits.
    pub since: DateTime<Utc>,
    pub priority: u8,
    pub waiting: Waiting,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct QueueTotals {
    pub jobs: u64,
    /// The fewest GPUs that those of them run on together which wait for GPUs; what jobs that wait for other jobs will want stands in `by_code`.
    pub gpus: u64,
    /// By the first reason why each waits; `unplanned`: no round has looked at it yet.
    pub by_code: BTreeMap<String, QueueShare>,
    pub by_project: BTreeMap<String, QueueShare>,
    /// Of those that wait for GPUs, by each type that nodes have: a job that accepts several counts with each of them.
    #[serde(default)]
    #[schema(required = true)]
    pub by_gpu_type: BTreeMap<String, QueueShare>,
}

/// What each value of one condition would show, the filter's others kept; shares are counted as in the totals.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct QueueChoices {
    pub by_code: BTreeMap<String, QueueShare>,
    pub by_project: BTreeMap<String, QueueShare>,
    pub by_gpu_type: BTreeMap<String, QueueShare>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct QueueShare {
    pub jobs: u64,
    pub gpus: u64,
}

/// What a plan leaves of a GPU type for anybody, quotas apart.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GpuRoom {
    pub gpu_type: String,
    pub gpus_free: u32,
    /// The largest size of a job that would find room at once.
    pub largest: u32,
    /// GPUs that the plan leaves free on nodes that are reserved: now, or too soon for a job without a time limit that
    /// does not save. `gpus_free` does not count them.
    #[serde(default)]
    #[schema(required = true)]
    pub gpus_reserved: u32,
    /// Names of these reservations.
    #[serde(default)]
    #[schema(required = true)]
    pub reservations: Vec<String>,
}
