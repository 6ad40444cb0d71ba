//! Registration, sessions and the release of GPUs: what a node is and what its ledger proves. A slice of an
//! allocation is released once, with the proof by which its GPUs are known to be free.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use headway_types::command::GroupStatus;
use headway_types::{Generation, GpuUuid, GroupPhase, JobId, NodeId, NodeInventory, Seconds};

use crate::account::GpuTime;
use crate::draft::Note;
use crate::entry::{NodeEntry, Seen, SeenGroup};
use crate::event::SessionId;
use crate::health::Incident;
use crate::record::{
    AllocationPhase, Availability, AvailabilityEvent, JobState, Node, NodeHealth, NodePolicy, Release, ReleaseProof,
};
use crate::state::Engine;

/// How often the event log is told that another machine claims a node's id.
const IMPOSTOR_AGAIN: Seconds = Seconds(600.0);

impl Engine {
    /// After a restore nothing is known of any node until it registers with this term.
    pub(crate) fn await_registrations(&mut self) {
        let ids: Vec<NodeId> = self.nodes.keys().copied().collect();
        for id in ids {
            self.observe_node(id, AvailabilityEvent::TakenOver);
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
        self.unsettled = true;
        let known = self.nodes.get(&id).map(|entry| entry.node.clone());
        if let Some(Seen::Known { session: newest, .. }) = self.nodes.get(&id).map(|entry| &entry.seen)
            && *newest > session
        {
            return;
        }
        if self.is_impostor(id, &inventory) {
            return self.refuse_impostor(id, session);
        }
        let inventory = self.with_own_gpus(inventory);
        self.tell_registration(id, known.as_deref(), &inventory);
        let rebooted = known.as_ref().is_some_and(|node| node.boot != inventory.boot);
        let news = rebooted || known.as_ref().is_none_or(|node| node.availability != Availability::Available);
        let listed = self.take_in(id, session, known.as_deref(), inventory, groups);
        if rebooted {
            if known.is_some_and(|node| node.policy == NodePolicy::Schedulable) {
                self.incident(id, Incident::Rebooted, "it rebooted");
            }
            self.release_node(id, ReleaseProof::NewBoot, |_| true);
        } else {
            self.release_unlisted(id, &listed);
        }
        for key in listed {
            self.release_if_ended(id, key);
        }
        if news {
            self.rounds.ask(format!("node {} registered", self.node_name(id)));
        }
    }

    /// Replaces what was known of the node; returns what its ledger lists.
    fn take_in(
        &mut self,
        id: NodeId,
        session: SessionId,
        known: Option<&Node>,
        inventory: NodeInventory,
        groups: Vec<GroupStatus>,
    ) -> Vec<(JobId, Generation)> {
        let seen_group = |one: GroupStatus| ((one.job, one.generation), SeenGroup::from(one));
        let groups: BTreeMap<(JobId, Generation), SeenGroup> = groups.into_iter().map(seen_group).collect();
        let listed = groups.keys().copied().collect();
        let node = Node {
            boot: inventory.boot.clone(),
            inventory,
            policy: known.map_or(NodePolicy::Schedulable, |node| node.policy.clone()),
            availability: known.map_or(Availability::Available, |node| node.availability),
            health: known.map_or_else(NodeHealth::default, |node| node.health.clone()),
            registered_at: self.now,
            version: known.map_or(0, |node| node.version),
        };
        let mut entry = NodeEntry::new(Arc::new(node));
        entry.heard_at = Some(self.now);
        entry.seen = Seen::Known { session, connected: true, groups };
        self.nodes.insert(id, entry);
        self.observe_node(id, AvailabilityEvent::Registered);
        self.draft.entered.nodes.insert(id);
        // What was sent to the former session may never have arrived.
        self.sent.retain(|(_, _, node, ..), _| *node != id);
        listed
    }

    /// Another machine under this node's id: the one known was heard within its lease and runs on another boot. A node
    /// that has really rebooted is taken for one for no longer than that.
    fn is_impostor(&self, id: NodeId, inventory: &NodeInventory) -> bool {
        self.nodes.get(&id).is_some_and(|entry| {
            let fresh = entry.heard_at.is_some_and(|at| self.now.since(at).0 < self.config.lease.0);
            fresh && entry.node.boot != inventory.boot && entry.node.inventory.name != inventory.name
        })
    }

    fn refuse_impostor(&mut self, id: NodeId, session: SessionId) {
        let name = self.node_name(id);
        let message = format!(
            "node id {id} belongs to node {name}, which is alive; if this machine is a copy of it, delete node_id in \
             its agent's data directory"
        );
        self.draft.refused.push((id, session, message.clone()));
        let now = self.now;
        let Some(entry) = self.nodes.get_mut(&id) else { return };
        if entry.impostor_at.is_none_or(|at| now.since(at).0 >= IMPOSTOR_AGAIN.0) {
            entry.impostor_at = Some(now);
            self.note(Note::new("node.refused", message).node(id));
        }
    }

    /// No trace in the ledger means no process, except where a Prepare may still be under way to the node: a generation
    /// that starts is sent it again, one that stops is sent a Stop, and the ledger's answer is the proof.
    fn release_unlisted(&mut self, id: NodeId, listed: &[(JobId, Generation)]) {
        let under_way = |(job, generation): &(JobId, Generation)| {
            self.jobs.get(job).is_some_and(|entry| {
                let state = &entry.job.state;
                matches!(state, JobState::Starting { .. } | JobState::Stopping { .. })
                    && state.generation() == Some(*generation)
            })
        };
        let gone: BTreeSet<(JobId, Generation)> = self.holding.get(&id).map_or_else(BTreeSet::new, |held| {
            held.iter().filter(|key| !listed.contains(key) && !under_way(key)).copied().collect()
        });
        self.release_node(id, ReleaseProof::NotInLedger, |key| gone.contains(key));
    }

    /// Releases the node's slice of every allocation that `which` names.
    pub(crate) fn release_node(
        &mut self,
        id: NodeId,
        proof: ReleaseProof,
        which: impl Fn(&(JobId, Generation)) -> bool,
    ) {
        let held = self.holding.get(&id).cloned().unwrap_or_default();
        for key in held.into_iter().filter(which) {
            self.release_slice(id, key, proof);
        }
    }

    fn release_slice(&mut self, id: NodeId, key: (JobId, Generation), proof: ReleaseProof) {
        let at = self.now;
        self.edit_allocation(key, |allocation| {
            allocation.released.insert(id, Release { at, proof });
        });
        if self.allocations.get(&key).is_some_and(|allocation| !allocation.holds()) {
            self.advance(key, AllocationPhase::Ended);
            let time = self.allocations.get(&key).map(|allocation| GpuTime::of(allocation, at).total());
            self.edit_job(key.0, |job| job.attained += time.unwrap_or_default());
        }
        if let Some(held) = self.holding.get_mut(&id) {
            held.remove(&key);
        }
        self.draft.shown_nodes.insert(id);
        self.rounds.ask(format!("GPUs of {} on node {} are free", self.job_name(key.0), self.node_name(id)));
    }

    /// A group that has ended frees its slice; its outcome stays in `Seen` until the job has left the generation.
    pub(crate) fn release_if_ended(&mut self, id: NodeId, key: (JobId, Generation)) {
        let ended = self
            .nodes
            .get(&id)
            .and_then(|entry| entry.group(key.0, key.1))
            .is_some_and(|group| matches!(group.phase, GroupPhase::Ended { .. }));
        if ended && self.allocations.get(&key).is_some_and(|allocation| allocation.holds_on(id)) {
            self.release_slice(id, key, ReleaseProof::Reported);
        }
    }

    /// Every GPU of a node that may have processes on it, with the generation that holds it. Groups that nobody knows
    /// hold their GPUs until they are gone, too.
    pub(crate) fn held_on(&self, id: NodeId) -> BTreeMap<GpuUuid, (JobId, Generation)> {
        let mut held = BTreeMap::new();
        // What a node said before it was written off holds nothing: the operator has vouched for that.
        let vouched = |entry: &&NodeEntry| !matches!(entry.node.availability, Availability::Lost { .. });
        if let Some(Seen::Known { groups, .. }) = self.nodes.get(&id).filter(vouched).map(|entry| &entry.seen) {
            for (key, group) in groups {
                if !matches!(group.phase, GroupPhase::Ended { .. }) {
                    held.extend(group.gpus.iter().map(|gpu| (gpu.clone(), *key)));
                }
            }
        }
        for key in self.holding.get(&id).into_iter().flatten() {
            let slices = self.allocations.get(key).into_iter().flat_map(|one| one.placement.slices());
            for slice in slices.filter(|slice| slice.node == id) {
                held.extend(slice.gpus.iter().map(|gpu| (gpu.clone(), *key)));
            }
        }
        held
    }

    pub(crate) fn disconnected(&mut self, id: NodeId, ended: SessionId) {
        if let Some(NodeEntry { seen: Seen::Known { session, connected, .. }, .. }) = self.nodes.get_mut(&id)
            && *session == ended
        {
            *connected = false;
            self.unsettled = true;
            self.draft.shown_nodes.insert(id);
        }
    }
}
