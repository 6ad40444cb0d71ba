//! Nodes that follow a newer term than this one: what the store says is older than what they have lived through, since a backup was
//! restored, or they come from another cluster. They obey nothing until an operator has said that this store is the one that counts;
//! then a term begins that is above all of theirs. See `docs/decisions/0016-restored-terms.md`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use headway_types::{Generation, GroupPhase, JobId, NodeId, Seconds, Term, Timestamp};

use crate::draft::Note;
use crate::engine::Engine;
use crate::event::Actor;
use crate::outcome::{Readmission, Refusal, Reply};
use crate::record::{Availability, Job};
use crate::situation::Situation;

/// Nodes that are kept; of more it is enough to know that there are many.
const AT_MOST: usize = 1_000;
/// By so much the generation of each job rises: more than any may have begun since the backup.
const LEAP: u64 = 1_000;
/// A term beyond so many more is nothing that a history of this cluster can have come to, and is not taken over.
const FURTHEST: u64 = 1_000_000;
/// A node that has not dialled for so long no longer keeps anybody waiting.
const SILENT: Seconds = Seconds(60.0);

/// A node that does not follow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ahead {
    pub name: String,
    /// The term it follows.
    pub term: Term,
    pub since: Timestamp,
    /// When it last dialled.
    pub heard_at: Timestamp,
}

impl Engine {
    /// A node has dialled that follows a newer term, and was refused.
    pub(crate) fn node_ahead(&mut self, node: NodeId, name: String, term: Term) {
        let now = self.facts.now;
        let row = self.facts.nodes.get(&node);
        let (known, name) = (row.is_some(), row.map_or(name, |row| row.inventory.name.clone()));
        let ahead = Arc::make_mut(&mut self.seen.ahead);
        if let Some(entry) = ahead.get_mut(&node) {
            (entry.heard_at, entry.term) = (now, entry.term.max(term));
            return;
        }
        if ahead.len() >= AT_MOST {
            // Nodes of this cluster hold up what is granted: strangers give way to them, and to each other once they are silent.
            let silent = |one: &Ahead| now.since(one.heard_at) > SILENT;
            let stranger = |(id, one): &(&NodeId, &Ahead)| !self.facts.nodes.contains_key(id) && (known || silent(one));
            let Some(gives_way) = ahead.iter().find(stranger).map(|(id, _)| *id) else { return };
            ahead.remove(&gives_way);
        }
        let message = format!(
            "node {name} follows term {term}, this scheduler leads {}: its database was restored from an older backup, or the node is of \
             another cluster. It obeys nothing until an operator readmits it (`headway admin readmit`)",
            self.facts.term
        );
        let note = Note::new("node.ahead", message).by(Actor::Node(node)).with("term", term);
        self.facts.note(if known { note.node(node) } else { note.with("node", node) });
        ahead.insert(node, Ahead { name, term, since: now, heard_at: now });
        self.facts.unsettled = true;
    }

    /// An operator vouches for the store: the next term is above all that nodes have followed, and jobs that wait begin again with
    /// generations that no node has seen.
    pub(crate) fn readmit(&mut self, actor: &Actor, reason: Option<String>) -> Result<Reply, Refusal> {
        let furthest = Term(self.facts.term.0.saturating_add(FURTHEST));
        let (nodes, beyond): (BTreeMap<NodeId, Ahead>, BTreeMap<NodeId, Ahead>) =
            self.seen.ahead.iter().map(|(id, one)| (*id, one.clone())).partition(|(_, one)| one.term <= furthest);
        let Some(highest) = nodes.values().map(|one| one.term).max() else {
            return Err(Refusal::WrongState(match beyond.values().next() {
                Some(one) => format!(
                    "node {} says that it follows term {}, this scheduler leads {}: no history of this cluster comes so far. Stop the \
                     agent, move its data directory away and start it again",
                    one.name, one.term, self.facts.term
                ),
                None => format!("no node follows a newer term than {}", self.facts.term),
            }));
        };
        let term = highest.max(self.facts.term);
        let waits = |job: &&Arc<Job>| !job.state.is_final() && job.state.generation().is_none();
        let waiting = self.facts.jobs.values().filter(waits).map(|job| job.id);
        // What may still run somewhere is asked to save under the generation that it has.
        let waiting: Vec<JobId> = waiting.filter(|id| !self.facts.still_holds(*id)).collect();
        for id in waiting {
            self.facts.edit_job(id, |job| job.generation = Generation(job.generation.0.saturating_add(LEAP)));
        }
        self.facts.draft.term = Some(term);
        let why = reason.map_or(String::new(), |reason| format!(": {reason}"));
        let names: Vec<&str> = nodes.values().take(5).map(|one| one.name.as_str()).collect();
        let more =
            if nodes.len() > names.len() { format!(" and {} more", nodes.len() - names.len()) } else { String::new() };
        let left_out = match beyond.len() {
            0 => String::new(),
            many => format!("; {many} whose terms are beyond {furthest} stay out"),
        };
        let message = format!("{} is readmitted{more}{left_out}; the next term is above {term}{why}", names.join(", "));
        self.facts.note(Note::new("node.readmitted", message).by(actor.clone()).with("term", term));
        Ok(Reply::Readmitted(Readmission { term: Term(term.0.saturating_add(1)), nodes }))
    }
}

impl Engine {
    /// Nodes of this cluster that were ahead in this term, or before, and have not registered since: what the next term waits for.
    #[must_use]
    pub fn not_back(&self) -> BTreeSet<NodeId> {
        let (ahead, awaited) = (self.seen.ahead.keys(), self.seen.awaited.keys());
        ahead.chain(awaited).copied().filter(|node| self.facts.nodes.contains_key(node)).collect()
    }

    /// At the beginning of a term: nothing is granted before these are back, or have been silent for too long.
    pub fn wait_for(&mut self, nodes: BTreeSet<NodeId>) {
        let now = self.facts.now;
        self.seen.awaited = nodes.into_iter().map(|node| (node, now)).collect();
    }
}

impl Situation<'_> {
    /// Until when what the store says is known to be old: a node of this cluster is ahead of it, or was and is not back, on which anything
    /// may run by now.
    pub fn behind_until(self) -> Option<Timestamp> {
        let patience = Seconds(SILENT.0.max(self.facts.config.lease.0));
        let ahead = self.seen.ahead.iter().map(|(node, one)| (node, one.heard_at));
        let last = ahead.chain(self.seen.awaited.iter().map(|(node, since)| (node, *since)));
        let ours = last.filter(|(node, _)| self.facts.nodes.contains_key(node));
        ours.map(|(_, at)| at + patience).max().filter(|until| *until > self.facts.now)
    }

    /// Jobs that have a group on some node which has not ended there, of a generation for which the store knows no grant. Looks at every
    /// group.
    pub fn unknown_on_nodes(self) -> BTreeSet<JobId> {
        let lost = |id: &NodeId| {
            self.facts.nodes.get(id).is_none_or(|node| matches!(node.availability, Availability::Lost { .. }))
        };
        let said = self.seen.nodes.iter().filter(|(id, _)| !lost(id)).filter_map(|(_, seen)| seen.contact.groups());
        let unknown = said.flatten().filter(|(key, group)| {
            !matches!(group.phase, GroupPhase::Ended { .. }) && !self.facts.allocations.contains_key(*key)
        });
        unknown.map(|((job, _), _)| *job).collect()
    }
}
