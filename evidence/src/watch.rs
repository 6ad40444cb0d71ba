//! Looks on while a run goes: what every job really trained, how right predictions were, and what rounds cost.

use std::collections::BTreeMap;

use headway_emulation::Progress;
use headway_planner::{CurveCache, PlanError, PlanInput, plan};
use headway_sim::Watcher;
use headway_types::{Assignment, Configuration, Generation, JobId, Plan, Prediction, Seconds, StepReport};
use nix::time::{ClockId, clock_gettime};

/// What one job trained, over all its generations.
#[derive(Clone, Debug, Default)]
pub struct Trained {
    /// The newest, which a restart may have taken back behind an older one.
    pub progress: Progress,
    /// When the last job had come.
    pub when_arrivals_end: Progress,
    /// All that was trained, whether or not it was lost.
    pub tokens: f64,
    pub seconds: f64,
    pub gpu_seconds: f64,
    started: Generation,
}

/// Relative errors of predicted goodput.
#[derive(Clone, Copy, Debug, Default)]
pub struct Errors {
    sum: f64,
    weight: f64,
}

impl Errors {
    fn add(&mut self, error: f64, weight: f64) {
        self.sum += error.abs() * weight;
        self.weight += weight;
    }

    /// Mean of what was added; 0 of nothing.
    #[must_use]
    pub fn mean(&self) -> f64 {
        if self.weight > 0.0 { self.sum / self.weight } else { 0.0 }
    }
}

pub struct Watch {
    arrivals: Seconds,
    pub trained: BTreeMap<usize, Trained>,
    /// By the newest round.
    predicted: BTreeMap<JobId, (Option<Configuration>, Prediction)>,
    /// By the second trained, and by the start.
    pub goodput_errors: Errors,
    pub start_errors: Errors,
    pub rounds: u32,
    pub round_cpu: f64,
    pub longest_round_cpu: f64,
}

impl Watch {
    #[must_use]
    pub fn new(arrivals: Seconds) -> Self {
        Self {
            arrivals,
            trained: BTreeMap::new(),
            predicted: BTreeMap::new(),
            goodput_errors: Errors::default(),
            start_errors: Errors::default(),
            rounds: 0,
            round_cpu: 0.0,
            longest_round_cpu: 0.0,
        }
    }
}

/// CPU seconds of this thread so far.
#[must_use]
pub fn cpu_seconds() -> f64 {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID)
        .map_or(0.0, |time| time.tv_sec() as f64 + time.tv_nsec() as f64 / 1e9)
}

impl Watcher for Watch {
    fn round(&mut self, input: &PlanInput, curves: &mut CurveCache) -> Result<Plan, PlanError> {
        let before = cpu_seconds();
        let made = plan(input, curves);
        let took = cpu_seconds() - before;
        self.rounds += 1;
        self.round_cpu += took;
        self.longest_round_cpu = self.longest_round_cpu.max(took);
        if let Ok(plan) = &made {
            let of = |(job, one): (&JobId, &Assignment)| (*job, (one.configuration, one.predicted));
            self.predicted = plan.assignments.iter().map(of).collect();
        }
        made
    }

    fn trained(&mut self, job: usize, at: Seconds, report: &StepReport, progress: Progress, goodput: f64) {
        let one = self.trained.entry(job).or_default();
        one.progress = progress;
        if at.0 <= self.arrivals.0 {
            one.when_arrivals_end = progress;
        }
        one.tokens += report.tokens.0;
        one.seconds += report.duration.0;
        one.gpu_seconds += report.duration.0 * f64::from(report.configuration.layout.gpus().0);
        let first = one.started < report.generation;
        one.started = report.generation;
        let Some((configuration, predicted)) = self.predicted.get(&report.job) else { return };
        if *configuration == Some(report.configuration) && predicted.goodput.0 > 0.0 {
            let error = predicted.goodput.0 / goodput - 1.0;
            self.goodput_errors.add(error, report.duration.0);
            if first {
                self.start_errors.add(error, 1.0);
            }
        }
    }
}
