//! Nodes that follow a newer term than this one: what the store says is older than what they have lived through, since a backup was
//! restored, or they come from another cluster. They obey nothing until an operator has said that this store is the one that counts;
//! then a term begins that is above all of theirs. See `docs/decisions/0016-restored-terms.md`.

use std::collections::BTreeMap;
use std::sync::Arc;

use headway_types::{Generation, JobId, NodeId, Seconds, Term, Timestamp};

use crate::draft::Note;
use crate::engine::Engine;
use crate::event::Actor;
use crate::outcome::{Readmission, Refusal, Reply};
use crate::record::Job;
use crate::situation::Situation;

/// Nodes that are kept; of more it is enough to know that there are many.
const AT_MOST: usize = 1_000;
/// By so much the generation of each job rises: more than any may have begun since the backup.
const LEAP: u64 = 1_000;
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
        if let Some(known) = self.seen.ahead.get_mut(&node) {
            (known.heard_at, known.term) = (now, known.term.max(term));
            return;
        }
        if self.seen.ahead.len() >= AT_MOST {
            return;
        }
        let message = format!(
            "node {name} follows term {term}, this scheduler leads {}: its database was restored from an older backup, or the node is of \
             another cluster. It obeys nothing until an operator readmits it (`headway admin readmit`)",
            self.facts.term
        );
        let note = Note::new("node.ahead", message).by(Actor::Node(node)).with("term", term);
        let known = self.facts.nodes.contains_key(&node);
        self.facts.note(if known { note.node(node) } else { note.with("node", node) });
        self.seen.ahead.insert(node, Ahead { name, term, since: now, heard_at: now });
        self.facts.unsettled = true;
    }

    /// An operator vouches for the store: the next term is above all that nodes have followed, and jobs that wait begin again with
    /// generations that no node has seen.
    pub(crate) fn readmit(&mut self, actor: &Actor, reason: Option<String>) -> Result<Reply, Refusal> {
        let highest = self.seen.ahead.values().map(|one| one.term).max();
        let Some(highest) = highest else {
            return Err(Refusal::WrongState(format!("no node follows a newer term than {}", self.facts.term)));
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
        let nodes: BTreeMap<NodeId, Ahead> = self.seen.ahead.clone();
        let why = reason.map_or(String::new(), |reason| format!(": {reason}"));
        let names: Vec<&str> = nodes.values().take(5).map(|one| one.name.as_str()).collect();
        let more =
            if nodes.len() > names.len() { format!(" and {} more", nodes.len() - names.len()) } else { String::new() };
        let message = format!("{} is readmitted{more}; the next term is above {term}{why}", names.join(", "));
        self.facts.note(Note::new("node.readmitted", message).by(actor.clone()).with("term", term));
        Ok(Reply::Readmitted(Readmission { term: Term(term.0.saturating_add(1)), nodes }))
    }
}

impl Situation<'_> {
    /// Until when what the store says is known to be old: a node of this cluster is ahead of it, on which anything may run by now.
    pub fn behind_until(self) -> Option<Timestamp> {
        let patience = Seconds(SILENT.0.max(self.facts.config.lease.0));
        let ours = self.seen.ahead.iter().filter(|(node, _)| self.facts.nodes.contains_key(node));
        ours.map(|(_, one)| one.heard_at + patience).max().filter(|until| *until > self.facts.now)
    }
}
