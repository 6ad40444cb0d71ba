//! Reservations: nodes set aside for some jobs over a span of time.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

/// A reservation that is not over. Before it begins, only jobs that will have ended by then start on its nodes; from
/// then on only its members run there, and in a maintenance nobody.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Reservation {
    pub id: Uuid,
    pub name: String,
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
}

/// Body of `POST /reservations`. Sending it again makes no second one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReservationRequest {
    /// Unique among those that are not over.
    pub name: String,
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
