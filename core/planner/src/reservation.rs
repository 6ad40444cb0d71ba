//! Nodes set aside for some jobs over a span of time, and who may start on them.

use std::collections::{BTreeMap, BTreeSet};

use headway_types::{JobId, NodeId, Timestamp};
use serde::{Deserialize, Serialize};

use crate::input::{PlanInput, PlanJob};
use crate::project::Tree;

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

impl Reservation {
    pub(crate) fn admits(&self, tree: &Tree<'_>, job: &PlanJob) -> bool {
        let claim = &job.claim;
        let project = || tree.lineage(&claim.project).any(|name| self.projects.contains(name));
        self.jobs.contains(&job.job) || self.users.contains(&claim.user) || project()
    }
}

/// Who may start on a node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Gate {
    Open,
    /// By these (indices into the round's reservations), ascending: members, and who has left before it begins.
    Reserved {
        by: Vec<usize>,
    },
}

impl Gate {
    pub fn admits(&self, input: &PlanInput, tree: &Tree<'_>, job: &PlanJob) -> bool {
        let gone_by = |from: Timestamp| job.bounds.time_left.is_some_and(|left| input.now + left <= from);
        self.all(input, |one| one.admits(tree, job) || (one.from > input.now && gone_by(one.from)))
    }

    /// Whether what is already there may stay for now.
    pub fn tolerates(&self, input: &PlanInput, tree: &Tree<'_>, job: &PlanJob) -> bool {
        self.all(input, |one| one.from > input.now || one.admits(tree, job))
    }

    fn all(&self, input: &PlanInput, which: impl Fn(&Reservation) -> bool) -> bool {
        match self {
            Gate::Open => true,
            Gate::Reserved { by } => by.iter().all(|&reservation| which(&input.reservations[reservation])),
        }
    }
}

/// The gate of every node, in their order. Reservations that are over do not matter.
pub(crate) fn gates(input: &PlanInput) -> Vec<Gate> {
    let mut by_node: BTreeMap<NodeId, Vec<usize>> = BTreeMap::new();
    for (index, reservation) in input.reservations.iter().enumerate().filter(|(_, one)| one.until > input.now) {
        for node in &reservation.nodes {
            by_node.entry(*node).or_default().push(index);
        }
    }
    let gate = |node: NodeId| match by_node.get(&node) {
        None => Gate::Open,
        Some(by) => Gate::Reserved { by: by.clone() },
    };
    input.nodes.iter().map(|node| gate(node.node)).collect()
}
