//! A reservation's row.

use std::collections::BTreeSet;

use headway_types::{JobId, NodeId, ReservationId, Timestamp};
use serde::{Deserialize, Serialize};

/// Nodes set aside for some jobs, or for nobody while they are worked on. It is dropped when it is over; the event log keeps that it was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reservation {
    pub id: ReservationId,
    /// Unique among those that are not over.
    pub name: String,
    /// Why nodes are reserved, in words of whoever reserved them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    pub nodes: BTreeSet<NodeId>,
    pub from: Timestamp,
    /// First moment at which it holds no more.
    pub until: Timestamp,
    /// Projects (with their sub-projects) whose jobs are members.
    pub projects: BTreeSet<String>,
    pub users: BTreeSet<String>,
    pub jobs: BTreeSet<JobId>,
    pub by: String,
    pub made_at: Timestamp,
    /// Its beginning has been told.
    pub began: bool,
}

impl Reservation {
    /// Without members it is for nobody: a maintenance window.
    #[must_use]
    pub fn is_maintenance(&self) -> bool {
        self.projects.is_empty() && self.users.is_empty() && self.jobs.is_empty()
    }

    #[must_use]
    pub fn is_active(&self, now: Timestamp) -> bool {
        self.from <= now && now < self.until
    }

    /// "demo", "the maintenance psu-swap".
    pub fn purpose(&self) -> String {
        if self.is_maintenance() { format!("the maintenance {}", self.name) } else { self.name.clone() }
    }
}
