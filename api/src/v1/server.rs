//! The servers of a cluster: one leads, others stand by.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

/// `GET /leader`. Times are the database's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Leadership {
    /// The newest that a server has begun.
    pub term: u64,
    /// When the leader began it.
    pub since: Option<DateTime<Utc>>,
    /// Whoever began the newest term; absent where it does not name itself. One that is silent for more than three seconds leads no longer where others stand by.
    pub leader: Option<Server>,
    /// Others that told of themselves within the last minute, in the order in which they started.
    pub standbys: Vec<Server>,
}

/// One server process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Server {
    /// Drawn at its start.
    pub id: Uuid,
    /// Where people reach it.
    pub url: String,
    /// Where agents reach it.
    pub agents_url: String,
    pub version: String,
    pub started_at: DateTime<Utc>,
    /// Since it last told of itself.
    pub silent_seconds: f64,
}

/// How old what a server tells is that stands by while another leads.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Standby {
    /// Where the server that leads is reached; absent where nobody names it.
    pub leader: Option<String>,
    /// The cluster's time of all that is told; the header `headway-as-of` of every answer.
    pub as_of: DateTime<Utc>,
    /// The same in wall time; the header `headway-age-seconds`.
    pub age_seconds: f64,
}
