//! One run, and many in parallel.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use headway_emulation::{Nature, Seed, Training, Workload as Truth};
use headway_planner::Policy;
use headway_sim::{Failure, HiddenWorld, Oversight, Report, Scenario, SimJob, simulate_watched};
use headway_types::spec::{Elasticity, Precision};
use headway_types::{JobSpec, Seconds};
use serde::{Deserialize, Serialize};

use crate::cluster::Cluster;
use crate::contender::Contender;
use crate::measure::{Measure, measure};
use crate::watch::{Watch, cpu_seconds};
use crate::workload::{Job, Kind, Workload};

/// What holds for all runs of a comparison.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    pub nature: Nature,
    /// Times the published rates of mishaps.
    pub mishaps: f64,
    /// The hidden world of the emulated fleet of this name, instead of one by the run's seed.
    pub fleet: Option<String>,
    /// Longest time between rounds, and between reports of a gang.
    pub round_every: Seconds,
    pub report_every: Seconds,
    /// How often jobs let themselves be moved.
    pub elastic: Elasticity,
    /// After the last job has come; what has not ended by then has not ended.
    pub patience: Seconds,
}

/// Jobs that may be moved whenever a policy likes, as the papers of Sia and Pollux have them.
pub const AT_WILL: Elasticity = Elasticity {
    min_runtime: Seconds(0.0),
    max_resizes_per_hour: u32::MAX,
    max_overhead: f64::INFINITY,
    min_share: None,
};

impl Default for Settings {
    fn default() -> Self {
        Self {
            nature: Nature::HARSH,
            mishaps: 1.0,
            fleet: None,
            round_every: Seconds(300.0),
            report_every: Seconds(30.0),
            elastic: Elasticity::default(),
            patience: Seconds(10.0 * 86_400.0),
        }
    }
}

/// One run to be done.
#[derive(Clone, Debug)]
pub struct Trial<'a> {
    pub seed: u64,
    pub load: f64,
    pub workload: &'a Workload,
    pub contender: &'a Contender,
}

/// Why a run has no result.
#[derive(Debug, thiserror::Error)]
#[error("{contender} on {workload}, seed {seed}")]
pub struct TrialError {
    pub contender: String,
    pub workload: String,
    pub seed: u64,
    #[source]
    pub source: Box<Failure>,
}

/// What one run came to.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Outcome {
    pub contender: String,
    pub workload: String,
    pub seed: u64,
    pub load: f64,
    pub measure: Measure,
    /// Seconds from submission to end, ascending.
    pub times: Vec<u32>,
}

/// Runs all trials on so many threads; the answers are in the order of the trials. `done` hears of each as it ends.
pub fn run_all(
    trials: &[Trial<'_>],
    settings: &Settings,
    threads: usize,
    done: &(dyn Fn(&Outcome) + Sync),
) -> Result<Vec<Outcome>, TrialError> {
    let one = |trial: &Trial<'_>| {
        let result = run(trial, settings);
        result.iter().for_each(done);
        result
    };
    run_in_parallel(trials, threads, &one).into_iter().collect()
}

/// Runs each item on one of so many threads; the answers are in the order of the items.
pub(crate) fn run_in_parallel<T: Sync, R: Send>(items: &[T], threads: usize, run: &(dyn Fn(&T) -> R + Sync)) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let results: Mutex<Vec<(usize, R)>> = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(|| {
                while let Some((at, item)) = take(items, &next) {
                    let result = run(item);
                    // A poisoned list is still a list: who panicked ends the scope.
                    results.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push((at, result));
                }
            });
        }
    });
    let mut results = results.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    results.sort_by_key(|(at, _)| *at);
    results.into_iter().map(|(_, result)| result).collect()
}

fn take<'b, T>(items: &'b [T], next: &AtomicUsize) -> Option<(usize, &'b T)> {
    let at = next.fetch_add(1, Ordering::Relaxed);
    items.get(at).map(|item| (at, item))
}

fn run(trial: &Trial<'_>, settings: &Settings) -> Result<Outcome, TrialError> {
    let began = cpu_seconds();
    let scenario = scenario(trial, settings);
    let mut watch = Watch::new(trial.workload.arrivals);
    let name = || (trial.contender.name.clone(), trial.workload.name.clone());
    let report: Report = simulate_watched(&scenario, &mut watch).map_err(|source| {
        let (contender, workload) = name();
        TrialError { contender, workload, seed: trial.seed, source }
    })?;
    let (mut measure, times) = measure(trial.workload, &report, &watch);
    let times = times.into_iter().map(|time| time.round() as u32).collect();
    measure.cpu_seconds = cpu_seconds() - began;
    let (contender, workload) = name();
    Ok(Outcome { contender, workload, seed: trial.seed, load: trial.load, measure, times })
}

fn scenario(trial: &Trial<'_>, settings: &Settings) -> Scenario {
    let Trial { workload, contender, .. } = trial;
    let mut jobs: Vec<SimJob> = workload.jobs.iter().map(|job| sim_job(job, contender, workload, settings)).collect();
    for (job, owner) in jobs.iter_mut().zip(&workload.site.owners) {
        (job.spec.project, job.spec.priority) = (owner.project.clone(), owner.priority);
    }
    let mut scenario = scenario_of(trial.seed, &workload.cluster, jobs, &contender.policy, settings);
    scenario.script = workload.site.acts.clone();
    scenario.horizon = workload.arrivals + settings.patience;
    scenario
}

/// A policy on jobs in the world of the settings; all of them have come when it begins.
pub(crate) fn scenario_of(
    seed: u64,
    cluster: &Cluster,
    jobs: Vec<SimJob>,
    policy: &Policy,
    settings: &Settings,
) -> Scenario {
    let mut scenario = Scenario::empty(seed, &[]);
    scenario.nodes = cluster.shapes();
    scenario.jobs = jobs;
    scenario.policy.objective = policy.clone();
    scenario.policy.round_every = settings.round_every;
    // Few heartbeats: a silent node is one that a mishap has silenced.
    scenario.config.lease = Seconds(300.0);
    scenario.config.reconcile_every = Seconds(30.0);
    scenario.config.restart_prior = headway_planner::Downtime::RESTART;
    scenario.horizon = settings.patience;
    scenario.oversight = Oversight::Light;
    scenario.hidden = HiddenWorld {
        seed: settings.fleet.as_deref().map_or(Seed(seed), Seed::of),
        nature: settings.nature,
        report_every: settings.report_every,
        mishaps: settings.mishaps,
    };
    scenario
}

fn sim_job(job: &Job, contender: &Contender, workload: &Workload, settings: &Settings) -> SimJob {
    let spec = contender.spec(job, &workload.cluster);
    let hidden = match &job.kind {
        Kind::Opaque => Truth::Opaque { duration: job.duration },
        Kind::Training(recipe) => {
            Truth::Training(Training { shape: recipe.shape, precision: Precision::Bf16, noise: recipe.noise.into() })
        }
    };
    SimJob {
        arrives: job.arrives,
        spec: JobSpec { elastic: settings.elastic, ..spec },
        tokens_per_second: 0.0,
        noise_scale: 0.0,
        runs: job.duration,
        startup: Seconds(0.0),
        cancelled_after: None,
        hidden: Some(hidden),
    }
}
