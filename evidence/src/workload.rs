//! Workloads drawn from a seed, or read from a trace: who comes when, asks for how much, and works how long.
//!
//! Requests and durations have the shape of published traces: half of the jobs ask for one node and a tail for many (Microsoft ITP, jobs of at
//! least 8 GPUs, and Philly, multi-GPU jobs: 4 to 64), and durations are log-normal with a deviation of 1.7 to 1.9 (ITP 1.7, Philly 1.9, Acme Kalos 1.8 of
//! jobs of at least ten minutes). Their medians of 4 to 12 hours are shortened so that a virtual day holds a hundred jobs.

use headway_emulation::GradientNoise;
use headway_sim::deed::Act;
use headway_sim::trace::TraceJob;
use headway_types::spec::{BatchRange, Priority, TargetCount};
use headway_types::{GpuCount, Seconds, Sequences, Tokens};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::cluster::Cluster;
use crate::demo;
use crate::recipe::{Model, Recipe, SEQ_LEN, models};

/// One job, whoever decides over it.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    pub name: String,
    pub arrives: Seconds,
    pub requested: GpuCount,
    /// Sizes it could run at as well, ascending.
    pub sizes: Vec<GpuCount>,
    /// On what it requests, on GPUs of the first type, by the prior.
    pub duration: Seconds,
    pub kind: Kind,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    Training(Box<Recipe>),
    /// A script that says nothing: rigid whatever the policy.
    Opaque,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    pub name: String,
    pub cluster: Cluster,
    pub jobs: Vec<Job>,
    /// While jobs come.
    pub arrivals: Seconds,
    pub site: Site,
}

/// Whose jobs they are, and what people do at the site besides. By default all jobs are alike and nobody does anything.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Site {
    /// In the order of the jobs; of jobs beyond its end nothing is said.
    pub owners: Vec<Owner>,
    pub acts: Vec<Act>,
}

/// Whose a job is, and how urgent.
#[derive(Clone, Debug, PartialEq)]
pub struct Owner {
    pub project: String,
    pub priority: Priority,
}

/// Workloads by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Named {
    /// A Poisson process with the shape of a day.
    Day,
    /// The same work in bursts of jobs that come together (the coefficient of variation of gaps in the traces is about 2).
    Bursts,
    /// 48 equal rigid jobs of 8 GPUs and half an hour, at once.
    Equals,
    /// 100 such jobs at once.
    EqualsDay,
    /// The day of `headway up --demo`.
    Demo,
}

/// How much comes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Plenty {
    /// GPU-time as requested over the cluster's while jobs come.
    pub load: f64,
    pub lasts: Seconds,
    /// Median duration.
    pub median: Seconds,
}

impl Default for Plenty {
    fn default() -> Self {
        Self { load: 0.9, lasts: Seconds(86_400.0), median: Seconds(2_400.0) }
    }
}

const SIGMA: f64 = 1.4;
/// What durations are cut to.
const BOUNDS: (f64, f64) = (600.0, 12.0 * 3_600.0);
/// Requests and their weights.
const REQUESTS: [(u32, f64); 6] = [(2, 0.08), (4, 0.17), (8, 0.40), (16, 0.20), (32, 0.12), (64, 0.03)];
/// Batches a recipe allows, over the reference batch.
const BATCHES: (f64, f64) = (0.25, 8.0);
/// A job could use between a quarter of its request and four times it.
const REACH: u32 = 4;

impl Named {
    pub const ALL: [(&'static str, Named); 5] = [
        ("day", Named::Day),
        ("bursts", Named::Bursts),
        ("equals", Named::Equals),
        ("equals-day", Named::EqualsDay),
        ("demo", Named::Demo),
    ];

    #[must_use]
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(known, _)| *known == name).map(|(_, workload)| *workload)
    }

    #[must_use]
    pub fn draw(self, seed: u64, cluster: &Cluster, plenty: &Plenty) -> Workload {
        let mut rng = StdRng::seed_from_u64(seed ^ 0x00e7_1de0_ce00);
        let name = Self::ALL.iter().find(|(_, one)| *one == self).map_or("", |(name, _)| name).to_owned();
        let (jobs, arrivals) = match self {
            Named::Day | Named::Bursts => (drawn(&mut rng, cluster, plenty, self == Named::Bursts), plenty.lasts),
            Named::Equals => ((0..48).map(equal).collect(), Seconds(1.0)),
            // Work done "while jobs come" is here what is done within eight hours.
            Named::EqualsDay => ((0..100).map(equal).collect(), Seconds(8.0 * 3_600.0)),
            Named::Demo => return demo::draw(seed, cluster, plenty),
        };
        Workload { name, cluster: cluster.clone(), jobs, arrivals, site: Site::default() }
    }
}

fn equal(number: usize) -> Job {
    Job {
        name: format!("equal-{number}"),
        arrives: Seconds(0.0),
        requested: GpuCount(8),
        sizes: vec![GpuCount(8)],
        duration: Seconds(1_800.0),
        kind: Kind::Opaque,
    }
}

/// Jobs until their work is what the load wants, at the moments of the process.
fn drawn(rng: &mut StdRng, cluster: &Cluster, plenty: &Plenty, bursts: bool) -> Vec<Job> {
    let wanted = plenty.load * f64::from(cluster.gpus().0) * plenty.lasts.0;
    let mut jobs = Vec::new();
    let mut work = 0.0;
    while work < wanted && jobs.len() < 5_000 {
        let requested = request(rng, cluster);
        let duration = (plenty.median.0 * (SIGMA * normal(rng)).exp()).clamp(BOUNDS.0, BOUNDS.1);
        let model = model(rng, requested);
        let job = train(rng, jobs.len(), model, requested, Seconds(duration), cluster);
        let Some(job) = job else { continue };
        work += duration * f64::from(requested.0);
        jobs.push(job);
    }
    let at =
        if bursts { in_bursts(rng, jobs.len(), plenty.lasts) } else { over_the_day(rng, jobs.len(), plenty.lasts) };
    jobs.iter_mut().zip(at).for_each(|(job, at)| job.arrives = at);
    jobs
}

fn request(rng: &mut StdRng, cluster: &Cluster) -> GpuCount {
    let most = cluster.gpus().0 / 2;
    let fitting: Vec<(u32, f64)> = REQUESTS.into_iter().filter(|(gpus, _)| *gpus <= most).collect();
    let mut at = rng.random_range(0.0..fitting.iter().map(|(_, weight)| weight).sum::<f64>());
    let found = fitting.iter().find(|(_, weight)| {
        at -= weight;
        at < 0.0
    });
    GpuCount(found.or(fitting.last()).map_or(1, |(gpus, _)| *gpus))
}

fn model(rng: &mut StdRng, requested: GpuCount) -> &'static Model {
    let fitting: Vec<&Model> =
        models().iter().filter(|model| (model.gpus.0..=model.gpus.1).contains(&requested.0)).collect();
    if fitting.is_empty() { &models()[0] } else { fitting[rng.random_range(0..fitting.len())] }
}

/// A job of a model; `None` where it does not run at its request.
fn train(
    rng: &mut StdRng,
    number: usize,
    model: &'static Model,
    requested: GpuCount,
    duration: Seconds,
    cluster: &Cluster,
) -> Option<Job> {
    let scale = [0.5, 1.0, 1.0, 2.0][rng.random_range(0..4)];
    let reference = (model.batch * scale / f64::from(SEQ_LEN)) as u64;
    let reference = Sequences(reference.next_power_of_two().max(32));
    let within = |factor: f64| Sequences((reference.0 as f64 * factor) as u64);
    let mut recipe = Recipe {
        model: model.name,
        shape: model.shape,
        reference_batch: reference,
        batch: BatchRange { min: within(BATCHES.0), max: within(BATCHES.1) },
        noise: GradientNoise { start: 1.0, growth: 0.0, half: 1.0 },
        target: Tokens(0.0),
        count: TargetCount::Both,
    };
    let class = cluster.groups().first()?.class();
    let (_, rate) = recipe.at(&class, requested)?;
    recipe.target = Tokens(rate * duration.0);
    // Noise grows over the run: half of the rise is done somewhere within it.
    let samples = recipe.target.0 / f64::from(SEQ_LEN);
    recipe.noise = GradientNoise {
        start: reference.0 as f64 * rng.random_range(0.3..0.8),
        growth: reference.0 as f64 * rng.random_range(1.0..4.0),
        half: samples * rng.random_range(0.2..1.0),
    };
    let most = (requested.0 * REACH).min(cluster.gpus().0 / 2).max(requested.0);
    let least = (requested.0 / REACH).max(1);
    let powers = (0..12).map(|power| GpuCount(1 << power)).filter(|gpus| (least..=most).contains(&gpus.0));
    let sizes = powers.filter(|gpus| *gpus == requested || recipe.at(&class, *gpus).is_some()).collect();
    let name = format!("{}-{number}", model.name);
    Some(Job { name, arrives: Seconds(0.0), requested, sizes, duration, kind: Kind::Training(Box::new(recipe)) })
}

/// Twice as many by day as by night.
fn over_the_day(rng: &mut StdRng, jobs: usize, lasts: Seconds) -> Vec<Seconds> {
    let mut at: Vec<f64> = Vec::with_capacity(jobs);
    while at.len() < jobs {
        let moment = rng.random_range(0.0..lasts.0);
        let hour = moment / 86_400.0 * core::f64::consts::TAU;
        if rng.random_range(0.0..1.5) < 1.0 - 0.5 * hour.cos() {
            at.push(moment);
        }
    }
    at.sort_by(f64::total_cmp);
    at.into_iter().map(Seconds).collect()
}

fn in_bursts(rng: &mut StdRng, jobs: usize, lasts: Seconds) -> Vec<Seconds> {
    let mut at = Vec::with_capacity(jobs);
    while at.len() < jobs {
        let begins = rng.random_range(0.0..lasts.0);
        let size = rng.random_range(1..=15);
        at.extend((0..size).map(|_| begins + rng.random_range(0.0..120.0)));
    }
    at.truncate(jobs);
    at.sort_by(f64::total_cmp);
    at.into_iter().map(Seconds).collect()
}

fn normal(rng: &mut StdRng) -> f64 {
    (0..12).map(|_| rng.random_range(0.0..1.0)).sum::<f64>() - 6.0
}

/// The jobs of a trace, as many as it has from its beginning while `lasts`: sizes beyond half of the cluster are cut to it, models drawn.
#[must_use]
pub fn traced(name: &str, trace: &[TraceJob], seed: u64, cluster: &Cluster, lasts: Seconds) -> Workload {
    let mut rng = StdRng::seed_from_u64(seed);
    let most = 1 << (31 - (cluster.gpus().0 / 2).max(1).leading_zeros());
    let present = trace.iter().filter(|job| job.submitted.0 < lasts.0 && job.gpus.0 > 0 && job.duration.0 > 0.0);
    let jobs = present
        .enumerate()
        .filter_map(|(number, job)| {
            let requested = GpuCount(job.gpus.0.next_power_of_two().min(most));
            let model = model(&mut rng, requested);
            let drawn = train(&mut rng, number, model, requested, job.duration, cluster)?;
            Some(Job { arrives: job.submitted, ..drawn })
        })
        .collect();
    Workload { name: name.to_owned(), cluster: cluster.clone(), jobs, arrivals: lasts, site: Site::default() }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn cluster() -> Cluster {
        "H100x8=4,A100-80Gx8=4".parse().unwrap()
    }

    #[test]
    fn a_workload_brings_the_load_it_is_asked_for() {
        for load in [0.35, 2.0] {
            let plenty = Plenty { load, ..Plenty::default() };
            let workload = Named::Day.draw(7, &cluster(), &plenty);
            let work: f64 = workload.jobs.iter().map(|job| job.duration.0 * f64::from(job.requested.0)).sum();
            let offered = work / (64.0 * 86_400.0);
            assert!((load..load * 1.5).contains(&offered), "{offered}");
            assert_eq!(workload, Named::Day.draw(7, &cluster(), &plenty));
            assert!(workload.jobs.iter().all(|job| job.sizes.contains(&job.requested)));
        }
    }

    #[test]
    fn bursts_come_together() {
        let gaps = |named: Named| {
            let jobs = named.draw(3, &cluster(), &Plenty { load: 2.0, ..Plenty::default() }).jobs;
            let gaps: Vec<f64> = jobs.windows(2).map(|pair| pair[1].arrives.0 - pair[0].arrives.0).collect();
            let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
            (gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64).sqrt() / mean
        };
        assert!(gaps(Named::Bursts) > 1.8 && gaps(Named::Day) < 1.5);
    }
}
