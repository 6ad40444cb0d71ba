//! How long a planning round takes, by cluster size: a cold round (curves computed) and the same round again from the
//! plan it made. `make bench` prints the table that docs/measurements/rounds.md keeps.

use std::time::Instant;

use headway_goodput::JobModel;
use headway_planner::{
    Bounds, Claim, CurveCache, Downtime, Freedom, Needs, PlanInput, PlanJob, PlanNode, PlanWork, Policy, plan,
};
use headway_sim::scenario::training;
use headway_types::report::{Capabilities, Flexibility};
use headway_types::spec::{GpuRange, LayoutLimits, NodeResources, Priority, Work};
use headway_types::{
    Fabric, GpuCount, GpuType, GpuUuid, IdSource, ModelShape, NodeClass, Seconds, Sequences, Timestamp, Tokens,
};

const NOW: Timestamp = Timestamp(1_700_000_000_000_000);
const SIZES: [(u32, u32); 5] = [(2, 3), (8, 16), (32, 60), (64, 150), (128, 400)];

fn main() {
    println!("| nodes × GPUs | jobs | candidates | cold round | again | gap | moves again |");
    println!("|---|---|---|---|---|---|---|");
    for (nodes, jobs) in SIZES {
        let mut curves = CurveCache::default();
        let input = round(nodes, jobs);
        let (first, cold) = timed(&input, &mut curves);
        let mut next = input.clone();
        next.parent = Some(first.id);
        for job in &mut next.jobs {
            job.current = first.assignments.get(&job.job).cloned();
        }
        let (second, warm) = timed(&next, &mut curves);
        println!(
            "| {nodes} × 8 | {jobs} | {} | {:.0} ms | {:.0} ms | {:.2} % | {} |",
            first.report.candidates,
            cold * 1e3,
            warm * 1e3,
            first.report.gap * 100.0,
            second.report.moves.len()
        );
    }
}

fn timed(input: &PlanInput, curves: &mut CurveCache) -> (headway_types::Plan, f64) {
    let begin = Instant::now();
    let plan = plan(input, curves).expect("the input is well formed");
    (plan, begin.elapsed().as_secs_f64())
}

/// H100 nodes of eight GPUs, and jobs of mixed size: a 1-billion and an 8-billion-parameter decoder in turn.
fn round(nodes: u32, jobs: u32) -> PlanInput {
    let mut ids = IdSource::seeded(7);
    let class = NodeClass {
        gpu_type: GpuType("H100-80G".into()),
        gpus_per_node: GpuCount(8),
        emulated: None,
        fabric: Fabric { domain: "pod".into() },
    };
    let mut nodes: Vec<PlanNode> = (0..nodes)
        .map(|number| PlanNode {
            node: ids.node(NOW),
            name: format!("n{number}"),
            class: class.clone(),
            gpus: (0..8).map(|gpu| GpuUuid(format!("n{number}-{gpu}"))).collect(),
            draining: false,
            host: NodeResources::default(),
        })
        .collect();
    let mut jobs: Vec<PlanJob> = (0..jobs).map(|number| job(number, &mut ids)).collect();
    nodes.sort_by_key(|node| node.node);
    jobs.sort_by_key(|job| job.job);
    PlanInput {
        plan: ids.plan(NOW),
        parent: None,
        now: NOW,
        trigger: "benchmark".into(),
        policy: Policy::default(),
        nodes,
        jobs,
        projects: Vec::new(),
        reservations: Vec::new(),
    }
}

fn job(number: u32, ids: &mut IdSource) -> PlanJob {
    let (layers, hidden, heads, ffn_hidden) =
        if number.is_multiple_of(2) { (16, 2048, 16, 5632) } else { (32, 4096, 32, 14_336) };
    let mut training = training(Tokens(1e12), true, true);
    training.work = Work::Model(ModelShape {
        layers,
        hidden,
        heads,
        kv_heads: 8,
        ffn_hidden,
        gated: true,
        vocab: 128_000,
        seq_len: 4096,
        tied: false,
    });
    training.reference_batch = Sequences(256);
    training.batch.min = Sequences(64);
    training.batch.max = Sequences(2048);
    training.layouts = LayoutLimits { tp: vec![1, 2, 4, 8], pp: vec![1, 2, 4], max_micro_batch: Sequences(8) };
    PlanJob {
        job: ids.job(NOW),
        name: format!("job-{number}"),
        priority: Priority((25 + number % 3 * 25) as u8),
        submitted_at: NOW,
        range: GpuRange {
            min: GpuCount(4),
            max: GpuCount(32),
            sizes: [4, 8, 16, 32].map(GpuCount).to_vec(),
            types: Vec::new(),
        },
        work: PlanWork::Model(std::sync::Arc::new(JobModel::new(training))),
        capabilities: Capabilities { batch: Flexibility::Live, layout: Flexibility::Restart },
        current: None,
        downtime: Downtime { batch: Seconds(0.0), micro_batch: Seconds(1.0), restart: Seconds(60.0) },
        rework: Seconds(0.0),
        remaining: None,
        freedom: Freedom::Free,
        claim: Claim::default(),
        bounds: Bounds::default(),
        needs: Needs::default(),
    }
}
