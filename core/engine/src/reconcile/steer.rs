//! Running jobs that differ from the target, and what brings them there. Jobs that start where a node goes away.

use headway_types::report::Flexibility;
use headway_types::{Assignment, Tier};

use super::Step;
use crate::record::{Allocation, Job, JobState, PolicyMode};
use crate::situation::Situation;

pub(super) fn running_jobs(at: Situation<'_>) -> Vec<Step> {
    let Some(target) = &at.facts.target else { return Vec::new() };
    let running = at.facts.live_jobs().filter(|job| matches!(job.state, JobState::Running { .. }));
    let step = |job: &std::sync::Arc<Job>| {
        let allocation = at.facts.live_allocation(job)?;
        let planned = target.plan.assignments.get(&job.id);
        if job.spec.limits.forbid_restart() {
            // Whatever the target says, it is never stopped to start again.
            let one = planned.filter(|one| one.placement == allocation.placement)?;
            return taken_back(at, job, allocation).or_else(|| configuration(at, job, allocation, one));
        }
        // Without rounds nobody makes another plan for a job that must leave, and a node that goes away may be gone
        // before the next one.
        let paused = at.facts.policy.mode == PolicyMode::Paused;
        let stranded = at.departure_under(allocation).is_some() || (paused && at.must_leave(allocation).is_some());
        match planned {
            Some(one) if allocation.is_as_assigned(one) && (!stranded || at.may_linger(allocation)) => {
                taken_back(at, job, allocation)
            }
            Some(one) if !stranded && one.placement == allocation.placement => {
                taken_back(at, job, allocation).or_else(|| configuration(at, job, allocation, one))
            }
            Some(one) if !stranded => {
                let (from, to) = (allocation.placement.gpus(), one.placement.gpus());
                let (reason, must_leave) = cause(at, allocation, || format!("it moves from {from} to {to} GPUs"));
                Some(Step::Move { job: job.id, reason, must_leave })
            }
            None if !stranded && at.may_linger(allocation) => None,
            _ => {
                let (reason, must_leave) = cause(at, allocation, || "others make more of its GPUs".into());
                Some(Step::Preempt { job: job.id, reason, must_leave })
            }
        }
    };
    running.filter_map(step).collect()
}

/// A job that starts on a node which goes away starts elsewhere instead. One that may have launched a process and must
/// not run twice goes on.
pub(super) fn starting_jobs(at: Situation<'_>) -> Vec<Step> {
    let starting = at.facts.live_jobs().filter(|job| matches!(job.state, JobState::Starting { .. }));
    let step = |job: &std::sync::Arc<Job>| {
        let reason = at.departure_under(at.facts.live_allocation(job)?)?;
        let goes_on = at.facts.has_used_its_only_start(job);
        (!goes_on).then_some(Step::Preempt { job: job.id, reason, must_leave: true })
    };
    starting.filter_map(step).collect()
}

/// Why a job goes, and whether it could not stay in any case.
fn cause(at: Situation<'_>, allocation: &Allocation, otherwise: impl FnOnce() -> String) -> (String, bool) {
    match at.must_leave(allocation) {
        Some(reason) => (reason, true),
        None => (at.facts.reason_of(allocation.job).unwrap_or_else(otherwise), false),
    }
}

/// What lost goodput where it was to gain some is left at once, without another round.
fn taken_back(at: Situation<'_>, job: &Job, allocation: &Allocation) -> Option<Step> {
    let (assignment, reason) = at.way_back(job, allocation)?;
    Some(Step::TakeBack { job: job.id, from: allocation.configuration?, assignment, reason })
}

/// Same GPUs, perhaps another configuration: live where the script can, by restart where it must.
fn configuration(at: Situation<'_>, job: &Job, allocation: &Allocation, assignment: &Assignment) -> Option<Step> {
    let (from, to) = (allocation.configuration?, assignment.configuration?);
    let tier = from.tier_to(&to)?;
    if at.has_turned_out_worse(allocation, &from, &to) {
        return None;
    }
    let able = job.able();
    let reason = at.facts.reason_of(job.id).unwrap_or_else(|| format!("{from} becomes {to}"));
    match if tier == Tier::Layout { able.layout } else { able.batch } {
        Flexibility::Never => None,
        Flexibility::Restart if job.spec.limits.forbid_restart() => None,
        Flexibility::Live => Some(Step::ChangeLive { job: job.id, from, assignment: assignment.clone(), reason }),
        Flexibility::Restart => Some(Step::Move { job: job.id, reason, must_leave: false }),
    }
}
