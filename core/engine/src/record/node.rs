//! A node's row: what it is (inventory), what users want (policy), what we see (availability), what we have come to
//! think of it (health). Four axes, never one enum.

use std::collections::BTreeMap;

use headway_types::{
    AvailabilityKind, BootId, JobId, NodeClass, NodeCount, NodeId, NodeInventory, NodePolicyKind, Placement,
    StandingKind, Timestamp,
};
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Node {
    pub inventory: NodeInventory,
    pub policy: NodePolicy,
    pub availability: Availability,
    #[serde(default)]
    pub health: NodeHealth,
    pub registered_at: Timestamp,
    pub boot: BootId,
    /// What operators say of it, over what its agent does; `None`: it has no such label.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, Option<String>>,
    pub version: u64,
}

/// What a gang on these nodes is valued by: their class, or the slowest where they are of several; of those that are known.
/// O(nodes), and nothing is copied but a class of each kind in a row.
pub(crate) fn class_of<'n>(placement: &Placement, node_of: impl Fn(NodeId) -> Option<&'n Node>) -> Option<NodeClass> {
    let mut runs: Vec<(NodeClass, NodeCount)> = Vec::new();
    for node in placement.slices().iter().filter_map(|slice| node_of(slice.node)) {
        match runs.last_mut() {
            Some((class, nodes)) if node.inventory.is_of(class) => nodes.0 += 1,
            _ => runs.push((node.inventory.class(), NodeCount(1))),
        }
    }
    headway_goodput::of_gang(runs.iter().map(|(class, nodes)| (class, *nodes)))
}

impl Node {
    /// Whether anything new may start here, as far as its row says: nobody withholds it, nothing ails it.
    #[must_use]
    pub fn takes_work(&self) -> bool {
        let ailing = self.inventory.conditions.iter().any(|one| one.kind.keeps_work_away());
        self.is_in_service() && self.health.is_trusted() && !ailing
    }

    /// Whether nobody has announced that it stops: no operator by its policy, and not its agent. Otherwise its
    /// silence and a reboot are expected, and no incidents.
    #[must_use]
    pub fn is_in_service(&self) -> bool {
        self.policy == NodePolicy::Schedulable && self.inventory.leaving_reason.is_none()
    }

    /// Whether what runs here has to leave: an operator drains the node, or its agent announced that the node goes
    /// away.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        matches!(self.policy, NodePolicy::Draining { .. }) || self.inventory.leaving_reason.is_some()
    }

    /// What jobs may choose it by: its agent's word, and over it that of operators.
    #[must_use]
    pub fn labels(&self) -> BTreeMap<String, String> {
        let mut labels = self.inventory.labels.clone();
        for (name, value) in &self.labels {
            match value {
                Some(value) => labels.insert(name.clone(), value.clone()),
                None => labels.remove(name),
            };
        }
        labels
    }

    /// Until when jobs with nowhere else to go may stay on a node that is drained.
    pub(crate) fn drain_deadline(&self) -> Option<Timestamp> {
        match self.policy {
            NodePolicy::Draining { deadline, .. } => deadline,
            _ => None,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "policy")]
pub enum NodePolicy {
    Schedulable,
    Cordoned {
        by: String,
        reason: Option<String>,
        since: Timestamp,
    },
    Draining {
        by: String,
        reason: Option<String>,
        since: Timestamp,
        /// Until then a job that has nowhere else to go may stay.
        #[serde(default)]
        deadline: Option<Timestamp>,
    },
}

impl NodePolicy {
    /// Which of them it is, without what it carries.
    #[must_use]
    pub fn kind(&self) -> NodePolicyKind {
        match self {
            NodePolicy::Schedulable => NodePolicyKind::Schedulable,
            NodePolicy::Cordoned { .. } => NodePolicyKind::Cordoned,
            NodePolicy::Draining { .. } => NodePolicyKind::Draining,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "availability")]
pub enum Availability {
    /// Known from the store, not yet heard in this term.
    Registering {
        since: Timestamp,
    },
    Available,
    /// The lease ran out.
    Unreachable {
        since: Timestamp,
    },
    /// An operator vouched that it is gone; only a registration brings it back.
    Lost {
        since: Timestamp,
    },
}

/// What may happen to a node's availability.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AvailabilityEvent {
    /// A new term knows it from the store only.
    TakenOver,
    /// It registered with this term.
    Registered,
    /// Its session spoke.
    Heard,
    /// Its lease ran out.
    Lapsed,
    /// An operator vouched that nothing runs there any more.
    WrittenOff,
}

impl Availability {
    /// The whole transition table; `None` for every pair it does not list.
    #[must_use]
    pub fn apply(self, now: Timestamp, event: AvailabilityEvent) -> Option<Self> {
        use {Availability as A, AvailabilityEvent as E};
        Some(match (self, event) {
            (_, E::Registered) | (A::Unreachable { .. }, E::Heard) => A::Available,
            (A::Available, E::TakenOver) => A::Registering { since: now },
            (A::Available | A::Registering { .. }, E::Lapsed) => A::Unreachable { since: now },
            (A::Unreachable { .. }, E::WrittenOff) => A::Lost { since: now },
            _ => return None,
        })
    }

    /// Which of them it is, without what it carries.
    #[must_use]
    pub fn kind(self) -> AvailabilityKind {
        match self {
            Availability::Registering { .. } => AvailabilityKind::Registering,
            Availability::Available => AvailabilityKind::Available,
            Availability::Unreachable { .. } => AvailabilityKind::Unreachable,
            Availability::Lost { .. } => AvailabilityKind::Lost,
        }
    }
}

/// What happened on a node tells whether to trust it. How incidents count is in `health.rs` of the crate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeHealth {
    /// 1: nothing is held against it. Incidents lower it, time heals it.
    pub score: f64,
    /// When `score` was right.
    pub scored_at: Timestamp,
    pub standing: Standing,
    /// Owners whose jobs have spoken against it lately, each of whom counts once.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub accusers: BTreeMap<String, Accusation>,
}

impl Default for NodeHealth {
    fn default() -> Self {
        Self { score: 1.0, scored_at: Timestamp(0), standing: Standing::Good, accusers: BTreeMap::new() }
    }
}

/// What a job says of a node: that something failed there by no fault of its own.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Accusation {
    pub job: JobId,
    pub at: Timestamp,
    /// What it took off the score.
    pub weight: f64,
}

/// Whether new work is trusted to a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "standing")]
pub enum Standing {
    Good,
    /// Nothing new starts here until the time is over.
    Quarantined {
        since: Timestamp,
        until: Timestamp,
        reason: String,
        /// How often in a row, this one included; each is twice as long as the one before.
        times: u32,
        /// The job whose word brought it here, where it was one: should that job, or who spoke before it, fail elsewhere too, the node is
        /// cleared.
        accuser: Option<JobId>,
    },
    /// Back in service; one more incident and it is quarantined again, for longer.
    Probation {
        since: Timestamp,
        until: Timestamp,
        times: u32,
    },
}

impl Standing {
    /// Which of them it is, without what it carries.
    #[must_use]
    pub fn kind(&self) -> StandingKind {
        match self {
            Standing::Good => StandingKind::Good,
            Standing::Quarantined { .. } => StandingKind::Quarantined,
            Standing::Probation { .. } => StandingKind::Probation,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_availability_lists_exactly_these_transitions() {
        use {Availability as A, AvailabilityEvent as E};
        let since = Timestamp(1);
        let mut table = String::new();
        for state in [A::Registering { since }, A::Available, A::Unreachable { since }, A::Lost { since }] {
            for event in [E::TakenOver, E::Registered, E::Heard, E::Lapsed, E::WrittenOff] {
                if let Some(next) = state.apply(Timestamp(2), event) {
                    table.push_str(&format!("{} + {event:?} = {}\n", state.kind(), next.kind()));
                }
            }
        }
        insta::assert_snapshot!(table, @"
        registering + Registered = available
        registering + Lapsed = unreachable
        available + TakenOver = registering
        available + Registered = available
        available + Lapsed = unreachable
        unreachable + Registered = available
        unreachable + Heard = available
        unreachable + WrittenOff = lost
        lost + Registered = available
        ");
    }
}
