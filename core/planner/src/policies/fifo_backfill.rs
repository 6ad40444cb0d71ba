//! First come, first served at the requested size, with EASY backfilling (Lifka 1995): the first job that finds no room
//! is promised the earliest moment at which predicted ends free enough for it, and others may start before it only if
//! they end by then or take nothing it will need. Nobody that runs is moved. So a job that fits the cluster is delayed
//! only by those before it, as far as ends are known; who has no known end counts as running for ever.

use std::sync::Arc;

use headway_goodput::JobModel;
use headway_solver::milp::MilpError;

use super::as_requested::{by_goodput, first_come, keep_requested_size, serve_arrivals};
use super::queue::{Queue, amount};
use super::shortest_remaining::ends_after;
use super::{Approach, Line, at_reference_batch};
use crate::backfill;
use crate::candidate::{Candidate, Options};
use crate::decide::Decision;
use crate::guarantee::Guarantees;
use crate::round::Round;

pub(super) struct FifoBackfill;

impl Approach for FifoBackfill {
    fn narrowed(&self, model: &Arc<JobModel>) -> Option<Arc<JobModel>> {
        at_reference_batch(model)
    }

    fn line(&self, options: &[Options<'_>]) -> Option<Line> {
        Some(first_come(options))
    }

    fn appraise(&self, _round: &Round<'_>, options: &mut Options<'_>) {
        keep_requested_size(options);
    }

    fn decide(&self, round: &Round<'_>, options: &[Options<'_>], owed: &Guarantees) -> Result<Decision, MilpError> {
        Ok(serve_arrivals(round, options, owed, |queue, waiting| {
            let mut promised: Option<Promise> = None;
            for &job in waiting {
                let of = &options[job];
                let ways = by_goodput(of);
                match &mut promised {
                    None if queue.serve(job, ways.iter().copied()) => {}
                    None => promised = ways.iter().find_map(|&at| Promise::to(queue, job, at)),
                    Some(promise) => {
                        let harmless = ways.iter().copied().filter(|&at| promise.allows(of, &of.candidates[at]));
                        if queue.serve(job, harmless.collect::<Vec<_>>()) {
                            promise.count(of, &of.candidates[queue.choice[job]]);
                        }
                    }
                }
            }
        }))
    }
}

/// When the first that waits will start, and what then is left beside it.
struct Promise {
    /// Seconds from now; infinity where no end is known that would free enough.
    starts_after: f64,
    /// By row.
    spare: Vec<i64>,
}

impl Promise {
    /// `None` for what does not fit the cluster even when it is empty: nobody waits for that.
    fn to(queue: &Queue<'_, '_>, job: usize, candidate: usize) -> Option<Self> {
        let wanted = &queue.options[job].candidates[candidate].uses;
        let capacity = queue.capacity();
        let chosen = |job: usize| &queue.options[job].candidates[queue.choice[job]];
        let running = (0..queue.options.len()).filter(|&other| other != job && chosen(other).gpus.0 > 0);
        let ends = running.map(|other| (ends_after(&queue.options[other], chosen(other)), &chosen(other).uses[..]));
        let (starts_after, used) = backfill::earliest(capacity, queue.used.clone(), wanted, ends.collect())?;
        let spare = (0..capacity.len()).map(|row| capacity[row] - used[row] - amount(wanted, row as u32)).collect();
        Some(Self { starts_after, spare })
    }

    fn ends_before(&self, of: &Options<'_>, candidate: &Candidate) -> bool {
        let end = ends_after(of, candidate);
        end.is_finite() && end <= self.starts_after
    }

    /// Whether a start now leaves the promise as it is. Rows with a lower bound are no room anyone waits for.
    fn allows(&self, of: &Options<'_>, candidate: &Candidate) -> bool {
        let beside = |part: &headway_solver::Use| part.amount <= 0 || part.amount <= self.spare[part.row as usize];
        self.ends_before(of, candidate) || candidate.uses.iter().all(beside)
    }

    fn count(&mut self, of: &Options<'_>, candidate: &Candidate) {
        if self.ends_before(of, candidate) {
            return;
        }
        for part in &candidate.uses {
            self.spare[part.row as usize] -= part.amount;
        }
    }
}
