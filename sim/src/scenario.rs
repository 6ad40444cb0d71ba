//! What a simulation runs: nodes, jobs with their arrival and their true behaviour, and how much goes wrong.

mod random;

use headway_emulation::{Linear, Workload};
use headway_engine::EngineConfig;
use headway_engine::record::{PolicySettings, UserQuota};
use headway_types::report::Flexibility;
use headway_types::spec::{CheckpointPolicy, Elasticity, GpuRange, LayoutLimits, Precision, Training, Work};
use headway_types::{Capabilities, JobSpec, Seconds, Sequences, StatedDevice, Tokens, example};

use crate::deed::Act;
use crate::faults::Faults;
use crate::hidden::HiddenWorld;

/// A whole history, but for its consequences.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    pub seed: u64,
    pub nodes: Vec<NodeShape>,
    pub jobs: Vec<SimJob>,
    pub faults: Faults,
    /// What happens besides the faults drawn from the seed.
    pub script: Vec<Act>,
    pub config: EngineConfig,
    pub policy: PolicySettings,
    /// By then every job must have ended, or say why not.
    pub horizon: Seconds,
    /// The horizon cuts a longer history off: jobs may still run then.
    pub cut: bool,
    /// Whether the history is also written down line by line.
    pub diary: bool,
    /// Whether every round is kept with its plan.
    pub keep_rounds: bool,
    pub oversight: Oversight,
    /// Ledgers forget all fences of older commands but so many; `None`: as they do by themselves.
    pub fences_kept: Option<usize>,
    /// Of the jobs that have a hidden truth.
    pub hidden: HiddenWorld,
}

/// How closely promises are watched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Oversight {
    /// After every event; at the end every job has ended or says why not.
    #[default]
    Full,
    /// What a commit or a launch would break; jobs may still wait at the horizon. For long runs that measure.
    Light,
}

/// The GPUs of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeShape {
    pub gpus: u32,
    pub gpu_type: String,
    /// What the GPUs can do, where it is not what the catalog says.
    pub stated: Option<StatedDevice>,
}

impl NodeShape {
    /// GPUs as the catalog has them.
    #[must_use]
    pub fn new(gpus: u32, gpu_type: &str) -> Self {
        Self { gpus, gpu_type: gpu_type.into(), stated: None }
    }
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
    /// From the launch to the first step.
    pub startup: Seconds,
    /// A user cancels it after this long.
    pub cancelled_after: Option<Seconds>,
    /// Its workers follow this instead of the linear truth of the fields above.
    pub hidden: Option<Workload>,
}

impl SimJob {
    pub(crate) fn linear(&self) -> Linear {
        Linear { tokens_per_second: self.tokens_per_second, noise_scale: self.noise_scale }
    }
}

impl Scenario {
    /// A cluster without jobs and without faults, to be filled by a story.
    #[must_use]
    pub fn empty(seed: u64, nodes: &[u32]) -> Self {
        Self {
            seed,
            nodes: nodes.iter().map(|gpus| NodeShape::new(*gpus, "emulated")).collect(),
            jobs: Vec::new(),
            faults: Faults::calm(),
            script: Vec::new(),
            config: EngineConfig { restart_prior: Seconds(10.0), ..EngineConfig::default() },
            // One client hands in the jobs of all.
            policy: PolicySettings { user_quota: UserQuota::UNBOUNDED, ..PolicySettings::default() },
            horizon: Seconds(14_400.0),
            cut: false,
            diary: false,
            keep_rounds: false,
            oversight: Oversight::Full,
            fences_kept: None,
            hidden: HiddenWorld::default(),
        }
    }
}

/// A single-role job with the defaults that make it move often.
#[must_use]
pub fn spec(name: String, gpus: GpuRange, training: Option<Training>) -> JobSpec {
    JobSpec {
        elastic: Elasticity {
            min_runtime: Seconds(30.0),
            max_resizes_per_hour: 20,
            max_overhead: 0.5,
            ..Elasticity::default()
        },
        ..example::spec(&name, gpus, training)
    }
}

/// A small tunable model.
#[must_use]
pub fn training(target: Tokens, fenced: bool, live: bool) -> Training {
    let batch = if live { Flexibility::Live } else { Flexibility::Restart };
    Training {
        precision: Precision::Fp32,
        target: Some(target.into()),
        layouts: LayoutLimits::degrees(vec![1], vec![1], Sequences(16)),
        checkpoint: CheckpointPolicy { dir: None, every: Seconds(60.0), grace: Seconds(10.0), fenced, keep: None },
        reconfigure: Capabilities { batch, layout: Flexibility::Restart },
        ..example::training(Work::Model(example::small()))
    }
}
