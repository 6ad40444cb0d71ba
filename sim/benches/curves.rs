//! What the goodput model costs: one configuration, and the full curve of a 70-billion-parameter job up to 1,024 GPUs on three GPU
//! types. `make bench` prints the table that docs/measurements/curves.md keeps.

use std::hint::black_box;

use headway_goodput::JobModel;
use headway_goodput::architecture::Architecture;
use headway_goodput::catalog::Catalog;
use headway_goodput::collective::Cluster;
use headway_goodput::estimate::step_time_of;
use headway_goodput::memory::memory_of;
use headway_goodput::physics::Parameters;
use headway_goodput::strategy::{self, Strategy};
use headway_sim::scenario::training;
use headway_types::example::llama3_8b;
use headway_types::spec::{BatchRange, ExecutionLimits, GpuRange, LayoutLimits, Work};
use headway_types::{
    Fabric, GpuCount, GpuType, ModelShape, NodeClass, NodeCount, Offload, Recompute, Schedule, Sequences, Sharding,
    Tokens,
};
use nix::time::{ClockId, clock_gettime};
use strum::VariantArray;

/// Short enough that most batches run through without losing the processor.
const ROUNDS: u32 = 50;
const BATCHES: usize = 401;
const CURVES: u32 = 20;
const TYPES: [&str; 3] = ["A100-80G", "H100-80G", "B200"];
/// Of gangs over two classes.
const OF_FASTER: NodeCount = NodeCount(4);

fn main() {
    println!("| what | time |");
    println!("|---|---|");
    println!("| one configuration: step time and memory | {:.2} µs |", configuration() * 1e6);
    let (plain, few) = curves(ExecutionLimits::default(), NodeCount(0));
    let (all, feasible) = curves(everything(), NodeCount(0));
    let (sharing, _) = curves(ExecutionLimits { uneven_shares: true, ..everything() }, OF_FASTER);
    let (every, most) = curves(every_execution(), NodeCount(0));
    let offload = ExecutionLimits { offload: vec![Offload::None, Offload::Host], ..every_execution() };
    let (offloading, _) = curves(offload, NodeCount(0));
    println!("| full curve, 70 B parameters, 1 to 1,024 GPUs, three GPU types | {:.1} ms |", plain * 1e3);
    println!("| the same, of a script that can do everything | {:.1} ms |", all * 1e3);
    println!(
        "| the same in uneven shares, {OF_FASTER} nodes of the next faster type in each gang | {:.1} ms |",
        sharing * 1e3
    );
    println!(
        "| the same, every execution: context parallelism, chunks, schedules, sharding, recomputation | {:.1} ms |",
        every * 1e3
    );
    println!("| the same, optimizer states on the device or on the host | {:.1} ms |", offloading * 1e3);
    println!(
        "\n{few}, {feasible} and {most} of the curves' sizes are feasible; medians of {CURVES} runs, processor time."
    );
}

fn shape() -> ModelShape {
    ModelShape { layers: 80, hidden: 8192, heads: 64, ffn_hidden: 28_672, ..llama3_8b() }
}

/// Seconds of one configuration that nothing is known of yet, on average over layouts; the median of many batches.
fn configuration() -> f64 {
    let architecture = Architecture::from(&shape());
    let hardware = Catalog::built_in().find("H100-80G").expect("in the catalog");
    let profile = Parameters::built_in().profile(None);
    let cluster = Cluster::usual(&hardware, &profile, 8);
    let mut batches: Vec<f64> = (0..BATCHES)
        .map(|_| {
            let begin = processor_time();
            for round in 0..ROUNDS {
                let strategy = Strategy {
                    dp: 64,
                    tp: 1 << (round % 4),
                    pp: 4,
                    micro_batch: u64::from(1 + round % 3),
                    micro_batches: 16,
                    sharding: strategy::Sharding::Optimizer { group: None },
                    ..Strategy::single()
                };
                black_box(step_time_of(&architecture, &strategy, &cluster).total());
                black_box(memory_of(&architecture, &strategy, &cluster).total());
            }
            (processor_time() - begin) / f64::from(ROUNDS)
        })
        .collect();
    batches.sort_by(f64::total_cmp);
    batches[batches.len() / 2]
}

/// Interleaving, sharding, recomputation and sequence parallelism: what Megatron-LM and torchtitan can be told.
fn everything() -> ExecutionLimits {
    ExecutionLimits {
        vpp: vec![1, 2],
        sharding: vec![Sharding::None, Sharding::Optimizer, Sharding::Parameters],
        recompute: Recompute::VARIANTS.to_vec(),
        sequence_parallel: true,
        ..ExecutionLimits::default()
    }
}

/// All that a layout may be told, of a script that knows everything.
fn every_execution() -> ExecutionLimits {
    ExecutionLimits {
        cp: vec![1, 2, 4],
        ep: vec![1],
        vpp: vec![1, 2, 4],
        schedule: Schedule::VARIANTS.to_vec(),
        sharding: Sharding::VARIANTS.to_vec(),
        recompute: Recompute::VARIANTS.to_vec(),
        sequence_parallel: true,
        ..ExecutionLimits::default()
    }
}

fn class(gpu_type: &str) -> NodeClass {
    NodeClass {
        gpu_type: GpuType(gpu_type.to_owned()),
        gpus_per_node: GpuCount(8),
        emulated: None,
        fabric: Fabric { domain: "pod".into() },
        stated: None,
        ahead: None,
    }
}

/// Seconds of this thread on a processor, so that what else runs on the machine counts less.
fn processor_time() -> f64 {
    let now = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("Linux has the clock");
    now.tv_sec() as f64 + now.tv_nsec() as f64 * 1e-9
}

/// Median seconds of three full curves, and how many sizes they offer; of gangs with so many nodes of the next faster type.
fn curves(execution: ExecutionLimits, of_faster: NodeCount) -> (f64, usize) {
    let mut training = training(Tokens(1e12), true, true);
    training.work = Work::Model(shape());
    training.reference_batch = Sequences(512);
    training.batch = BatchRange { min: Sequences(128), max: Sequences(2048) };
    training.layouts = LayoutLimits { execution, ..LayoutLimits::degrees(vec![], vec![], Sequences(8)) };
    let model = JobModel::new(training);
    let range = GpuRange { min: GpuCount(1), max: GpuCount(1024), sizes: vec![], types: vec![], mixed: false };
    let mut times = Vec::new();
    let mut feasible = 0;
    for _ in 0..CURVES {
        let begin = processor_time();
        feasible = (0..TYPES.len())
            .map(|at| {
                let faster = TYPES.get(at + 1).map(|gpu| class(gpu)).filter(|_| of_faster.0 > 0);
                let slower = class(TYPES[at]);
                let ahead = faster.and_then(|faster| headway_goodput::ahead_of(&slower, &faster, of_faster));
                let class = NodeClass { ahead, ..slower };
                model.curve(&class, &range).points.iter().filter(|point| point.offer.is_ok()).count()
            })
            .sum();
        times.push(processor_time() - begin);
    }
    times.sort_by(f64::total_cmp);
    (times[times.len() / 2], feasible)
}
