//! One job on GPUs that nobody contests: does a batch that follows the noise beat the best that stays? As COPUS asks (arXiv 2604.26687: +3.9 to +8.0 % on
//! average over the fastest baseline), with noise that grows over the run, on fast and slow networks.
//!
//! Every fixed batch may choose its layout, as COPUS' baselines have each their profiled best.

use headway_emulation::{GradientNoise, Nature};
use headway_planner::Policy;
use headway_types::spec::{BatchRange, TargetCount};
use headway_types::{GpuCount, Seconds, Sequences, Tokens};
use serde::{Deserialize, Serialize};

use crate::cluster::Cluster;
use crate::contender::{Contender, Offered};
use crate::recipe::{Recipe, SEQ_LEN, models};
use crate::run::{Outcome, Settings, Trial, TrialError, run_all};
use crate::workload::{Job, Kind, Site, Workload};

/// A model on a cluster of its own.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Case {
    pub model: &'static str,
    pub cluster: &'static str,
}

/// COPUS' three of H100, each on the usual network and on 3 GB/s per GPU; then many replicas.
pub const CASES: [Case; 9] = [
    Case { model: "llama-3.2-3b", cluster: "H100x8=1" },
    Case { model: "llama-2-13b", cluster: "H100x8=2" },
    Case { model: "llama-2-13b", cluster: "H100x8=2@3" },
    Case { model: "qwen-2.5-32b", cluster: "H100x8=4" },
    Case { model: "qwen-2.5-32b", cluster: "H100x8=4@3" },
    Case { model: "llama-3.2-3b", cluster: "H100x8=8@3" },
    Case { model: "llama-2-13b", cluster: "H100x8=16" },
    Case { model: "llama-2-13b", cluster: "H100x8=16@3" },
    Case { model: "llama-2-70b", cluster: "H100x8=16" },
];

/// Deviations of layouts' own factors: none, so that the batch alone is told apart, and as in all other studies.
pub const LAYOUTS: [f64; 2] = [0.0, Nature::HARSH.layout];

/// Fixed batches over the reference batch.
const BATCHES: [(f64, &str); 9] = [
    (0.03125, "1/32"),
    (0.0625, "1/16"),
    (0.125, "1/8"),
    (0.25, "1/4"),
    (0.5, "1/2"),
    (1.0, "1"),
    (2.0, "2"),
    (4.0, "4"),
    (8.0, "8"),
];
/// Hours on the reference batch.
const HOURS: f64 = 6.0;
/// Noise at the start, its rise, both over the reference batch, and the share of the run at which half of it is done.
const NOISE: (f64, f64, f64) = (0.03125, 8.0, 0.25);
pub const FOLLOWED: &str = "followed";

/// What one case came to on one seed: hours to the target by true reference tokens.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    pub model: String,
    pub cluster: String,
    /// Deviation of each layout's own factor.
    pub layouts: f64,
    pub seed: u64,
    /// By fixed batch, over the reference batch.
    pub fixed: Vec<(String, f64)>,
    pub followed: f64,
    pub restarts: f64,
}

impl Comparison {
    /// The best fixed batch.
    #[must_use]
    pub fn best(&self) -> Option<&(String, f64)> {
        self.fixed.iter().min_by(|a, b| a.1.total_cmp(&b.1))
    }

    /// How much longer the best fixed batch takes, in percent.
    #[must_use]
    pub fn gain(&self) -> f64 {
        self.best().map_or(0.0, |(_, hours)| 100.0 * (hours / self.followed - 1.0))
    }
}

impl Case {
    /// Runs the case: no failures, nothing wrong with φ and κ, layouts off by factors of their own.
    pub fn compare(&self, layouts: f64, seed: u64, threads: usize) -> Result<Option<Comparison>, TrialError> {
        let Ok(cluster) = self.cluster.parse::<Cluster>() else { return Ok(None) };
        let nature = Nature { layout: layouts, kappa: 0.0, noise: 0.0, contention: 0.0, ..Nature::HARSH };
        let settings = Settings { nature, mishaps: 0.0, ..Settings::default() };
        let contender = Contender { name: FOLLOWED.into(), offered: Offered::Elastic, policy: Policy::default() };
        let Some(recipe) = self.recipe(&cluster) else { return Ok(None) };
        let batches = BATCHES.iter().filter_map(|(factor, name)| Some(((*name).to_owned(), recipe.at_batch(*factor)?)));
        let workloads: Vec<(String, Workload)> = std::iter::once((FOLLOWED.to_owned(), recipe.clone()))
            .chain(batches)
            .map(|(name, recipe)| (name, workload(self, &cluster, recipe)))
            .collect();
        let trials: Vec<Trial<'_>> =
            workloads.iter().map(|(_, workload)| Trial { seed, load: 0.0, workload, contender: &contender }).collect();
        let outcomes = run_all(&trials, &settings, threads, &|_| {})?;
        // What the scheduler takes for done may be more or less by the truth: the time to the target itself.
        let hours = |one: &Outcome| one.measure.makespan / 3_600.0 / one.measure.reached;
        let Some((followed, fixed)) = outcomes.split_first() else { return Ok(None) };
        let names = workloads.iter().skip(1).map(|(name, _)| name.clone());
        Ok(Some(Comparison {
            model: self.model.into(),
            cluster: self.cluster.into(),
            layouts,
            seed,
            fixed: names.zip(fixed.iter().map(hours)).filter(|(_, hours)| hours.is_finite()).collect(),
            followed: hours(followed),
            restarts: followed.measure.restarts_per_job,
        }))
    }

    fn recipe(&self, cluster: &Cluster) -> Option<Recipe> {
        let model = models().iter().find(|model| model.name == self.model)?;
        let reference = Sequences(((model.batch / f64::from(SEQ_LEN)) as u64).next_power_of_two());
        let within = |factor: f64| Sequences((reference.0 as f64 * factor) as u64);
        let mut recipe = Recipe {
            model: model.name,
            shape: model.shape,
            reference_batch: reference,
            batch: BatchRange { min: within(BATCHES[0].0), max: within(BATCHES[8].0) },
            noise: GradientNoise { start: 1.0, growth: 0.0, half: 1.0 },
            target: Tokens(0.0),
            // A batch below the reference may be worth its while: what the truth credits it counts.
            count: TargetCount::Reference,
        };
        let (_, rate) = recipe.at(&cluster.groups().first()?.class(), cluster.gpus())?;
        recipe.target = Tokens(rate * 3_600.0 * HOURS);
        let (start, growth, half) = NOISE;
        recipe.noise = GradientNoise {
            start: start * reference.0 as f64,
            growth: growth * reference.0 as f64,
            half: half * recipe.target.0 / f64::from(SEQ_LEN),
        };
        Some(recipe)
    }
}

impl Recipe {
    /// The same with this batch only; `None` where it has less than one sequence.
    fn at_batch(&self, factor: f64) -> Option<Self> {
        let batch = Sequences((self.reference_batch.0 as f64 * factor) as u64);
        (batch.0 > 0).then(|| Self { batch: BatchRange { min: batch, max: batch }, ..self.clone() })
    }
}

fn workload(case: &Case, cluster: &Cluster, recipe: Recipe) -> Workload {
    let gpus: GpuCount = cluster.gpus();
    let job = Job {
        name: case.model.to_owned(),
        arrives: Seconds(0.0),
        requested: gpus,
        sizes: vec![gpus],
        duration: Seconds(3_600.0 * HOURS),
        kind: Kind::Training(Box::new(recipe)),
    };
    let (name, cluster) = ("single".into(), cluster.clone());
    Workload { name, cluster, jobs: vec![job], arrivals: Seconds(1.0), site: Site::default() }
}
