//! How a round decides: ours, and those of others for comparison, behind one trait. All choose among the same candidates,
//! keep to the same rows and guarantees, and pass the same check; they differ in what a candidate is worth to them, in
//! what they tune, and in whether they optimise or serve one job after another.

mod as_requested;
mod fifo_backfill;
mod goodput;
mod in_order;
mod least_attained;
mod pollux;
mod queue;
mod shortest_remaining;
mod sia;

#[cfg(test)]
pub(crate) mod laws;

use std::sync::Arc;

use headway_goodput::JobModel;
use headway_solver::milp::MilpError;
use headway_types::Objective;

use crate::candidate::{Candidate, Options};
use crate::decide::{self, Decision};
use crate::guarantee::Guarantees;
use crate::round::Round;
use crate::value::Quanta;

/// How a round decides.
pub(crate) trait Approach: Sync {
    /// The model with less to tune than its script offers, where the approach does not tune all of it.
    fn narrowed(&self, _model: &Arc<JobModel>) -> Option<Arc<JobModel>> {
        None
    }

    /// The order in which it serves jobs, where it serves one after another.
    fn line(&self, _options: &[Options<'_>]) -> Option<Line> {
        None
    }

    /// Puts its own worth on a job's candidates, and withdraws those it would never choose.
    fn appraise(&self, _round: &Round<'_>, _options: &mut Options<'_>) {}

    /// One candidate per job, and where it goes.
    ///
    /// # Errors
    /// What the solver refuses: values or amounts too large to add up.
    fn decide(&self, round: &Round<'_>, options: &[Options<'_>], owed: &Guarantees) -> Result<Decision, MilpError> {
        decide::decide(round, options, owed)
    }
}

/// Jobs as they are served one after another.
pub(crate) struct Line {
    pub order: Vec<usize>,
    /// What whoever comes first has over a job behind it: "was submitted before it", of several "were submitted before it".
    pub ahead: (&'static str, &'static str),
    pub running: Running,
}

/// Whether jobs that run may be moved for the sake of others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Running {
    Stays,
    MayMove,
}

pub(crate) fn approach(objective: Objective) -> &'static dyn Approach {
    match objective {
        Objective::Goodput => &goodput::Goodput,
        Objective::Sia => &sia::PUBLISHED,
        Objective::SiaSimulated => &sia::SIMULATED,
        Objective::Pollux => &pollux::Pollux { tunes_layouts: false },
        Objective::PolluxLayouts => &pollux::Pollux { tunes_layouts: true },
        Objective::LeastAttained => &least_attained::LeastAttained,
        Objective::FifoBackfill => &fifo_backfill::FifoBackfill,
        Objective::ShortestRemaining => &shortest_remaining::ShortestRemaining,
        Objective::Static => &as_requested::AsRequested,
    }
}

/// Puts a worth on everything a job could have. Going on as it is, batch changes included, is worth one number.
fn value_each(options: &mut Options<'_>, worth: impl Fn(&Candidate) -> Quanta) {
    for one in &mut options.candidates {
        one.value = worth(one);
        if one.stays {
            options.present_value = one.value;
        }
    }
}

/// Keeps of a job's placed candidates only those that `wanted` says; having nothing and staying are always kept.
fn withdraw(options: &mut Options<'_>, wanted: impl Fn(&Candidate) -> bool) {
    // Nothing and staying come first, so the incumbent's index stays what it is.
    options.candidates.retain(|one| one.shape.is_none() || wanted(one));
}

/// The model at the batch its recipe was validated at.
fn at_reference_batch(model: &Arc<JobModel>) -> Option<Arc<JobModel>> {
    let batch = model.training.reference_batch;
    Some(crate::curves::with_batch(model, batch))
}
