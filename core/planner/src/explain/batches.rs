//! Why a running job's batch is what it is: better ones that were too small a change, too far from what was measured, or changed too often, and those
//! whose steps took longer than was expected.

use headway_goodput::Contradiction;
use headway_types::{Reason, ReasonCode};

use super::{Account, percent, reason};
use crate::candidate::BatchChange;
use crate::curves;

/// Of what was contradicted the last few are told.
const MOST_TOLD: usize = 3;

impl Account<'_> {
    pub(super) fn about_batch(&self, job: usize) -> Vec<Reason> {
        let options = &self.options[job];
        let mut reasons: Vec<Reason> =
            options.batch_change.and_then(|change| self.unchanged(job, &change)).into_iter().collect();
        if let Some(untried) = options.untried {
            let detail = format!(
                "a batch of {} in micro-batches of {} would be {} more goodput by the model, and no step was measured in micro-batches within a factor of two of that: they are come to in steps",
                untried.to.global_batch,
                untried.to.micro_batch,
                percent(untried.gain)
            );
            reasons.push(reason(ReasonCode::BatchUntried, true, detail));
        }
        let contradictions = self.contradictions(job);
        let told = contradictions.iter().rev().take(MOST_TOLD);
        let so_much_slower = |one: &Contradiction| format!("{one}: what is like it counts as so much slower");
        reasons.extend(told.map(|one| reason(ReasonCode::BatchContradicted, false, so_much_slower(one))));
        if options.model.as_ref().is_some_and(|model| curves::noise_scale(model).is_none()) {
            let detail = "no gradient noise scale reported yet: batches are weighed by what is assumed";
            reasons.push(reason(ReasonCode::ProfileMissing, false, detail.into()));
        }
        reasons
    }

    /// Why a better batch is not taken.
    fn unchanged(&self, job: usize, change: &BatchChange) -> Option<Reason> {
        if change.taken || change.gain <= 0.0 {
            return None;
        }
        let gain = format!("a batch of {} would be {} more goodput", change.to.global_batch, percent(change.gain));
        let asked = percent(change.asked);
        let unsure = change.asked > self.round.input.policy.min_batch_gain;
        match &self.options[job].job.batch_bound {
            Some(why) if change.demanded || change.gain >= change.asked => {
                Some(reason(ReasonCode::BatchBound, true, format!("{gain}, and {why}")))
            }
            _ if unsure => {
                let detail = format!(
                    "{gain}; a change to micro-batches of {}, in which no step was measured, must gain {asked}",
                    change.to.micro_batch
                );
                Some(reason(ReasonCode::GainTooSmall, true, detail))
            }
            _ => Some(reason(ReasonCode::GainTooSmall, true, format!("{gain}; a change must gain {asked}"))),
        }
    }

    /// Of the GPUs that the job holds.
    fn contradictions(&self, job: usize) -> Vec<Contradiction> {
        let options = &self.options[job];
        let held = options.job.current.as_ref().and_then(|at| self.round.cluster.class_of_placement(&at.placement));
        let class = held.map(|class| self.round.cluster.alike(class));
        options.model.iter().zip(class).flat_map(|(model, class)| model.contradictions(class)).collect()
    }
}
