//! What decisions expect of jobs' goodput, held against what comes of it: made with the grant or the change, over with the next one or with the generation,
//! and each time written in the transaction of that decision.

use headway_goodput::Offer;
use headway_types::{Assignment, Generation, JobId, Timestamp, Tokens};

use crate::engine::Engine;
use crate::record::{Expectation, ModelFamily, Realised};

impl Engine {
    /// What is expected of an assignment; nothing of a job that no model describes.
    pub(crate) fn expectation(&self, job: JobId, assignment: &Assignment, revision: u64) -> Option<Expectation> {
        let goodput = assignment.predicted.goodput;
        let placement = &assignment.placement;
        let band = || {
            let class = self.facts.class_of(placement)?;
            let offer = Offer::likely(assignment.configuration, assignment.predicted);
            let model = self.seen.jobs.get(&job)?.model.as_ref()?;
            model.band(&class, placement.gpus(), placement.nodes(), &offer)
        };
        let at = self.facts.now;
        (goodput.0 > 0.0).then(|| Expectation { at, revision, goodput, band: band(), measured_from: None })
    }

    /// Where the measurement of what is decided now begins.
    pub(crate) fn measured_from_now(&self, job: JobId) -> Option<(Timestamp, Tokens)> {
        let live = &self.seen.jobs.get(&job)?.live;
        live.reported_at.map(|_| (self.facts.now, live.progress))
    }

    /// What a generation has made by its last report, once its end is decided or it has come to it by itself.
    pub(crate) fn write_down_what_it_made(&mut self, key: (JobId, Generation)) {
        let (Some(allocation), Some(seen)) = (self.facts.allocations.get(&key), self.seen.jobs.get(&key.0)) else {
            return;
        };
        let told_at = seen.live.reported_at.filter(|_| allocation.made.is_none());
        if let Some(made) = told_at.and_then(|at| allocation.made_by(seen.live.progress, at)) {
            self.facts.edit_allocation(key, |allocation| allocation.made = Some(made));
        }
    }

    /// The expectation that a generation runs under is over: writes down what came of it, where any of it was measured.
    pub(crate) fn settle_expectation(&mut self, key: (JobId, Generation)) {
        let Some(allocation) = self.facts.allocations.get(&key) else { return };
        let (Some(expectation), Some(job)) = (allocation.expectation.clone(), self.facts.jobs.get(&key.0)) else {
            return;
        };
        let (gpu_type, gpus) = (allocation.gpu_type.clone(), allocation.placement.gpus());
        let family = ModelFamily::of(&job.spec);
        let told = self.seen.jobs.get(&key.0).map(|seen| (seen.live.progress, seen.live.reported_at));
        let measured = told.and_then(|(progress, at)| expectation.realised(progress, at?));
        self.facts.edit_allocation(key, |allocation| allocation.expectation = None);
        if let Some((goodput, measured_for)) = measured {
            let (job, generation) = key;
            let ended_at = self.facts.now;
            let realised =
                Realised { job, generation, expectation, ended_at, gpu_type, family, gpus, goodput, measured_for };
            self.facts.draft.realised.push(realised);
        }
    }
}
