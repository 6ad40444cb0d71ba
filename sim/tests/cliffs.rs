//! Worlds in which small micro-batches ruin the step, unlike anything the goodput model knows: a live batch that leads there costs a few reports, once.
#![allow(clippy::unwrap_used)]

use headway_emulation::{Cliff, GradientNoise, Nature, Progress, Seed, Training as Truth, Workload};
use headway_sim::scenario::spec;
use headway_sim::{HiddenWorld, NodeShape, Report, Scenario, SimJob, Watcher, simulate_watched};
use headway_types::spec::{BatchRange, CheckpointPolicy, Elasticity, LayoutLimits, Precision, Training, Work};
use headway_types::{ModelShape, Seconds, Sequences, StepReport, Tokens, example, preset};

/// Below it everything takes ten times as long.
const CLIFF: Cliff = Cliff { below: Sequences(4), times: 10.0 };

/// Where the job's time went.
#[derive(Default)]
struct Times {
    all: f64,
    below: f64,
    /// Of the longest report below.
    longest: f64,
}

impl Watcher for Times {
    fn trained(&mut self, _: usize, _: Seconds, report: &StepReport, _: Progress, _: f64) {
        self.all += report.duration.0;
        if report.configuration.micro_batch < CLIFF.below {
            self.below += report.duration.0;
            self.longest = self.longest.max(report.duration.0);
        }
    }
}

/// One job on three single GPUs whose exchange of gradients takes much of a step. At its reference batch, 12, it runs in micro-batches of 4, and a
/// larger one, which its noise calls for, divides only into smaller ones.
fn history(seed: u64, cliff: Option<Cliff>, reports: Seconds) -> (Report, Times) {
    let shape = ModelShape { layers: 3, seq_len: 1_024, ..preset::named("llama-3-70b").unwrap().shape() };
    let training = Training {
        reference_batch: Sequences(12),
        batch: BatchRange { min: Sequences(12), max: Sequences(23) },
        target: Some(Tokens(8e7).into()),
        precision: Precision::Bf16,
        layouts: LayoutLimits::degrees(vec![1], vec![1], Sequences(4)),
        checkpoint: CheckpointPolicy { fenced: true, ..CheckpointPolicy::default() },
        ..example::training(Work::Model(shape))
    };
    let noise = GradientNoise { start: 1e5, growth: 0.0, half: 1.0 };
    let mut job = spec("edge".into(), example::gpus(3, 3), Some(training));
    job.elastic = Elasticity { max_resizes_per_hour: 0, ..Elasticity::default() };
    let mut scenario = Scenario::empty(seed, &[]);
    scenario.nodes = (0..3).map(|_| NodeShape::new(1, "H200")).collect();
    scenario.jobs = vec![SimJob {
        arrives: Seconds(10.0),
        spec: job,
        tokens_per_second: 0.0,
        noise_scale: 0.0,
        runs: Seconds(0.0),
        startup: Seconds(0.0),
        cancelled_after: None,
        hidden: Some(Workload::Training(Truth { shape, precision: Precision::Bf16, noise: noise.into() })),
    }];
    let nature = Nature { cliff, ..Nature::GENTLE };
    scenario.hidden = HiddenWorld { seed: Seed(seed), nature, report_every: reports, mishaps: 0.0 };
    let mut times = Times::default();
    let report = simulate_watched(&scenario, &mut times).unwrap();
    assert_eq!(report.ended.get("succeeded"), Some(&1), "seed {seed}: {:?} {:?}", report.ended, report.waiting);
    (report, times)
}

fn count(report: &Report, verb: &str) -> usize {
    report.events.iter().filter(|event| event.verb == verb).count()
}

fn messages(report: &Report) -> Vec<&str> {
    let of_batch = report.events.iter().filter(|event| event.verb.starts_with("job.batch_"));
    of_batch.map(|event| event.message.as_str()).collect()
}

#[test]
fn a_batch_that_falls_off_a_cliff_is_taken_back_within_its_first_reports_and_once() {
    let mut taken_back = 0;
    for seed in 0..8 {
        for reports in [Seconds(1.0), Seconds(10.0)] {
            let (report, times) = history(seed, Some(CLIFF), reports);
            let told = messages(&report);
            let (changed, back) = (count(&report, "job.batch_changed"), count(&report, "job.batch_taken_back"));
            // There once and back once; a round that comes between the first two reports goes back by itself.
            let there_and_back = changed + back == 2 && times.below > 0.0;
            assert!(there_and_back || (changed, back) == (0, 0), "seed {seed}: {told:#?}");
            assert!(times.below <= 4.0 * times.longest, "seed {seed}: {:.1} s of {:.1} s", times.below, times.all);
            assert!(times.below < 0.02 * times.all, "seed {seed}: {:.1} s", times.below);
            taken_back += back;
        }
    }
    assert!(taken_back >= 8, "most runs see it: {taken_back} of 16");
}

#[test]
fn where_there_is_none_the_batch_changes_and_nothing_is_taken_back() {
    let mut changed = 0;
    for seed in 0..8 {
        let (report, times) = history(seed, None, Seconds(5.0));
        let told = messages(&report);
        changed += usize::from(times.below > 0.0);
        assert_eq!(
            count(&report, "job.batch_taken_back") + count(&report, "job.batch_contradicted"),
            0,
            "seed {seed}: {told:#?}"
        );
    }
    assert!(changed >= 4, "most runs come to know their noise: {changed} of 8");
}
