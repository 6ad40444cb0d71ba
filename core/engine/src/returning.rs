//! A store that was restored from a backup by `headway admin restore`: what nodes have lived through since, it does not know. Its term is above
//! all that they follow, so they obey at once; but what waits here may be running there. So no GPUs are granted until every node that the
//! store knows has come back and said what it runs, or has had the time to. See `docs/decisions/0016-restored-terms.md`.

use std::collections::BTreeSet;

use headway_types::{Generation, JobId, NodeId, Seconds, Timestamp};

use crate::draft::Note;
use crate::engine::Engine;
use crate::record::{Availability, Job};
use crate::situation::Situation;

/// Nodes dial every ten seconds at most; one that has not come after so long is not waited for.
const PATIENCE: Seconds = Seconds(60.0);
/// By so much the generation of each job rises that holds nothing: more than any may have begun since the backup.
const LEAP: u64 = 1_000;
/// Nodes that are named one by one.
const NAMED: usize = 5;

/// While nodes are waited for after a restore.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Returning {
    /// Of when the store was as it was restored.
    pub backup_of: Timestamp,
    /// Nobody is waited for any longer.
    pub until: Timestamp,
    /// Nodes that have not come back yet.
    pub awaited: BTreeSet<NodeId>,
}

impl Engine {
    /// The store says that it was restored, and by no later leader that its nodes are back.
    pub(crate) fn begin_return(&mut self, backup_of: Timestamp) {
        let lost = |id: &NodeId| {
            self.facts.nodes.get(id).is_some_and(|node| matches!(node.availability, Availability::Lost { .. }))
        };
        let awaited: BTreeSet<NodeId> = self.facts.nodes.keys().copied().filter(|id| !lost(id)).collect();
        let patience = Seconds(PATIENCE.0.max(2.0 * self.facts.config.lease.0));
        let idle: Vec<JobId> = self.facts.jobs.values().filter(|job| !job.state.is_final()).map(|job| job.id).collect();
        idle.into_iter().for_each(|id| self.leap_after_restore(id));
        let message = format!(
            "the database was restored from a backup of {} ago; no GPUs are granted until {} are back, for {} at most",
            self.facts.now.since(backup_of).words(),
            nodes(awaited.len()),
            patience.words()
        );
        self.facts.note(Note::new("cluster.restored", message).with("nodes", awaited.len()));
        self.seen.returning = Some(Returning { backup_of, until: self.facts.now + patience, awaited });
    }

    /// A node has said what it runs.
    pub(crate) fn has_returned(&mut self, id: NodeId) {
        if let Some(returning) = &mut self.seen.returning {
            returning.awaited.remove(&id);
        }
    }

    /// Where a store was restored, no node has seen the next generation of a job that holds nothing.
    pub(crate) fn leap_after_restore(&mut self, id: JobId) {
        let holds_nothing = |job: &Job| job.state.generation().is_none();
        if self.facts.jobs.get(&id).is_some_and(|job| holds_nothing(job)) && !self.facts.still_holds(id) {
            self.facts.edit_job(id, |job| job.generation = Generation(job.generation.0.saturating_add(LEAP)));
        }
    }

    /// Ends the wait once all are back, or their time is over.
    pub(crate) fn check_return(&mut self) {
        let over = |one: &Returning| one.awaited.is_empty() || one.until <= self.facts.now;
        let Some(returning) = self.seen.returning.take_if(|one| over(one)) else { return };
        let missing: Vec<String> = returning.awaited.iter().map(|id| self.facts.node_name(*id)).collect();
        let message = match missing.len() {
            0 => "all nodes are back after the restore; GPUs are granted again".to_owned(),
            many => format!(
                "{} did not come back after the restore ({}{}); GPUs of the others are granted again. What runs there and is not known here \
                 is stopped when they do",
                nodes(many),
                missing[..many.min(NAMED)].join(", "),
                if many > NAMED { ", …" } else { "" }
            ),
        };
        self.facts.note(Note::new("cluster.returned", message).with("missing", missing.len()));
        self.facts.draft.returned = true;
        self.facts.ask_round("nodes are back after a restore".into());
    }
}

fn nodes(count: usize) -> String {
    if count == 1 { "1 node".into() } else { format!("{count} nodes") }
}

impl Situation<'_> {
    /// Until when nodes are waited for that may run what the restored store takes for waiting.
    pub fn returning_until(self) -> Option<Timestamp> {
        self.seen.returning.as_ref().map(|one| one.until)
    }
}
