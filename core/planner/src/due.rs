//! What a long wait gives a right to. A job that is **due** goes before others to GPUs that are free, and jobs that can shrink
//! make room for its smallest size. Where that is not enough the earliest moment at which enough comes free is promised to it,
//! and until then others start only what ends by that moment or takes nothing that it will need (EASY backfilling, Lifka
//! 1995). Nobody that runs is stopped for a peer, unless it has had its turn.
//!
//! The wait after which a job is due goes by the job alone: `patience_share` of the time that it would run at its smallest
//! size, within bounds. So nothing that happens to others changes it, and a job that is due stays due until it starts.
//! Of equal priority whoever has waited longest is served first, so that no newcomer comes before a job that waits.
//!
//! The promise is made to the first due job that finds no room. Older due jobs that start at once are counted into the
//! promised moment. A job without a known end may not start on what is promised, since it may never give it back.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use headway_solver::Use;
use headway_types::{GpuCount, JobId, Seconds};

use crate::backfill;
use crate::candidate::{Candidate, Options};
use crate::guarantee::by_right;
use crate::input::PlanJob;
use crate::policy::Policy;
use crate::round::Round;
use crate::rows::RowKind;
use crate::value;
use crate::witness::{Victims, Witness};

/// However long a job would run, it is due after so many times the policy's patience.
const MOST_DUE: f64 = 16.0;
/// A job of one size waits for this share of the time that an elastic one would: it cannot start on less meanwhile.
const OF_ONE_SIZE: f64 = 0.5;
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

/// Settles after which wait each job is due, and promises the first due job that finds no room the earliest moment at
/// which enough comes free.
pub(crate) fn promise(round: &mut Round<'_>, options: &mut [Options<'_>]) {
    round.due_after = waits_until_due(round, options);
    let Some((job, promise)) = first_without_room(round, options) else { return };
    round.promised = Some((job, promise.after));
    let first = round.rows.promise(job, &promise.wanted);
    for (other, of) in options.iter_mut().enumerate() {
        let ends: Vec<f64> = of.candidates.iter().map(|one| promise.ends_after(round, other, of, one)).collect();
        for (one, ends_after) in of.candidates.iter_mut().zip(ends) {
            let stays_on = one.gpus > GpuCount(0) && ends_after > promise.after.0;
            let taken = promise.wanted.iter().enumerate().filter_map(|(at, wanted)| {
                let same = |part: &&Use| part.row == wanted.row && stays_on;
                let held = one.uses.iter().find(same).map_or(0, |part| part.amount);
                // A job that has got what it was promised no longer waits for it.
                let amount = if other == job && one.gpus > GpuCount(0) { held - wanted.amount } else { held };
                (amount != 0).then_some(Use { row: first + at as u32, amount })
            });
            let taken: Vec<Use> = taken.collect();
            one.uses.extend(taken);
        }
    }
}

/// Returns the wait after which each job is due.
fn waits_until_due(round: &Round<'_>, options: &[Options<'_>]) -> BTreeMap<JobId, Seconds> {
    let policy = &round.input.policy;
    let Some(patience) = policy.patience() else { return BTreeMap::new() };
    let wait = |of: &Options<'_>| {
        let share = if has_one_size(of.job) { OF_ONE_SIZE } else { 1.0 };
        (share * policy.patience_share * run_time(policy, of).0).clamp(patience.0, MOST_DUE * patience.0)
    };
    options.iter().map(|of| (of.job.job, Seconds(wait(of)))).collect()
}

/// Returns how long a job runs in all at its smallest size. A job whose end nobody knows counts as one that has a turn.
fn run_time(policy: &Policy, of: &Options<'_>) -> Seconds {
    value::known_life(of.job, of.measure.least_goodput).map_or(policy.turn, |left| left + of.job.claim.ran)
}

fn has_one_size(job: &PlanJob) -> bool {
    job.work.is_opaque() || job.range.min == job.range.max || job.range.sizes.len() == 1
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

/// What a job will take of each row, and when.
struct Promise {
    after: Seconds,
    wanted: Vec<Use>,
    /// Older due jobs that start at once: the moment is late enough for them.
    served: BTreeSet<usize>,
}

impl Promise {
    /// Seconds until a job has ended for certain if it gets this. A job without a known end never does where it would
    /// take more than it holds.
    fn ends_after(&self, round: &Round<'_>, at: usize, of: &Options<'_>, candidate: &Candidate) -> f64 {
        let takes_more = candidate.gpus > of.candidates[of.incumbent].gpus && !self.served.contains(&at);
        let is_known = value::known_life(of.job, candidate.prediction.goodput).is_some();
        if takes_more && !is_known { f64::INFINITY } else { ends_after(round, of.job, candidate) }
    }
}

fn first_without_room(round: &Round<'_>, options: &[Options<'_>]) -> Option<(usize, Promise)> {
    let waits = |job: &usize| {
        let of = &options[*job];
        of.job.current.is_none() && is_due(round, of.job) && of.candidates.iter().any(|one| one.gpus > GpuCount(0))
    };
    let due: Vec<usize> = (0..options.len()).filter(waits).collect();
    if due.is_empty() {
        return None;
    }
    let had_their_turn = had_their_turn(round, options);
    let mut witness = Witness::new(round, options);
    let mut served = BTreeSet::new();
    for job in by_right(options, due) {
        let least = options[job].candidates.iter().map(|one| one.gpus).filter(|gpus| gpus.0 > 0).min()?;
        let ways = || options[job].candidates.iter().filter(|one| one.gpus == least);
        if ways().all(|way| is_beyond(round, way)) {
            continue;
        }
        if witness.raise(job, least, &victims(round, options[job].job, &had_their_turn)) {
            witness.protect(job, least);
            served.insert(job);
            continue;
        }
        let promises = ways().filter_map(|way| earliest(round, options, &witness, way));
        // What will never have room keeps nothing from those after it.
        if let Some((after, wanted)) = promises.min_by(|a, b| a.0.total_cmp(&b.0)) {
            return Some((job, Promise { after: Seconds(after), wanted, served }));
        }
    }
    None
}

/// Whether something has less than a way to run needs of it, whoever ends.
fn is_beyond(round: &Round<'_>, way: &Candidate) -> bool {
    way.uses.iter().any(|part| part.amount > round.rows.capacity[part.row as usize].max(0))
}

/// The earliest moment at which a way to run finds room, and what it then takes, if jobs that run end as expected, the
/// served ones start now, and those that make room for them have given it.
fn earliest(
    round: &Round<'_>,
    options: &[Options<'_>],
    witness: &Witness<'_, '_>,
    way: &Candidate,
) -> Option<(f64, Vec<Use>)> {
    let rows = &round.rows;
    let room = |part: &&Use| part.amount > 0 && !matches!(rows.kinds[part.row as usize], RowKind::Moves);
    let wanted: Vec<Use> = way.uses.iter().filter(room).copied().collect();
    let mut used = vec![0_i64; rows.capacity.len()];
    let mut ends = Vec::new();
    for (job, of) in options.iter().enumerate() {
        let then = &of.candidates[witness.chosen(job)];
        then.uses.iter().for_each(|part| used[part.row as usize] += part.amount);
        if then.gpus > GpuCount(0) {
            ends.push((ends_after(round, of.job, then), &then.uses[..]));
        }
    }
    let (after, _) = backfill::earliest(&rows.capacity, used, &wanted, ends)?;
    Some((after, wanted))
}

/// Seconds from now until a job is expected to end if it gets this.
fn ends_after(round: &Round<'_>, job: &PlanJob, candidate: &Candidate) -> f64 {
    candidate.cost.0 + value::life_left(job, round.input.now, candidate.prediction.goodput).0
}
