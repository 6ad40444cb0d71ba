//! H100 nodes of eight GPUs, and jobs of mixed size: a 1-billion and an 8-billion-parameter decoder in turn.

use std::collections::BTreeMap;
use std::sync::Arc;

use headway_goodput::JobModel;
use headway_planner::builder::{self, NOW};
use headway_planner::{Downtime, PlanInput, PlanJob, PlanNode, PlanWork};
use headway_sim::scenario::training;
use headway_types::example::{self, llama3_8b};
use headway_types::spec::{GpuRange, LayoutLimits, NodeResources, Priority, Work};
use headway_types::{GpuCount, GpuUuid, IdSource, ModelShape, Seconds, Sequences, Tokens};

const SIZES: [(u32, u32); 5] = [(2, 3), (8, 16), (32, 60), (64, 150), (128, 400)];

pub fn rounds() -> Vec<(String, PlanInput)> {
    SIZES.map(|(nodes, jobs)| (format!("{jobs} jobs, {} GPUs", nodes * 8), round(nodes, jobs))).to_vec()
}

pub fn node(name: String, gpu_type: &str, gpus: u32, ids: &mut IdSource) -> PlanNode {
    let class = example::class(gpu_type, gpus);
    let gpus = (0..gpus).map(|gpu| GpuUuid(format!("{name}-{gpu}"))).collect();
    PlanNode {
        node: ids.node(NOW),
        class,
        gpus,
        name,
        draining: false,
        host: NodeResources::default(),
        labels: BTreeMap::new(),
        tells_shares: true,
        account: None,
    }
}

pub fn input(mut nodes: Vec<PlanNode>, mut jobs: Vec<PlanJob>, ids: &mut IdSource) -> PlanInput {
    nodes.sort_by_key(|node| node.node);
    jobs.sort_by_key(|job| job.job);
    PlanInput { plan: ids.plan(NOW), ..builder::round(nodes, jobs) }
}

pub fn job(name: String, range: GpuRange, work: PlanWork, priority: Priority, ids: &mut IdSource) -> PlanJob {
    let downtime = Downtime { batch: Seconds(0.0), micro_batch: Seconds(1.0), layout: None, restart: Seconds(60.0) };
    PlanJob { job: ids.job(NOW), name, priority, range, work, downtime, ..builder::job(0, 1, 1) }
}

fn round(nodes: u32, jobs: u32) -> PlanInput {
    let mut ids = IdSource::seeded(7);
    let nodes = (0..nodes).map(|number| node(format!("n{number}"), "H100-80G", 8, &mut ids)).collect();
    let jobs = (0..jobs).map(|number| decoder(number, &mut ids)).collect();
    input(nodes, jobs, &mut ids)
}

fn decoder(number: u32, ids: &mut IdSource) -> PlanJob {
    let (layers, hidden, heads, ffn_hidden) =
        if number.is_multiple_of(2) { (16, 2048, 16, 5632) } else { (32, 4096, 32, 14_336) };
    let mut training = training(Tokens(1e12), true, true);
    let vocab = 128_000;
    training.work = Work::Model(ModelShape { layers, hidden, heads, ffn_hidden, vocab, seq_len: 4096, ..llama3_8b() });
    training.reference_batch = Sequences(256);
    training.batch.min = Sequences(64);
    training.batch.max = Sequences(2048);
    training.layouts = LayoutLimits::degrees(vec![1, 2, 4, 8], vec![1, 2, 4], Sequences(8));
    let sizes = [4, 8, 16, 32].map(GpuCount).to_vec();
    let range = GpuRange { min: GpuCount(4), max: GpuCount(32), sizes, types: Vec::new(), mixed: false };
    let work = PlanWork::Model(Arc::new(JobModel::new(training)));
    job(format!("job-{number}"), range, work, Priority((25 + number % 3 * 25) as u8), ids)
}
