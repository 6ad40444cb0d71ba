//! Jobs that need somebody: of each the gravest thing.

use headway_planner::makes_due;
use headway_types::{GpuCount, GpuSeconds, ReasonCode, Timestamp};

use super::{Finding, Kind, Subject, elapsed, lasting, standing};
use crate::record::{Job, JobState, LastFailure};
use crate::view::{JobView, View};

/// A job that failed, or was failed, so often since it last made progress fails again and again.
const AGAIN: u32 = 2;
/// Goodput that is off by more than this share of what was predicted is far off.
const FAR_OFF: f64 = 0.2;

pub(super) fn findings(view: &View, may_read: impl Fn(&Job) -> bool) -> Vec<Finding<'_>> {
    let of = |shown| {
        let unplannable = aside(view, shown).or_else(|| hangs(shown)).or_else(|| fails(shown));
        unplannable.or_else(|| waits(view, shown)).or_else(|| mispredicted(view, shown))
    };
    // Whoever is held has been looked at.
    let held = |job: &Job| matches!(job.state, JobState::Held { .. });
    view.jobs.values().filter(|shown| !held(&shown.job) && may_read(&shown.job)).filter_map(|shown| of(shown)).collect()
}

fn finding<'v>(
    job: &'v Job,
    kind: Kind,
    (since, at_stake): (Option<Timestamp>, GpuSeconds),
    told: impl FnOnce() -> (String, String) + 'v,
) -> Finding<'v> {
    let subject = Subject::Job { id: job.id, name: job.spec.name.clone() };
    Finding { kind, subject, since, at_stake: Some(at_stake), told: Box::new(told) }
}

/// Rounds do without it.
fn aside<'v>(view: &'v View, shown: &'v JobView) -> Option<Finding<'v>> {
    let job = &*shown.job;
    let aside = view.trouble.as_ref()?.aside.get(&job.id)?;
    // What it has it keeps.
    let waits = if shown.allocation.is_some() { GpuCount(0) } else { job.least() };
    let at_stake = standing(view, waits, aside.since);
    Some(finding(job, Kind::JobSetAside, (Some(aside.since), at_stake), move || {
        let (name, lasting) = (&job.spec.name, lasting(view, aside.since));
        let headline = format!("Rounds give no plan with {name} and have done without it {lasting}");
        let next = "It is tried again from time to time; the scheduler's log says what went wrong. Cancel it and submit it otherwise, or hold it: headway job hold";
        (headline, format!("{next} {}", job.id))
    }))
}

fn hangs(shown: &JobView) -> Option<Finding<'_>> {
    let job = &*shown.job;
    (job.hangs > 0).then(|| {
        finding(job, Kind::JobHangs, (since(job.last_failure.as_ref()), job.spent.idle), move || {
            let times = if job.hangs == 1 { "once".into() } else { format!("{} times", job.hangs) };
            let headline = format!("{} hung {times} since it last made progress{}", job.spec.name, last_words(job));
            (headline, format!("headway logs {}", job.id))
        })
    })
}

fn fails(shown: &JobView) -> Option<Finding<'_>> {
    let job = &*shown.job;
    let times = job.failures + job.setbacks;
    (times >= AGAIN).then(|| {
        let lost = job.spent.starting + job.spent.rework;
        finding(job, Kind::JobFails, (since(job.last_failure.as_ref()), lost), move || {
            let headline =
                format!("{} failed {times} times since it last made progress{}", job.spec.name, last_words(job));
            (headline, format!("headway why {0}, headway logs {0}", job.id))
        })
    })
}

fn since(failure: Option<&LastFailure>) -> Option<Timestamp> {
    failure.map(|failure| failure.at)
}

/// The first line of how it last failed.
fn last_words(job: &Job) -> String {
    let message = job.last_failure.as_ref().and_then(|failure| failure.message.lines().next());
    message.map_or(String::new(), |message| format!(": {message}"))
}

/// A job that waits and will not start, or has waited for too long.
fn waits<'v>(view: &'v View, shown: &'v JobView) -> Option<Finding<'v>> {
    let job = &*shown.job;
    let JobState::Queued { since } = job.state else { return None };
    let verdict = view.verdict(job.id)?;
    let said = |code| verdict.reasons.first().is_some_and(|reason| reason.code == code);
    let turn = job.turn_at(view.at);
    let due_after = view.verdicts.due.get(&job.id).copied();
    let kind = if said(ReasonCode::Malformed) {
        Kind::JobLeftOut
    } else if said(ReasonCode::Never) {
        Kind::JobNever
    } else if job.wants_gpus(view.at) && makes_due(due_after, turn.waited, turn.ran) {
        Kind::JobStarves
    } else {
        return None;
    };
    let at_stake = job.least() * turn.waited;
    Some(finding(job, kind, (Some(since), at_stake), move || {
        let (name, waited) = (&job.spec.name, turn.waited.words());
        let why = view.verdict(job.id).map(|verdict| verdict.headline.clone()).unwrap_or_default();
        match (kind, due_after) {
            (Kind::JobStarves, Some(due)) => (
                format!("{name} has waited {waited}, longer than the {} after which a job is due: {why}", due.words()),
                format!("headway why {}", job.id),
            ),
            _ => (format!("{name} waits {}: {why}", lasting(view, since)), format!("headway why {}", job.id)),
        }
    }))
}

/// Runs otherwise than was predicted when it was last placed or configured, once rounds have passed since.
fn mispredicted<'v>(view: &'v View, shown: &'v JobView) -> Option<Finding<'v>> {
    let (job, held) = (&*shown.job, shown.allocation.as_ref()?);
    let began = held.training_at?;
    let settled = elapsed(view, began).0 > 2.0 * view.policy.round_every.0;
    let (measured, predicted) = (shown.live.goodput?.0, held.predicted_goodput);
    if !settled || predicted <= 0.0 || !matches!(job.state, JobState::Running { .. }) {
        return None;
    }
    let off = measured / predicted - 1.0;
    (off.abs() > FAR_OFF).then(|| {
        let at_stake = GpuSeconds(off.abs() * standing(view, held.held_gpus(), began).0);
        finding(job, Kind::JobMispredicted, (Some(began), at_stake), move || {
            let than = if off < 0.0 { "below" } else { "above" };
            let headline = format!(
                "{} makes {measured:.0} tokens/s of goodput, {:.0} % {than} the {predicted:.0} that it was placed for",
                job.spec.name,
                100.0 * off.abs()
            );
            (headline, format!("headway job goodput {0}, headway job curve {0}", job.id))
        })
    })
}
