//! What a request did, for the audit: its subjects, and the row that it changed as it was and as it is.

use core::net::IpAddr;
use std::sync::Arc;

use headway_types::Timestamp;
use uuid::Uuid;

use super::{Array, Job, Node, PlanRecord, PolicySettings, Project, Reservation};
use crate::event::{Actor, RequestId};

/// One request that was done. Those that were refused, or changed nothing, are none.
#[derive(Clone, Debug, PartialEq)]
pub struct Deed {
    pub request: RequestId,
    pub at: Timestamp,
    pub actor: Actor,
    /// "job:<id>", "project:nlp".
    pub subjects: Vec<String>,
    pub reason: Option<String>,
    /// `None`: it made its subject, or several.
    pub before: Option<Row>,
    /// `None`: its subject is gone, or is several.
    pub after: Option<Row>,
    /// As the shell that takes requests knows it before the commit. The engine neither reads nor keeps it.
    pub origin: Option<Origin>,
}

/// A row that people change.
#[derive(Clone, Debug, PartialEq)]
pub enum Row {
    Job(Arc<Job>),
    Array(Arc<Array>),
    Node(Arc<Node>),
    Plan(Arc<PlanRecord>),
    Policy(Box<PolicySettings>),
    Project(Arc<Project>),
    Reservation(Arc<Reservation>),
}

impl Row {
    pub fn subject(&self) -> String {
        match self {
            Self::Job(job) => format!("job:{}", job.id),
            Self::Array(array) => format!("array:{}", array.id),
            Self::Node(node) => format!("node:{}", node.inventory.node),
            Self::Plan(record) => format!("plan:{}", record.plan.id),
            Self::Policy(_) => "policy".into(),
            Self::Project(project) => format!("project:{}", project.name),
            Self::Reservation(one) => format!("reservation:{}", one.id),
        }
    }
}

/// Where a request came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The id of the route's operation.
    pub action: String,
    /// Whose token it came with.
    pub user: String,
    pub token: Uuid,
    pub address: Option<IpAddr>,
    /// The id that the reply carries.
    pub request: String,
    /// What its path names.
    pub subject: Option<String>,
}
