//! Reservations: nodes set aside for some jobs over a span of time.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

/// A reservation that is not over. While it lasts, only its members run on its nodes, and no job in a maintenance.
/// Before, other jobs start there if they will have left when it begins: their time limit ends them before, or they save
/// and what they do until then is worth their start. A reservation that begins in more than 7 days closes no node yet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Reservation {
    pub id: Uuid,
    pub name: String,
    /// Why nodes are reserved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Names of nodes.
    pub nodes: Vec<String>,
    pub from: DateTime<Utc>,
    /// First moment at which it holds no more.
    pub until: DateTime<Utc>,
    /// Members: jobs of these projects and their sub-projects,
    pub projects: Vec<String>,
    /// of these users,
    pub users: Vec<String>,
    /// and these.
    pub jobs: Vec<Uuid>,
    /// It is for nobody: its nodes are worked on.
    #[serde(default)]
    pub maintenance: bool,
    /// Whether it holds now.
    pub active: bool,
    pub made_by: String,
    pub made_at: DateTime<Utc>,
    /// What it takes from others, as of now: until it begins, and in the reply to its creation, also as a dry run. Absent once it
    /// has begun, and in the timeline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<ReservationCost>,
}

/// What a reservation takes from jobs that are no members of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ReservationCost {
    /// GPUs on its nodes.
    pub gpus: u32,
    /// These GPUs over the time for which it lasts.
    pub gpu_hours: f64,
    /// Jobs that run on its nodes, in the order in which they begin to leave. All but those that stay will have left when
    /// it begins.
    pub jobs: Vec<DepartingJob>,
}

/// A job that runs on nodes that others reserve.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DepartingJob {
    pub job_id: Uuid,
    pub job_name: String,
    /// All GPUs that it holds, on other nodes too.
    pub gpus: u32,
    /// When it begins to leave. For a job that stays: when the reservation begins.
    pub leaves_at: DateTime<Utc>,
    /// `limit` (its time limit ends it before), `saves` (it saves and goes on elsewhere or later), `unsaved` (it is
    /// stopped, and does not save as far as the scheduler knows) or `stays` (it must not run twice, so it holds its nodes
    /// until it ends or is cancelled). There may be more one day.
    pub ending: String,
}

/// A reservation of a node that is not over.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct NodeReservation {
    pub id: Uuid,
    pub name: String,
    pub from: DateTime<Utc>,
    /// First moment at which it holds no more.
    pub until: DateTime<Utc>,
    /// The node is worked on: no job runs there.
    pub maintenance: bool,
    /// Whether it holds now.
    pub active: bool,
    /// Why nodes are reserved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Body of `POST /reservations`. Sending it again makes no second one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReservationRequest {
    /// Unique among those that are not over.
    pub name: String,
    /// Why, in 500 characters at most.
    #[serde(default)]
    pub reason: Option<String>,
    /// Names or ids of nodes.
    pub nodes: Vec<String>,
    /// Absent: now.
    #[serde(default)]
    pub from: Option<DateTime<Utc>>,
    /// This or `duration_seconds`.
    #[serde(default)]
    pub until: Option<DateTime<Utc>>,
    /// From its beginning; measured by the cluster's clock.
    #[serde(default)]
    pub duration_seconds: Option<f64>,
    /// For nobody: nothing runs on the nodes until it is over. Without it, `projects`, `users` or `jobs` say for whom; with it none of them does.
    #[serde(default)]
    pub maintenance: bool,
    #[serde(default)]
    pub projects: Vec<String>,
    #[serde(default)]
    pub users: Vec<String>,
    #[serde(default)]
    pub jobs: Vec<Uuid>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ReservationList {
    pub items: Vec<Reservation>,
}
