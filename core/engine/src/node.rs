//! Registration, sessions and the release of GPUs: what a node is and what its ledger proves. A slice of an
//! allocation is released once, with the proof by which its GPUs are known to be free.

use std::collections::BTreeMap;
use std::sync::Arc;

use headway_types::command::GroupStatus;
use headway_types::{Generation, GpuHealth, JobId, NodeId, NodeInventory};

use crate::draft::Note;
use crate::event::{Actor, SessionId};
use crate::record::{Availability, JobState, Node, NodePolicy, Release, ReleaseProof};
use crate::state::{Engine, NodeEntry, Seen, SeenGroup};

impl Engine {
    /// After a restore nothing is known of any node until it registers with this term.
    pub(crate) fn await_registrations(&mut self) {
        let since = self.now;
        let ids: Vec<NodeId> = self.nodes.keys().copied().collect();
        for id in ids {
            if self.nodes.get(&id).is_some_and(|entry| entry.node.availability == Availability::Available) {
                self.edit_node(id, |node| node.availability = Availability::Registering { since });
            }
        }
    }

    /// The first message of a session: inventory and the whole ledger.
    pub(crate) fn register(
        &mut self,
        id: NodeId,
        session: SessionId,
        inventory: NodeInventory,
        groups: Vec<GroupStatus>,
    ) {
        let name = inventory.name.clone();
        let known = self.nodes.get(&id).map(|entry| entry.node.clone());
        if let Some(Seen::Known { session: newest, .. }) = self.nodes.get(&id).map(|entry| &entry.seen)
            && *newest > session
        {
            return;
        }
        self.tell_registration(id, known.as_deref(), &inventory);
        let rebooted = known.as_ref().is_some_and(|node| node.boot != inventory.boot);
        let groups: BTreeMap<(JobId, Generation), SeenGroup> = groups
            .into_iter()
            .map(|one| {
                ((one.job, one.generation), SeenGroup { phase: one.phase, gpus: one.gpus.into_iter().collect() })
            })
            .collect();
        let listed: Vec<(JobId, Generation)> = groups.keys().copied().collect();
        let node = Node {
            boot: inventory.boot.clone(),
            inventory,
            policy: known.as_ref().map_or(NodePolicy::Schedulable, |node| node.policy.clone()),
            availability: Availability::Available,
            registered_at: self.now,
            version: known.as_ref().map_or(0, |node| node.version),
        };
        let seen = Seen::Known { session, connected: true, groups };
        self.nodes.insert(id, NodeEntry { node: Arc::new(node), heard_at: Some(self.now), seen });
        self.draft.nodes.insert(id);
        // What was sent to the former session may never have arrived.
        self.sent.retain(|(node, ..), _| *node != id);
        if rebooted {
            self.release_node(id, ReleaseProof::NewBoot, |_| true);
        } else {
            self.release_unlisted(id, &listed);
        }
        for key in listed {
            self.release_if_ended(id, key);
        }
        if known.is_none_or(|node| node.availability != Availability::Available) || rebooted {
            self.rounds.ask(format!("node {name} registered"));
        }
    }

    fn tell_registration(&mut self, id: NodeId, known: Option<&Node>, inventory: &NodeInventory) {
        let healthy = inventory.healthy();
        let (name, count, kind) = (&inventory.name, inventory.gpus.len(), &inventory.gpu_type);
        let message = match known {
            None => format!("node {name} offers {healthy} healthy of {count} {kind} GPUs"),
            Some(node) if node.boot != inventory.boot => format!("node {name} is back after a reboot"),
            Some(node) => match node.availability {
                Availability::Available if node.inventory == *inventory => return,
                Availability::Available => format!("node {name} now offers {healthy} healthy of {count} {kind} GPUs"),
                Availability::Registering { .. } => format!("node {name} registered with the new term {}", self.term),
                Availability::Unreachable { since } | Availability::Lost { since } => {
                    format!("node {name} is back after {:.0} s", self.now.since(since).0)
                }
            },
        };
        if known.is_some_and(|node| node.inventory.gpus != inventory.gpus) {
            self.rounds.ask(format!("GPUs of node {name} changed"));
        }
        let broken = inventory.gpus.iter().find_map(|gpu| match &gpu.health {
            GpuHealth::Healthy => None,
            GpuHealth::Broken(cause) => Some(format!("GPU {}: {cause}", gpu.index)),
        });
        let mut note = Note::new("node.registered", message).by(Actor::Node(id)).node(id).with("gpus", count);
        if let Some(broken) = broken {
            note = note.with("broken", broken);
        }
        self.note(note);
    }

    /// No trace in the ledger means no process, except where a Prepare may still be under way to the node: a generation
    /// that starts is sent it again, one that stops is sent a Stop, and the ledger's answer is the proof.
    fn release_unlisted(&mut self, id: NodeId, listed: &[(JobId, Generation)]) {
        let under_way: Vec<(JobId, Generation)> = self
            .jobs
            .iter()
            .filter_map(|(job, entry)| match entry.job.state {
                JobState::Starting { generation, .. } | JobState::Stopping { generation, .. } => {
                    Some((*job, generation))
                }
                _ => None,
            })
            .collect();
        self.release_node(id, ReleaseProof::NotInLedger, |key| !listed.contains(key) && !under_way.contains(key));
    }

    /// Releases the node's slice of every allocation that `which` names.
    pub(crate) fn release_node(
        &mut self,
        id: NodeId,
        proof: ReleaseProof,
        which: impl Fn(&(JobId, Generation)) -> bool,
    ) {
        let keys: Vec<(JobId, Generation)> = self
            .allocations
            .iter()
            .filter(|(key, allocation)| {
                which(key)
                    && !allocation.released.contains_key(&id)
                    && allocation.placement.slices().iter().any(|slice| slice.node == id)
            })
            .map(|(key, _)| *key)
            .collect();
        for key in keys {
            self.release_slice(id, key, proof);
        }
    }

    fn release_slice(&mut self, id: NodeId, key: (JobId, Generation), proof: ReleaseProof) {
        let at = self.now;
        self.edit_allocation(key, |allocation| {
            allocation.released.insert(id, Release { at, proof });
            if !allocation.holds() {
                allocation.ended_at = Some(at);
            }
        });
        self.rounds.ask(format!("GPUs of {} on node {} are free", self.job_name(key.0), self.node_name(id)));
    }

    /// A group that has ended frees its slice; its outcome stays in `Seen` until the job has left the generation.
    pub(crate) fn release_if_ended(&mut self, id: NodeId, key: (JobId, Generation)) {
        let ended = self
            .nodes
            .get(&id)
            .and_then(|entry| entry.group(key.0, key.1))
            .is_some_and(|group| matches!(group.phase, headway_types::GroupPhase::Ended { .. }));
        let holds = self.allocations.get(&key).is_some_and(|allocation| {
            !allocation.released.contains_key(&id) && allocation.placement.slices().iter().any(|one| one.node == id)
        });
        if ended && holds {
            self.release_slice(id, key, ReleaseProof::Reported);
        }
    }

    pub(crate) fn disconnected(&mut self, id: NodeId, ended: SessionId) {
        if let Some(NodeEntry { seen: Seen::Known { session, connected, .. }, .. }) = self.nodes.get_mut(&id)
            && *session == ended
        {
            *connected = false;
        }
    }
}
