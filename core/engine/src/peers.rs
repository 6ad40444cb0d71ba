//! Jobs learn from their like: what measured jobs show of a GPU type goes to those of the same shape that were never measured there.

use std::sync::Arc;

use headway_goodput::JobModel;
use headway_types::JobId;

use crate::engine::Engine;
use crate::outcome::Observation;
use crate::seen::JobSeen;

impl Engine {
    /// Before a round. Costs what runs; the queue is looked at only when there is something new to teach.
    pub(crate) fn teach_peers(&mut self) {
        let model = |seen: &'_ Arc<JobSeen>| seen.model.clone();
        let measured: Vec<Arc<JobModel>> =
            self.facts.live_jobs().filter_map(|job| self.seen.jobs.get(&job.id).and_then(model)).collect();
        let shown = measured.iter().flat_map(|model| model.lessons());
        let Some(lessons) = self.seen.lessons.renewed(shown).map(Arc::new) else { return };
        let learns = |seen: &JobSeen| seen.model.as_ref().is_some_and(|model| model.news(&lessons).is_some());
        let learners: Vec<JobId> = self.seen.jobs.iter().filter(|(_, seen)| learns(seen)).map(|(id, _)| *id).collect();
        for id in learners {
            if let Some(model) = self.seen.job_mut(id).and_then(|seen| seen.model.as_mut()) {
                Arc::make_mut(model).learn(&lessons);
                self.facts.draft.shown_jobs.insert(id);
            }
        }
        self.facts.draft.observations.push(Observation::Lessons { lessons: Arc::clone(&lessons) });
        self.seen.lessons = lessons;
    }
}
