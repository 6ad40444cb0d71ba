//! A trainer that goes on from an earlier point than the checkpoint that its order names: the checkpoint is damaged, or
//! the script did not read it. The trainer's output says so, and nobody may read it, so the first steps of a generation
//! are compared with the order. Progress is counted on once the job is beyond the committed checkpoint, which stays
//! committed until then.

use headway_types::{JobId, NodeId, Sequences, StepReport};

use crate::draft::Note;
use crate::engine::Engine;
use crate::event::Actor;
use crate::record::Fallback;

impl Engine {
    /// Returns where a generation has begun by its first report, if that lies before what it was to resume from. Both
    /// counts must say so: a script may count its steps anew, or samples by another batch.
    pub(super) fn fallback_of(&self, report: &StepReport) -> Option<Fallback> {
        let named = self.facts.allocations.get(&(report.job, report.generation))?.resumed_from.clone()?;
        let steps = u64::from(report.steps);
        let step = report.step.saturating_sub(steps);
        let fresh = Sequences(report.configuration.global_batch.0.saturating_mul(steps));
        let samples_seen = report.samples_seen.saturating_sub(fresh);
        let is_behind = step < named.step && samples_seen < named.samples_seen;
        let (at, generation) = (self.facts.now, report.generation);
        is_behind.then_some(Fallback { at, generation, step, samples_seen, named })
    }

    /// Keeps the fallback in the job's record, and reports it.
    pub(super) fn note_fallback(&mut self, node: NodeId, job: JobId, fallback: Fallback) {
        let name = self.facts.job_name(job);
        let (named, lost) = (&fallback.named, fallback.lost());
        let message = format!(
            "{name} goes on from step {} ({} sequences), not from its committed checkpoint of step {} ({} sequences): {lost} \
             sequences are trained again; see `headway logs {name}` for the reason",
            fallback.step, fallback.samples_seen, named.step, named.samples_seen,
        );
        let note = Note::new("checkpoint.passed_over", message).by(Actor::Node(node)).job(job).node(node);
        let note = note.with("generation", fallback.generation).with("path", &named.path);
        self.facts.note(note.with("sequences_lost", lost));
        self.facts.edit_job(job, |job| job.last_fallback = Some(fallback));
    }
}
