//! The interval of φ holds the truth as often as it says, however the gradient drowns; and what is decided on it.

#![allow(clippy::unwrap_used)]

use headway_goodput::model::JobModel;
use headway_goodput::noise::{NoNoiseScale, NoiseEstimator};
use headway_types::example;
use headway_types::random::SplitMix64;
use headway_types::spec::{Training, Work};
use headway_types::{
    Configuration, Generation, JobId, Layout, NodeCount, NoiseSample, Seconds, Sequences, StepReport, Tokens,
};

const SMALL: f64 = 8.0;
const BIG: f64 = 64.0;

struct Draws(SplitMix64);

impl Draws {
    fn normal(&mut self) -> f64 {
        let (radius, angle) = (1.0 - self.0.uniform(), self.0.uniform());
        (-2.0 * libm::log(radius)).sqrt() * libm::cos(core::f64::consts::TAU * angle)
    }

    /// Twice a gamma variate (Marsaglia and Tsang 2000), for at least two degrees of freedom.
    fn chi_squared(&mut self, degrees: f64) -> f64 {
        let d = degrees / 2.0 - 1.0 / 3.0;
        loop {
            let normal = self.normal();
            let v = 1.0 + normal / (9.0 * d).sqrt();
            let cube = v * v * v;
            if v > 0.0 && libm::log(1.0 - self.0.uniform()) < normal * normal / 2.0 + d * (1.0 - cube + libm::log(cube))
            {
                return 2.0 * d * cube;
            }
        }
    }

    /// The squares of one step, exactly as they are distributed where |G|² = 1 and the noise is normal, alike in so many dimensions.
    fn step(&mut self, phi: f64, dimensions: f64) -> NoiseSample {
        let each = phi / dimensions;
        let along = 1.0 + self.normal() * (each / BIG).sqrt();
        let big_sqr = along * along + self.chi_squared(dimensions - 1.0) * each / BIG;
        let within = self.chi_squared(dimensions * (BIG / SMALL - 1.0)) * each / BIG;
        NoiseSample { small_sqr: big_sqr + within, big_sqr, small_batch: SMALL, big_batch: BIG }
    }

    fn run(&mut self, phi: f64, dimensions: f64, reports: u32) -> NoiseEstimator {
        self.run_of(phi, dimensions, reports, 1)
    }

    /// Each report stands for so many reference batches.
    fn run_of(&mut self, phi: f64, dimensions: f64, reports: u32, batches: u64) -> NoiseEstimator {
        let mut estimator = NoiseEstimator::default();
        for _ in 0..reports {
            estimator.observe(&self.step(phi, dimensions), Sequences(64 * batches), Sequences(64));
        }
        estimator
    }
}

/// Share of 1,000 runs whose interval holds φ, and of those whose φ is told.
fn shares(phi: f64, dimensions: f64, reports: u32) -> [f64; 2] {
    let mut draws = Draws(SplitMix64(19));
    let mut counts = [0_u32; 2];
    for _ in 0..1000 {
        let estimator = draws.run(phi, dimensions, reports);
        let interval = estimator.interval();
        let holds = interval.is_some_and(|at| at.low <= phi && at.high.is_none_or(|high| phi <= high));
        let bounded = interval.is_some_and(|at| at.high.is_some());
        let told = estimator.explained(1);
        assert_eq!(told.is_ok(), bounded, "the gate goes by the interval: {told:?} of {interval:?}");
        for (count, counted) in counts.iter_mut().zip([holds, told.is_ok()]) {
            *count += u32::from(counted);
        }
    }
    counts.map(|count| f64::from(count) / 1000.0)
}

#[test]
fn nineteen_of_twenty_intervals_hold_the_truth_in_every_regime() {
    for over_batch in [0.1, 1.0, 10.0, 40.0, 80.0, 100.0] {
        for (dimensions, reports) in [(30.0, 40), (200.0, 10), (200.0, 40), (200.0, 400), (20_000.0, 40)] {
            let [covered, told] = shares(over_batch * BIG, dimensions, reports);
            println!("φ/B {over_batch:5} {dimensions:6} dimensions {reports:3} reports: {covered:.3}, told {told:.3}");
            assert!((0.92..=0.97).contains(&covered), "{covered} at φ/B {over_batch}, {dimensions}, {reports}");
        }
    }
}

#[test]
fn however_many_batches_a_report_stands_for_enough_of_them_are_believed_and_hold() {
    for batches in [20, 160, 400, 10_000] {
        let (mut draws, mut told, mut held) = (Draws(SplitMix64(7)), 0, 0);
        for _ in 0..300 {
            let estimator = draws.run_of(5.0 * BIG, 200.0, 60, batches);
            told += u32::from(estimator.explained(1).is_ok());
            let holds = |at: headway_goodput::ratio::Interval| at.low <= 5.0 * BIG && at.high >= Some(5.0 * BIG);
            held += u32::from(estimator.interval().is_some_and(holds));
        }
        assert!(told > 290 && held > 270, "{batches} batches a report: told {told}, held {held} of 300");
    }
}

#[test]
fn a_drowned_gradient_bounds_phi_from_below_and_is_seldom_taken_for_a_clear_one() {
    let [_, told] = shares(100.0 * BIG, 200.0, 10);
    assert!(told < 0.05, "{told} of the runs had a φ");
    let [_, told] = shares(1.0 * BIG, 200.0, 10);
    assert!(told > 0.99, "{told} of the runs had a φ");
    let drowned = Draws(SplitMix64(3)).run(100.0 * BIG, 200.0, 40);
    let low = drowned.interval().unwrap().low;
    assert!(low > 2.0 * BIG && low < 100.0 * BIG, "{low}");
    assert_eq!(drowned.explained(1), Err(NoNoiseScale::Drowned));
}

fn job(samples: &[NoiseSample]) -> JobModel {
    let class = example::class("H100", 8);
    let training = Training { reference_batch: Sequences(64), ..example::training(Work::Model(example::tiny())) };
    let mut model = JobModel::new(training);
    let layout = Layout { dp: 8, tp: 1, pp: 1, ..Layout::single() };
    for sample in samples {
        let report = StepReport {
            job: JobId("00000000-0000-0000-0000-000000000000".parse().unwrap()),
            generation: Generation(1),
            step: 1,
            steps: 1,
            samples_seen: Sequences(64),
            tokens: Tokens(4096.0),
            duration: Seconds(1.0),
            configuration: Configuration { layout, micro_batch: Sequences(8), global_batch: Sequences(64) },
            loss: None,
            noise: Some(*sample),
            preconditioned: None,
            memory_peak: None,
        };
        model.observe(&class, NodeCount(1), &report);
    }
    model
}

/// Reports of |G|² = 1 ± `scatter`, twice each, and tr Σ = 640: φ is 10 reference batches.
fn scattered(scatter: f64) -> Vec<NoiseSample> {
    let of = |signal: f64| NoiseSample {
        small_sqr: signal + 640.0 / SMALL,
        big_sqr: signal + 640.0 / BIG,
        small_batch: SMALL,
        big_batch: BIG,
    };
    [1.0 + scatter, 1.0 - scatter].repeat(8).into_iter().map(of).collect()
}

/// What the planner takes for the batch of half efficiency, in reference batches: the truth where it is known, its prior where it is
/// not, and in between a mean of both. Where the upper end goes, what is left of the truth's tenfold is a factor below two.
#[test]
fn the_scheduler_trusts_phi_by_its_interval() {
    let critical = |scatter: f64| {
        let model = job(&scattered(scatter));
        model.critical_batch().0 / f64::from(model.training.work.seq_len()) / 64.0
    };
    assert!((critical(0.01) / 10.0 - 1.0).abs() < 0.01, "known: {}", critical(0.01));
    assert!(critical(1.2) > 2.0 && critical(1.2) < 9.0, "in doubt: {}", critical(1.2));
    assert_eq!(job(&scattered(4.0)).no_noise_scale(None), Some(NoNoiseScale::Drowned));
    assert_eq!(critical(4.0), 1.0, "drowned: the reference batch");
    let by_scatter: Vec<f64> = (0..400).map(|at| critical(f64::from(at) * 0.01)).collect();
    assert!(by_scatter.is_sorted_by(|narrow, wide| *narrow > 0.9999 * wide), "{by_scatter:?}");
    let largest = by_scatter.windows(2).map(|pair| pair[0] / pair[1]).fold(1.0, f64::max);
    assert!(largest < 2.0, "{largest}");
    let below_zero = NoiseSample { small_sqr: 10.0, big_sqr: 0.5, small_batch: SMALL, big_batch: BIG };
    assert_eq!(job(&[below_zero; 20]).no_noise_scale(None), Some(NoNoiseScale::Drowned));
    assert_eq!(job(&scattered(1.0)[..2]).no_noise_scale(None), Some(NoNoiseScale::TooFewReports));
}
