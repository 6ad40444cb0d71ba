//! The commands that each live generation's state calls for.

use headway_types::report::Flexibility;
use headway_types::spec::LrScaling;
use headway_types::{AgentCommand, GroupPhase, NodeId, Seconds, StopMode};

use super::Step;
use super::launch::launch_order;
use crate::record::{Allocation, Job, JobState, StopCause, Wish};
use crate::seen::JobSeen;
use crate::situation::Situation;
use crate::situation::gang::Part;

/// How long a script that takes layouts in memory may report the one before, once its node has the order.
const LAYOUT_PATIENCE: Seconds = Seconds(120.0);
/// AdaScale's factor follows the noise also while the batch stays; a script is told anew when it is off by this share, and
/// not sooner than this after the last time.
const RATE_MOVED: f64 = 0.05;
const RATE_EVERY: Seconds = Seconds(60.0);
/// What is left of a broken gang gets between SIGTERM and SIGKILL: time for last words, not for a checkpoint.
const BROKEN_GRACE: Seconds = Seconds(3.0);

pub(super) fn gangs(at: Situation<'_>) -> Vec<Step> {
    let mut steps = Vec::new();
    for (job, seen) in at.live_jobs() {
        // A live generation without its row was told of when it was judged.
        let Some(allocation) = at.facts.live_allocation(job) else { continue };
        match &job.state {
            JobState::Starting { .. } => start(at, job, allocation, &mut steps),
            JobState::Running { .. } => run(at, job, seen, allocation, &mut steps),
            JobState::Stopping { cause, .. } => stop(at, job, allocation, cause, &mut steps),
            _ => {}
        }
    }
    steps
}

fn start(at: Situation<'_>, job: &Job, allocation: &Allocation, steps: &mut Vec<Step>) {
    let (id, generation) = (job.id, allocation.generation);
    let parts = at.parts(allocation);
    for (node, _) in parts.iter().filter(|(_, part)| *part == Part::Absent) {
        let order = Box::new(launch_order(at.facts, job, allocation));
        steps.push(Step::Send { node: *node, command: AgentCommand::Prepare { order } });
    }
    // A fact, since a running group no longer names it and a launch may be cut short by a change of leader.
    let bound = bound_port(at, allocation);
    if let Some(port) = bound.filter(|_| bound != allocation.rendezvous_port) {
        steps.push(Step::Rendezvous { job: id, generation, port });
    }
    let Some(rendezvous_port) = bound.or(allocation.rendezvous_port) else { return };
    let ready = |part: &Part| matches!(part, Part::Prepared | Part::Running | Part::Ended(_));
    if parts.iter().all(|(_, part)| ready(part)) {
        let prepared = parts.iter().filter(|(_, part)| *part == Part::Prepared);
        let launch = AgentCommand::Launch { job: id, generation, rendezvous_port };
        steps.extend(prepared.map(|(node, _)| Step::Send { node: *node, command: launch.clone() }));
    }
}

/// The port that rank 0's node says it has bound.
fn bound_port(at: Situation<'_>, allocation: &Allocation) -> Option<u16> {
    let key = (allocation.job, allocation.generation);
    match at.seen.group(allocation.placement.first_node(), key)?.phase {
        GroupPhase::Prepared { rendezvous_port } => rendezvous_port,
        _ => None,
    }
}

fn run(at: Situation<'_>, job: &Job, seen: &JobSeen, allocation: &Allocation, steps: &mut Vec<Step>) {
    let (id, generation, first) = (job.id, allocation.generation, allocation.placement.first_node());
    let rate = rate_moved(at, job, seen, allocation);
    let (revision, lr_scale) = match rate {
        Some(rate) => (allocation.revision + 1, rate),
        None => (allocation.revision, allocation.lr_scale),
    };
    steps.extend(rate.map(|lr_scale| Step::ChangeRate { job: id, generation, lr_scale }));
    let differs = seen.reported.filter(|reported| allocation.configuration.is_some_and(|at| at != *reported));
    let unheard = differs.is_some() || at.taken_revision(allocation) < revision;
    if let Some(configuration) = allocation.configuration.filter(|_| revision > 1 && unheard) {
        let reported = seen.former_layout_since.zip(seen.live.reported_at);
        let stays = reported.is_some_and(|(since, newest)| newest.since(since).0 > LAYOUT_PATIENCE.0);
        let promised = job.able().layout == Flexibility::Live && !job.spec.limits.forbid_restart();
        if let Some(reported) = differs.filter(|_| stays && promised) {
            let reason = format!("its script did not change from {reported} to {configuration} while it ran");
            return steps.push(Step::Move { job: id, reason, must_leave: false });
        }
        let command = AgentCommand::Configure { job: id, generation, revision, configuration, lr_scale };
        steps.push(Step::Send { node: first, command });
    }
    let due = at.notice_at(job).is_some_and(|moment| moment <= at.facts.now);
    if due {
        steps.push(Step::Notify { job: id, generation });
    }
    let number = allocation.notice.map_or(0, |notice| notice.number) + u32::from(due);
    let command = AgentCommand::Notify { job: id, generation, number };
    for slice in allocation.placement.slices() {
        let behind = at.seen.group(slice.node, (id, generation)).filter(|group| group.notice < number);
        if behind.is_some_and(|group| group.phase == GroupPhase::Running) {
            steps.push(Step::Send { node: slice.node, command: command.clone() });
        }
    }
    if job.save_wanted.is_some() {
        steps.push(Step::Send { node: first, command: AgentCommand::Checkpoint { job: id, generation } });
    }
}

/// The learning-rate factor of a running job, if the noise has moved it since the script was told.
fn rate_moved(at: Situation<'_>, job: &Job, seen: &JobSeen, allocation: &Allocation) -> Option<f64> {
    let model = seen.model.as_ref().filter(|model| model.training.lr_scaling == LrScaling::Adascale)?;
    let lately = seen.rate_told_at.is_some_and(|told| at.facts.now.since(told).0 < RATE_EVERY.0);
    // What was told stands while the noise is not known, and where only a restart could change it.
    if lately || model.noise_scale().is_none() || job.able().batch != Flexibility::Live {
        return None;
    }
    let (from, to) = (allocation.lr_scale, seen.lr_scale(allocation.configuration));
    ((to / from - 1.0).abs() > RATE_MOVED).then_some(to)
}

fn stop(at: Situation<'_>, job: &Job, allocation: &Allocation, cause: &StopCause, steps: &mut Vec<Step>) {
    let wished = match &job.wish {
        Some(Wish::Cancelled { grace, .. }) => *grace,
        _ => None,
    };
    let broken = matches!(
        cause,
        StopCause::GangBroken { .. } | StopCause::Mistaken { .. } | StopCause::Hung { .. } | StopCause::NodeLost { .. }
    );
    let own = job.spec.checkpoint_policy().grace;
    let usual = if broken && BROKEN_GRACE.0 < own.0 { BROKEN_GRACE } else { own };
    let grace = wished.unwrap_or(usual);
    let mode = match cause {
        // A gang that never trained has nothing to save or to say.
        StopCause::GangBroken { .. } | StopCause::Mistaken { .. } if allocation.training_at.is_none() => StopMode::Kill,
        // A broken gang hangs in its collectives and cannot save.
        _ if broken => StopMode::Terminate,
        _ => StopMode::Checkpoint,
    };
    let hears = |(node, part): &(NodeId, Part)| {
        !matches!(part, Part::Stopping | Part::Ended(_) | Part::Vanished) && !allocation.released.contains_key(node)
    };
    let command = AgentCommand::Stop { job: job.id, generation: allocation.generation, mode, grace };
    let parts = at.parts(allocation);
    steps.extend(
        parts.iter().filter(|one| hears(one)).map(|(node, _)| Step::Send { node: *node, command: command.clone() }),
    );
}
