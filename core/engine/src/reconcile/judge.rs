//! What the nodes' reports together mean for each job that runs, starts or stops: the one step that fits, whatever led
//! there.

use headway_types::{Blame, NodeId, Seconds, Timestamp};

use super::Step;
use crate::activity::Use;
use crate::health::Incident;
use crate::record::{Allocation, Job, JobState, StopCause};
use crate::seen::JobSeen;
use crate::situation::Situation;
use crate::situation::breakdown::Breakdown;
use crate::situation::gang::{Part, is_fenced};

/// Every job takes the step its gang calls for.
pub(super) fn gangs(at: Situation<'_>) -> Vec<Step> {
    let mut steps = ended_out_of_sight(at);
    for (job, seen) in at.live_jobs() {
        let Some(allocation) = at.facts.live_allocation(job) else {
            steps.push(Step::Orphaned { job: job.id });
            continue;
        };
        let parts = at.parts(allocation);
        let step = match job.state {
            JobState::Starting { since, .. } => starting(at, job, since, allocation, &parts),
            JobState::Running { .. } => running(at, job, seen, allocation, &parts),
            _ => None,
        };
        let stops = matches!(job.state, JobState::Stopping { .. }) || step.as_ref().is_some_and(Step::stops);
        steps.extend(step);
        let gone = |(node, part): &(NodeId, Part)| {
            allocation.released.contains_key(node) || (is_fenced(&job.spec) && *part == Part::Lost)
        };
        if stops && parts.iter().all(gone) {
            steps.push(Step::Ended { job: job.id, parts });
        }
    }
    steps
}

impl Step {
    /// Whether it sends a generation towards its end.
    fn stops(&self) -> bool {
        matches!(self, Step::Broken { .. } | Step::Hung { .. } | Step::LostNode { .. } | Step::Stop { .. })
    }
}

/// A job that waits may be done: the last thing it ran on a node out of reach may have ended well meanwhile. It must not
/// run again.
fn ended_out_of_sight(at: Situation<'_>) -> Vec<Step> {
    let waits = |job: &Job| matches!(job.state, JobState::Queued { .. } | JobState::Held { .. });
    let done = |one: &Allocation| at.parts(one).iter().all(|(_, part)| part.has_succeeded());
    let why = "all its processes exited 0 while its node was out of reach";
    // Few jobs that wait still have a row of what they held.
    let last = at.facts.allocations.iter().filter(|((job, generation), one)| {
        let job = at.facts.jobs.get(job).filter(|job| job.generation == *generation);
        job.is_some_and(|job| waits(job)) && done(one)
    });
    last.map(|((job, _), _)| Step::Succeeded { job: *job, why }).collect()
}

fn starting(
    at: Situation<'_>,
    job: &Job,
    since: Timestamp,
    allocation: &Allocation,
    parts: &[(NodeId, Part)],
) -> Option<Step> {
    let (id, generation) = (job.id, allocation.generation);
    if let Some(end) = end(at, job, parts) {
        return Some(end);
    }
    if let Some((node, _)) = parts.iter().find(|(_, part)| *part == Part::Lost) {
        // Its only processes may have been launched there: the job waits for a proof, as a running one does.
        let may_live = at.facts.has_used_its_only_start(job) && !allocation.released.contains_key(node);
        return (!may_live).then_some(Step::LostNode { job: id, node: *node });
    }
    if parts.iter().all(|(_, part)| part.is_up()) {
        return Some(Step::Launched { job: id });
    }
    let ready = |part: &Part| part.is_up() || *part == Part::Prepared;
    if allocation.prepared_at.is_none() && parts.iter().all(|(_, part)| ready(part)) {
        return Some(Step::Prepared { job: id, generation });
    }
    if at.facts.now < at.start_deadline(job, since, allocation.prepared_at) + coming_down(job, parts) {
        return None;
    }
    let (late, what) = match allocation.prepared_at {
        Some(_) => (parts.iter().find(|(_, part)| !part.is_up()), "launch"),
        None => (parts.iter().find(|(_, part)| !ready(part)), "prepare"),
    };
    let (node, _) = late?;
    let message = format!("node {} did not {what} in time", at.facts.node_name(*node));
    let place = Some((*node, Incident::NotStarted(id)));
    let breakdown = Breakdown {
        message,
        blame: Blame::Node,
        out_of_memory: false,
        mistake: false,
        full_disk: false,
        missing_checkpoint: None,
        exit_code: None,
        place,
    };
    Some(Step::Broken { job: id, breakdown })
}

/// How long to wait for a node on which the job comes down, perhaps through its epilog: it will say how that ended, and while the others wait for
/// it they neither idle nor hang. None at all where nothing comes down.
fn coming_down(job: &Job, parts: &[(NodeId, Part)]) -> Seconds {
    match parts.iter().any(|(_, part)| *part == Part::Stopping) {
        true => job.spec.role().run.hooks.after() + job.spec.checkpoint_policy().grace,
        false => Seconds(0.0),
    }
}

fn running(
    at: Situation<'_>,
    job: &Job,
    seen: &JobSeen,
    allocation: &Allocation,
    parts: &[(NodeId, Part)],
) -> Option<Step> {
    let (id, now) = (job.id, at.facts.now);
    if let Some(end) = end(at, job, parts) {
        return Some(end);
    }
    let lost = parts.iter().find(|(node, part)| {
        // Lost contact never stops training: without fenced checkpoints only a proof counts.
        *part == Part::Lost && (is_fenced(&job.spec) || allocation.released.contains_key(node))
    });
    if let Some((node, _)) = lost {
        return Some(Step::LostNode { job: id, node: *node });
    }
    if at.time_limit_at(job).is_some_and(|at| at <= now) {
        let limit = job.spec.limits.time.unwrap_or_default().0;
        let reason = format!("its time limit of {limit:.0} s has passed");
        return Some(Step::Stop { job: id, cause: StopCause::TimeLimit, reason });
    }
    if at.budget_spent_at(job).is_some_and(|at| at <= now) {
        let reason = format!("its budget of {} is spent", job.budget_in_words());
        return Some(Step::Stop { job: id, cause: StopCause::BudgetSpent, reason });
    }
    if at.progress_silent_at(job, seen, allocation).is_some_and(|at| at <= now) {
        return Some(Step::Silent { job: id });
    }
    let coming_down = coming_down(job, parts);
    if coming_down == Seconds(0.0)
        && let Some(step) = idles(at, job, seen, allocation)
    {
        return Some(step);
    }
    let passed = |at: &Timestamp| *at + coming_down <= now;
    if let Some(patience) = job.spec.limits.stall_after {
        at.stalled_at(job, seen, allocation).filter(passed)?;
        let what = if job.tells_steps(allocation) { "no step" } else { "nothing written to its log" };
        let message = format!("{what} for over {} (limits.stall_after)", patience.words());
        return Some(Step::Hung { job: id, message });
    }
    let hung_at = at.hung_at(job, seen, allocation).filter(passed)?;
    let quiet = at.facts.config.hang_floor.0.max(now.since(hung_at).0);
    let message = match allocation.training_at {
        Some(_) => format!("no step for over {quiet:.0} s although all its processes live"),
        None => "no first step came although all its processes live".to_owned(),
    };
    Some(Step::Hung { job: id, message })
}

/// What follows from how much it uses its GPUs.
fn idles(at: Situation<'_>, job: &Job, seen: &JobSeen, allocation: &Allocation) -> Option<Step> {
    let id = job.id;
    match at.use_of(job, seen, allocation)? {
        Use::Enough => allocation.warned_at.map(|_| Step::BusyAgain { job: id }),
        Use::Little { message, over: true } => {
            Some(Step::Stop { job: id, reason: message.clone(), cause: StopCause::IdleGpus { message } })
        }
        Use::Little { message, .. } => allocation.warned_at.is_none().then_some(Step::WarnIdle { job: id, message }),
    }
}

/// Ends that no one asked for, and the happy one.
fn end(at: Situation<'_>, job: &Job, parts: &[(NodeId, Part)]) -> Option<Step> {
    if parts.iter().all(|(_, part)| part.has_succeeded()) {
        return Some(Step::Succeeded { job: job.id, why: "all its processes exited 0" });
    }
    let breakdown = at.breakdown(job.id, parts)?;
    Some(Step::Broken { job: job.id, breakdown })
}
