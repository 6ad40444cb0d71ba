//! Leases: a node that stays silent becomes unreachable. That never stops training and frees no GPU; it only
//! allows jobs with fenced checkpoints to start elsewhere (`gang.rs`).

use headway_types::{NodeId, Timestamp};

use crate::draft::Note;
use crate::record::Availability;
use crate::state::Engine;

impl Engine {
    /// A report of the node's newest session renews its lease.
    pub(crate) fn renew(&mut self, id: NodeId) {
        let Some(entry) = self.nodes.get_mut(&id) else { return };
        entry.heard_at = Some(self.now);
        if let Availability::Unreachable { since } = entry.node.availability {
            let name = entry.node.inventory.name.clone();
            self.edit_node(id, |node| node.availability = Availability::Available);
            let message = format!("node {name} is heard again after {:.0} s", self.now.since(since).0);
            self.note(Note::new("node.available", message).node(id));
            self.rounds.ask(format!("node {name} is reachable again"));
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
            let since = self.now;
            self.edit_node(id, |node| node.availability = Availability::Unreachable { since });
            let name = self.node_name(id);
            let message =
                format!("node {name} has been silent for {} s; its GPUs stay granted until they are proven free", {
                    self.config.lease.0
                });
            self.note(Note::new("node.unreachable", message).node(id));
            self.rounds.ask(format!("node {name} is unreachable"));
        }
    }
}
