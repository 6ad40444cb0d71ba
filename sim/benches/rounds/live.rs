//! Rounds as life has them: no two models alike, scripts that can be told much, two GPU types, and between two rounds every running job has
//! reported, so that every model has been fitted again.

use std::sync::Arc;

use headway_goodput::JobModel;
use headway_planner::{CurveCache, PlanInput, PlanJob, PlanWork, plan};
use headway_sim::scenario::training;
use headway_types::example::llama3_8b;
use headway_types::random::SplitMix64;
use headway_types::spec::{BatchRange, ExecutionLimits, GpuRange, LayoutLimits, Precision, Priority, Work};
use headway_types::{
    Assignment, Generation, GpuCount, IdSource, ModelShape, NoiseSample, Recompute, Seconds, Sequences, Sharding,
    StepReport, Tokens,
};
use strum::VariantArray;

use crate::modelled::{input, job, node};
use crate::{after, timed};

/// Jobs and nodes; half of the nodes are of each type.
const SIZES: [(u32, u32); 3] = [(100, 208), (1_000, 208), (10_000, 208)];
const TYPES: [&str; 2] = ["A100-80G", "H100-80G"];
/// Rounds with reports before each of them, and those of them in which most models still change a lot.
const ROUNDS: usize = 12;
pub const FIRST: usize = 4;
/// Layers, hidden, heads, width of the MLP and smallest size of decoders of 1 to 70 billion parameters.
const DECODERS: [(u32, u32, u32, u32, u32); 6] = [
    (16, 2048, 16, 8192, 1),
    (28, 3072, 24, 8192, 2),
    (32, 4096, 32, 14_336, 4),
    (40, 5120, 40, 13_824, 8),
    (48, 8192, 64, 22_016, 16),
    (80, 8192, 64, 28_672, 32),
];

pub fn rounds() -> Vec<(String, PlanInput)> {
    SIZES.map(|(jobs, nodes)| (format!("live {jobs} jobs, {} GPUs", nodes * 8), round(jobs, nodes))).to_vec()
}

/// A cold round, the means of those after it, and the longest of them.
pub fn measure(name: &str, mut input: PlanInput) {
    let mut curves = CurveCache::default();
    let (mut last, cold) = timed(|| plan(&input, &mut curves).expect("the input is well formed"));
    let mut random = SplitMix64(11);
    let (mut warm, mut moves) = (Vec::new(), 0);
    for step in 1..=ROUNDS {
        input = after(&input, &last);
        let reported = report(&mut input, step as u64, &mut random);
        let (next, took) = timed(|| plan(&input, &mut curves).expect("the input is well formed"));
        warm.push(took);
        moves += next.report.moves.len();
        assert!(reported > 0, "somebody runs");
        last = next;
    }
    let (_, unchanged) = timed(|| plan(&input, &mut curves).expect("the input is well formed"));
    println!(
        "| {name} | {} | {} | {:.0} ms | {:.0} ms | {:.0} ms | {:.0} ms | {:.0} ms | {moves} |",
        last.assignments.len(),
        last.report.candidates,
        cold * 1e3,
        mean(&warm[..FIRST]) * 1e3,
        mean(&warm[FIRST..]) * 1e3,
        warm.iter().copied().fold(0.0, f64::max) * 1e3,
        unchanged * 1e3,
    );
}

fn mean(times: &[f64]) -> f64 {
    times.iter().sum::<f64>() / times.len() as f64
}

fn round(jobs: u32, nodes: u32) -> PlanInput {
    let mut ids = IdSource::seeded(7);
    let of = |number: u32| TYPES[number as usize % 2];
    let nodes = (0..nodes).map(|number| node(format!("n{number}"), of(number), 8, &mut ids)).collect();
    let jobs = (0..jobs).map(|number| decoder(number, &mut ids)).collect();
    input(nodes, jobs, &mut ids)
}

fn decoder(number: u32, ids: &mut IdSource) -> PlanJob {
    // Small models are many, large ones few.
    let (layers, hidden, heads, ffn_hidden, least) = DECODERS[[0, 0, 0, 1, 1, 2, 2, 3, 4, 5][number as usize % 10]];
    let variant = number / 10;
    let seq_len = [2048, 4096, 8192][variant as usize % 3];
    let ffn_hidden = ffn_hidden + 64 * (variant / 3);
    let mut training = training(Tokens(1e12), true, true);
    training.precision = Precision::Bf16;
    training.work = Work::Model(ModelShape { layers, hidden, heads, kv_heads: 8, ffn_hidden, seq_len, ..llama3_8b() });
    training.reference_batch = Sequences(256);
    training.batch = BatchRange { min: Sequences(64), max: Sequences(2048) };
    training.layouts = LayoutLimits { execution: executions(), ..LayoutLimits::degrees(vec![], vec![], Sequences(8)) };
    let (min, max) = (GpuCount(least), GpuCount(least << 3));
    // One takes any size, the other names some.
    let sizes = (0..4).map(|doubled| GpuCount(least << doubled)).collect();
    let range = GpuRange {
        min,
        max,
        sizes: if variant.is_multiple_of(2) { sizes } else { Vec::new() },
        types: Vec::new(),
        mixed: false,
    };
    let work = PlanWork::Model(Arc::new(JobModel::new(training)));
    let mut job = job(format!("job-{number}"), range, work, Priority((25 + number % 3 * 25) as u8), ids);
    job.remaining = Some(Tokens(1e11 + 1e9 * f64::from(number)));
    job
}

/// What Megatron-LM and torchtitan can be told: chunks, sharding, recomputation, sequence parallelism.
fn executions() -> ExecutionLimits {
    ExecutionLimits {
        vpp: vec![1, 2],
        sharding: vec![Sharding::None, Sharding::Optimizer, Sharding::Parameters],
        recompute: Recompute::VARIANTS.to_vec(),
        sequence_parallel: true,
        ..ExecutionLimits::default()
    }
}

/// Every running job tells of its steps, each with a truth of its own and some scatter; how many they are.
fn report(input: &mut PlanInput, step: u64, random: &mut SplitMix64) -> usize {
    let classes: std::collections::BTreeMap<_, _> =
        input.nodes.iter().map(|node| (node.node, node.class.clone())).collect();
    let mut reported = 0;
    for (number, job) in input.jobs.iter_mut().enumerate() {
        let (Some(current), PlanWork::Model(model)) = (&job.current, &mut job.work) else { continue };
        let Some(report) = steps(current, job.job, number, step, random) else { continue };
        let class = &classes[&current.placement.first_node()];
        Arc::make_mut(model).observe(class, current.placement.nodes(), &report);
        reported += 1;
    }
    reported
}

fn steps(
    current: &Assignment,
    job: headway_types::JobId,
    number: usize,
    step: u64,
    random: &mut SplitMix64,
) -> Option<StepReport> {
    let configuration = current.configuration?;
    let mut near = |value: f64, scatter: f64| value * (1.0 + scatter * (2.0 * random.uniform() - 1.0));
    let truth = 0.8 + 0.05 * (number % 10) as f64;
    let small_batch = configuration.micro_batch.0 as f64;
    let big_batch = configuration.global_batch.0 as f64;
    let phi = 50.0 + number as f64;
    let noise = (big_batch > small_batch).then(|| NoiseSample {
        small_sqr: near(1.0 + phi / small_batch, 0.03),
        big_sqr: near(1.0 + phi / big_batch, 0.03),
        small_batch,
        big_batch,
    });
    Some(StepReport {
        job,
        generation: Generation(1),
        step,
        steps: 10,
        samples_seen: Sequences(step * 10 * configuration.global_batch.0),
        tokens: Tokens(1.0),
        duration: Seconds(10.0 * near(current.predicted.step_time.0 * truth, 0.03)),
        configuration,
        loss: Some(2.0),
        noise,
        preconditioned: None,
        memory_peak: None,
    })
}
