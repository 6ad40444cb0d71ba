//! One generation of one job on this node: its order, its phase, and what its workers last said.

use std::collections::BTreeMap;

use headway_types::command::GroupStatus;
use headway_types::placement::NodeSlice;
use headway_types::spec::RunPer;
use headway_types::{
    Capabilities, CheckpointRef, Configuration, Fault, Generation, GroupOutcome, GroupPhase, JobId, LaunchOrder,
    NodeId, Seconds, StopMode, Timestamp,
};
use serde::{Deserialize, Serialize};

use crate::event::{Exit, Process};

/// An entry of the ledger. What a newer agent adds has a default: it takes up the ledger of the one before it, since a
/// ledger that cannot be read would orphan every worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Group {
    pub order: LaunchOrder,
    pub phase: Phase,
    /// Capabilities the worker declared; `None` until one says hello with some.
    #[serde(default)]
    pub declared: Option<Capabilities>,
    /// Whether a worker ever connected: such a group is asked to stop before it is signalled.
    #[serde(default)]
    pub greeted: bool,
    /// Whether a worker announced that it exits early.
    #[serde(default)]
    pub stopped: bool,
    /// Step at which a worker said that its loss was no finite number: why it fails, if it does.
    #[serde(default)]
    pub diverged_at: Option<u64>,
    /// Newest live change, repeated to a worker that reconnects.
    #[serde(default)]
    pub change: Option<LiveChange>,
    /// Newest complete checkpoint, repeated to a scheduler that reconnects.
    #[serde(default)]
    pub checkpoint: Option<(CheckpointRef, Seconds)>,
    /// Newest notice that was passed on; 0: none.
    #[serde(default)]
    pub notice: u32,
    /// Whether a stop came after all its processes had ended well: it was dropped.
    #[serde(default)]
    pub asked: bool,
    /// How ranks ended by themselves before any stop, whose remains may still be there. Never stored: the next agent learns it again.
    #[serde(skip)]
    pub left: BTreeMap<u32, Exit>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LiveChange {
    pub revision: u64,
    pub configuration: Configuration,
    pub lr_scale: f64,
}

/// Where a group stands. Of those that may have processes, see `may_have_processes`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "phase")]
pub enum Phase {
    /// An older generation of the job still has processes here.
    Waiting,
    Preparing,
    /// It was to stop while its prolog may have run: once that is over, nothing is left.
    Withdrawn,
    Prepared {
        rendezvous_port: Option<u16>,
    },
    /// The shell was told to spawn; a stop that comes meanwhile is kept.
    Launching {
        rendezvous_port: u16,
        stop: Option<StopRequest>,
    },
    Running {
        rendezvous_port: u16,
        members: Vec<Member>,
    },
    Stopping {
        members: Vec<Member>,
        cause: StopCause,
        stage: StopStage,
    },
    /// All its processes are gone, and its epilog runs.
    Epilog {
        outcome: GroupOutcome,
    },
    Ended {
        outcome: GroupOutcome,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct StopRequest {
    pub mode: StopMode,
    pub grace: Seconds,
}

/// A process of the group; gone once `exit` is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    pub process: Process,
    pub exit: Option<Exit>,
}

/// Why a group is being stopped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "cause")]
pub enum StopCause {
    Asked {
        mode: StopMode,
    },
    Broken {
        exit_code: Option<i32>,
        #[serde(default = "Fault::unstated")]
        fault: Fault,
    },
}

/// How far a stop has gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "stage")]
pub enum StopStage {
    /// The worker was asked over its socket.
    Requested {
        terminate_at: Timestamp,
        kill_at: Timestamp,
    },
    Terminated {
        kill_at: Timestamp,
    },
    /// Killed; signalled again should something survive.
    Killed {
        again_at: Timestamp,
    },
}

impl StopStage {
    /// When the next step is due.
    #[must_use]
    pub fn due(self) -> Timestamp {
        match self {
            StopStage::Requested { terminate_at, .. } => terminate_at,
            StopStage::Terminated { kill_at } => kill_at,
            StopStage::Killed { again_at } => again_at,
        }
    }
}

impl Phase {
    #[must_use]
    pub fn is_ended(&self) -> bool {
        matches!(self, Phase::Ended { .. })
    }

    /// Whether a stop is under way, or waits for the launch to be over.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        matches!(self, Phase::Stopping { .. } | Phase::Launching { stop: Some(_), .. })
    }

    /// Whether processes of the group may exist.
    #[must_use]
    pub fn may_have_processes(&self) -> bool {
        matches!(
            self,
            Phase::Withdrawn
                | Phase::Launching { .. }
                | Phase::Running { .. }
                | Phase::Stopping { .. }
                | Phase::Epilog { .. }
        )
    }

    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Phase::Waiting => "waiting for an older generation",
            Phase::Preparing => "preparing",
            Phase::Withdrawn => "withdrawn",
            Phase::Prepared { .. } => "prepared",
            Phase::Launching { .. } => "launching",
            Phase::Running { .. } => "running",
            Phase::Stopping { .. } => "stopping",
            Phase::Epilog { .. } => "in its epilog",
            Phase::Ended { .. } => "ended",
        }
    }

    /// The processes of a group that has some.
    #[must_use]
    pub fn members(&self) -> &[Member] {
        match self {
            Phase::Running { members, .. } | Phase::Stopping { members, .. } => members,
            _ => &[],
        }
    }
}

impl Group {
    pub(crate) fn new(order: LaunchOrder, phase: Phase) -> Self {
        Self {
            order,
            phase,
            declared: None,
            greeted: false,
            stopped: false,
            diverged_at: None,
            change: None,
            checkpoint: None,
            notice: 0,
            asked: false,
            left: BTreeMap::new(),
        }
    }

    /// Whether all these processes have ended well by themselves: there is nothing left to stop.
    pub(crate) fn is_done(&self, members: &[Member]) -> bool {
        let ended_well = |member: &Member| {
            let exit = member.exit.or_else(|| self.left.get(&member.process.rank).copied());
            exit == Some(Exit::Code(0))
        };
        !self.stopped && !members.is_empty() && members.iter().all(ended_well)
    }

    #[must_use]
    pub fn job(&self) -> JobId {
        self.order.job
    }

    #[must_use]
    pub fn generation(&self) -> Generation {
        self.order.generation
    }

    /// The group as the scheduler sees it.
    #[must_use]
    pub fn status(&self, node: NodeId) -> GroupStatus {
        let phase = match &self.phase {
            Phase::Waiting | Phase::Preparing => GroupPhase::Preparing,
            Phase::Prepared { rendezvous_port } => GroupPhase::Prepared { rendezvous_port: *rendezvous_port },
            Phase::Launching { stop: None, rendezvous_port } => {
                let first = self.order.placement.first_node() == node;
                GroupPhase::Prepared { rendezvous_port: first.then_some(*rendezvous_port) }
            }
            Phase::Launching { stop: Some(_), .. } | Phase::Stopping { .. } => GroupPhase::Stopping,
            Phase::Withdrawn | Phase::Epilog { .. } => GroupPhase::Stopping,
            Phase::Running { .. } => GroupPhase::Running,
            Phase::Ended { outcome } => GroupPhase::Ended { outcome: outcome.clone() },
        };
        let gpus = Share::of(&self.order, node).map(|share| share.slice.gpus.clone()).unwrap_or_default();
        let revision = self.change.map_or(0, |change| change.revision);
        GroupStatus { job: self.job(), generation: self.generation(), gpus, phase, revision, notice: self.notice }
    }
}

/// A node's share of a gang: which slice, and where its ranks begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share<'a> {
    pub slice: &'a NodeSlice,
    /// Position of the node in the gang.
    pub node_rank: u32,
    /// Global rank of the node's first GPU.
    pub first_rank: u32,
}

impl<'a> Share<'a> {
    /// `None` where the order does not name the node.
    #[must_use]
    pub fn of(order: &'a LaunchOrder, node: NodeId) -> Option<Self> {
        let mut first_rank = 0;
        for (node_rank, slice) in order.placement.slices().iter().enumerate() {
            if slice.node == node {
                return Some(Self { slice, node_rank: node_rank as u32, first_rank });
            }
            first_rank += slice.gpus.len() as u32;
        }
        None
    }

    /// The ranks of the processes that the order starts on this node.
    #[must_use]
    pub fn processes(&self, order: &LaunchOrder) -> std::ops::Range<u32> {
        let count = match order.run.per {
            RunPer::Node => 1,
            RunPer::Gpu => self.slice.gpus.len() as u32,
        };
        self.first_rank..self.first_rank + count
    }
}
