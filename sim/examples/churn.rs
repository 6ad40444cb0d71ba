//! What hysteresis costs and saves: `cargo run --release -p headway-sim --example churn -- FIRST LAST`. Clusters of
//! elastic jobs, sparse and crowded, are simulated once per seed and setting; the table compares how long jobs took from
//! submission to end (each relative to the same job under the first setting), and how often they were moved.
//! docs/measurements/hysteresis.md keeps what it prints.

use std::collections::BTreeMap;
use std::process::ExitCode;

use headway_sim::scenario::{spec, training};
use headway_sim::{NodeShape, Report, Scenario, SimJob, simulate};
use headway_types::spec::GpuRange;
use headway_types::{GpuCount, JobId, Seconds, Timestamp, Tokens};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

/// `min_gain`, `fresh_gain`, `settling`.
const SETTINGS: [(f64, f64, f64); 6] = [
    (0.01, 0.15, 900.0),
    (0.0, 0.0, 900.0),
    (0.01, 0.05, 900.0),
    (0.02, 0.3, 900.0),
    (0.05, 0.15, 900.0),
    (0.05, 0.3, 300.0),
];

/// Jobs, and the time within which they come.
const CROWDS: [(&str, u32, f64); 3] = [("sparse", 6, 7_200.0), ("busy", 12, 7_200.0), ("crowded", 16, 3_600.0)];

fn main() -> ExitCode {
    let numbers: Vec<u64> = std::env::args().skip(1).filter_map(|text| text.parse().ok()).collect();
    let [first, last] = numbers[..] else {
        eprintln!("usage: churn FIRST_SEED LAST_SEED");
        return ExitCode::FAILURE;
    };
    println!("| jobs | min_gain, fresh_gain, settling | mean time | geometric mean | makespan | moves per job |");
    println!("|---|---|---|---|---|---|");
    for (name, jobs, over) in CROWDS {
        let mut first_setting = BTreeMap::new();
        for setting in SETTINGS {
            let mut sums = Sums::default();
            for seed in first..=last {
                match simulate(&cluster(seed, jobs, over, setting)) {
                    Ok(report) => {
                        let base = first_setting.entry(seed).or_insert_with(|| times(&report)).clone();
                        sums.add(&report, &base);
                    }
                    Err(failure) => {
                        eprintln!("{failure}");
                        return ExitCode::FAILURE;
                    }
                }
            }
            let (min_gain, fresh_gain, settling) = setting;
            println!("| {name} | {min_gain}, {fresh_gain}, {settling} s | {} |", sums.row());
        }
    }
    ExitCode::SUCCESS
}

/// Four nodes of four GPUs, restarts of 20 to 60 s, and jobs that can use one to sixteen GPUs, less and less well.
fn cluster(seed: u64, jobs: u32, over: f64, (min_gain, fresh_gain, settling): (f64, f64, f64)) -> Scenario {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut scenario = Scenario::empty(seed, &[]);
    scenario.nodes = vec![NodeShape::new(4, "emulated"); 4];
    scenario.jobs = (0..jobs).map(|index| job(&mut rng, index, over)).collect();
    let objective = &mut scenario.policy.objective;
    (objective.min_gain, objective.fresh_gain, objective.settling) = (min_gain, fresh_gain, Seconds(settling));
    scenario.horizon = Seconds(172_800.0);
    scenario
}

fn job(rng: &mut StdRng, index: u32, over: f64) -> SimJob {
    let min = [1, 1, 2, 4][rng.random_range(0..4)];
    let gpus = GpuRange { min: GpuCount(min), max: GpuCount(16), sizes: Vec::new(), types: Vec::new(), mixed: false };
    let tokens_per_second = rng.random_range(2_000.0..8_000.0);
    let target = Tokens(tokens_per_second * 4.0 * 60.0 * rng.random_range(5.0..60.0));
    let mut spec = spec(format!("job-{index}"), gpus, Some(training(target, true, true)));
    (spec.elastic.min_runtime, spec.elastic.max_resizes_per_hour) = (Seconds(60.0), 12);
    SimJob {
        arrives: Seconds(rng.random_range(0.0..over)),
        spec,
        tokens_per_second,
        noise_scale: rng.random_range(2_000.0..80_000.0),
        runs: Seconds(600.0),
        startup: Seconds(rng.random_range(20.0..60.0)),
        cancelled_after: None,
        hidden: None,
    }
}

/// From submission to end.
fn times(report: &Report) -> BTreeMap<JobId, f64> {
    let mut submitted: BTreeMap<JobId, Timestamp> = BTreeMap::new();
    let mut times = BTreeMap::new();
    for event in &report.events {
        let Some(job) = event.job else { continue };
        match event.verb.as_str() {
            "job.submitted" => drop(submitted.insert(job, event.at)),
            "job.succeeded" => drop(times.insert(job, event.at.since(submitted[&job]).0)),
            _ => {}
        }
    }
    times
}

#[derive(Default)]
struct Sums {
    jobs: f64,
    time: f64,
    logarithms: f64,
    base_time: f64,
    makespan: f64,
    generations: f64,
    clusters: f64,
}

impl Sums {
    fn add(&mut self, report: &Report, base: &BTreeMap<JobId, f64>) {
        let (own, base): (Vec<f64>, Vec<f64>) =
            (times(report).into_values().collect(), base.values().copied().collect());
        assert_eq!(own.len(), base.len(), "every job ends under every setting");
        self.jobs += own.len() as f64;
        self.clusters += 1.0;
        self.makespan += report.makespan.0;
        self.generations += report.generations as f64;
        self.time += own.iter().sum::<f64>();
        self.base_time += base.iter().sum::<f64>();
        self.logarithms += own.iter().map(|time| time.ln()).sum::<f64>();
    }

    fn row(&self) -> String {
        let mean = self.time / self.jobs;
        let against = 100.0 * (self.time / self.base_time - 1.0);
        let geometric = (self.logarithms / self.jobs).exp();
        let makespan = self.makespan / self.clusters;
        let moves = (self.generations - self.jobs) / self.jobs;
        format!("{mean:.0} s ({against:+.1} %) | {geometric:.0} s | {makespan:.0} s | {moves:.2}")
    }
}
