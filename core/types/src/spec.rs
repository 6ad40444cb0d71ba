//! What a user asked for, after admission has checked it. The YAML form and its error messages are in `api`.

mod after;
mod array;
mod hooks;
mod layouts;
mod least_use;
mod limits;
mod nodes;
mod notice;
mod notify;
mod progress;
mod resources;
mod statistics;
mod target;

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};

use crate::model::ModelShape;
use crate::report::{Capabilities, Flexibility};
use crate::unit::{GpuCount, Seconds, Sequences};
use crate::word::words;
pub use after::{After, Condition, MOST_DEPENDENCIES};
pub use array::{ArraySpec, IndexError, Indices, LARGEST_INDEX, MOST_ELEMENTS, element_name, family_name};
pub use hooks::Hooks;
pub use layouts::{ExecutionLimits, LayoutLimits, SizeLayouts};
pub use least_use::LeastUse;
pub use limits::Limits;
pub use nodes::{MOST_NODE_LABELS, NodeChoice, NodeSelector, Topology, check_node_label};
pub use notice::{Notice, NoticeSignal, NoticeTo};
pub use notify::{MOST_WEBHOOKS, NoticeKind, Notify};
pub use progress::{PrintedProgress, PrintingRank};
pub use resources::{GpuRange, HostResource, NodeResources};
pub use statistics::{BatchPolicy, LrScaling, NoiseKind, NormTestEta, NormTestEtaError};
pub use target::{Target, TargetCount};

/// A job as submitted. It has one role today; a multi-role job (trainer + rollout) will have several, ganged.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobSpec {
    pub name: String,
    pub project: String,
    pub priority: Priority,
    pub labels: BTreeMap<String, String>,
    pub roles: Vec<Role>,
    pub elastic: Elasticity,
    pub limits: Limits,
    /// Jobs that come before it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<After>,
    /// It is as many jobs as this has indices; of a job that is one of them, its own index alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub array: Option<ArraySpec>,
    /// Who is told what becomes of it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notify: Vec<Notify>,
}

impl JobSpec {
    /// The only role of a single-role job (admission guarantees that there is one).
    #[must_use]
    pub fn role(&self) -> &Role {
        self.roles.first().expect("admission refuses a job without a role")
    }

    /// Training section of the only role.
    #[must_use]
    pub fn training(&self) -> Option<&Training> {
        self.role().training.as_ref()
    }

    /// Whether its owner promises that it goes on where it was once it starts again: a training section names its
    /// checkpoints, or `limits.restartable` says that it may be started at any time.
    #[must_use]
    pub fn promises_to_resume(&self) -> bool {
        self.training().is_some() || self.limits.restartable == Some(true)
    }

    /// One job of an array: its name, its index, and the directory it runs in.
    #[must_use]
    pub fn element(&self, index: u32) -> Self {
        let mut element = self.clone();
        element.name = element_name(&self.name, index);
        element.array = Some(ArraySpec { indices: Indices::only(index), parallel: None });
        for role in &mut element.roles {
            role.run.workdir = role.run.workdir.take().map(|dir| dir.replace("{array_index}", &index.to_string()));
        }
        element
    }

    /// The field by which its steps are read from its output; `None` where they are not.
    #[must_use]
    pub fn reads_steps_by(&self) -> Option<&'static str> {
        self.role().run.progress.as_ref()?;
        Some(if self.training().is_some() { "training.progress" } else { "run.progress" })
    }

    /// How the job saves itself; one without a training section is given the defaults.
    #[must_use]
    pub fn checkpoint_policy(&self) -> CheckpointPolicy {
        self.training().map_or_else(CheckpointPolicy::default, |training| training.checkpoint.clone())
    }
}

/// 0 (yields to all) to 100 (first); 50 is normal. Doubles the weight every 25 points.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Priority(pub u8);

impl Priority {
    /// What "high" means, and the most that users may give.
    pub const HIGH: Self = Self(75);
}

impl Default for Priority {
    fn default() -> Self {
        Self(50)
    }
}

/// One kind of worker group of a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Role {
    pub name: String,
    pub gpus: GpuRange,
    pub per_node: NodeResources,
    /// Which nodes, and how far apart.
    #[serde(default)]
    pub nodes: NodeChoice,
    /// Absent: the job is rigid and opaque; it is scheduled but not tuned.
    pub training: Option<Training>,
    pub run: Run,
}

/// What makes a job tunable.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Training {
    pub work: Work,
    pub precision: Precision,
    /// The batch the recipe was validated at; progress is counted in tokens at this batch.
    pub reference_batch: Sequences,
    pub batch: BatchRange,
    /// What chooses the batch within the range.
    #[serde(default)]
    pub batch_policy: BatchPolicy,
    pub lr_scaling: LrScaling,
    /// When the job is done; absent: when its command exits.
    pub target: Option<Target>,
    pub layouts: LayoutLimits,
    pub checkpoint: CheckpointPolicy,
    /// What the script can change, before the SDK says otherwise.
    pub reconfigure: Capabilities,
    /// Calibration κ from noise scale to critical batch.
    pub kappa: f64,
    /// The noise that the job goes by; κ is of it.
    #[serde(default)]
    pub noise: NoiseKind,
}

impl Training {
    /// Whether batches below the reference count as more than the tokens they see. Whoever counts tokens, as a script that ends by
    /// itself does, gains nothing by them.
    #[must_use]
    pub fn takes_credit(&self) -> bool {
        self.target.is_some_and(|target| target.count == TargetCount::Reference)
    }
}

/// Where the goodput curve comes from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Work {
    /// Modelled from the shape and refined from reports.
    Model(ModelShape),
    /// Measured by the user: GPUs → relative goodput (any framework, any model), with the sequence length to count in.
    Curve { points: BTreeMap<GpuCount, f64>, seq_len: u32 },
}

impl Work {
    /// Tokens per sequence.
    #[must_use]
    pub fn seq_len(&self) -> u32 {
        match self {
            Work::Model(shape) => shape.seq_len,
            Work::Curve { seq_len, .. } => *seq_len,
        }
    }
}

words! {
    pub enum Precision {
        Bf16,
        Fp16,
        Fp32,
        /// Matrices are multiplied in 8 bits, all else is bf16.
        Fp8,
    }
}

/// Global batches a recipe allows, in sequences. Equal bounds fix the batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct BatchRange {
    pub min: Sequences,
    pub max: Sequences,
}

/// How a job saves itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CheckpointPolicy {
    /// Directory every node sees; `None`: below the cluster's checkpoint root.
    pub dir: Option<String>,
    pub every: Seconds,
    /// From the stop request to the kill.
    pub grace: Seconds,
    /// Generations write apart and only committed checkpoints count (`docs/architecture.md`, generations).
    pub fenced: bool,
    /// Complete checkpoints that are kept, the newest committed one included; older ones are removed. `None`: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep: Option<NonZeroU32>,
}

impl Default for CheckpointPolicy {
    fn default() -> Self {
        Self { dir: None, every: Seconds(900.0), grace: Seconds(180.0), fenced: true, keep: None }
    }
}

/// How a worker group is launched on its nodes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    pub per: RunPer,
    pub command: Command,
    pub workdir: Option<String>,
    pub env: BTreeMap<String, String>,
    /// Secrets' names, by the variables that stand for them. Values are never here: they go to agents with the launch alone.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub secrets: BTreeMap<String, String>,
    /// Those of them that processes are handed as open files in memory. The others stand in the environment, as all of a job do that was
    /// submitted to a release which knew no files.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub secret_files: BTreeSet<String>,
    #[serde(default, skip_serializing_if = "Hooks::are_none")]
    pub hooks: Hooks,
    /// Where its steps are read from its output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<PrintedProgress>,
}

words! {
    /// How many processes a node gets.
    pub enum RunPer {
        Node,
        Gpu,
    }
}

/// `{name}` is substituted in both forms; a shell line runs under `sh -c`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Command {
    Shell(String),
    Argv(Vec<String>),
}

/// How often Headway may disturb the job.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Elasticity {
    /// No move before the job has run this long on its present GPUs.
    pub min_runtime: Seconds,
    pub max_resizes_per_hour: u32,
    /// Share of the job's time that moves may cost.
    pub max_overhead: f64,
    /// Share of its fair share that the job is sure of whenever that is possible.
    #[serde(default)]
    pub min_share: Option<f64>,
}

impl Default for Elasticity {
    fn default() -> Self {
        Self { min_runtime: Seconds(600.0), max_resizes_per_hour: 2, max_overhead: 0.03, min_share: None }
    }
}

impl Capabilities {
    /// What an unknown script can do: restart at another batch, never change layout.
    pub const UNKNOWN_SCRIPT: Capabilities = Capabilities { batch: Flexibility::Restart, layout: Flexibility::Never };
}
