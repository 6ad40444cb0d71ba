//! Leaves a job only the choices that are forced on it, and having nothing: that others are in the way must stay an
//! answer.

use crate::candidate::{Candidate, Options};
use crate::counterfactual::question::Force;
use crate::round::Round;

impl Force {
    pub(crate) fn narrow(&self, round: &Round<'_>, options: &mut [Options<'_>]) {
        let Some(of) = options.iter_mut().find(|one| one.job.job == self.job) else { return };
        let held = of.job.current.as_ref().and_then(|current| round.cluster.class_of_placement(&current.placement));
        let suits = |candidate: &Candidate| {
            let class = candidate.shape.map(|shape| shape.class).or(held);
            let of_type = |class: usize| Some(&round.cluster.classes[class].alike.gpu_type) == self.gpu_type.as_ref();
            let size = self.gpus.is_none_or(|gpus| gpus == candidate.gpus);
            size && (self.gpu_type.is_none() || class.is_some_and(of_type))
        };
        of.candidates.retain(|one| one.gpus.0 == 0 || suits(one));
        of.incumbent = of.candidates.iter().position(|one| one.stays).unwrap_or(0);
        if !of.candidates.iter().any(|one| one.stays) {
            of.batch_change = None;
        }
    }
}
