//! Queued jobs whose target names GPUs that nothing else holds any more.

use std::cell::LazyCell;

use headway_types::NodeSlice;

use super::Step;
use crate::situation::Situation;

/// What the target gives to queued jobs, in the order of their ids. No two assignments of a plan share a GPU, so what one
/// job is granted takes nothing from the next.
pub(super) fn queued_jobs(at: Situation<'_>) -> Vec<Step> {
    // Until somebody has said what counts: what waits by an old store may run on the node that knows better.
    let Some(target) = at.facts.target.as_ref().filter(|_| at.behind_until().is_none()) else { return Vec::new() };
    let free = |slice: &NodeSlice| {
        let (grantable, held) = (at.grantable(slice.node), at.held_on(slice.node));
        slice.gpus.iter().all(|gpu| grantable.contains(gpu) && !held.contains_key(gpu))
    };
    let unknown = LazyCell::new(|| at.unknown_on_nodes());
    let due = target.plan.assignments.iter().filter(|(job, assignment)| {
        let slices = assignment.placement.slices();
        at.facts.may_start(**job)
            && at.facts.takes(**job, assignment.placement.gpus())
            && !at.is_kept_off(**job, slices.iter().map(|slice| slice.node))
            && !at.is_exhausted(**job, assignment)
            && at
                .facts
                .jobs
                .get(*job)
                .and_then(|job| job.keeps_off(at.facts.now))
                .is_none_or(|off| slices.iter().all(|slice| slice.node != off))
            && slices.iter().all(free)
            // What an old store takes for waiting may run under a generation that it does not know.
            && !unknown.contains(*job)
    });
    due.map(|(job, assignment)| Step::Grant { job: *job, assignment: assignment.clone() }).collect()
}
