//! Shortest remaining time first: whoever can end soonest takes what lets it end soonest, restarts counted; then the
//! next. Jobs whose remaining work nobody knows come last, the first submitted first. A long job can starve.

use headway_solver::milp::MilpError;

use super::in_order::{self, Sorted, preferred};
use super::queue::Queue;
use super::{Approach, Line, Running};
use crate::candidate::{Candidate, Options};
use crate::decide::Decision;
use crate::guarantee::Guarantees;
use crate::round::Round;
use crate::value;

pub(super) struct ShortestRemaining;

impl Approach for ShortestRemaining {
    fn line(&self, options: &[Options<'_>]) -> Option<Line> {
        Some(by_end(options))
    }

    fn decide(&self, round: &Round<'_>, options: &[Options<'_>], owed: &Guarantees) -> Result<Decision, MilpError> {
        let line = by_end(options);
        Ok(in_order::decide(round, options, owed, &line, |forbidden| {
            let mut queue = Queue::new(options, owed, forbidden, line.order.clone(), |_| false);
            for &job in &line.order {
                let of = &options[job];
                queue.serve(job, preferred(of, |one| (Sorted(ends_after(of, one)), std::cmp::Reverse(one.value))));
            }
            queue.choice
        }))
    }
}

fn by_end(options: &[Options<'_>]) -> Line {
    let soonest = |of: &Options<'_>| {
        let placed = of.candidates.iter().filter(|one| one.gpus.0 > 0);
        placed.map(|one| ends_after(of, one)).fold(f64::INFINITY, f64::min)
    };
    let mut order: Vec<usize> = (0..options.len()).collect();
    order.sort_by_cached_key(|&job| (Sorted(soonest(&options[job])), options[job].job.submitted_at, job));
    let ahead =
        ("ends sooner, or came earlier where no end is known", "end sooner, or came earlier where no end is known");
    Line { order, ahead, running: Running::MayMove }
}

/// Seconds from now until the job ends if it gets this; infinity where that is not known.
pub(super) fn ends_after(of: &Options<'_>, candidate: &Candidate) -> f64 {
    let known = value::known_life(of.job, candidate.prediction.goodput);
    candidate.cost.0 + known.map_or(f64::INFINITY, |left| left.0)
}
