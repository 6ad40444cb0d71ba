//! As Pollux is published (Qiao et al., OSDI'21, equations 15 and 17; petuum/adaptdl has since gone on to a plain sum of
//! speed-ups and a flat tenth for a restart, `sched/adaptdl_sched/policy/pollux.py`): data parallelism only, batch tuned, and the power mean of all jobs'
//! speed-ups over their fair share with p = −1. For one set of jobs the greatest mean is the least Σ s^p, which adds up
//! over jobs. A job that would move counts (T − R·δ)/(T + δ) of its speed-up: T its age, R its restarts of δ seconds.
//! Its genetic search is not ours: the solver finds no worse. A goodput table is taken as it is, whatever its rows mean.

use std::sync::Arc;

use headway_goodput::JobModel;
use headway_types::GpuCount;

use super::{Approach, value_each};
use crate::candidate::Options;
use crate::round::Round;
use crate::value::Quanta;

const POWER: f64 = -1.0;
/// The speed-up of a job without GPUs: zero has no finite power. One hundredth of a fair share is worse than any
/// allocation a job would ask for, and keeps sums of powers apart.
const NOTHING: f64 = 0.01;

pub(super) struct Pollux {
    /// Where not, a job runs at data parallelism alone, as published; what does not fit one GPU never runs.
    pub tunes_layouts: bool,
}

impl Approach for Pollux {
    fn narrowed(&self, model: &Arc<JobModel>) -> Option<Arc<JobModel>> {
        if self.tunes_layouts {
            return None;
        }
        let mut narrowed = JobModel::clone(model);
        let layouts = &mut narrowed.training.layouts;
        (layouts.tp, layouts.pp) = (vec![1], vec![1]);
        layouts.sizes.clear();
        Some(Arc::new(narrowed))
    }

    fn appraise(&self, round: &Round<'_>, options: &mut Options<'_>) {
        let factor = restart_factor(round, options);
        value_each(options, |one| {
            let speed_up = if one.gpus == GpuCount(0) { 0.0 } else { one.prediction.speed_up };
            let counted = speed_up * if one.stays { 1.0 } else { factor };
            let worth = libm::pow(NOTHING, POWER) - libm::pow(counted.max(NOTHING), POWER);
            // One quantum less for a move, so that of equals the job stays.
            Quanta(Quanta::of(worth).0 - i64::from(one.gpus > GpuCount(0) && !one.stays))
        });
    }
}

fn restart_factor(round: &Round<'_>, options: &Options<'_>) -> f64 {
    let (job, restart) = (options.job, options.job.downtime.restart.0);
    let age = round.input.now.since(job.submitted_at).0;
    if job.current.is_none() || age + restart <= 0.0 {
        return 1.0;
    }
    ((age - f64::from(job.claim.restarts) * restart) / (age + restart)).max(0.0)
}
