//! How many elements of an array are in rounds at once. Whoever is beyond that waits for another to end, in the order of their indices, and is in no
//! round. What an element has is never taken from it for that: where fewer are allowed than run, those that run go on.

use std::sync::Arc;

use headway_types::{ArrayId, JobId};

use crate::draft::Note;
use crate::engine::Engine;
use crate::facts::arrays::Kept;
use crate::job::JobEvent;

impl Engine {
    /// Lets as many elements of each array that this batch has touched into rounds as it allows.
    pub(crate) fn settle_arrays(&mut self) {
        let draft = &self.facts.draft;
        let touched: Vec<ArrayId> = draft.arrays.union(&draft.shown_arrays).copied().collect();
        for id in touched {
            if let Some(kept) = self.facts.arrays.get(id).cloned() {
                self.settle_array(&kept);
            }
        }
    }

    fn settle_array(&mut self, kept: &Arc<Kept>) {
        let limit = kept.row.parallel;
        let most = limit.map_or(usize::MAX, |limit| limit as usize);
        // Whoever is put aside has given up his place.
        for (_, job) in &kept.aside {
            self.set_waits(*job, limit.is_some());
        }
        let queued = |facts: &crate::facts::Facts, job: &JobId| {
            facts.jobs.get(job).is_some_and(|job| job.state.generation().is_none())
        };
        let beyond = kept.admitted.len().saturating_sub(most);
        let last: Vec<JobId> = kept
            .admitted
            .iter()
            .rev()
            .map(|(_, job)| *job)
            .filter(|job| queued(&self.facts, job))
            .take(beyond)
            .collect();
        last.into_iter().for_each(|job| self.set_waits(job, true));
        let free = most.saturating_sub(kept.admitted.len());
        for (_, job) in kept.waiting.iter().take(free) {
            self.set_waits(*job, false);
            if self.transition(*job, JobEvent::Unblock) {
                let (name, array) = (self.facts.job_name(*job), &kept.row.name);
                let why = limit.map_or_else(
                    || format!("array {array} has no limit any more"),
                    |limit| format!("fewer of array {array} run than the {limit} that it allows at once"),
                );
                self.facts.note(Note::new("job.unblocked", format!("{name} may start: {why}")).job(*job));
            }
        }
        if free > 0 && !kept.waiting.is_empty() {
            self.facts.ask_round(format!("elements of array {} may start", kept.row.name));
        }
    }

    fn set_waits(&mut self, job: JobId, waits: bool) {
        let is = |job: &crate::record::Job| job.element.as_ref().is_some_and(|element| element.waits != waits);
        if self.facts.jobs.get(&job).is_some_and(|job| is(job)) {
            self.facts.edit_job(job, |job| {
                if let Some(element) = &mut job.element {
                    element.waits = waits;
                }
            });
        }
    }
}
