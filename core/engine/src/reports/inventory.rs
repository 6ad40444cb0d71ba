//! What nodes offer and how that changes: GPUs that break and heal, disks that fill, one GPU offered by two nodes.

use std::collections::BTreeSet;

use headway_types::{BootId, Condition, Gpu, GpuHealth, GpuUuid, NodeId, NodeInventory};

use crate::draft::Note;
use crate::engine::Engine;
use crate::event::{Actor, SessionId};
use crate::health::Incident;
use crate::record::{Availability, AvailabilityEvent, Node, ReleaseProof};

impl Engine {
    /// A node says that what it offers has changed; its groups stay as they are.
    pub(crate) fn inventory_changed(&mut self, id: NodeId, session: SessionId, inventory: NodeInventory) {
        if let Some(reason) = self.objection(id, &inventory) {
            return self.turn_away(id, session, reason);
        }
        let inventory = self.with_own_gpus(inventory);
        let Some(known) = self.facts.nodes.get(&id).cloned() else {
            return self.facts.impossible("a node that is not known changed what it offers", None, Some(id));
        };
        if known.inventory == inventory || known.boot != inventory.boot {
            return;
        }
        let name = inventory.name.clone();
        let broke = newly_broken(&known.inventory, &inventory);
        let healed = newly_broken(&inventory, &known.inventory);
        let (before, conditions) = (known.inventory.conditions.clone(), inventory.conditions.clone());
        self.facts.edit_node(id, |node| node.inventory = inventory.clone());
        for (gpu, cause) in broke {
            let message = format!("GPU {} of node {name} is broken: {cause}", gpu.index);
            self.facts.note(Note::new("gpu.broken", message).by(Actor::Node(id)).node(id).with("gpu", &gpu.uuid));
            self.incident(id, Incident::GpuBroke, &format!("GPU {}: {cause}", gpu.index));
        }
        for (gpu, _) in healed {
            let message = format!("GPU {} of node {name} is healthy again", gpu.index);
            self.facts.note(Note::new("gpu.healed", message).by(Actor::Node(id)).node(id).with("gpu", &gpu.uuid));
        }
        self.tell_conditions(id, &name, &before, &conditions);
        self.tell_leaving(id, known.inventory.leaving_reason.as_deref(), &inventory);
        self.facts.ask_round(format!("what node {name} offers changed"));
    }

    /// Reports that a node goes away by itself, or that it no longer does. Its jobs leave as from a node that is
    /// drained.
    pub(crate) fn tell_leaving(&mut self, id: NodeId, before: Option<&str>, inventory: &NodeInventory) {
        let (name, now) = (&inventory.name, inventory.leaving_reason.as_deref());
        if before == now {
            return;
        }
        let (verb, message) = match now {
            None => ("node.stays", format!("node {name} is back in service: it no longer leaves")),
            Some(reason) => match self.names_of_single_runs(id).as_slice() {
                [] => ("node.leaving", format!("node {name} leaves: {reason}")),
                names => {
                    let names = names.join(", ");
                    (
                        "node.leaving",
                        format!("node {name} leaves: {reason}; {names} must not run twice and is not stopped"),
                    )
                }
            },
        };
        self.facts.note(Note::new(verb, message).by(Actor::Node(id)).node(id));
    }

    /// What has come or gone of the troubles of a node.
    pub(crate) fn tell_conditions(&mut self, id: NodeId, name: &str, before: &[Condition], now: &[Condition]) {
        if before == now {
            return;
        }
        let messages: Vec<&str> = now.iter().map(|one| one.message.as_str()).collect();
        let message = match messages.join(", ") {
            none if none.is_empty() => format!("node {name} is well again"),
            some if now.iter().any(|one| one.kind.keeps_work_away()) => {
                format!("node {name} takes nothing new: {some}")
            }
            some => format!("node {name} takes work, but: {some}"),
        };
        self.facts.note(Note::new("node.condition", message).by(Actor::Node(id)).node(id));
    }

    /// A GPU is one node's alone: a second offer of the same UUID (a cloned configuration, a shared device) counts as
    /// broken until the first is withdrawn.
    pub(crate) fn with_own_gpus(&mut self, mut inventory: NodeInventory) -> NodeInventory {
        let id = inventory.node;
        let offered: BTreeSet<GpuUuid> = inventory.gpus.iter().map(|gpu| gpu.uuid.clone()).collect();
        let held = self.situation().held_on(id);
        let former = self.facts.nodes.get(&id).map_or_else(Vec::new, |node| node.inventory.gpus.clone());
        for gpu in former.iter().filter(|gpu| !offered.contains(&gpu.uuid)) {
            // A GPU that is still held stays at home, though the node does not list it for now.
            if self.facts.homes.get(&gpu.uuid) == Some(&id) && !held.contains_key(&gpu.uuid) {
                self.facts.homes.remove(&gpu.uuid);
            }
        }
        let mut own = BTreeSet::new();
        for gpu in &mut inventory.gpus {
            let home = *self.facts.homes.entry(gpu.uuid.clone()).or_insert(id);
            if home != id {
                self.write_off_former_self(home, &inventory.boot);
            }
            if home == id || self.is_written_off(home) {
                self.facts.homes.insert(gpu.uuid.clone(), id);
                if !own.insert(gpu.uuid.clone()) {
                    gpu.health = GpuHealth::Broken("the node offers its UUID twice".into());
                }
            } else {
                let name = self.facts.node_name(home);
                gpu.health = GpuHealth::Broken(format!(
                    "node {name} offers the same UUID; if that node is gone, confirm it with `headway node lost {name}`"
                ));
            }
        }
        inventory
    }

    fn is_written_off(&self, id: NodeId) -> bool {
        self.facts.nodes.get(&id).is_none_or(|node| matches!(node.availability, Availability::Lost { .. }))
    }

    /// A GPU exists once. If it turns up on another boot while the node that had it is silent, that node's machine was
    /// switched off or has lost its identity, and nothing runs on it any more.
    fn write_off_former_self(&mut self, id: NodeId, boot: &BootId) {
        let Some(node) = self.facts.nodes.get(&id) else {
            return self.facts.impossible("a GPU's home is a node that is not known", None, Some(id));
        };
        let silent = matches!(node.availability, Availability::Unreachable { .. });
        if silent && node.boot != *boot {
            let name = node.inventory.name.clone();
            self.facts.observe_node(id, AvailabilityEvent::WrittenOff);
            let message = format!("node {name} is gone: its GPUs have turned up on another boot");
            self.facts.note(Note::new("node.lost", message).node(id));
            self.release_node(id, ReleaseProof::NewBoot, |_| true);
        }
    }

    /// Nodes that offer GPUs of one that was written off show their inventory anew.
    pub(crate) fn ask_heirs(&mut self, id: NodeId) {
        let gone = self.facts.nodes.get(&id).into_iter().flat_map(|node| &node.inventory.gpus);
        let gpus: BTreeSet<&GpuUuid> = gone.map(|gpu| &gpu.uuid).collect();
        let heirs =
            self.facts.nodes.iter().filter(|(other, node)| {
                **other != id && node.inventory.gpus.iter().any(|gpu| gpus.contains(&gpu.uuid))
            });
        let session = |other: &NodeId| self.seen.nodes.get(other)?.contact.session();
        let sessions: Vec<(NodeId, SessionId)> =
            heirs.filter_map(|(other, _)| Some((*other, session(other)?))).collect();
        for (heir, session) in sessions {
            let reason = "GPUs of another node have become this node's; register again".to_owned();
            self.facts.draft.refused.push((heir, session, reason));
        }
    }

    pub(crate) fn tell_registration(&mut self, id: NodeId, known: Option<&Node>, inventory: &NodeInventory) {
        let healthy = inventory.healthy();
        let (name, count, kind) = (&inventory.name, inventory.gpus.len(), &inventory.gpu_type);
        let message = match known {
            None => format!("node {name} offers {healthy} healthy of {count} {kind} GPUs"),
            Some(node) if node.boot != inventory.boot => format!("node {name} is back after a reboot"),
            Some(node) => match node.availability {
                Availability::Available if node.inventory == *inventory => return,
                Availability::Available => format!("node {name} now offers {healthy} healthy of {count} {kind} GPUs"),
                Availability::Registering { .. } => {
                    format!("node {name} registered with the new term {}", self.facts.term)
                }
                Availability::Unreachable { since } | Availability::Lost { since } => {
                    format!("node {name} is back after {:.0} s", self.facts.now.since(since).0)
                }
            },
        };
        // Its class too: what its GPUs are said to do decides what they are worth.
        let changed =
            |node: &Node| node.inventory.gpus != inventory.gpus || node.inventory.class() != inventory.class();
        if known.is_some_and(changed) {
            self.facts.ask_round(format!("GPUs of node {name} changed"));
        }
        let broken = inventory.gpus.iter().find_map(|gpu| match &gpu.health {
            GpuHealth::Healthy => None,
            GpuHealth::Broken(cause) => Some(format!("GPU {}: {cause}", gpu.index)),
        });
        let mut note = Note::new("node.registered", message).by(Actor::Node(id)).node(id).with("gpus", count);
        if let Some(broken) = broken {
            note = note.with("broken", broken);
        }
        self.facts.note(note);
    }
}

/// GPUs that are broken in the later inventory and were healthy in the earlier, with the cause.
fn newly_broken(earlier: &NodeInventory, later: &NodeInventory) -> Vec<(Gpu, String)> {
    let was_healthy =
        |gpu: &Gpu| earlier.gpus.iter().any(|one| one.uuid == gpu.uuid && one.health == GpuHealth::Healthy);
    let broken = later.gpus.iter().filter_map(|gpu| match &gpu.health {
        GpuHealth::Broken(cause) if was_healthy(gpu) => Some((gpu.clone(), cause.clone())),
        _ => None,
    });
    broken.collect()
}
