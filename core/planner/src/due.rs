//! What a long wait gives a right to. A job that is **due** goes before others to GPUs that are free, and jobs that can shrink
//! make room for its smallest size. Where that is not enough the earliest moment at which enough comes free is promised to it,
//! and until then others start only what ends by that moment or takes nothing that it will need (EASY backfilling, Lifka
//! 1995). Nobody that runs is stopped for a peer, unless it has had its turn.
//!
//! A wait is measured by the work that waits. Whatever the order, the last of all that wait starts when the rest is nearly
//! done; who has waited longer than that has been passed over by work that came later.

use std::collections::BTreeSet;
use std::sync::Arc;

use headway_solver::Use;
use headway_types::{GpuCount, Seconds};

use crate::backfill;
use crate::candidate::{Candidate, Options};
use crate::guarantee::by_right;
use crate::input::PlanJob;
use crate::round::Round;
use crate::rows::RowKind;
use crate::witness::{Victims, Witness};
use crate::{urgency, value};

/// However much waits, a job is due after so many times the policy's patience.
const MOST_DUE: f64 = 24.0;
/// Of the time it is given in return, a job that is stopped for another may lose this share.
const LOST_SHARE: f64 = 0.05;

/// Whether a wait gives rights by what a round has settled (`PlanReport::due_after`). It does until the job has run for as long as it had waited.
#[must_use]
pub fn makes_due(due_after: Option<Seconds>, waited: Seconds, ran: Seconds) -> bool {
    due_after.is_some_and(|least| waited.0 >= least.0 && ran.0 < waited.0)
}

/// Whether a job is due.
pub(crate) fn is_due(round: &Round<'_>, job: &PlanJob) -> bool {
    makes_due(round.due_after, job.claim.waited, job.claim.ran)
}

/// Settles how long a wait makes a job due, and promises the first of those that find no room the earliest moment at
/// which enough comes free.
pub(crate) fn promise(round: &mut Round<'_>, options: &mut [Options<'_>]) {
    let policy = &round.input.policy;
    let backlog = urgency::backlog(round, options);
    round.due_after =
        policy.patience().map(|least| Seconds((policy.backlog_share * backlog.0).clamp(least.0, MOST_DUE * least.0)));
    let Some((job, promise)) = first_without_room(round, options) else { return };
    round.promised = Some((job, promise.after));
    let first = round.rows.promise(job, &promise.wanted);
    for (other, of) in options.iter_mut().enumerate() {
        for one in &mut of.candidates {
            let stays_on = one.gpus > GpuCount(0) && ends_after(round, of.job, one) > promise.after.0;
            let taken = promise.wanted.iter().enumerate().filter_map(|(at, wanted)| {
                let same = |part: &&Use| part.row == wanted.row && stays_on;
                let held = one.uses.iter().find(same).map_or(0, |part| part.amount);
                // Who has what was promised waits for it no longer.
                let amount = if other == job && one.gpus > GpuCount(0) { held - wanted.amount } else { held };
                (amount != 0).then_some(Use { row: first + at as u32, amount })
            });
            let taken: Vec<Use> = taken.collect();
            one.uses.extend(taken);
        }
    }
}

/// Jobs that may be stopped for a peer: they have had their turn, will not end within another, and lose little by it.
pub(crate) fn had_their_turn(round: &Round<'_>, options: &[Options<'_>]) -> Arc<BTreeSet<usize>> {
    let turn = round.input.policy.turn;
    let had = |job: &usize| {
        let of = &options[*job];
        let lost = of.job.downtime.restart.0 + of.job.rework.0;
        let goes_on = of.candidates.get(of.incumbent).map(|now| ends_after(round, of.job, now));
        of.job.claim.ran.0 >= turn.0 && lost <= LOST_SHARE * turn.0 && goes_on.is_some_and(|left| left >= turn.0)
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

/// Of each of these rows a job will take so much after this time.
struct Promise {
    after: Seconds,
    wanted: Vec<Use>,
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
    for job in by_right(options, due) {
        let least = options[job].candidates.iter().map(|one| one.gpus).filter(|gpus| gpus.0 > 0).min()?;
        let ways = || options[job].candidates.iter().filter(|one| one.gpus == least);
        if ways().all(|way| is_beyond(round, way)) {
            continue;
        }
        if witness.raise(job, least, &victims(round, options[job].job, &had_their_turn)) {
            witness.protect(job, least);
            continue;
        }
        let promises = ways().filter_map(|way| earliest(round, options, way));
        // What will never have room keeps nothing from those after it.
        if let Some(soonest) = promises.min_by(|a, b| a.after.0.total_cmp(&b.after.0)) {
            return Some((job, soonest));
        }
    }
    None
}

/// Whether something has less than a way to run needs of it, whoever ends.
fn is_beyond(round: &Round<'_>, way: &Candidate) -> bool {
    way.uses.iter().any(|part| part.amount > round.rows.capacity[part.row as usize].max(0))
}

/// The earliest moment at which a way to run finds room, if those that run end as expected.
fn earliest(round: &Round<'_>, options: &[Options<'_>], way: &Candidate) -> Option<Promise> {
    let rows = &round.rows;
    let room = |part: &&Use| part.amount > 0 && !matches!(rows.kinds[part.row as usize], RowKind::Moves);
    let wanted: Vec<Use> = way.uses.iter().filter(room).copied().collect();
    let mut used = vec![0_i64; rows.capacity.len()];
    let mut ends = Vec::new();
    for of in options {
        let now = &of.candidates[of.incumbent];
        now.uses.iter().for_each(|part| used[part.row as usize] += part.amount);
        if now.gpus > GpuCount(0) {
            ends.push((ends_after(round, of.job, now), &now.uses[..]));
        }
    }
    let (after, _) = backfill::earliest(&rows.capacity, used, &wanted, ends)?;
    Some(Promise { after: Seconds(after), wanted })
}

/// Seconds from now until a job ends if it gets this, as far as anybody can tell.
fn ends_after(round: &Round<'_>, job: &PlanJob, candidate: &Candidate) -> f64 {
    candidate.cost.0 + value::life_left(job, round.input.now, candidate.prediction.goodput).0
}
