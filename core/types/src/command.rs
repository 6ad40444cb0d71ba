//! What the engine tells a node, and what a node reports back. The wire form is in `api`.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};

use crate::blame::Fault;
use crate::checkpoint::CheckpointRef;
use crate::configuration::Configuration;
use crate::hardware::NodeInventory;
use crate::id::{ArrayId, Generation, GpuUuid, JobId, NodeId};
use crate::model::ModelShape;
use crate::placement::Placement;
use crate::report::{Capabilities, StepReport};
use crate::spec::{LrScaling, Notice, Precision, Run};
use crate::unit::{Seconds, Sequences};

/// Everything a node needs to launch its part of a gang. Immutable per generation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LaunchOrder {
    pub job: JobId,
    pub generation: Generation,
    pub job_name: String,
    /// Of an element of an array: which.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub array: Option<ArrayPlace>,
    /// Who submitted the job; an agent that may, runs its workers as the Unix user of this name.
    #[serde(default)]
    pub owner: String,
    pub run: Run,
    /// What it trains, where the specification says so.
    #[serde(default)]
    pub model: Option<(ModelShape, Precision)>,
    pub placement: Placement,
    /// Node names and addresses in rank order.
    pub nodes: Vec<NodeAddress>,
    pub configuration: Option<Configuration>,
    /// Learning-rate factor for the configuration's batch.
    pub lr_scale: f64,
    pub lr_scaling: LrScaling,
    /// Batch at which `lr_scale` is 1.
    pub reference_batch: Option<Sequences>,
    /// Checkpoints of this generation go below `<dir>/g<N>/`.
    pub checkpoint_dir: String,
    pub checkpoint_every: Seconds,
    pub resume: Option<CheckpointRef>,
    pub grace: Seconds,
    /// How it hears that its end is near.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notice: Option<Notice>,
    /// Whether the node is to tell what the job writes and how much it uses its GPUs.
    #[serde(default)]
    pub watched: bool,
}

/// Which element of an array a job is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArrayPlace {
    pub array: ArrayId,
    pub index: u32,
    /// Elements of the array.
    pub count: u32,
    /// The array's smallest and largest index.
    pub first: u32,
    pub last: u32,
}

/// Where a node of a gang is reached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeAddress {
    pub node: NodeId,
    pub name: String,
    pub address: String,
}

/// How a group is to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopMode {
    /// Ask for a checkpoint, then SIGTERM, SIGKILL after the grace time.
    Checkpoint,
    /// SIGTERM at once, SIGKILL after the grace time.
    Terminate,
    /// SIGKILL at once.
    Kill,
}

/// From the engine to a node's ledger. Repeating a command repeats no effect.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum AgentCommand {
    /// Phase one of a gang start: GPUs clean, directories there, rendezvous port bound on the first node.
    Prepare { order: Box<LaunchOrder> },
    /// Phase two, once every node of the gang is prepared.
    Launch { job: JobId, generation: Generation, rendezvous_port: u16 },
    /// Ends the group (a group that is only prepared is dropped).
    Stop { job: JobId, generation: Generation, mode: StopMode, grace: Seconds },
    /// Change of batch or micro-batch in the running group. `revision` rises with each change.
    Configure { job: JobId, generation: Generation, revision: u64, configuration: Configuration, lr_scale: f64 },
    /// Save now and go on.
    Checkpoint { job: JobId, generation: Generation },
    /// The signal that the order names, since the end is near. `number` rises with each; one that was sent is not sent again.
    Notify { job: JobId, generation: Generation, number: u32 },
    /// The scheduler has committed this checkpoint of the group's generation: of the job's complete checkpoints up to
    /// it, the newest `keep` are kept and the others removed. Not answered: the next commit repeats what one missed.
    Prune { job: JobId, committed: CheckpointRef, keep: NonZeroU32 },
    /// The scheduler has recorded the end of this group; the ledger may drop it.
    Forget { job: JobId, generation: Generation },
}

impl AgentCommand {
    /// The job and generation a command speaks of.
    #[must_use]
    pub fn subject(&self) -> (JobId, Generation) {
        match self {
            AgentCommand::Prepare { order } => (order.job, order.generation),
            AgentCommand::Prune { job, committed, .. } => (*job, committed.generation),
            AgentCommand::Launch { job, generation, .. }
            | AgentCommand::Stop { job, generation, .. }
            | AgentCommand::Configure { job, generation, .. }
            | AgentCommand::Checkpoint { job, generation }
            | AgentCommand::Notify { job, generation, .. }
            | AgentCommand::Forget { job, generation } => (*job, *generation),
        }
    }
}

/// Where a node's part of a gang stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "phase")]
pub enum GroupPhase {
    /// Checks are running.
    Preparing,
    /// Ready to launch; the first node names its rendezvous port.
    Prepared { rendezvous_port: Option<u16> },
    /// Processes are up (not necessarily training yet).
    Running,
    /// A stop is under way.
    Stopping,
    /// No process of this generation is left on the node.
    Ended { outcome: GroupOutcome },
}

/// How a node's part of a gang ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "outcome")]
pub enum GroupOutcome {
    /// Every process exited 0 by itself.
    Succeeded,
    /// Ended after a stop command.
    Stopped,
    /// A process failed; the message says which rank and how.
    Failed {
        exit_code: Option<i32>,
        #[serde(default = "Fault::unstated")]
        fault: Fault,
    },
    /// The group could not be prepared or launched on this node.
    NotStarted {
        #[serde(default = "Fault::unstated")]
        fault: Fault,
    },
}

/// From a node to the engine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case", tag = "kind")]
#[strum(serialize_all = "snake_case")]
pub enum NodeReport {
    /// First message of a session: what the node offers and everything its ledger holds.
    Registered {
        inventory: Box<NodeInventory>,
        groups: Vec<GroupStatus>,
    },
    Heartbeat,
    /// What the node offers has changed: a GPU broke, a disk is full. The groups stay as they are.
    Inventory {
        inventory: Box<NodeInventory>,
    },
    /// The status of one group, sent at each change and repeated until forgotten.
    Group {
        status: GroupStatus,
    },
    /// The worker's `init()`: what the script can change.
    Declared {
        job: JobId,
        generation: Generation,
        capabilities: Capabilities,
    },
    Steps {
        report: Box<StepReport>,
    },
    /// A complete checkpoint on disk, offered for commit.
    CheckpointWritten {
        job: JobId,
        checkpoint: CheckpointRef,
        duration: Seconds,
    },
    /// Mean seconds per step that ranks of this node worked rather than waited for others, over the last interval.
    RankTimes {
        job: JobId,
        generation: Generation,
        busy: BTreeMap<u32, Seconds>,
    },
    /// The loss is no finite number (`None`), or far above what is usual for it; sent when that begins.
    LossAnomaly {
        job: JobId,
        generation: Generation,
        step: u64,
        loss: Option<f64>,
        usual: Option<f64>,
    },
    /// What a group that is watched does on this node.
    Activity {
        job: JobId,
        generation: Generation,
        /// Since its ranks last wrote anything.
        quiet: Seconds,
        /// Mean share of the time since the last such report in which its GPUs computed; absent where no device says.
        busy: Option<f64>,
    },
    /// Seconds by phase of a worker's start (startup, import, rendezvous, load, first step), for learning downtime.
    StartPhases {
        job: JobId,
        generation: Generation,
        phases: BTreeMap<String, Seconds>,
    },
}

/// One entry of a node's ledger as the engine sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupStatus {
    pub job: JobId,
    pub generation: Generation,
    pub gpus: Vec<GpuUuid>,
    pub phase: GroupPhase,
    /// Newest live change that the node has taken and repeats to its workers; 0: none.
    #[serde(default)]
    pub revision: u64,
    /// Newest notice that the node has passed on to its workers; 0: none.
    #[serde(default)]
    pub notice: u32,
}
