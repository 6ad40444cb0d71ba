//! Everyone at the size and batch it asked for, for as long as it runs; whoever finds room starts, the first submitted
//! first. What clusters do that know nothing of goodput. A large job can starve behind small ones that keep coming.

use std::sync::Arc;

use headway_goodput::JobModel;
use headway_solver::milp::MilpError;

use super::in_order::{self, Sorted, preferred};
use super::queue::Queue;
use super::{Approach, Line, Running, at_reference_batch, withdraw};
use crate::candidate::Options;
use crate::decide::Decision;
use crate::guarantee::Guarantees;
use crate::round::Round;

pub(super) struct AsRequested;

impl Approach for AsRequested {
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
            for &job in waiting {
                queue.serve(job, by_goodput(&options[job]));
            }
        }))
    }
}

/// Who runs stays as it is; of the others `serve` decides, the first submitted first.
pub(super) fn serve_arrivals<'a>(
    round: &Round<'_>,
    options: &[Options<'a>],
    owed: &Guarantees,
    serve: impl Fn(&mut Queue<'a, '_>, &[usize]),
) -> Decision {
    let line = first_come(options);
    in_order::decide(round, options, owed, &line, |forbidden| {
        let mut queue = Queue::new(options, owed, forbidden, line.order.clone(), |job| runs(&options[job]));
        let waits = |job: &usize| !options[*job].candidates[queue.choice[*job]].stays;
        let waiting: Vec<usize> = line.order.iter().copied().filter(waits).collect();
        serve(&mut queue, &waiting);
        queue.choice
    })
}

/// The largest size that it can have: what the job asked for, unless too few nodes are open.
pub(super) fn keep_requested_size(options: &mut Options<'_>) {
    let most = options.candidates.iter().filter(|one| one.shape.is_some()).map(|one| one.gpus).max();
    withdraw(options, |one| Some(one.gpus) == most);
}

/// Those that run first, then the first submitted first.
pub(super) fn first_come(options: &[Options<'_>]) -> Line {
    let mut order: Vec<usize> = (0..options.len()).collect();
    order.sort_by_key(|&job| (!runs(&options[job]), options[job].job.submitted_at, job));
    Line { order, ahead: ("was submitted before it", "were submitted before it"), running: Running::Stays }
}

fn runs(options: &Options<'_>) -> bool {
    options.job.current.is_some()
}

/// Fastest first, of equals the one our value prefers.
pub(super) fn by_goodput(options: &Options<'_>) -> Vec<usize> {
    preferred(options, |one| (Sorted(-one.prediction.goodput.0), std::cmp::Reverse(one.value)))
}
