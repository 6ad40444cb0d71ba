//! Who looks on: told of rounds and of what training really comes to. Nothing in a simulation depends on it.

use headway_emulation::Progress;
use headway_planner::{CurveCache, PlanError, PlanInput, plan};
use headway_types::{Plan, Seconds, StepReport};

pub trait Watcher {
    /// Decides a round; who measures it does so here.
    ///
    /// # Errors
    /// What the planner refuses.
    fn round(&mut self, input: &PlanInput, curves: &mut CurveCache) -> Result<Plan, PlanError> {
        plan(input, curves)
    }

    /// A job (by its place in the scenario) has trained: what it reports, what it has really come to, and at which
    /// true reference tokens per second.
    fn trained(&mut self, _job: usize, _at: Seconds, _report: &StepReport, _progress: Progress, _goodput: f64) {}
}

/// Nobody.
pub struct Unwatched;

impl Watcher for Unwatched {}
