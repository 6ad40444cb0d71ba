//! Leases and standings: what time does to nodes. A node that stays silent becomes unreachable; that never stops
//! training and frees no GPU, it only allows jobs with fenced checkpoints to start elsewhere (`gang.rs`).

use headway_types::{Blame, NodeId, Timestamp};

use crate::draft::Note;
use crate::entry::Seen;
use crate::health::Incident;
use crate::record::{Availability, AvailabilityEvent, NodePolicy, Standing};
use crate::state::Engine;

impl Engine {
    /// A report of the node's newest session renews its lease. False if the report must not be listened to: an
    /// operator has written the node off, so it must register again and show its ledger first.
    pub(crate) fn renew(&mut self, id: NodeId) -> bool {
        let Some(entry) = self.nodes.get_mut(&id) else { return false };
        entry.heard_at = Some(self.now);
        self.draft.shown_nodes.insert(id);
        match entry.node.availability {
            Availability::Unreachable { since } => {
                let name = entry.node.inventory.name.clone();
                self.observe_node(id, AvailabilityEvent::Heard);
                let message = format!("node {name} is heard again after {:.0} s", self.now.since(since).0);
                self.note(Note::new("node.available", message).node(id));
                self.rounds.ask(format!("node {name} is reachable again"));
                true
            }
            Availability::Lost { .. } => {
                if let Seen::Known { session, connected, .. } = &mut entry.seen {
                    *connected = false;
                    let message = "an operator has declared this node lost; register again".to_owned();
                    self.draft.refused.push((id, *session, message));
                }
                false
            }
            Availability::Available | Availability::Registering { .. } => true,
        }
    }

    /// When a node's lease runs out, while it has one.
    pub(crate) fn lease_end(&self, id: NodeId) -> Option<Timestamp> {
        let entry = self.nodes.get(&id)?;
        match entry.node.availability {
            Availability::Available => {
                Some(entry.heard_at.unwrap_or(self.restored_at).max(self.listening_since) + self.config.lease)
            }
            Availability::Registering { since } => {
                Some(since.max(self.restored_at).max(self.listening_since) + self.config.lease)
            }
            Availability::Unreachable { .. } | Availability::Lost { .. } => None,
        }
    }

    pub(crate) fn check_leases(&mut self) {
        let late: Vec<NodeId> =
            self.nodes.keys().copied().filter(|id| self.lease_end(*id).is_some_and(|end| end <= self.now)).collect();
        for id in late {
            self.observe_node(id, AvailabilityEvent::Lapsed);
            let name = self.node_name(id);
            let lease = self.config.lease.0;
            let message =
                format!("node {name} has been silent for {lease} s; its GPUs stay granted until they are proven free");
            self.note(Note::new("node.unreachable", message).node(id));
            if self.nodes[&id].node.policy == NodePolicy::Schedulable {
                self.incident(id, Incident::Silent, "it was silent for a whole lease");
            }
            self.rounds.ask(format!("node {name} is unreachable"));
        }
    }

    /// Quarantines and probations end by time.
    pub(crate) fn check_standings(&mut self) {
        let now = self.now;
        let due = |id: &NodeId| self.nodes[id].node.health.due().is_some_and(|at| at <= now);
        let ids: Vec<NodeId> = self.nodes.keys().copied().filter(due).collect();
        for id in ids {
            self.edit_node(id, |node| {
                node.health.pass(now);
            });
            let name = self.node_name(id);
            let (verb, message) = match self.nodes[&id].node.health.standing {
                Standing::Probation { .. } => {
                    ("node.probation", format!("node {name} is back in service on probation"))
                }
                _ => ("node.trusted", format!("node {name} has the scheduler's full trust again")),
            };
            self.note(Note::new(verb, message).node(id));
            self.rounds.ask(format!("node {name} may be used again"));
        }
    }

    /// Counts something that speaks against a node.
    pub(crate) fn incident(&mut self, id: NodeId, incident: Incident, reason: &str) {
        let now = self.now;
        let spare = self.has_room_beside(id, 1);
        let mut quarantined = false;
        self.edit_node(id, |node| quarantined = node.health.count(now, incident, reason, spare));
        if quarantined {
            let name = self.node_name(id);
            let until = self.nodes[&id].node.health.due().map_or(0.0, |at| at.since(now).0);
            let message = format!("node {name} gets nothing new for {:.0} min: {reason}", until / 60.0);
            self.note(Note::new("node.quarantined", message).node(id).with("blame", Blame::Node));
            self.rounds.ask(format!("node {name} is quarantined"));
        }
    }
}
