//! Batches whose first steps took longer than was expected of them, and what a job had better run in.

use headway_types::report::Flexibility;
use headway_types::{Assignment, Configuration, Prediction};

use super::Situation;
use crate::record::{Allocation, Job};

/// What a batch that contradicted what was expected of it must gain, relatively, to be gone to once more.
const CLEARLY: f64 = 0.03;

impl Situation<'_> {
    /// What the job ran in before its newest live change, and why it is to go back there: steps contradicted what was expected of the change,
    /// and by what they showed it lost. A norm test that asks for the larger batch leaves it to the next round to find another micro-batch.
    pub fn way_back(self, job: &Job, allocation: &Allocation) -> Option<(Assignment, String)> {
        let (from, to) = (allocation.configuration?, allocation.former_batch?);
        let model = self.seen.jobs.get(&job.id)?.model.as_ref()?;
        let contradiction =
            model.contradiction(&self.facts.class_of(&allocation.placement)?, allocation.placement.nodes(), &from)?;
        let able = job.able().batch == Flexibility::Live && !model.wants_more_than(to.global_batch);
        let predicted = self.predicted(allocation, &to).filter(|_| able)?;
        let better = self.predicted(allocation, &from).is_none_or(|now| predicted.goodput > now.goodput);
        let (placement, configuration) = (allocation.placement.clone(), Some(to));
        better.then(|| (Assignment { placement, configuration, predicted, label: None }, contradiction.to_string()))
    }

    /// Whether a change that a plan asks for has turned out to lose since: the next round asks for another.
    pub fn has_turned_out_worse(self, allocation: &Allocation, from: &Configuration, to: &Configuration) -> bool {
        let model = self.seen.jobs.get(&allocation.job).and_then(|seen| seen.model.as_ref());
        let (Some(model), Some(class)) = (model, self.facts.class_of(&allocation.placement)) else { return false };
        let goodput = |at| self.predicted(allocation, at).map_or(0.0, |one| one.goodput.0);
        // Else noise that drifts would have it change and be taken back by turns while the target stands.
        let clearly_better = goodput(to) > (1.0 + CLEARLY) * goodput(from);
        let norm_test = model.wants_more_than(from.global_batch) && to.global_batch > from.global_batch;
        model.contradiction(&class, allocation.placement.nodes(), to).is_some() && !norm_test && !clearly_better
    }

    fn predicted(self, allocation: &Allocation, at: &Configuration) -> Option<Prediction> {
        let model = self.seen.jobs.get(&allocation.job)?.model.as_ref()?;
        let (gpus, nodes) = (allocation.placement.gpus(), allocation.placement.nodes());
        model.predict(&self.facts.class_of(&allocation.placement)?, gpus, nodes, at).ok()
    }
}
