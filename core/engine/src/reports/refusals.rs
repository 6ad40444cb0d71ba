//! Whose word is not taken: machines that offer what none has, that speak of groups without end, that go by another's id or name. Their session
//! ends with the reason, which their agent tells, and the event log has it, no more often than a person reads.

use std::collections::BTreeSet;
use std::sync::Arc;

use headway_types::command::GroupStatus;
use headway_types::{NodeId, NodeInventory, Seconds};

use crate::draft::Note;
use crate::engine::Engine;
use crate::event::SessionId;
use crate::record::Node;

/// How often the event log is told of a node that is refused.
const TOLD_AGAIN: Seconds = Seconds(600.0);
/// Nodes of which that is kept at once. Whoever makes up ids has no more events than these.
const TOLD_AT_ONCE: usize = 64;
/// Groups that a node may speak of beside those that it was assigned: what has ended and it was not yet told to forget, what was assigned by a
/// leader whose store was lost. A node has no more of them at once than GPUs, as long as they live.
const STRAYS: usize = 64;
const STRAYS_PER_GPU: usize = 16;

impl Engine {
    /// Why a node is not taken with this offer.
    pub(super) fn objection(&self, id: NodeId, inventory: &NodeInventory) -> Option<String> {
        if let Err(wrong) = inventory.check() {
            let name: String = inventory.name.chars().filter(|letter| !letter.is_control()).take(64).collect();
            return Some(format!(
                "node \"{name}\" is not taken: its {wrong}; correct what its agent is told (`headway agent --help`) or reports, it tries again"
            ));
        }
        if self.is_impostor(id, inventory) {
            let name = self.facts.node_name(id);
            return Some(format!(
                "node id {id} belongs to node {name}, which is alive; if this machine is a copy of it, delete node_id in \
                 its agent's data directory"
            ));
        }
        let namesake = self.namesake(id, inventory)?;
        let name = &inventory.name;
        Some(format!(
            "another node is called {name} and is connected (id {namesake}); give this one a name of its own \
             (`headway agent --name`), or stop that one's agent"
        ))
    }

    /// Why a node is not heard with what it says of so many groups, these among them.
    pub(super) fn objection_to<'a>(
        &self,
        (id, name, gpus): (NodeId, &str, usize),
        count: usize,
        mut groups: impl Iterator<Item = &'a GroupStatus>,
    ) -> Option<String> {
        let assigned = self.facts.holding.get(&id).map_or(0, BTreeSet::len);
        let most = assigned + STRAYS + STRAYS_PER_GPU * gpus;
        let wrong = if count > most {
            Some(format!("groups are {count}, at most {most}"))
        } else {
            groups.find_map(|group| group.check().err()).map(|wrong| wrong.to_string())
        };
        wrong.map(|wrong| {
            format!("node {name} is not heard: its {wrong}; what its agent reports is beyond every machine, so look at that machine")
        })
    }

    /// Another machine under this node's id: the one known was heard within its lease and runs on another boot. A node
    /// that has really rebooted is taken for one for no longer than that.
    fn is_impostor(&self, id: NodeId, inventory: &NodeInventory) -> bool {
        let heard_at = self.seen.nodes.get(&id).and_then(|seen| seen.heard_at);
        let fresh = heard_at.is_some_and(|at| self.facts.now.since(at).0 < self.facts.config.lease.0);
        let other = |node: &Arc<Node>| node.boot != inventory.boot && node.inventory.name != inventory.name;
        fresh && self.facts.nodes.get(&id).is_some_and(other)
    }

    /// Who goes by this name already. A node that has had its name keeps it, whoever took it meanwhile.
    fn namesake(&self, id: NodeId, inventory: &NodeInventory) -> Option<NodeId> {
        let name = &inventory.name;
        if self.facts.nodes.get(&id).is_some_and(|node| node.inventory.name == *name) {
            return None;
        }
        let same = |(other, node): &(&NodeId, &Arc<Node>)| **other != id && node.inventory.name == *name;
        self.facts.nodes.iter().filter(same).map(|(other, _)| *other).find(|other| self.seen.connected(*other))
    }

    /// Ends the session that brought it, and says why.
    pub(super) fn turn_away(&mut self, id: NodeId, session: SessionId, reason: String) {
        self.facts.draft.refused.push((id, session, reason.clone()));
        let now = self.facts.now;
        let told = &mut self.seen.turned_away;
        told.retain(|_, at| now.since(*at).0 < TOLD_AGAIN.0);
        if told.len() < TOLD_AT_ONCE && !told.contains_key(&id) {
            told.insert(id, now);
            self.facts.note(Note::new("node.refused", reason).node(id));
        }
    }
}
