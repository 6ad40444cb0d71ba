//! A store that was restored from a backup by `headway admin restore`: what nodes have lived through since, it does not know. Its term is above
//! all that they follow, so they obey at once; but what waits here may be running there. So no GPUs are granted until every node that the
//! store knows has come back and said what it runs, or has had the time to. See `docs/decisions/0016-restored-terms.md`.

use std::collections::BTreeSet;
use std::sync::Arc;

use headway_types::{Generation, JobId, Timestamp};

use crate::draft::Note;
use crate::engine::Engine;
use crate::job::JobEvent;
use crate::record::{Availability, Job, JobState};

/// By so much the generation of each job rises that holds nothing: more than any may have begun since the backup.
pub(crate) const LEAP: u64 = 1_000;
/// Why a job that must not run twice is on hold after a restore.
const MAY_HAVE_RUN: &str = "the job may have run since";
/// Nodes that are named one by one.
const NAMED: usize = 5;

/// While nodes are waited for after a restore.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Returning {
    /// Of when the store was as it was restored.
    pub backup_of: Timestamp,
    /// Nobody is waited for any longer.
    pub until: Timestamp,
    /// Nodes that have not come back yet.
    pub awaited: usize,
}

impl Engine {
    /// The store says that it was restored, and by no later leader that its nodes are back.
    pub(crate) fn begin_return(&mut self, backup_of: Timestamp) {
        let lost =
            |id| self.facts.nodes.get(&id).is_some_and(|node| matches!(node.availability, Availability::Lost { .. }));
        let awaited = self.facts.nodes.keys().copied().filter(|id| !lost(*id)).collect();
        self.wait_for(awaited);
        let live = self.facts.jobs.values().filter(|job| !job.state.is_final());
        let (idle, holding): (Vec<JobId>, BTreeSet<JobId>) = {
            let holds = |job: &&Arc<Job>| job.state.generation().is_some() || self.facts.still_holds(job.id);
            let (holding, idle): (Vec<_>, Vec<_>) = live.partition(holds);
            (idle.iter().map(|job| job.id).collect(), holding.iter().map(|job| job.id).collect())
        };
        for id in &idle {
            self.leap(*id);
        }
        for id in idle.into_iter().chain(holding.iter().copied()) {
            self.hold_if_it_may_have_run(id, backup_of);
        }
        self.seen.old_generations = holding;
        let message = format!(
            "the database was restored from a backup of {} ago; no GPUs are granted until {} are back, or have been silent for too long",
            self.facts.now.since(backup_of).words(),
            nodes(self.seen.awaited.len()),
        );
        self.facts.note(Note::new("cluster.restored", message).with("nodes", self.seen.awaited.len()));
        self.seen.restored = Some(backup_of);
    }

    /// A job that waited or was on hold when the backup was made may have run since. One that must not run twice is put on
    /// hold: only its owner can tell. Where it was on hold before, that reason stays in front.
    fn hold_if_it_may_have_run(&mut self, id: JobId, backup_of: Timestamp) {
        let runs_once = |job: &&Arc<Job>| job.spec.limits.forbid_restart();
        let Some(job) = self.facts.jobs.get(&id).filter(runs_once) else { return };
        let before = match &job.state {
            JobState::Queued { .. } => None,
            JobState::Held { reason, .. } => reason.clone().filter(|reason| !reason.contains(MAY_HAVE_RUN)),
            _ => return,
        };
        let name = job.spec.name.clone();
        let before = before.map_or(String::new(), |reason| format!("{reason}; "));
        let age = self.facts.now.since(backup_of).words();
        let reason = format!(
            "{before}the database was restored from a backup of {age} ago, and {MAY_HAVE_RUN}; it must not run twice. \
             Release it if it has not run, cancel it if it has"
        );
        if self.transition(id, JobEvent::Hold { reason: Some(reason.clone()) }) {
            self.facts.note(Note::new("job.held", format!("{name} is put on hold: {reason}")).job(id));
        }
    }

    /// So that no node has seen the next generation of the job.
    pub(crate) fn leap(&mut self, id: JobId) {
        self.facts.edit_job(id, |job| job.generation = Generation(job.generation.0.saturating_add(LEAP)));
    }

    /// Ends the wait once all are back, or their time is over.
    pub(crate) fn check_return(&mut self) {
        if self.seen.restored.is_none() || self.situation().behind_until().is_some() {
            return;
        }
        self.seen.restored = None;
        let missing: Vec<String> = self.not_back().into_iter().map(|id| self.facts.node_name(id)).collect();
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

    /// Who is waited for, for whoever looks.
    pub(crate) fn returning(&self) -> Option<Returning> {
        let (backup_of, until) = self.seen.restored.zip(self.situation().behind_until())?;
        Some(Returning { backup_of, until, awaited: self.seen.awaited.len() })
    }
}

fn nodes(count: usize) -> String {
    if count == 1 { "1 node".into() } else { format!("{count} nodes") }
}
