//! Nodes set aside for some jobs over a span of time.

use std::collections::BTreeSet;

use headway_types::{JobId, NodeId, Timestamp};
use serde::{Deserialize, Serialize};

/// While it lasts, only its members run on its nodes. Before, only what will have left by then starts there.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reservation {
    pub name: String,
    pub nodes: BTreeSet<NodeId>,
    pub from: Timestamp,
    /// First moment at which it holds no more.
    pub until: Timestamp,
    /// Projects (with their sub-projects) whose jobs are members.
    #[serde(default)]
    pub projects: BTreeSet<String>,
    #[serde(default)]
    pub users: BTreeSet<String>,
    #[serde(default)]
    pub jobs: BTreeSet<JobId>,
}
