//! Least attained service first (Tiresias, Gu et al., NSDI'19, in two dimensions: GPUs × time), each job at the largest
//! size that can be had, at the batch it asked for. Service is told apart by powers of two from one GPU-hour on; within
//! one level whoever runs goes on, and then the first submitted is the first, so that jobs do not change places every round.
//! A job that has had much can starve while new ones keep coming.

use std::cmp::Reverse;
use std::sync::Arc;

use headway_goodput::JobModel;
use headway_solver::milp::MilpError;
use headway_types::GpuSeconds;

use super::in_order::{self, Sorted, preferred};
use super::queue::Queue;
use super::{Approach, Line, Running, at_reference_batch};
use crate::candidate::Options;
use crate::decide::Decision;
use crate::guarantee::Guarantees;
use crate::round::Round;

/// Service up to which all jobs are of the first level: one GPU-hour. Each further level is twice as wide.
const FIRST_LEVEL: GpuSeconds = GpuSeconds(3_600.0);

pub(super) struct LeastAttained;

impl Approach for LeastAttained {
    fn narrowed(&self, model: &Arc<JobModel>) -> Option<Arc<JobModel>> {
        at_reference_batch(model)
    }

    fn line(&self, options: &[Options<'_>]) -> Option<Line> {
        Some(by_service(options))
    }

    fn decide(&self, round: &Round<'_>, options: &[Options<'_>], owed: &Guarantees) -> Result<Decision, MilpError> {
        let line = by_service(options);
        Ok(in_order::decide(round, options, owed, &line, |forbidden| {
            let mut queue = Queue::new(options, owed, forbidden, line.order.clone(), |_| false);
            for &job in &line.order {
                let by_size = preferred(&options[job], |one| (Reverse(one.gpus), Sorted(-one.prediction.goodput.0)));
                queue.serve(job, by_size);
            }
            queue.choice
        }))
    }
}

fn by_service(options: &[Options<'_>]) -> Line {
    let mut order: Vec<usize> = (0..options.len()).collect();
    order.sort_by_key(|&job| {
        let of = options[job].job;
        (level(of.claim.attained), of.current.is_none(), of.submitted_at, job)
    });
    let ahead = ("comes before it by the GPU-time it has had", "come before it by the GPU-time they have had");
    Line { order, ahead, running: Running::MayMove }
}

fn level(attained: GpuSeconds) -> u32 {
    libm::floor(libm::log2(1.0 + attained.0.max(0.0) / FIRST_LEVEL.0)) as u32
}
