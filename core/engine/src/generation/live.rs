//! Changes that a running generation takes in memory, and those that are taken back since steps contradicted what was expected of them.

use headway_goodput::Contradiction;
use headway_types::{Assignment, Configuration, JobId, Tier};

use crate::draft::Note;
use crate::engine::Engine;
use crate::outcome::Observation;
use crate::record::{Expectation, LastChange};

/// What a live change is made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// The target asks for it.
    Target,
    /// It leads back.
    Back,
}

impl Engine {
    pub(crate) fn change_live(
        &mut self,
        id: JobId,
        from: Configuration,
        assignment: &Assignment,
        reason: &str,
        purpose: Purpose,
    ) {
        let (Some((job, allocation)), Some(to)) = (self.newest(id), assignment.configuration) else {
            return self.facts.impossible("a job without a configuration was to change it", Some(id), None);
        };
        let revision = allocation.revision + 1;
        let lr_scale = self.seen.jobs.get(&id).map_or(1.0, |seen| seen.lr_scale(Some(to)));
        let key = (id, allocation.generation);
        self.settle_expectation(key);
        let from_now = self.measured_from_now(id).filter(|_| allocation.training_at.is_some());
        let expectation = self.expectation(id, assignment, revision);
        let expectation = expectation.map(|expectation| Expectation { measured_from: from_now, ..expectation });
        let is_layout = from.tier_to(&to) == Some(Tier::Layout);
        self.facts.edit_allocation(key, |one| {
            one.expectation = expectation;
            one.configuration = Some(to);
            one.former_batch = (!is_layout && purpose == Purpose::Target).then_some(from);
            one.revision = revision;
            one.lr_scale = lr_scale;
            one.predicted_goodput = assignment.predicted.goodput.0;
        });
        let at = self.facts.now;
        self.facts.edit_job(id, |job| {
            job.last_change = Some(LastChange { at, reason: reason.into() });
            if is_layout {
                job.count_move(at);
                job.resize = None;
            } else {
                job.count_batch_change(at);
            }
        });
        let name = &job.spec.name;
        let (batch, micro_batch) = (from.global_batch, from.micro_batch);
        let change = format!("batch {batch} to {} (micro-batch {micro_batch} to {})", to.global_batch, to.micro_batch);
        let (kind, message) = match purpose {
            _ if is_layout => ("job.layout_changed", format!("{name} goes from {from} to {to} in memory: {reason}")),
            Purpose::Target => ("job.batch_changed", format!("{name} goes from {change}: {reason}")),
            Purpose::Back => ("job.batch_taken_back", format!("{name} goes back from {change}: {reason}")),
        };
        let note = Note::new(kind, message).job(id).with("from", from).with("to", to);
        self.facts.note(note.with("revision", revision));
    }

    /// The first steps of what a job runs in took longer than the band of what was expected. The next pass takes the change back where what was
    /// before is better, and the next round knows.
    pub(crate) fn batch_contradicted(&mut self, id: JobId, contradiction: &Contradiction) {
        let model = self.seen.jobs.get(&id).and_then(|seen| seen.model.clone());
        // It must outlive this server.
        self.facts.draft.observations.extend(model.map(|model| Observation::Model { job: id, model }));
        self.facts.unsettled = true;
        let name = self.facts.job_name(id);
        self.facts.ask_round(format!("steps of {name} contradict what was expected of them"));
        let note = Note::new("job.batch_contradicted", format!("{name}: {contradiction}")).job(id);
        let note =
            note.with("configuration", contradiction.configuration).with("expected_seconds", contradiction.expected.0);
        self.facts.note(note.with("measured_seconds", contradiction.measured.0));
    }
}
