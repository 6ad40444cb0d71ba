//! Scenarios drawn from a seed: shapes of clusters, mixes of jobs, lengths of leases.

use headway_engine::EngineConfig;
use headway_types::report::Flexibility;
use headway_types::spec::{GpuRange, RunPer};
use headway_types::{GpuCount, GpuType, Seconds, Tokens};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::{NodeShape, Scenario, SimJob, spec, training};
use crate::faults::Faults;

const TYPES: [&str; 2] = ["A100-80G", "H100-80G"];
/// Enough for clusters this small; a round must never be what a lifetime spends its time on.
const NODE_BUDGET: u32 = 200;

impl Scenario {
    /// The lifetime of a small cluster, faults included: a number names all of it.
    #[must_use]
    pub fn lifetime(seed: u64) -> Self {
        let (_, preset) = Faults::PRESETS[(seed % Faults::PRESETS.len() as u64) as usize];
        Self::random(seed, preset())
    }

    /// A mixed cluster with a handful of jobs.
    #[must_use]
    pub fn random(seed: u64, faults: Faults) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
        let mut scenario = Self::empty(seed, &[]);
        scenario.nodes = random_nodes(&mut rng);
        let jobs = rng.random_range(3..=7);
        scenario.jobs = (0..jobs).map(|index| random_job(&mut rng, index, &scenario.nodes)).collect();
        scenario.faults = faults;
        scenario.policy.objective.node_budget = NODE_BUDGET;
        scenario.config = EngineConfig { lease: Seconds([4.0, 10.0, 30.0][rng.random_range(0..3)]), ..scenario.config };
        scenario
    }
}

/// Two to six nodes of one or two types; of one type all are alike half of the time.
fn random_nodes(rng: &mut StdRng) -> Vec<NodeShape> {
    let alike = rng.random_bool(0.5);
    let mixed = rng.random_range(0..3) == 0;
    let size = |rng: &mut StdRng| [1, 2, 4, 4, 8][rng.random_range(0..5)];
    let usual = size(rng);
    (0..rng.random_range(2..=6))
        .map(|_| {
            let gpu_type = if mixed { TYPES[rng.random_range(0..TYPES.len())] } else { "emulated" };
            NodeShape::new(if alike { usual } else { size(rng) }, gpu_type)
        })
        .collect()
}

fn random_job(rng: &mut StdRng, index: u32, nodes: &[NodeShape]) -> SimJob {
    let arrives = Seconds(rng.random_range(0.0..900.0));
    let cancelled_after = (rng.random_range(0..8) == 0).then(|| Seconds(rng.random_range(1.0..300.0)));
    let opaque = rng.random_range(0..4) == 0;
    // Now and then a job accepts one type only; some node always suits it.
    let picky = rng.random_range(0..6) == 0;
    let chosen = &nodes[rng.random_range(0..nodes.len())].gpu_type;
    let suits = nodes.iter().filter(|node| !picky || node.gpu_type == *chosen);
    let largest = suits.map(|node| node.gpus).max().unwrap_or(1);
    let max = rng.random_range(1..=2 * largest).min(8);
    let rigid = opaque || rng.random_range(0..4) == 0;
    let min = if rigid { max.min(largest) } else { 1 };
    let gpus = GpuRange {
        min: GpuCount(min),
        max: GpuCount(if rigid { min } else { max }),
        sizes: Vec::new(),
        types: if picky { vec![GpuType(chosen.clone())] } else { Vec::new() },
        mixed: !picky,
    };
    let tokens_per_second = rng.random_range(2_000.0..8_000.0);
    let minutes = rng.random_range(4.0..30.0);
    let target = Tokens(tokens_per_second * 60.0 * minutes);
    let fenced = rng.random_range(0..5) != 0;
    let live = rng.random_range(0..3) != 0;
    let training = (!opaque).then(|| {
        let mut training = training(target, fenced, live);
        if rng.random_range(0..6) == 0 {
            training.reconfigure.layout = Flexibility::Never;
        }
        training
    });
    let mut spec = spec(format!("job-{index}"), gpus, training);
    spec.limits.max_restarts = rng.random_range(3..=10);
    if rng.random_range(0..3) == 0 {
        spec.roles[0].run.per = RunPer::Gpu;
    }
    SimJob {
        arrives,
        spec,
        tokens_per_second,
        noise_scale: rng.random_range(2_000.0..80_000.0),
        runs: Seconds(60.0 * minutes),
        startup: Seconds(rng.random_range(2.0..15.0)),
        cancelled_after,
        hidden: None,
    }
}
