//! What the engine keeps beside the rows: what was seen of jobs and nodes in this term. None of it is a fact; a new
//! term begins without it and learns it again from the agents.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use headway_goodput::JobModel;
use headway_types::command::GroupStatus;
use headway_types::{Configuration, Generation, GpuUuid, GroupPhase, JobId, NodeId, Seconds, Timestamp};

use crate::event::SessionId;
use crate::record::{Job, Node, NodePolicy};
use crate::view::LiveNumbers;

/// A job with what has been seen of it.
#[derive(Clone, Debug)]
pub(crate) struct JobEntry {
    pub job: Arc<Job>,
    pub model: Option<Arc<JobModel>>,
    pub live: LiveNumbers,
    /// Configuration of the newest step report of this generation.
    pub reported: Option<Configuration>,
    /// The first of the newest reports, all of the layout before though the node has the order for another.
    pub former_layout_since: Option<Timestamp>,
    /// When the log last told that noise has moved its learning rate.
    pub rate_told_at: Option<Timestamp>,
    /// Newest wall time per step, as the workers report it.
    pub step_time: Option<Seconds>,
    /// How long the newest checkpoint took, once one is known: steps may pause that long.
    pub save_time: Option<Seconds>,
    /// Set while a move is under way, to measure its downtime.
    pub moving_since: Option<Timestamp>,
    /// The newest generation whose start the log told of.
    pub start_told: Option<Generation>,
    /// The revision of the newest generation whose reshard the log has heard of.
    pub reshard_told: Option<(Generation, u64)>,
    /// When the log last told of its loss.
    pub anomaly_at: Option<Timestamp>,
    /// A user's request to save now, until a newer checkpoint is committed.
    pub save_wanted: Option<Timestamp>,
    pub model_saved_at: Option<Timestamp>,
    /// Noise scale in the newest round's input.
    pub planned_noise: Option<f64>,
    /// Step time expected of its configuration at that round.
    pub planned_step_time: Option<f64>,
    /// Whether the newest round's input named it.
    pub planned: bool,
    /// How fast each rank works, as far as ranks tell.
    pub paces: BTreeMap<u32, Pace>,
    /// Nodes whose ranks keep this generation waiting.
    pub slow_nodes: BTreeSet<NodeId>,
}

/// The newest word of one rank.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Pace {
    pub busy: Seconds,
    pub at: Timestamp,
    /// Reports in a row in which the rank was far slower than the others.
    pub slow: u32,
}

impl JobEntry {
    pub fn new(job: Arc<Job>, model: Option<Arc<JobModel>>) -> Self {
        let mut live = LiveNumbers { progress: job.progress, ..LiveNumbers::default() };
        if let Some(checkpoint) = &job.checkpoint {
            live.samples_seen = checkpoint.samples_seen;
            live.step = checkpoint.step;
        }
        Self {
            job,
            model,
            live,
            reported: None,
            former_layout_since: None,
            rate_told_at: None,
            step_time: None,
            save_time: None,
            moving_since: None,
            start_told: None,
            reshard_told: None,
            anomaly_at: None,
            save_wanted: None,
            model_saved_at: None,
            planned_noise: None,
            planned_step_time: None,
            planned: false,
            paces: BTreeMap::new(),
            slow_nodes: BTreeSet::new(),
        }
    }

    /// A new generation begins at the committed checkpoint, and what was seen of the former says nothing about it.
    pub fn leave_generation(&mut self) {
        let fresh = Self::new(self.job.clone(), None);
        self.reported = None;
        self.former_layout_since = None;
        self.step_time = None;
        self.save_wanted = None;
        self.paces.clear();
        self.slow_nodes.clear();
        self.live.progress = fresh.live.progress;
        self.live.samples_seen = fresh.live.samples_seen;
        self.live.step = fresh.live.step;
        self.live.throughput = None;
        self.live.goodput = None;
        self.live.remaining = None;
    }
}

/// A node with what has been seen of it.
#[derive(Clone, Debug)]
pub(crate) struct NodeEntry {
    pub node: Arc<Node>,
    pub heard_at: Option<Timestamp>,
    pub seen: Seen,
    /// When another machine was last refused under this node's id.
    pub impostor_at: Option<Timestamp>,
}

/// What a node's ledger holds, as far as this term knows.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Seen {
    /// Not heard in this term.
    Unknown,
    /// `connected`: the newest session still stands, so commands can be sent.
    Known { session: SessionId, connected: bool, groups: BTreeMap<(JobId, Generation), SeenGroup> },
}

/// One ledger entry of a node.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SeenGroup {
    pub phase: GroupPhase,
    /// Newest live change that the node has taken.
    pub revision: u64,
    pub gpus: BTreeSet<GpuUuid>,
}

impl From<GroupStatus> for SeenGroup {
    fn from(status: GroupStatus) -> Self {
        Self { phase: status.phase, revision: status.revision, gpus: status.gpus.into_iter().collect() }
    }
}

impl NodeEntry {
    pub fn new(node: Arc<Node>) -> Self {
        Self { node, heard_at: None, seen: Seen::Unknown, impostor_at: None }
    }

    pub fn connected(&self) -> bool {
        matches!(self.seen, Seen::Known { connected: true, .. })
    }

    /// Until when jobs with nowhere else to go may stay on a node that is drained.
    pub fn drain_deadline(&self) -> Option<Timestamp> {
        match self.node.policy {
            NodePolicy::Draining { deadline, .. } => deadline,
            _ => None,
        }
    }

    pub fn group(&self, job: JobId, generation: Generation) -> Option<&SeenGroup> {
        match &self.seen {
            Seen::Unknown => None,
            Seen::Known { groups, .. } => groups.get(&(job, generation)),
        }
    }
}
