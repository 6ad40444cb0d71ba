//! Headway's run of a single job: the production core in virtual time, until the job has really come to its noise-free steps.

use headway_emulation::{NoiseCourse, NoiseTrack, Progress, Training, Workload};
use headway_planner::Policy;
use headway_sim::{Failure, SimJob, Watcher, simulate_watched};
use headway_types::spec::{Precision, Training as Told};
use headway_types::{Configuration, Generation, GpuCount, ModelShape, Seconds, StepReport, Tier, example};
use serde::{Deserialize, Serialize};

use super::course::Course;
use crate::cluster::Cluster;
use crate::run::{Settings, scenario_of};

/// Further than the scheduler's own count, which may run ahead of the truth or behind it.
const MARGIN: f64 = 1.1;

/// What a race is run with.
#[derive(Clone, Debug)]
pub struct Race<'a> {
    pub seed: u64,
    pub job: &'a str,
    pub cluster: &'a Cluster,
    pub shape: ModelShape,
    pub told: &'a Told,
    pub course: Course,
    /// Noise-free steps.
    pub steps: f64,
    pub policy: &'a Policy,
    pub settings: &'a Settings,
}

/// How a race went.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Finish {
    pub hours: f64,
    /// Live changes of the batch or the micro-batch alone, of the layout, and restarts.
    pub batch_changes: u32,
    pub layout_changes: u32,
    pub restarts: u64,
    /// From which share of the noise-free steps on it trained in which batch.
    pub path: Vec<(f64, u64)>,
}

impl Race<'_> {
    pub fn run(&self) -> Result<Finish, Box<Failure>> {
        let mut lap = Lap { steps: self.steps, ..Lap::default() };
        let scenario = scenario_of(self.seed, self.cluster, vec![self.sim_job()], self.policy, self.settings);
        simulate_watched(&scenario, &mut lap)?;
        Ok(Finish { hours: lap.ended() / 3_600.0, ..lap.finish })
    }

    fn sim_job(&self) -> SimJob {
        let gpus: GpuCount = self.cluster.gpus();
        let mut told = self.told.clone();
        let reference = self.course.moments().mean + told.reference_batch.0 as f64;
        let tokens = self.steps * reference * f64::from(self.shape.seq_len) * MARGIN;
        told.target.iter_mut().for_each(|target| target.tokens.0 = tokens);
        let mut spec = example::spec(self.job, example::gpus(gpus.0, gpus.0), Some(told));
        spec.elastic = self.settings.elastic;
        spec.limits.max_restarts = 1_000;
        let track = NoiseTrack { parts: self.course.parts, scale: 1.0, steps: self.steps };
        let noise = NoiseCourse::Along(track);
        SimJob {
            arrives: Seconds(0.0),
            spec,
            tokens_per_second: 0.0,
            noise_scale: 0.0,
            runs: Seconds(0.0),
            startup: Seconds(0.0),
            cancelled_after: None,
            hidden: Some(Workload::Training(Training { shape: self.shape, precision: Precision::Bf16, noise })),
        }
    }
}

/// Watches the job until it has come to its steps.
#[derive(Debug, Default)]
struct Lap {
    steps: f64,
    finish: Finish,
    ended: Option<f64>,
    newest: Option<Newest>,
}

/// The report before.
#[derive(Clone, Copy, Debug)]
struct Newest {
    at: f64,
    steps: f64,
    seconds_per_step: f64,
    configuration: Configuration,
    generation: Generation,
}

impl Lap {
    /// Seconds to the last noise-free step. One who stopped sooner is taken to have gone on as at last.
    fn ended(&self) -> f64 {
        let further = |newest: Newest| newest.at + (self.steps - newest.steps) * newest.seconds_per_step;
        self.ended.or(self.newest.map(further)).unwrap_or(f64::INFINITY)
    }

    fn count(&mut self, before: Option<Newest>, report: &StepReport, steps: f64) {
        let at = report.configuration;
        let tier = before.map(|before| (before.configuration.tier_to(&at), before.generation < report.generation));
        match tier {
            Some((_, true)) => self.finish.restarts += 1,
            Some((Some(Tier::Layout | Tier::Migration), false)) => self.finish.layout_changes += 1,
            Some((Some(_), false)) => self.finish.batch_changes += 1,
            Some((None, false)) | None => {}
        }
        let batch = at.global_batch.0;
        if self.finish.path.last().is_none_or(|(_, last)| *last != batch) {
            self.finish.path.push(((1e4 * steps / self.steps).round() / 1e4, batch));
        }
    }
}

impl Watcher for Lap {
    fn trained(&mut self, _job: usize, at: Seconds, report: &StepReport, progress: Progress, _goodput: f64) {
        if self.ended.is_some() {
            return;
        }
        let before = self.newest;
        let begun = before.map_or(0.0, |before| before.steps);
        self.count(before, report, begun);
        let seconds_per_step = report.duration.0 / (progress.steps - begun).max(f64::MIN_POSITIVE);
        if progress.steps >= self.steps {
            self.ended = Some(at.0 - (progress.steps - self.steps) * seconds_per_step);
        }
        let (steps, configuration, generation) = (progress.steps, report.configuration, report.generation);
        self.newest = Some(Newest { at: at.0, steps, seconds_per_step, configuration, generation });
    }
}
