//! Registration, sessions and the release of GPUs: what a node is and what its ledger proves. A slice of an
//! allocation is released once, with the proof by which its GPUs are known to be free.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use headway_types::command::GroupStatus;
use headway_types::{Generation, GroupPhase, JobId, NodeId, NodeInventory};

use crate::account::GpuTime;
use crate::draft::Note;
use crate::engine::Engine;
use crate::event::SessionId;
use crate::health::Incident;
use crate::record::{
    AllocationPhase, Availability, AvailabilityEvent, JobState, Node, NodeHealth, NodePolicy, Release, ReleaseProof,
};
use crate::seen::{Contact, NodeSeen, SeenGroup};

impl Engine {
    /// The first message of a session: inventory and the whole ledger.
    pub(crate) fn register(
        &mut self,
        id: NodeId,
        session: SessionId,
        inventory: NodeInventory,
        groups: Vec<GroupStatus>,
    ) {
        self.facts.unsettled = true;
        let known = self.facts.nodes.get(&id).cloned();
        if let Some(Contact::Had { session: newest, .. }) = self.seen.nodes.get(&id).map(|seen| &seen.contact)
            && *newest > session
        {
            return;
        }
        if let Some(reason) = self.objection(id, &inventory) {
            return self.turn_away(id, session, reason);
        }
        // What is not listed is taken for ended: a list that is too long is not taken at all.
        let of = (id, inventory.name.as_str(), inventory.gpus.len());
        if let Some(reason) = self.objection_to(of, groups.len(), groups.iter()) {
            return self.turn_away(id, session, reason);
        }
        let inventory = self.with_own_gpus(inventory);
        self.tell_registration(id, known.as_deref(), &inventory);
        let before = known.as_ref().map_or(&[][..], |node| &node.inventory.conditions);
        self.tell_conditions(id, &inventory.name, before, &inventory.conditions);
        let was_leaving = known.as_ref().and_then(|node| node.inventory.leaving_reason.clone());
        self.tell_leaving(id, was_leaving.as_deref(), &inventory);
        let rebooted = known.as_ref().is_some_and(|node| node.boot != inventory.boot);
        // Jobs that wait may go there now, and those that were to go there may not.
        let takes_others = known.as_ref().is_some_and(|node| node.inventory.account != inventory.account);
        let available = known.as_ref().is_some_and(|node| node.availability == Availability::Available);
        let news = rebooted || takes_others || !available || was_leaving != inventory.leaving_reason;
        let listed = self.take_in(id, session, known.as_deref(), inventory, groups);
        if rebooted {
            if known.is_some_and(|node| node.is_in_service()) {
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
            self.facts.ask_round(format!("node {} registered", self.facts.node_name(id)));
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
            registered_at: self.facts.now,
            labels: known.map_or_else(BTreeMap::new, |node| node.labels.clone()),
            version: known.map_or(0, |node| node.version),
        };
        self.facts.nodes.insert(id, Arc::new(node));
        let contact = Contact::Had { session, connected: true, groups };
        self.seen.nodes.insert(id, NodeSeen::new(Some(self.facts.now), contact));
        self.facts.observe_node(id, AvailabilityEvent::Registered);
        self.facts.draft.entered.nodes.insert(id);
        if self.seen.ahead.contains_key(&id) {
            Arc::make_mut(&mut self.seen.ahead).remove(&id);
        }
        self.seen.awaited.remove(&id);
        self.seen.forget_sent_to(id);
        listed
    }

    /// A report of the node's newest session renews its lease.
    pub(super) fn renew(&mut self, id: NodeId) {
        let (Some(node), Some(seen)) = (self.facts.nodes.get(&id), self.seen.nodes.get_mut(&id)) else {
            return self.facts.impossible("a node that is not known has a session", None, Some(id));
        };
        seen.heard_at = Some(self.facts.now);
        self.facts.draft.shown_nodes.insert(id);
        if let Availability::Unreachable { since } = node.availability {
            let name = node.inventory.name.clone();
            self.facts.observe_node(id, AvailabilityEvent::Heard);
            let message = format!("node {name} is heard again after {:.0} s", self.facts.now.since(since).0);
            self.facts.note(Note::new("node.available", message).node(id));
            self.facts.ask_round(format!("node {name} is reachable again"));
        }
    }

    /// The node's stream, if it stands, is ended; what still comes on it is heard by nobody.
    pub(crate) fn refuse_session(&mut self, id: NodeId, reason: &str) {
        if let Some(Contact::Had { session, connected, .. }) =
            self.seen.nodes.get_mut(&id).map(|seen| &mut seen.contact)
            && std::mem::take(connected)
        {
            self.facts.draft.refused.push((id, *session, reason.to_owned()));
            self.facts.draft.shown_nodes.insert(id);
        }
    }

    /// No trace in the ledger means no process, except where a Prepare may still be under way to the node: a generation
    /// that starts is sent it again, one that stops is sent a Stop, and the ledger's answer is the proof.
    fn release_unlisted(&mut self, id: NodeId, listed: &[(JobId, Generation)]) {
        let under_way = |(job, generation): &(JobId, Generation)| {
            self.facts.jobs.get(job).is_some_and(|job| {
                let state = &job.state;
                matches!(state, JobState::Starting { .. } | JobState::Stopping { .. })
                    && state.generation() == Some(*generation)
            })
        };
        let gone: BTreeSet<(JobId, Generation)> = self.facts.holding.get(&id).map_or_else(BTreeSet::new, |held| {
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
        let held = self.facts.holding.get(&id).cloned().unwrap_or_default();
        for key in held.into_iter().filter(which) {
            self.release_slice(id, key, proof);
        }
    }

    fn release_slice(&mut self, id: NodeId, key: (JobId, Generation), proof: ReleaseProof) {
        let at = self.facts.now;
        self.facts.edit_allocation(key, |allocation| {
            allocation.released.insert(id, Release { at, proof });
        });
        if self.facts.allocations.get(&key).is_some_and(|allocation| !allocation.holds()) {
            self.facts.advance(key, AllocationPhase::Ended);
            let time = self.facts.allocations.get(&key).map(|allocation| GpuTime::of(allocation, at).total());
            self.facts.edit_job(key.0, |job| job.attained += time.unwrap_or_default());
        }
        if let Some(held) = self.facts.holding.get_mut(&id) {
            held.remove(&key);
        }
        self.facts.draft.shown_nodes.insert(id);
        self.facts.ask_round(format!(
            "GPUs of {} on node {} are free",
            self.facts.job_name(key.0),
            self.facts.node_name(id)
        ));
    }

    /// A group that has ended frees its slice; its outcome stays seen until the job has left the generation.
    pub(crate) fn release_if_ended(&mut self, id: NodeId, key: (JobId, Generation)) {
        let ended = self.seen.group(id, key).is_some_and(|group| matches!(group.phase, GroupPhase::Ended { .. }));
        if ended && self.facts.allocations.get(&key).is_some_and(|allocation| allocation.holds_on(id)) {
            self.release_slice(id, key, ReleaseProof::Reported);
        }
    }

    pub(crate) fn disconnected(&mut self, id: NodeId, ended: SessionId) {
        if let Some(Contact::Had { session, connected, .. }) =
            self.seen.nodes.get_mut(&id).map(|seen| &mut seen.contact)
            && *session == ended
        {
            *connected = false;
            self.facts.unsettled = true;
            self.facts.draft.shown_nodes.insert(id);
        }
    }
}
