//! What a simulation runs: nodes, jobs with their arrival and their true behaviour, and how much goes wrong.

use std::collections::BTreeMap;

use headway_types::report::Flexibility;
use headway_types::spec::{
    BatchRange, CheckpointPolicy, Command, Elasticity, GpuRange, LayoutLimits, Limits, LrScaling, NodeResources,
    Precision, Priority, Role, Run, RunPer, Training, Work,
};
use headway_types::{Capabilities, GpuCount, JobSpec, ModelShape, Seconds, Sequences, Tokens};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

/// A whole history, but for its consequences.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    pub seed: u64,
    /// GPUs per node.
    pub nodes: Vec<u32>,
    pub jobs: Vec<SimJob>,
    pub faults: Faults,
    /// By then every job must have ended.
    pub horizon: Seconds,
}

/// A job and the truth about it, which neither engine nor planner ever sees.
#[derive(Clone, Debug, PartialEq)]
pub struct SimJob {
    pub arrives: Seconds,
    pub spec: JobSpec,
    /// Raw tokens per second on one GPU at a large batch.
    pub tokens_per_second: f64,
    /// Gradient noise scale in tokens.
    pub noise_scale: f64,
    /// An opaque command exits 0 after this long.
    pub runs: Seconds,
    /// A user cancels it after this long.
    pub cancelled_after: Option<Seconds>,
}

/// Mean seconds between faults of a kind, over the whole cluster; `None`: never. Faults end at `until`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Faults {
    pub until: Seconds,
    pub scheduler_crash: Option<Seconds>,
    pub agent_crash: Option<Seconds>,
    pub node_reboot: Option<Seconds>,
    pub disconnect: Option<Seconds>,
    /// A node is out of reach for minutes, though its workers go on.
    pub partition: Option<Seconds>,
    pub worker_death: Option<Seconds>,
    pub drain: Option<Seconds>,
    /// Share of commands lost, and of commands delivered twice.
    pub command_loss: f64,
    pub command_repeat: f64,
    /// Share of the scheduler's crashes that hit between decision and commit; the others hit right after the commit.
    pub crash_before_commit: f64,
}

impl Faults {
    /// Everything at once, for half an hour.
    #[must_use]
    pub fn storm() -> Self {
        Self {
            until: Seconds(1_800.0),
            scheduler_crash: Some(Seconds(240.0)),
            agent_crash: Some(Seconds(200.0)),
            node_reboot: Some(Seconds(500.0)),
            disconnect: Some(Seconds(60.0)),
            partition: Some(Seconds(300.0)),
            worker_death: Some(Seconds(300.0)),
            drain: Some(Seconds(500.0)),
            command_loss: 0.05,
            command_repeat: 0.05,
            crash_before_commit: 0.5,
        }
    }
}

impl Scenario {
    /// A small mixed cluster with a handful of jobs.
    #[must_use]
    pub fn random(seed: u64, faults: Faults) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
        let nodes = (0..rng.random_range(2..=4)).map(|_| 4).collect();
        let count = rng.random_range(3..=7);
        let jobs = (0..count).map(|index| random_job(&mut rng, index)).collect();
        Self { seed, nodes, jobs, faults, horizon: Seconds(14_400.0) }
    }
}

fn random_job(rng: &mut StdRng, index: u32) -> SimJob {
    let arrives = Seconds(rng.random_range(0.0..900.0));
    let cancelled_after = (rng.random_range(0..8) == 0).then(|| Seconds(rng.random_range(1.0..300.0)));
    let opaque = rng.random_range(0..4) == 0;
    let max = if opaque { rng.random_range(1..=4) } else { rng.random_range(2..=8) };
    let gpus = GpuRange {
        min: GpuCount(if opaque { max } else { 1 }),
        max: GpuCount(max),
        sizes: Vec::new(),
        types: Vec::new(),
    };
    let tokens_per_second = rng.random_range(2_000.0..8_000.0);
    let minutes = rng.random_range(4.0..30.0);
    let target = Tokens(tokens_per_second * 60.0 * minutes);
    let fenced = rng.random_range(0..5) != 0;
    let live = rng.random_range(0..3) != 0;
    let training = (!opaque).then(|| training(target, fenced, live));
    SimJob {
        arrives,
        spec: spec(format!("job-{index}"), gpus, training),
        tokens_per_second,
        noise_scale: rng.random_range(2_000.0..80_000.0),
        runs: Seconds(60.0 * minutes),
        cancelled_after,
    }
}

/// A single-role job with the defaults that make it move often.
#[must_use]
pub fn spec(name: String, gpus: GpuRange, training: Option<Training>) -> JobSpec {
    let run = Run { per: RunPer::Node, command: Command::Shell("train".into()), workdir: None, env: BTreeMap::new() };
    let per_node = NodeResources::default();
    JobSpec {
        name,
        project: "default".into(),
        priority: Priority::default(),
        labels: BTreeMap::new(),
        roles: vec![Role { name: "trainer".into(), gpus, per_node, training, run }],
        elastic: Elasticity { min_runtime: Seconds(30.0), max_resizes_per_hour: 20, max_overhead: 0.5 },
        limits: Limits::default(),
    }
}

/// A small tunable model.
#[must_use]
pub fn training(target: Tokens, fenced: bool, live: bool) -> Training {
    let batch = if live { Flexibility::Live } else { Flexibility::Restart };
    Training {
        work: Work::Model(ModelShape {
            layers: 4,
            hidden: 256,
            heads: 8,
            kv_heads: 8,
            ffn_hidden: 1024,
            gated: false,
            vocab: 8_000,
            seq_len: 256,
            tied: true,
        }),
        precision: Precision::Fp32,
        reference_batch: Sequences(16),
        batch: BatchRange { min: Sequences(8), max: Sequences(256) },
        lr_scaling: LrScaling::Sqrt,
        target: Some(target),
        layouts: LayoutLimits { tp: vec![1], pp: vec![1], max_micro_batch: Sequences(16) },
        checkpoint: CheckpointPolicy { dir: None, every: Seconds(60.0), grace: Seconds(10.0), fenced },
        reconfigure: Capabilities { batch, layout: Flexibility::Restart },
        kappa: 1.0,
    }
}
