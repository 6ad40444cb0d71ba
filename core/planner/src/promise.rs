//! The promise to the first due job that finds no room: the earliest moment at which enough nodes come free for it. Until
//! then these nodes are kept: others start there only if they end by that moment (EASY backfilling, Lifka 1995). Counting
//! GPUs would not do, because free GPUs that lie scattered are no room for a job of whole nodes.
//!
//! Due jobs are looked at by right (priority, then wait). Those that find room before the first that does not are counted
//! into its moment. A job without a known end may not start on what is kept, since it may never give it back.

use std::collections::{BTreeMap, BTreeSet};

use headway_solver::Use;
use headway_types::{GpuCount, Seconds};

use crate::candidate::{Candidate, Options};
use crate::due::{self, ends_after};
use crate::free::Seeker;
use crate::guarantee::by_right;
use crate::place::Placing;
use crate::round::Round;
use crate::rows::RowKind;
use crate::value;
use crate::witness::{Victims, Witness};

/// Room that is kept for a job.
pub(crate) struct Promise {
    pub job: usize,
    /// Time until all of it is free.
    pub after: Seconds,
    /// GPUs kept per node.
    pub nodes: BTreeMap<usize, u32>,
    /// What the job will take of each row.
    wanted: Vec<Use>,
}

/// Promises room to the first due job that finds none, and holds the candidates of others to it.
pub(crate) fn make(round: &mut Round<'_>, options: &mut [Options<'_>]) {
    let (startable, promise) = first_without_room(round, options);
    round.startable = startable;
    let Some(promise) = promise else { return };
    let first_row = round.rows.promise(promise.job, &promise.wanted);
    for (other, of) in options.iter_mut().enumerate() {
        let ends: Vec<f64> = of.candidates.iter().map(|one| promise.ends_after(round, other, of, one)).collect();
        for (one, ends_after) in of.candidates.iter_mut().zip(ends) {
            if one.gpus > GpuCount(0) && ends_after > promise.after.0 {
                let taken = promise.taken(first_row, &one.uses, other == promise.job);
                one.uses.extend(taken);
                one.outlasts = other != promise.job;
            }
        }
    }
    round.promise = Some(promise);
}

impl Promise {
    /// What something that takes `uses` beyond the promised moment takes of the promise's rows. The job itself no longer
    /// waits for what it was promised.
    fn taken(&self, first_row: u32, uses: &[Use], own: bool) -> Vec<Use> {
        let taken = self.wanted.iter().zip(first_row..).map(|(wanted, row)| {
            let held = uses.iter().find(|part| part.row == wanted.row).map_or(0, |part| part.amount);
            Use { row, amount: if own { held - wanted.amount } else { held } }
        });
        taken.filter(|part| part.amount != 0).collect()
    }

    /// Seconds until a job has ended for certain if it gets this. A job without a known end never does where it would
    /// take more than it holds.
    fn ends_after(&self, round: &Round<'_>, at: usize, of: &Options<'_>, candidate: &Candidate) -> f64 {
        let takes_more = candidate.gpus > of.candidates[of.incumbent].gpus && !round.startable.contains(&at);
        let is_known = value::known_life(of.job, candidate.prediction.goodput).is_some();
        if takes_more && !is_known { f64::INFINITY } else { ends_after(round, of.job, candidate) }
    }
}

/// Due jobs that can start now, and what is kept for the first that cannot.
fn first_without_room(round: &Round<'_>, options: &[Options<'_>]) -> (BTreeSet<usize>, Option<Promise>) {
    let waits = |job: &usize| options[*job].job.current.is_none() && due::is_due(round, options[*job].job);
    let due: Vec<usize> = (0..options.len()).filter(waits).collect();
    let mut startable = BTreeSet::new();
    if due.is_empty() {
        return (startable, None);
    }
    let had_their_turn = due::had_their_turn(round, options);
    let mut present = Present::new(round, options);
    for job in by_right(options, due) {
        let sizes = options[job].candidates.iter().map(|one| one.gpus).filter(|gpus| gpus.0 > 0);
        let Some(least) = sizes.min() else { continue };
        let ways = || (0..options[job].candidates.len()).filter(|&at| options[job].candidates[at].gpus == least);
        if ways().all(|at| is_beyond(round, &options[job].candidates[at])) {
            continue;
        }
        if present.serve(job, least, &due::victims(round, options[job].job, &had_their_turn)) {
            startable.insert(job);
            continue;
        }
        let found = ways().filter_map(|at| present.earliest(job, at)).min_by(|a, b| a.after.total_cmp(&b.after));
        // What will never have room keeps nothing from those after it.
        let Some(Found { candidate, after, wanted, nodes }) = found else { continue };
        if after <= 0.0 && present.start(job, candidate) {
            startable.insert(job);
            continue;
        }
        return (startable, Some(Promise { job, after: Seconds(after), nodes, wanted }));
    }
    (startable, None)
}

/// Whether something has less than a way to run needs of it, whoever ends.
fn is_beyond(round: &Round<'_>, way: &Candidate) -> bool {
    way.uses.iter().any(|part| part.amount > round.rows.capacity[part.row as usize].max(0))
}

/// The earliest room for one of a job's candidates.
struct Found {
    candidate: usize,
    after: f64,
    wanted: Vec<Use>,
    nodes: BTreeMap<usize, u32>,
}

/// The present with the due jobs that start at once: what each job has, and where.
struct Present<'a, 'r> {
    round: &'r Round<'a>,
    options: &'r [Options<'a>],
    witness: Witness<'a, 'r>,
    placing: Placing<'a, 'r>,
}

impl<'a, 'r> Present<'a, 'r> {
    fn new(round: &'r Round<'a>, options: &'r [Options<'a>]) -> Self {
        let witness = Witness::new(round, options);
        Self { round, options, witness, placing: Placing::present(round, options) }
    }

    /// Starts a job at its smallest size, where those that may give way to it free enough; changes nothing where not.
    fn serve(&mut self, job: usize, least: GpuCount, victims: &Victims) -> bool {
        let mark = self.witness.mark();
        if !self.witness.raise(job, least, victims) {
            return false;
        }
        let changed: Vec<(usize, usize)> =
            self.witness.changed_since(mark).into_iter().map(|job| (job, self.witness.chosen(job))).collect();
        if self.placing.change(&changed) {
            self.witness.protect(job, least);
            return true;
        }
        self.witness.take_back(mark);
        false
    }

    /// Starts a job as one of its candidates, where that has room with nobody giving way.
    fn start(&mut self, job: usize, candidate: usize) -> bool {
        let starts = self.placing.change(&[(job, candidate)]);
        if starts {
            self.witness.set(job, candidate);
        }
        starts
    }

    /// The earliest moment at which a candidate finds room, and where, if jobs that run end as expected.
    fn earliest(&self, job: usize, candidate: usize) -> Option<Found> {
        let (rows, way) = (&self.round.rows, &self.options[job].candidates[candidate]);
        let is_room = |part: &&Use| part.amount > 0 && !matches!(rows.kinds[part.row as usize], RowKind::Moves);
        let wanted: Vec<Use> = way.uses.iter().filter(is_room).copied().collect();
        let seeker = Seeker { job: self.options[job].job, current: &[], outlasts: false };
        let (mut used, mut free) = (self.witness.used.clone(), self.placing.free.clone());
        let (mut ends, mut after) = (self.ends().into_iter(), 0.0);
        loop {
            let fits = |part: &Use| used[part.row as usize] + part.amount <= rows.capacity[part.row as usize];
            if wanted.iter().all(fits)
                && let Some(slots) = free.find(way.shape?, seeker)
            {
                let mut nodes = BTreeMap::new();
                slots.iter().for_each(|slot| *nodes.entry(slot.node).or_default() += 1);
                return Some(Found { candidate, after, wanted, nodes });
            }
            let (end, other) = ends.next()?;
            after = end;
            self.present_of(other).uses.iter().for_each(|part| used[part.row as usize] -= part.amount);
            free.give_back(self.options[other].job, &self.placing.slots[other], false);
        }
    }

    /// When who ends, in order.
    fn ends(&self) -> Vec<(f64, usize)> {
        let runs = (0..self.options.len()).filter(|&job| self.present_of(job).gpus > GpuCount(0));
        let end = |job: usize| (ends_after(self.round, self.options[job].job, self.present_of(job)), job);
        let mut ends: Vec<(f64, usize)> = runs.map(end).collect();
        // Stable, so that of equal ends the first comes first.
        ends.sort_by(|a, b| a.0.total_cmp(&b.0));
        ends
    }

    fn present_of(&self, job: usize) -> &'r Candidate {
        &self.options[job].candidates[self.witness.chosen(job)]
    }
}
