//! What this term has seen of jobs and nodes, beside the rows. None of it is a fact: a new term begins without it and
//! learns it again from the agents.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use headway_goodput::ratio::Interval;
use headway_goodput::{JobModel, Lessons};
use headway_types::command::GroupStatus;
use headway_types::{
    AgentCommand, Assignment, Configuration, Generation, GpuUuid, GroupPhase, JobId, Layout, NodeId, Placement,
    Seconds, Sequences, Timestamp, Tokens, TokensPerSecond,
};
use imbl::OrdMap;
use uuid::Uuid;

use crate::activity::Activity;
use crate::doubt::Doubt;
use crate::event::SessionId;
use crate::record::{Job, Shape};
use crate::takeover::TookOver;
use crate::terms::Ahead;

/// What was seen. `jobs` and `nodes` have an entry for exactly those that have a row.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    /// Since when reports have reached the engine without a gap of its own making; leases count from here at the earliest.
    pub listening_since: Timestamp,
    /// A round shares them as they are when it is asked for.
    pub jobs: OrdMap<JobId, Arc<JobSeen>>,
    pub nodes: BTreeMap<NodeId, NodeSeen>,
    /// Those that follow a newer term and were refused.
    pub ahead: Arc<BTreeMap<NodeId, Ahead>>,
    /// Those that were readmitted when the last term ended, or were ahead then, and are not back: since when they are waited for.
    pub awaited: BTreeMap<NodeId, Timestamp>,
    /// While the machine's clock is not believed.
    pub doubt: Option<Doubt>,
    /// Of when the store is a backup, while nodes are waited for since it was restored.
    pub restored: Option<Timestamp>,
    /// Jobs that held GPUs in that backup: nodes may have seen any generation of them since.
    pub old_generations: BTreeSet<JobId>,
    /// Who led before, where this server has taken over.
    pub took_over: Option<TookOver>,
    /// What jobs have taught their like; shared with the rounds.
    pub lessons: Arc<Lessons>,
    /// When the log was told of nodes that were refused; they need have no row.
    pub turned_away: BTreeMap<NodeId, Timestamp>,
    /// When each command whose effect is not seen yet was last sent.
    sent: BTreeMap<CommandKey, Timestamp>,
}

/// Names a command up to repetition: job, generation, node, kind, number (a `Configure`'s revision).
type CommandKey = (JobId, Generation, NodeId, &'static str, u64);

/// What was seen of a job.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct JobSeen {
    pub model: Option<Arc<JobModel>>,
    pub live: LiveNumbers,
    /// Configuration of the newest step report of this generation.
    pub reported: Option<Configuration>,
    /// The first of the newest reports, all of the layout before though the node has the order for another.
    pub former_layout_since: Option<Timestamp>,
    /// When the log last told that a better batch is not taken for now.
    pub batch_held_at: Option<Timestamp>,
    /// When the log last told that noise has moved its learning rate.
    pub rate_told_at: Option<Timestamp>,
    /// Newest wall time per step, as the workers report it.
    pub step_time: Option<Seconds>,
    /// The time that the newest report of steps covers; `None` for the first, which also covers what came before.
    pub report_time: Option<Seconds>,
    /// How long the newest checkpoint took, once one is known: steps may pause that long.
    pub save_time: Option<Seconds>,
    /// Set while a move is under way, to measure its downtime.
    pub moving: Option<Moving>,
    /// The newest generation whose start the log told of.
    pub start_told: Option<Generation>,
    /// The silence of its steps that an event tells of; `None` again after its next step.
    pub silence_told: Option<ToldSilence>,
    /// The revision of the newest generation whose reshard the log has heard of.
    pub reshard_told: Option<(Generation, u64)>,
    /// The newest event about its loss: when, and whether the loss was not a finite number.
    pub anomaly_told: Option<(Timestamp, bool)>,
    /// When the log last told of a report that was not believed.
    pub disbelieved_at: Option<Timestamp>,
    pub model_saved_at: Option<Timestamp>,
    /// How fast each rank works, as far as ranks tell.
    pub paces: BTreeMap<u32, Pace>,
    /// Nodes whose ranks keep this generation waiting, and how often that was found.
    pub slow_nodes: BTreeMap<NodeId, u32>,
    /// What this generation does on its nodes, where they watch it.
    pub activity: BTreeMap<NodeId, Activity>,
    /// Whether the log was told that nobody knows how much its GPUs compute.
    pub unmeasured_told: bool,
}

/// Newest measurements; `None` where nothing has been measured yet.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LiveNumbers {
    pub reported_at: Option<Timestamp>,
    pub step: u64,
    pub samples_seen: Sequences,
    /// What its generation began with, or this term if that is later: its checkpoint, or what its first report said.
    pub began_with: Sequences,
    pub loss: Option<f64>,
    /// Raw tokens per second, smoothed.
    pub throughput: Option<TokensPerSecond>,
    pub efficiency: Option<f64>,
    pub goodput: Option<TokensPerSecond>,
    /// GNS φ in tokens.
    pub noise_scale: Option<f64>,
    /// Within what φ lies at 95 %, in tokens; also where it is not known well enough to be told.
    pub noise_interval: Option<Interval>,
    /// Reference tokens, including those since the last checkpoint.
    pub progress: Tokens,
    /// Of them what batches below the reference are credited with.
    pub credit: Tokens,
    /// Until the target at the present goodput.
    pub remaining: Option<Seconds>,
}

/// A move in its two parts. What a job waits for GPUs between them is no part of what the move costs.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Moving {
    Stopping {
        since: Timestamp,
        /// What it was stopped to leave; `None` where it was to start as the same elsewhere.
        leaves: Option<Shape>,
        to: Destination,
    },
    /// It had stopped after so long, and has since waited or started.
    Stopped { at: Timestamp, took: Seconds, leaves: Option<Shape>, to: Destination },
}

/// What a job was stopped for. Its batch may still be chosen anew meanwhile.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Destination(Option<(Placement, Option<Layout>)>);

impl Destination {
    pub fn of(assignment: Option<&Assignment>) -> Self {
        Self(assignment.map(|one| (one.placement.clone(), one.configuration.map(|at| at.layout))))
    }

    pub fn leads_to(&self, assignment: &Assignment) -> bool {
        *self == Self::of(Some(assignment))
    }
}

/// The newest word of one rank.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Pace {
    pub busy: Seconds,
    pub at: Timestamp,
    /// Reports in a row in which the rank was far slower than the others.
    pub slow: u32,
}

/// What was seen of a node.
#[derive(Clone, Debug)]
pub(crate) struct NodeSeen {
    pub heard_at: Option<Timestamp>,
    pub contact: Contact,
}

/// What a node's ledger holds, as far as this term knows.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Contact {
    /// Not heard in this term.
    Never,
    /// `connected`: the newest session still stands, so commands can be sent.
    Had { session: SessionId, connected: bool, groups: BTreeMap<(JobId, Generation), SeenGroup> },
}

/// One ledger entry of a node.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SeenGroup {
    pub phase: GroupPhase,
    /// Newest live change that the node has taken.
    pub revision: u64,
    /// Newest notice that it has passed on.
    pub notice: u32,
    pub gpus: BTreeSet<GpuUuid>,
}

impl From<GroupStatus> for SeenGroup {
    fn from(status: GroupStatus) -> Self {
        Self {
            phase: status.phase,
            revision: status.revision,
            notice: status.notice,
            gpus: status.gpus.into_iter().collect(),
        }
    }
}

impl Seen {
    /// At the beginning of a term: models and lessons that were saved, and nothing of any node.
    pub fn new<'a>(
        now: Timestamp,
        jobs: impl Iterator<Item = &'a Arc<Job>>,
        nodes: impl Iterator<Item = NodeId>,
        (mut models, lessons): (BTreeMap<JobId, JobModel>, Lessons),
    ) -> Self {
        let jobs = jobs.map(|job| (job.id, Arc::new(JobSeen::new(job, models.remove(&job.id), &lessons))));
        let nodes = nodes.map(|id| (id, NodeSeen::new(None, Contact::Never)));
        Self {
            listening_since: now,
            jobs: jobs.collect(),
            nodes: nodes.collect(),
            ahead: Arc::default(),
            awaited: BTreeMap::new(),
            doubt: None,
            restored: None,
            old_generations: BTreeSet::new(),
            took_over: None,
            lessons: Arc::new(lessons),
            turned_away: BTreeMap::new(),
            sent: BTreeMap::new(),
        }
    }

    pub fn job_mut(&mut self, id: JobId) -> Option<&mut JobSeen> {
        self.jobs.get_mut(&id).map(Arc::make_mut)
    }

    pub fn connected(&self, node: NodeId) -> bool {
        self.nodes.get(&node).is_some_and(NodeSeen::connected)
    }

    pub fn group(&self, node: NodeId, (job, generation): (JobId, Generation)) -> Option<&SeenGroup> {
        self.nodes.get(&node)?.contact.groups()?.get(&(job, generation))
    }

    /// What a node's ledger says, to be changed as the node speaks; nothing before it has registered.
    pub fn groups_mut(&mut self, node: NodeId) -> Option<&mut BTreeMap<(JobId, Generation), SeenGroup>> {
        match &mut self.nodes.get_mut(&node)?.contact {
            Contact::Never => None,
            Contact::Had { groups, .. } => Some(groups),
        }
    }

    /// Whether a node has been sent a stop of this kind that it has not answered.
    pub fn has_sent_stop(&self, (job, generation): (JobId, Generation), node: NodeId, mode: u64) -> bool {
        self.sent.contains_key(&(job, generation, node, STOP, mode))
    }

    /// Notes that a command goes to a node: whether it is to be sent now or went out a moment ago, and since when its
    /// effect is awaited.
    pub fn send(&mut self, now: Timestamp, repeat: Seconds, node: NodeId, command: &AgentCommand) -> (bool, Timestamp) {
        let (job, generation) = command.subject();
        let (kind, number) = match command {
            AgentCommand::Prepare { .. } => ("prepare", 0),
            AgentCommand::Launch { .. } => ("launch", 0),
            AgentCommand::Stop { mode, .. } => (STOP, *mode as u64),
            AgentCommand::Configure { revision, .. } => ("configure", *revision),
            AgentCommand::Checkpoint { .. } => ("checkpoint", 0),
            AgentCommand::Notify { number, .. } => ("notify", u64::from(*number)),
            AgentCommand::Prune { committed, .. } => ("prune", committed.step),
            AgentCommand::Forget { .. } => ("forget", 0),
        };
        let before = self.sent.get(&(job, generation, node, kind, number)).copied();
        match before.filter(|at| now.since(*at).0 < repeat.0) {
            Some(at) => (false, at),
            None => {
                self.sent.insert((job, generation, node, kind, number), now);
                (true, now)
            }
        }
    }

    /// Nothing will be repeated to a group that is over.
    pub fn forget_sent(&mut self, (job, generation): (JobId, Generation)) {
        let of_group = self.sent.range((job, generation, NodeId(Uuid::nil()), "", 0)..);
        let keys: Vec<_> =
            of_group.map(|(key, _)| *key).take_while(|key| (key.0, key.1) == (job, generation)).collect();
        for key in keys {
            self.sent.remove(&key);
        }
    }

    /// What was sent to a node's former session may never have arrived.
    pub fn forget_sent_to(&mut self, gone: NodeId) {
        self.sent.retain(|(_, _, node, ..), _| *node != gone);
    }
}

/// A generation makes no steps, and an event says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ToldSilence {
    pub generation: Generation,
    /// Its newest step, or the moment from which steps were expected.
    pub since: Timestamp,
}

/// The kind of command that stray groups are asked about.
const STOP: &str = "stop";

impl JobSeen {
    pub fn new(job: &Job, saved: Option<JobModel>, lessons: &Lessons) -> Self {
        let mut model = saved.or_else(|| job.spec.training().cloned().map(JobModel::new));
        if let Some(model) = &mut model {
            model.learn(lessons);
        }
        let model = model.map(Arc::new);
        let mut live = LiveNumbers::default();
        live.begin_at(job);
        Self {
            model,
            live,
            reported: None,
            former_layout_since: None,
            batch_held_at: None,
            rate_told_at: None,
            step_time: None,
            report_time: None,
            save_time: None,
            moving: None,
            start_told: None,
            silence_told: None,
            reshard_told: None,
            anomaly_told: None,
            disbelieved_at: None,
            model_saved_at: None,
            paces: BTreeMap::new(),
            slow_nodes: BTreeMap::new(),
            activity: BTreeMap::new(),
            unmeasured_told: false,
        }
    }

    /// A new generation begins at the committed checkpoint, and what was seen of the former says nothing about it.
    pub fn leave_generation(&mut self, job: &Job, now: Timestamp) {
        self.moving = self.moving.take().map(|moving| match moving {
            Moving::Stopping { since, leaves, to } => Moving::Stopped { at: now, took: now.since(since), leaves, to },
            stopped @ Moving::Stopped { .. } => stopped,
        });
        self.reported = None;
        self.former_layout_since = None;
        self.step_time = None;
        self.report_time = None;
        self.paces.clear();
        self.slow_nodes.clear();
        self.activity.clear();
        self.live.begin_at(job);
        self.live.throughput = None;
        self.live.goodput = None;
        self.live.remaining = None;
    }

    /// The learning-rate factor for a configuration's batch, by the job's rule and what is known of its noise.
    pub fn lr_scale(&self, configuration: Option<Configuration>) -> f64 {
        let (Some(model), Some(configuration)) = (&self.model, configuration) else { return 1.0 };
        model.learning_rate_factor(configuration.global_batch)
    }

    /// GNS φ in tokens, once known.
    pub fn noise_scale(&self) -> Option<f64> {
        self.model.as_ref()?.noise_scale().map(|(phi, _)| phi)
    }
}

impl LiveNumbers {
    /// Back to the job's last committed checkpoint.
    fn begin_at(&mut self, job: &Job) {
        let checkpoint = job.checkpoint.as_ref();
        (self.progress, self.credit) = (job.progress, job.credit);
        self.samples_seen = checkpoint.map_or(Sequences(0), |one| one.samples_seen);
        self.began_with = self.samples_seen;
        self.step = checkpoint.map_or(0, |one| one.step);
    }
}

impl NodeSeen {
    pub fn new(heard_at: Option<Timestamp>, contact: Contact) -> Self {
        Self { heard_at, contact }
    }

    pub fn connected(&self) -> bool {
        matches!(self.contact, Contact::Had { connected: true, .. })
    }
}

impl Contact {
    /// The newest session, if it still stands.
    pub fn session(&self) -> Option<SessionId> {
        match self {
            Contact::Had { session, connected: true, .. } => Some(*session),
            _ => None,
        }
    }

    pub fn groups(&self) -> Option<&BTreeMap<(JobId, Generation), SeenGroup>> {
        match self {
            Contact::Never => None,
            Contact::Had { groups, .. } => Some(groups),
        }
    }
}
