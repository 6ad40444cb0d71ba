//! What was in which state when, drawn as lanes of bars.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use super::job::Layout;
use super::reservation::Reservation;

/// Reply of `GET /timeline`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Timeline {
    pub from: DateTime<Utc>,
    pub to: DateTime<Utc>,
    /// The present, where bars end that go on.
    pub now: DateTime<Utc>,
    /// `job` or `node`.
    pub group: String,
    /// States shorter than this are drawn together; `null`: every state has a bar of its own.
    pub resolution_seconds: Option<f64>,
    /// The same for people: "aggregated to 10 min".
    pub aggregated: Option<String>,
    pub lanes: Vec<TimelineLane>,
    pub next_cursor: Option<String>,
    /// Of those that are not over what overlaps the span.
    pub reservations: Vec<Reservation>,
    /// Plans that became the target, newest first.
    pub plans: Vec<TimelinePlan>,
    /// Whether there were more plans, or more jobs on these nodes, than are told.
    pub left_out: bool,
}

/// A job or a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TimelineLane {
    pub id: Uuid,
    pub name: String,
    /// Of a job.
    pub project: Option<String>,
    /// Of a job.
    pub owner: Option<String>,
    /// Of a node that was deleted since.
    pub deleted: bool,
    /// In order; they never overlap. Where there is none, nothing is known or it was not there.
    pub bars: Vec<TimelineBar>,
    /// Who had GPUs of a node; these overlap.
    pub held: Vec<TimelineHeld>,
    /// Of a job that waits, by the newest forecast.
    pub predicted_start: Option<TimelinePrediction>,
    /// Of a job that runs, as fast as it goes now.
    pub predicted_end: Option<TimelinePrediction>,
}

/// A time in one state, or in several that are drawn together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TimelineBar {
    pub from: DateTime<Utc>,
    pub to: DateTime<Utc>,
    /// Of a job its state; of a node what keeps work away from it (`lost`, `unreachable`, `registering`, `draining`, `quarantined`, `cordoned`), or
    /// `probation` or `available`. Of several states the one that lasted longest.
    pub state: String,
    /// Why a job stops, or why it had these GPUs.
    pub cause: Option<String>,
    /// Of a job that had GPUs.
    pub generation: Option<u64>,
    /// Those that a job had, or that a node had in all.
    pub gpus: Option<u32>,
    /// Of those of a node.
    pub gpus_healthy: Option<u32>,
    /// The newest of the generation.
    pub layout: Option<Layout>,
    /// Seconds in each state where several are drawn together; they add up to the bar.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub seconds_by_state: BTreeMap<String, f64>,
}

/// GPUs of a node that a job had.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TimelineHeld {
    /// `null`: not the reader's to know.
    pub job_id: Option<Uuid>,
    pub job_name: Option<String>,
    pub gpus: u32,
    pub from: DateTime<Utc>,
    /// When the node proved them free; `null`: not yet.
    pub to: Option<DateTime<Utc>>,
}

/// A moment that is not known yet; `null`: not predicted, or later than was looked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TimelinePrediction {
    pub p10: Option<DateTime<Utc>>,
    pub p50: Option<DateTime<Utc>>,
    pub p90: Option<DateTime<Utc>>,
}

/// A plan that became the target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TimelinePlan {
    pub id: Uuid,
    pub at: DateTime<Utc>,
    /// `seq` of the event that tells it.
    pub event: u64,
    pub message: String,
}
