//! What a running job's batch could be without a restart: within reach of the micro-batches that were measured, and beyond.

use std::sync::Arc;

use headway_goodput::JobModel;
use headway_types::{Configuration, Prediction};

use crate::candidate::{InPlace, in_place};
use crate::curves::CurveCache;
use crate::input::PlanJob;
use crate::round::Round;

/// The best batch and micro-batch of the layout that a job runs in, of a script that takes them live.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LiveBatch {
    /// Within reach of what was measured.
    pub to: Configuration,
    pub prediction: Prediction,
    /// What the distance of its micro-batch to any that was measured adds to the deviation of its step time's logarithm.
    pub unmeasured: f64,
    /// Beyond that reach, and better.
    pub beyond: Option<(Configuration, Prediction)>,
    /// Steps of the present configuration contradicted what was expected of them.
    pub contradicted: bool,
}

/// A better batch whose micro-batches are too far from any that was measured, and its relative gain of goodput.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Untried {
    pub to: Configuration,
    pub gain: f64,
}

impl LiveBatch {
    pub(crate) fn of(round: &Round<'_>, job: &PlanJob, model: &Arc<JobModel>, curves: &mut CurveCache) -> Option<Self> {
        let InPlace { class, gpus, nodes, present } = in_place(round, job, model)?;
        let offer = curves.within_reach(job.job, model, &class, (gpus, nodes), &present)?;
        let (to, prediction) = (offer.configuration?, offer.prediction);
        let best = curves.best(job.job, model, &class, gpus, nodes, Some(present.layout));
        let beyond = best.and_then(|best| Some((best.configuration?, best.prediction)));
        Some(Self {
            to,
            prediction,
            unmeasured: model.unmeasured(&class, &to, &present),
            beyond: beyond
                .filter(|(far, better)| far.micro_batch != to.micro_batch && better.goodput > prediction.goodput),
            contradicted: model.contradiction(&class, nodes, &present).is_some(),
        })
    }

    /// What would be a change worth making, were it not for the micro-batch.
    pub(crate) fn untried(&self, round: &Round<'_>) -> Option<Untried> {
        let (to, prediction) = self.beyond?;
        let gain = prediction.goodput.0 / self.prediction.goodput.0.max(f64::MIN_POSITIVE) - 1.0;
        (gain >= round.input.policy.min_batch_gain).then_some(Untried { to, gain })
    }
}
