//! What a long wait gives a right to. A job that is **due** goes before others to GPUs that are free, and jobs that can shrink
//! make room for its smallest size. Where that is not enough, room is promised to it (`promise.rs`). Nobody that runs is
//! stopped for a peer, unless it has had its turn.
//!
//! The wait after which a job is due goes by the job alone: `patience_share` of the time that it would run at its smallest
//! size, within bounds. So nothing that happens to others changes it, and a job that is due stays due until it starts.
//! Of equal priority the job that became due first is served first.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use headway_types::{GpuCount, JobId, Seconds};

use crate::candidate::{Candidate, Options};
use crate::cluster::Class;
use crate::input::PlanJob;
use crate::policy::Policy;
use crate::round::Round;
use crate::value;
use crate::witness::Victims;

/// However long a job would run, it is due after so many times the policy's patience.
const MOST_DUE: f64 = 16.0;
/// A job of one size waits for this share of the time that an elastic one would: it cannot start on less meanwhile.
const OF_ONE_SIZE: f64 = 0.5;
/// The same of a job that needs more than half of the GPUs of a kind of nodes: they are never free by chance.
const OF_MOST_NODES: f64 = 1.0 / 3.0;
/// Of the time it is given in return, a job that is stopped for another may lose this share.
const LOST_SHARE: f64 = 0.05;

/// Whether a job is due that has waited and run for so long, where `due_after` is the wait after which it is. It stays
/// due until it has run for as long as it had waited.
#[must_use]
pub fn makes_due(due_after: Option<Seconds>, waited: Seconds, ran: Seconds) -> bool {
    due_after.is_some_and(|least| waited.0 >= least.0 && ran.0 < waited.0)
}

/// Whether a job is due.
pub(crate) fn is_due(round: &Round<'_>, job: &PlanJob) -> bool {
    makes_due(round.due_after.get(&job.job).copied(), job.claim.waited, job.claim.ran)
}

/// Jobs that wait and are due, each with the wait that made it due.
pub(crate) fn due_waits(round: &Round<'_>, options: &[Options<'_>]) -> BTreeMap<JobId, Seconds> {
    let waiting = options.iter().map(|of| of.job).filter(|job| job.current.is_none() && is_due(round, job));
    waiting.filter_map(|job| Some((job.job, *round.due_after.get(&job.job)?))).collect()
}

/// Returns due jobs in the order in which they are served: the highest priority first, of these the one that became due
/// first. So no job that becomes due later comes before one that room is promised to, however long it has waited.
pub(crate) fn in_serving_order(round: &Round<'_>, options: &[Options<'_>], mut jobs: Vec<usize>) -> Vec<usize> {
    jobs.sort_by(|&a, &b| {
        let (one, other) = (options[a].job, options[b].job);
        let order = other.priority.cmp(&one.priority).then(time_due(round, other).cmp(&time_due(round, one)));
        order.then(one.submitted_at.cmp(&other.submitted_at)).then(a.cmp(&b))
    });
    jobs
}

/// Returns for how many milliseconds a job has been due: whole ones, so that rounding never changes who comes first.
pub(crate) fn time_due(round: &Round<'_>, job: &PlanJob) -> i64 {
    let after = round.due_after.get(&job.job).map_or(0.0, |after| after.0);
    ((job.claim.waited.0 - after) * 1e3).round() as i64
}

/// Returns the wait after which each job is due.
pub(crate) fn waits_until_due(round: &Round<'_>, options: &[Options<'_>]) -> BTreeMap<JobId, Seconds> {
    let policy = &round.input.policy;
    let Some(patience) = policy.patience() else { return BTreeMap::new() };
    let wait = |of: &Options<'_>| {
        let share = share_of_wait(round, of.job);
        let least = share * patience.0;
        (share * policy.patience_share * run_time(policy, of).0).clamp(least, MOST_DUE * patience.0)
    };
    options.iter().map(|of| (of.job.job, Seconds(wait(of)))).collect()
}

/// Returns how long a job runs in all at its smallest size. A job whose end nobody knows counts as one that has a turn.
fn run_time(policy: &Policy, of: &Options<'_>) -> Seconds {
    value::known_life(of.job, of.measure.least_goodput).map_or(policy.turn, |left| left + of.job.claim.ran)
}

/// Returns the share of its run time that a job waits until it is due.
fn share_of_wait(round: &Round<'_>, job: &PlanJob) -> f64 {
    if !job.has_one_size() {
        return 1.0;
    }
    let accepted = round.cluster.classes.iter().filter(|class| job.range.accepts(&class.alike.gpu_type));
    let largest = accepted.map(Class::nominal).max().unwrap_or_default();
    if 2 * job.least().0 > largest.0 { OF_MOST_NODES } else { OF_ONE_SIZE }
}

/// Jobs that may be stopped for a peer: they have had their turn, will not end within another, and lose little by it.
pub(crate) fn had_their_turn(round: &Round<'_>, options: &[Options<'_>]) -> Arc<BTreeSet<usize>> {
    let turn = round.input.policy.turn;
    let had = |job: &usize| {
        let of = &options[*job];
        let lost = of.job.start_cost().0;
        let goes_on = of.candidates.get(of.incumbent).map(|now| ends_after(round, of.job, now));
        !of.keeps_its_place()
            && of.job.claim.ran.0 >= turn.0
            && lost <= LOST_SHARE * turn.0
            && goes_on.is_some_and(|left| left >= turn.0)
    };
    Arc::new((0..options.len()).filter(had).collect())
}

/// What a job that has waited long may take from.
pub(crate) fn victims(round: &Round<'_>, job: &PlanJob, had_their_turn: &Arc<BTreeSet<usize>>) -> Victims {
    let stoppable = is_due(round, job).then(|| Arc::clone(had_their_turn));
    Victims::Peers { priority: job.priority, stoppable }
}

/// Whether a job for which no room could be made tells that there is none for another: it may go to the same places, for less, from more.
pub(crate) fn speaks_for(round: &Round<'_>, refused: (&PlanJob, GpuCount), other: (&PlanJob, GpuCount)) -> bool {
    let ((one, least), (another, wanted)) = (refused, other);
    least <= wanted
        && one.priority >= another.priority
        && (is_due(round, one) || !is_due(round, another))
        && one.range.types == another.range.types
        && one.needs == another.needs
        && one.claim.labels == another.claim.labels
        && one.claim.project == another.claim.project
        && one.claim.user == another.claim.user
}

/// Seconds from now until a job is expected to end if it gets this.
pub(crate) fn ends_after(round: &Round<'_>, job: &PlanJob, candidate: &Candidate) -> f64 {
    candidate.cost.0 + value::life_left(job, round.input.now, candidate.prediction.goodput).0
}
