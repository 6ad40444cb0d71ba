//! What agents say. Reports of an older session than the node's newest are dropped here; reports of a generation
//! that is not the job's newest teach nothing and commit nothing.

mod fallback;
mod inventory;
pub(crate) mod pace;
mod plausible;
mod refusals;
mod registration;
mod steps;

use std::collections::BTreeMap;
use std::sync::Arc;

use headway_types::command::GroupStatus;
use headway_types::{
    AgentCommand, Capabilities, CheckpointRef, Generation, GroupPhase, JobId, NodeId, NodeReport, Seconds, Timestamp,
};

use crate::draft::Note;
use crate::engine::Engine;
use crate::event::{Actor, SessionId};
use crate::record::{Checkpoint, JobState, NotFiniteLoss};
use crate::seen::{SeenGroup, ToldSilence};

/// What the phases of a change of layout in memory begin with.
const RESHARD: &str = "reshard_";
/// Seconds; what is beyond a day is no measurement, and what is infinite could not be stored.
const LONGEST: f64 = 86_400.0;
/// Phases of a start that the log names.
const PHASES_TOLD: usize = 12;
/// Between two words in the log on the loss of one job.
const ANOMALY_PAUSE: Seconds = Seconds(60.0);

impl Engine {
    pub(crate) fn hear(&mut self, node: NodeId, session: SessionId, report: NodeReport) {
        if let NodeReport::Registered { inventory, groups } = report {
            self.register(node, session, *inventory, groups);
            return;
        }
        let newest = self.seen.nodes.get(&node).and_then(|seen| seen.contact.session());
        if newest != Some(session) {
            return;
        }
        self.renew(node);
        match report {
            NodeReport::Registered { .. } | NodeReport::Heartbeat => {}
            NodeReport::Inventory { inventory } => self.inventory_changed(node, session, *inventory),
            NodeReport::RankTimes { job, generation, busy } => {
                if self.facts.is_newest(job, generation) {
                    self.rank_times(node, job, generation, busy);
                }
            }
            NodeReport::Group { status } => match self.objection_to_one(node, &status) {
                Some(reason) => self.turn_away(node, session, reason),
                None => self.group_seen(node, status),
            },
            NodeReport::Declared { job, generation, capabilities } => {
                if self.facts.is_placed_on(job, generation, node) {
                    self.declared(job, generation, capabilities);
                }
            }
            NodeReport::Steps { report } => self.step_reported(node, *report),
            NodeReport::CheckpointWritten { job, checkpoint, duration } => {
                self.checkpoint_written(node, job, checkpoint, duration);
            }
            NodeReport::LossAnomaly { job, generation, step, loss, usual } => {
                if self.facts.is_placed_on(job, generation, node) {
                    self.loss_anomaly(node, job, generation, (step, loss, usual));
                }
            }
            NodeReport::Activity { job, generation, quiet, busy } => {
                if self.facts.is_newest(job, generation) && self.facts.is_placed_on(job, generation, node) {
                    self.active(node, job, quiet, busy);
                }
            }
            NodeReport::StartPhases { job, generation, phases } => {
                if self.facts.is_placed_on(job, generation, node) {
                    self.start_phases(job, generation, &phases);
                }
            }
        }
    }

    /// Why a node is not heard with this word of a group.
    fn objection_to_one(&self, node: NodeId, status: &GroupStatus) -> Option<String> {
        let row = self.facts.nodes.get(&node)?;
        let known = self.seen.nodes.get(&node)?.contact.groups()?;
        let count = known.len() + usize::from(!known.contains_key(&(status.job, status.generation)));
        let of = (node, row.inventory.name.as_str(), row.inventory.gpus.len());
        self.objection_to(of, count, std::iter::once(status))
    }

    fn group_seen(&mut self, node: NodeId, status: GroupStatus) {
        let key = (status.job, status.generation);
        let over = |phase: &GroupPhase| matches!(phase, GroupPhase::Ended { .. });
        let ends = over(&status.phase);
        let Some(groups) = self.seen.groups_mut(node) else {
            return self.facts.impossible("a node that has not registered spoke of a group", None, Some(node));
        };
        let group = SeenGroup::from(status);
        let before = groups.insert(key, group);
        let ended = ends && before.is_some_and(|before| !over(&before.phase));
        self.facts.unsettled = true;
        self.facts.draft.shown_nodes.insert(node);
        self.release_if_ended(node, key);
        if ended {
            // Also a stray's GPUs, which no allocation holds any more, are of use to someone.
            self.facts.ask_round(format!("GPUs on node {} are free", self.facts.node_name(node)));
        }
    }

    fn declared(&mut self, job: JobId, generation: Generation, capabilities: Capabilities) {
        if self.facts.is_newest(job, generation)
            && self.facts.jobs.get(&job).is_some_and(|job| job.capabilities != Some(capabilities))
        {
            self.facts.edit_job(job, |job| job.capabilities = Some(capabilities));
        }
    }

    /// Compare-and-set on the generation: only the newest one's checkpoints count, and none goes back.
    fn checkpoint_written(&mut self, node: NodeId, job: JobId, checkpoint: CheckpointRef, duration: Seconds) {
        let generation = checkpoint.generation;
        if !self.facts.is_newest(job, generation)
            || !self.facts.is_placed_on(job, generation, node)
            || !self.believes_saved(node, job, &checkpoint)
        {
            return;
        }
        let (Some(row), Some(seen)) = (self.facts.jobs.get(&job), self.seen.job_mut(job)) else {
            return self.facts.impossible("a generation of a job that is not kept saved", Some(job), Some(node));
        };
        seen.save_time = Some(duration);
        self.facts.draft.shown_jobs.insert(job);
        let older = |last: &CheckpointRef| checkpoint.samples_seen <= last.samples_seen;
        if row.checkpoint.as_ref().is_some_and(older) {
            // A node repeats its last offer in each session: the word that it is committed may have been lost with
            // the former one.
            if row.checkpoint.as_ref() == Some(&checkpoint) {
                self.prune(node, job, checkpoint);
            }
            return;
        }
        let (progress, credit) = seen.live.made_by(row, checkpoint.samples_seen);
        let tokens_seen = row.tokens(checkpoint.samples_seen);
        let written_in = self.facts.allocations.get(&(job, generation)).and_then(|one| one.configuration);
        let loss = seen.live.loss;
        // An observation may have been lost; the checkpoint is a fact.
        seen.live.progress.0 = seen.live.progress.0.max(progress.0);
        seen.live.credit.0 = seen.live.credit.0.max(credit.0);
        let now = self.facts.now;
        let message = format!(
            "{} saved step {} ({} sequences) in {:.1} s",
            row.spec.name, checkpoint.step, checkpoint.samples_seen, duration.0
        );
        let record = Checkpoint { job, checkpoint: checkpoint.clone(), duration, committed_at: now, progress };
        let committed = checkpoint.clone();
        self.facts.edit_job(job, |job| {
            job.checkpoint = Some(checkpoint);
            job.checkpoint_at = Some(now);
            (job.progress, job.credit) = (progress, credit);
            job.layout = written_in.map(|at| at.layout).or(job.layout);
            job.loss = loss.or(job.loss);
            job.save_wanted = None;
        });
        self.forgive(job);
        self.facts.edit_allocation((job, generation), |allocation| allocation.saved_at = Some(now));
        self.facts.draft.checkpoints.entry(job).or_default().push(Arc::new(record));
        let note = Note::new("checkpoint.committed", message).by(Actor::Node(node)).job(job);
        let note = note.with("generation", generation).with("tokens_seen", format!("{:.0}", tokens_seen.0));
        self.facts.note(note.with("reference_tokens", format!("{:.0}", progress.0)));
        self.prune(node, job, committed);
    }

    /// Has the node remove older checkpoints of a job that keeps only some, once this one is committed: commands
    /// leave after the commit.
    fn prune(&mut self, node: NodeId, job: JobId, committed: CheckpointRef) {
        let Some(keep) = self.facts.jobs.get(&job).and_then(|row| row.spec.checkpoint_policy().keep) else { return };
        self.facts.draft.commands.push((node, AgentCommand::Prune { job, committed, keep }));
    }

    /// Told in the log, at most once a minute per job; what to do about it is for people to say.
    fn loss_anomaly(
        &mut self,
        node: NodeId,
        job: JobId,
        generation: Generation,
        (step, loss, usual): (u64, Option<f64>, Option<f64>),
    ) {
        if !self.facts.is_newest(job, generation) {
            return;
        }
        let now = self.facts.now;
        let Some(seen) = self.seen.job_mut(job) else {
            return self.facts.impossible("nothing is known of a job that runs", Some(job), Some(node));
        };
        let is_lost = loss.is_none();
        // A loss that rises and is then lost is news twice.
        let is_old = |(at, was_lost): &(Timestamp, bool)| now.since(*at).0 < ANOMALY_PAUSE.0 && (*was_lost || !is_lost);
        let is_told = seen.anomaly_told.as_ref().is_some_and(is_old);
        if !is_told {
            seen.anomaly_told = Some((now, is_lost));
        }
        if is_lost && self.facts.jobs.get(&job).is_some_and(|row| row.not_finite_loss.is_none()) {
            let lost = NotFiniteLoss { generation, step };
            self.facts.edit_job(job, |job| job.not_finite_loss = Some(lost));
        }
        if is_told {
            return;
        }
        let name = self.facts.job_name(job);
        let usual = usual.map(|usual| format!("; {usual:.4} was usual")).unwrap_or_default();
        let (kind, message) = match loss {
            Some(loss) => ("job.loss_spike", format!("the loss of {name} was {loss:.4} at step {step}{usual}")),
            None => ("job.loss_not_finite", format!("the loss of {name} was no finite number at step {step}{usual}")),
        };
        self.facts.note(Note::new(kind, message).by(Actor::Node(node)).job(job).with("step", step));
    }

    /// Reports that a job's steps have ceased, or never began: once, until the next step.
    pub(crate) fn progress_silent(&mut self, job: JobId) {
        let now = self.facts.now;
        let at = self.situation();
        let silence = at.facts.jobs.get(&job).zip(at.seen.jobs.get(&job)).and_then(|(row, seen)| match row.state {
            JobState::Running { since, generation } => {
                Some(ToldSilence { generation, since: at.silent_since(since, seen) })
            }
            _ => None,
        });
        let (Some(row), Some(seen)) = (self.facts.jobs.get(&job), self.seen.job_mut(job)) else {
            return self.facts.impossible("nothing is known of a job that prints", Some(job), None);
        };
        seen.silence_told = silence;
        self.facts.draft.shown_jobs.insert(job);
        let (name, field) = (&row.spec.name, row.spec.reads_steps_by());
        let has_stepped = self.facts.live_allocation(row).is_some_and(|one| one.training_at.is_some());
        let message = match (has_stepped, seen.live.reported_at) {
            (false, _) => format!(
                "no step of {name} was found in its output since it started: compare {}.regex with `headway logs {name}`",
                field.unwrap_or_default()
            ),
            (true, Some(at)) => {
                let (step, silent) = (seen.live.step, now.since(at).words());
                format!("{name} has made no step for {silent}, since step {step}: see `headway logs {name}`")
            }
            (true, None) => format!("{name} has made no step since this scheduler leads: see `headway logs {name}`"),
        };
        let note = Note::new("job.progress_silent", message).job(job).with("generation", row.generation);
        self.facts.note(match field {
            Some(field) => note.with("field", field),
            None => note,
        });
    }

    /// Before a restart was ever measured, the first start tells what one costs. It counts once per start and once per
    /// layout that was ordered, whatever the script repeats.
    fn start_phases(&mut self, job: JobId, generation: Generation, phases: &BTreeMap<String, Seconds>) {
        if !self.facts.is_newest(job, generation) {
            return;
        }
        let total: f64 = phases.values().map(|one| one.0).filter(|one| one.is_finite() && *one >= 0.0).sum();
        let sane = (0.0..=LONGEST).contains(&total) && total > 0.0;
        if !sane {
            return;
        }
        let (Some(row), Some(seen)) = (self.facts.jobs.get(&job), self.seen.job_mut(job)) else {
            return self.facts.impossible("nothing is known of a job that starts", Some(job), None);
        };
        if phases.keys().all(|phase| phase.starts_with(RESHARD)) {
            let revision = self.facts.allocations.get(&(job, generation)).map_or(0, |one| one.revision);
            let news = seen.reshard_told.replace((generation, revision)) != Some((generation, revision));
            if news {
                self.facts.edit_job(job, |job| {
                    job.layout_downtime = Some(Seconds(total));
                    job.moved_for += Seconds(total);
                });
                self.phases_measured("job.reshard_measured", job, generation, phases, "for another layout in memory");
            }
            return;
        }
        let news = seen.start_told.replace(generation) != Some(generation);
        if row.downtime.is_none() {
            self.facts.edit_job(job, |job| job.downtime = Some(Seconds(total)));
        }
        if news {
            self.phases_measured("job.start_measured", job, generation, phases, "to start");
        }
    }

    /// Puts into the log what each phase took.
    fn phases_measured(
        &mut self,
        verb: &'static str,
        job: JobId,
        generation: Generation,
        phases: &BTreeMap<String, Seconds>,
        what_for: &str,
    ) {
        let total: f64 = phases.values().map(|one| one.0).sum();
        let told: Vec<_> = phases.iter().take(PHASES_TOLD).collect();
        let words: Vec<String> = told.iter().map(|(phase, one)| format!("{phase} {:.2} s", one.0)).collect();
        let message = format!("{} needed {total:.2} s {what_for}: {}", self.facts.job_name(job), words.join(", "));
        let note = Note::new(verb, message).job(job).with("generation", generation);
        let number = |note: Note, (phase, one): (&String, &Seconds)| note.with(&format!("{phase}_seconds"), one.0);
        self.facts.note(told.into_iter().fold(note, number));
    }
}
