//! The promise to the first due job that finds no room: the earliest moment at which enough nodes come free for it. Until
//! then these nodes are kept: another job starts there only if it ends by that moment (EASY backfilling, Lifka 1995).
//! Counting GPUs would not do, because scattered free GPUs are no room for a job of whole nodes.
//!
//! The round looks at due jobs in the order in which they are served (priority, then since when they are due). Jobs that find room before the first that does not count
//! into its moment. A job without a known end may not start on kept nodes, since it may never give them back.

use std::collections::{BTreeMap, BTreeSet};

use headway_solver::Use;
use headway_types::{GpuCount, Seconds};

use crate::candidate::{Candidate, Options};
use crate::due::{self, ends_after};
use crate::free::Seeker;
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
    /// Amounts that the job will take of each row.
    wanted: Vec<Use>,
}

/// Settles after which wait each job is due. Promises room to the first due job that finds none, and holds the candidates
/// of all other jobs to it.
pub(crate) fn promise_room(round: &mut Round<'_>, options: &mut [Options<'_>]) {
    round.due_after = due::waits_until_due(round, options);
    let (startable, promise) = find_first_without_room(round, options);
    round.startable = startable;
    let Some(promise) = promise else { return };
    let first_row = round.rows.promise(promise.job, &promise.wanted);
    for (other, of) in options.iter_mut().enumerate() {
        let ends: Vec<f64> = of.candidates.iter().map(|one| promise.ends_after(round, other, of, one)).collect();
        for (one, ends_after) in of.candidates.iter_mut().zip(ends) {
            if one.gpus > GpuCount(0) && ends_after > promise.after.0 {
                let uses = promise.promised_uses(first_row, &one.uses, other == promise.job);
                one.uses.extend(uses);
                one.outlasts_promise = other != promise.job;
            }
        }
    }
    round.promise = Some(promise);
}

impl Promise {
    /// Returns the use of the promise's rows by a candidate that takes `uses` beyond the promised moment. The job itself
    /// no longer waits for its share.
    fn promised_uses(&self, first_row: u32, uses: &[Use], own: bool) -> Vec<Use> {
        let promised = self.wanted.iter().zip(first_row..).map(|(wanted, row)| {
            let held = uses.iter().find(|part| part.row == wanted.row).map_or(0, |part| part.amount);
            Use { row, amount: if own { held - wanted.amount } else { held } }
        });
        promised.filter(|part| part.amount != 0).collect()
    }

    /// Returns the seconds until a job has ended for certain if it gets this. A job without a known end never does where it
    /// would take more than it holds.
    fn ends_after(&self, round: &Round<'_>, at: usize, of: &Options<'_>, candidate: &Candidate) -> f64 {
        let takes_more = candidate.gpus > of.candidates[of.incumbent].gpus && !round.startable.contains(&at);
        let is_known = value::known_life(of.job, candidate.prediction.goodput).is_some();
        if takes_more && !is_known { f64::INFINITY } else { ends_after(round, of.job, candidate) }
    }
}

/// Returns the due jobs that can start now, and the promise to the first that cannot.
fn find_first_without_room(round: &Round<'_>, options: &[Options<'_>]) -> (BTreeSet<usize>, Option<Promise>) {
    let waits = |job: &usize| options[*job].job.current.is_none() && due::is_due(round, options[*job].job);
    let due: Vec<usize> = (0..options.len()).filter(waits).collect();
    let mut startable = BTreeSet::new();
    if due.is_empty() {
        return (startable, None);
    }
    let had_their_turn = due::had_their_turn(round, options);
    let mut present = Present::new(round, options);
    for job in due::in_serving_order(round, options, due) {
        let candidates = &options[job].candidates;
        let sizes = candidates.iter().map(|one| one.gpus).filter(|gpus| gpus.0 > 0);
        let Some(least) = sizes.min() else { continue };
        let is_way = |at: &usize| candidates[*at].gpus == least;
        let ways: Vec<usize> = (0..candidates.len()).filter(is_way).collect();
        if ways.iter().all(|&at| is_beyond_capacity(round, &candidates[at])) {
            continue;
        }
        if present.start_at_least(job, least, &due::victims(round, options[job].job, &had_their_turn)) {
            startable.insert(job);
            continue;
        }
        // A job that will never have room keeps no nodes from the jobs after it.
        let Some(room) = present.find_earliest_room(job, &ways) else { continue };
        if room.after <= 0.0 && present.start_as(job, room.candidate) {
            startable.insert(job);
            continue;
        }
        let RoomAhead { after, wanted, nodes, .. } = room;
        return (startable, Some(Promise { job, after: Seconds(after), nodes, wanted }));
    }
    (startable, None)
}

/// Whether a candidate needs more of some row than there is in all.
fn is_beyond_capacity(round: &Round<'_>, candidate: &Candidate) -> bool {
    candidate.uses.iter().any(|part| part.amount > round.rows.capacity[part.row as usize].max(0))
}

/// The earliest room for one of a job's candidates.
struct RoomAhead {
    candidate: usize,
    after: f64,
    wanted: Vec<Use>,
    nodes: BTreeMap<usize, u32>,
}

/// The present with the due jobs that start at once: the candidate of each job, and its slots.
struct Present<'a, 'r> {
    round: &'r Round<'a>,
    options: &'r [Options<'a>],
    witness: Witness<'a, 'r>,
    placing: Placing<'a, 'r>,
}

impl<'a, 'r> Present<'a, 'r> {
    fn new(round: &'r Round<'a>, options: &'r [Options<'a>]) -> Self {
        let witness = Witness::new(round, options);
        Self { round, options, witness, placing: Placing::from_present(round, options) }
    }

    /// Starts a job at its smallest size if its victims can free enough. Changes nothing if not.
    fn start_at_least(&mut self, job: usize, least: GpuCount, victims: &Victims) -> bool {
        let mark = self.witness.journal_length();
        if !self.witness.raise(job, least, victims) {
            return false;
        }
        let changed = self.witness.jobs_changed_since(mark).into_iter();
        let changed: Vec<(usize, usize)> = changed.map(|job| (job, self.witness.chosen(job))).collect();
        if !self.placing.change_candidates(&changed) {
            self.witness.take_back(mark);
            return false;
        }
        self.witness.protect(job, least);
        true
    }

    /// Starts a job as one of its candidates if that has room without victims. Changes nothing if not.
    fn start_as(&mut self, job: usize, candidate: usize) -> bool {
        if !self.placing.change_candidates(&[(job, candidate)]) {
            return false;
        }
        self.witness.set_candidate(job, candidate);
        self.witness.protect(job, self.options[job].candidates[candidate].gpus);
        true
    }

    /// Returns the earliest room for one of these candidates of a job, if running jobs end as expected.
    fn find_earliest_room(&self, job: usize, ways: &[usize]) -> Option<RoomAhead> {
        let rows = &self.round.rows;
        let seeker = Seeker { job: self.options[job].job, current: &[], outlasts_promise: false };
        let mut used = self.witness.used.clone();
        let mut free = self.placing.free.clone();
        let mut ends = self.ends_in_order().into_iter();
        let mut after = 0.0;
        loop {
            for &candidate in ways {
                let way = &self.options[job].candidates[candidate];
                let counts = |part: &&Use| part.amount > 0 && !matches!(rows.kinds[part.row as usize], RowKind::Moves);
                let fits = |part: &Use| used[part.row as usize] + part.amount <= rows.capacity[part.row as usize];
                if !way.uses.iter().filter(counts).all(fits) {
                    continue;
                }
                let Some(slots) = way.shape.and_then(|shape| free.find(shape, seeker)) else { continue };
                let wanted = way.uses.iter().filter(counts).copied().collect();
                let mut nodes = BTreeMap::new();
                for slot in slots {
                    *nodes.entry(slot.node).or_default() += 1;
                }
                return Some(RoomAhead { candidate, after, wanted, nodes });
            }
            let (end, other) = ends.next()?;
            after = end;
            for part in &self.chosen(other).uses {
                used[part.row as usize] -= part.amount;
            }
            free.give_back(self.options[other].job, &self.placing.slots[other], false);
        }
    }

    /// Returns the jobs that hold GPUs, and the seconds until each ends, in the order of their ends.
    fn ends_in_order(&self) -> Vec<(f64, usize)> {
        let runs = (0..self.options.len()).filter(|&job| self.chosen(job).gpus > GpuCount(0));
        let end = |job: usize| (ends_after(self.round, self.options[job].job, self.chosen(job)), job);
        let mut ends: Vec<(f64, usize)> = runs.map(end).collect();
        // Stable, so that of equal ends the first comes first.
        ends.sort_by(|a, b| a.0.total_cmp(&b.0));
        ends
    }

    fn chosen(&self, job: usize) -> &'r Candidate {
        &self.options[job].candidates[self.witness.chosen(job)]
    }
}
