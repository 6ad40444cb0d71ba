//! Leases and standings: what time does to nodes. A node that stays silent becomes unreachable; that never stops
//! training and frees no GPU, it only allows jobs with fenced checkpoints to start elsewhere.

use headway_types::NodeId;

use crate::draft::Note;
use crate::engine::Engine;
use crate::health::Incident;
use crate::record::{AvailabilityEvent, Standing};

impl Engine {
    pub(crate) fn check_leases(&mut self) {
        let at = self.situation();
        let late = |id: &NodeId| at.lease_end(*id).is_some_and(|end| end <= self.facts.now);
        let late: Vec<NodeId> = self.facts.nodes.keys().copied().filter(late).collect();
        for id in late {
            self.facts.observe_node(id, AvailabilityEvent::Lapsed);
            let name = self.facts.node_name(id);
            let lease = self.facts.config.lease.0;
            let message =
                format!("node {name} has been silent for {lease} s; its GPUs stay granted until they are proven free");
            self.facts.note(Note::new("node.unreachable", message).node(id));
            if self.facts.nodes.get(&id).is_some_and(|node| node.is_in_service()) {
                self.incident(id, Incident::Silent, "it was silent for a whole lease");
            }
            self.facts.ask_round(format!("node {name} is unreachable"));
        }
    }

    /// Quarantines and probations end by time.
    pub(crate) fn check_standings(&mut self) {
        let now = self.facts.now;
        let due = self.facts.nodes.iter().filter(|(_, node)| node.health.due().is_some_and(|at| at <= now));
        let ids: Vec<NodeId> = due.map(|(id, _)| *id).collect();
        for id in ids {
            let mut on_probation = false;
            self.facts.edit_node(id, |node| {
                node.health.pass(now);
                on_probation = matches!(node.health.standing, Standing::Probation { .. });
            });
            let name = self.facts.node_name(id);
            let (verb, message) = if on_probation {
                ("node.probation", format!("node {name} is back in service on probation"))
            } else {
                ("node.trusted", format!("node {name} has the scheduler's full trust again"))
            };
            self.facts.note(Note::new(verb, message).node(id));
            self.facts.ask_round(format!("node {name} may be used again"));
        }
    }
}
