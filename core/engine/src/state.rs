//! The engine's memory, and the order in which a batch is digested: events, leases, reconcile, round, outcome.
//! It holds facts (rows shared by `Arc`) apart from what was only seen (`Seen`, live numbers, learnt models).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use headway_goodput::JobModel;
use headway_types::{
    Configuration, Generation, GroupPhase, IdSource, JobId, JobVerdict, NodeId, PlanId, Seconds, Term, Timestamp,
};

use crate::config::EngineConfig;
use crate::draft::{Draft, Note};
use crate::event::{Event, SessionId};
use crate::job::JobEvent;
use crate::outcome::{Change, Outcome, Reply};
use crate::record::{Allocation, EventRecord, IdempotencyRecord, Job, Node, PlanRecord, PolicySettings};
use crate::rounds::Rounds;
use crate::snapshot::Snapshot;
use crate::view::LiveNumbers;

/// The state machine. `restore` is its only beginning: a first start restores an empty snapshot.
#[derive(Clone, Debug)]
pub struct Engine {
    pub(crate) config: EngineConfig,
    pub(crate) term: Term,
    pub(crate) ids: IdSource,
    /// Time of the batch in hand; never steps back.
    pub(crate) now: Timestamp,
    pub(crate) restored_at: Timestamp,
    /// Since when reports have reached the engine without a gap of its own making; leases count from here at the earliest.
    pub(crate) listening_since: Timestamp,
    /// What the last outcome asked for.
    asked_wake: Option<Timestamp>,
    pub(crate) jobs: BTreeMap<JobId, JobEntry>,
    pub(crate) nodes: BTreeMap<NodeId, NodeEntry>,
    pub(crate) allocations: BTreeMap<(JobId, Generation), Arc<Allocation>>,
    pub(crate) target: Option<Arc<PlanRecord>>,
    pub(crate) proposals: BTreeMap<PlanId, Arc<PlanRecord>>,
    pub(crate) idempotency: BTreeMap<(String, String, String), IdempotencyRecord>,
    pub(crate) policy: PolicySettings,
    pub(crate) verdicts: BTreeMap<JobId, JobVerdict>,
    pub(crate) last_event_seq: u64,
    pub(crate) illegal_transitions: u64,
    pub(crate) rounds: Rounds,
    /// When each command whose effect is not seen yet was last sent.
    pub(crate) sent: BTreeMap<CommandKey, Timestamp>,
    pub(crate) draft: Draft,
}

/// Names a command up to repetition: node, job, generation, kind (`Configure` by revision).
pub(crate) type CommandKey = (NodeId, JobId, Generation, &'static str, u64);

/// A job with what has been seen of it.
#[derive(Clone, Debug)]
pub(crate) struct JobEntry {
    pub job: Arc<Job>,
    pub model: Option<Arc<JobModel>>,
    pub live: LiveNumbers,
    /// Configuration of the newest step report of this generation.
    pub reported: Option<Configuration>,
    /// Measured downtime of a restart.
    pub restart: Option<Seconds>,
    /// Set while a reconfiguration is under way, to measure its downtime.
    pub stopped_at: Option<Timestamp>,
    /// Reconfigurations of the last hour.
    pub resizes: Vec<Timestamp>,
    /// A user's request to save now, until a newer checkpoint is committed.
    pub save_wanted: Option<Timestamp>,
    /// Grace time a user gave with a cancellation.
    pub grace: Option<Seconds>,
    pub model_saved_at: Option<Timestamp>,
    /// Noise scale in the newest round's input.
    pub planned_noise: Option<f64>,
    /// Step time expected of its configuration at that round.
    pub planned_step_time: Option<f64>,
    /// Whether the newest round's input named it.
    pub planned: bool,
    /// When all nodes of the present generation were first seen prepared.
    pub prepared_at: Option<Timestamp>,
    /// Rendezvous port of the generation that is starting.
    pub rendezvous: Option<(Generation, u16)>,
    /// Learning-rate factor sent with the newest revision.
    pub configured_lr: Option<(u64, f64)>,
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
            restart: None,
            stopped_at: None,
            resizes: Vec::new(),
            save_wanted: None,
            grace: None,
            model_saved_at: None,
            planned_noise: None,
            planned_step_time: None,
            planned: false,
            prepared_at: None,
            rendezvous: None,
            configured_lr: None,
        }
    }
}

/// A node with what has been seen of it.
#[derive(Clone, Debug)]
pub(crate) struct NodeEntry {
    pub node: Arc<Node>,
    pub heard_at: Option<Timestamp>,
    pub seen: Seen,
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
    pub gpus: BTreeSet<headway_types::GpuUuid>,
}

impl NodeEntry {
    pub fn connected(&self) -> bool {
        matches!(self.seen, Seen::Known { connected: true, .. })
    }

    pub fn group(&self, job: JobId, generation: Generation) -> Option<&SeenGroup> {
        match &self.seen {
            Seen::Unknown => None,
            Seen::Known { groups, .. } => groups.get(&(job, generation)),
        }
    }
}

impl Engine {
    /// Takes over from the store. Nothing is known of the nodes until they register, and none is declared
    /// unreachable before one full lease has passed.
    #[must_use]
    pub fn restore(config: EngineConfig, term: Term, seed: u64, now: Timestamp, snapshot: Snapshot) -> Engine {
        let mut models = snapshot.models;
        let jobs = snapshot.jobs.into_iter().map(|job| {
            let model = models.remove(&job.id).or_else(|| job.spec.training().cloned().map(JobModel::new));
            (job.id, JobEntry::new(Arc::new(job), model.map(Arc::new)))
        });
        let nodes = snapshot
            .nodes
            .into_iter()
            .map(|node| (node.inventory.node, NodeEntry { node: Arc::new(node), heard_at: None, seen: Seen::Unknown }));
        let allocations = snapshot.allocations.into_iter().map(|one| ((one.job, one.generation), Arc::new(one)));
        let proposals = snapshot.proposals.into_iter().map(|one| (one.plan.id, Arc::new(one)));
        let idempotency = snapshot.idempotency.into_iter().map(|one| (scope(&one.key), one));
        let mut engine = Engine {
            config,
            term,
            ids: IdSource::seeded(seed),
            now,
            restored_at: now,
            listening_since: now,
            asked_wake: None,
            jobs: jobs.collect(),
            nodes: nodes.collect(),
            allocations: allocations.collect(),
            target: snapshot.target.map(Arc::new),
            proposals: proposals.collect(),
            idempotency: idempotency.collect(),
            policy: snapshot.policy,
            verdicts: BTreeMap::new(),
            last_event_seq: snapshot.last_event_seq,
            illegal_transitions: 0,
            rounds: Rounds::new(),
            sent: BTreeMap::new(),
            draft: Draft::default(),
        };
        engine.await_registrations();
        engine
    }

    /// Digests one batch.
    pub fn handle(&mut self, now: Timestamp, events: Vec<Event>) -> Outcome {
        self.now = self.now.max(now);
        if let Some(asked) = self.asked_wake
            && self.now.since(asked).0 > self.config.lease.0 / 3.0
        {
            // Paused, or busy, or the clock jumped: the silence since then was ours, not the nodes'.
            self.listening_since = self.now;
        }
        for event in events {
            match event {
                Event::Request { request, actor, body } => {
                    let reply = self.answer(&actor, body);
                    self.draft.replies.push((request, reply));
                }
                Event::Agent { node, session, report } => self.hear(node, session, report),
                Event::AgentDisconnected { node, session } => self.disconnected(node, session),
                Event::PlanReady { plan } => self.plan_ready(*plan),
                Event::PlanFailed { plan, message } => self.plan_failed(plan, &message),
                Event::Tick => {}
            }
        }
        self.check_leases();
        self.reconcile();
        self.forget_old_keys();
        let plan_request = self.consider_round();
        let wake_at = self.next_wake();
        self.asked_wake = wake_at;
        self.finish(plan_request, wake_at)
    }

    /// Transitions refused so far; each was also recorded as an event.
    #[must_use]
    pub fn illegal_transitions(&self) -> u64 {
        self.illegal_transitions
    }

    /// The leadership under which this engine decides.
    #[must_use]
    pub fn term(&self) -> Term {
        self.term
    }

    /// Runs the transition table and stores its result; false where the table refuses.
    pub(crate) fn transition(&mut self, id: JobId, event: JobEvent) -> bool {
        let Some(entry) = self.jobs.get(&id) else { return false };
        match entry.job.state.clone().apply(id, self.now, event) {
            Ok(state) => {
                // The live numbers go with the job; what it reached last stays in its row.
                let reached = state.is_final().then_some(entry.live.loss).flatten();
                self.edit_job(id, |job| {
                    job.state = state;
                    job.loss = reached.or(job.loss);
                });
                true
            }
            Err(illegal) => {
                self.illegal_transitions += 1;
                self.note(Note::new("engine.illegal_transition", illegal.to_string()).job(id));
                false
            }
        }
    }

    /// Changes a job's row; the version rises once per batch, in `finish`.
    pub(crate) fn edit_job(&mut self, id: JobId, change: impl FnOnce(&mut Job)) {
        if let Some(entry) = self.jobs.get_mut(&id) {
            change(Arc::make_mut(&mut entry.job));
            self.draft.jobs.insert(id);
        }
    }

    pub(crate) fn edit_node(&mut self, id: NodeId, change: impl FnOnce(&mut Node)) {
        if let Some(entry) = self.nodes.get_mut(&id) {
            change(Arc::make_mut(&mut entry.node));
            self.draft.nodes.insert(id);
        }
    }

    pub(crate) fn edit_allocation(&mut self, key: (JobId, Generation), change: impl FnOnce(&mut Allocation)) {
        if let Some(allocation) = self.allocations.get_mut(&key) {
            change(Arc::make_mut(allocation));
            self.draft.allocations.insert(key);
        }
    }

    /// Appends to the event log.
    pub(crate) fn note(&mut self, note: Note) {
        self.last_event_seq += 1;
        self.draft.events.push(EventRecord {
            seq: self.last_event_seq,
            at: self.now,
            actor: note.actor,
            verb: note.verb.into(),
            job: note.job,
            node: note.node,
            plan: note.plan,
            message: note.message,
            detail: note.detail,
        });
    }

    /// A job's name for sentences, or its id where it is gone.
    pub(crate) fn job_name(&self, id: JobId) -> String {
        self.jobs.get(&id).map_or_else(|| id.to_string(), |entry| entry.job.spec.name.clone())
    }

    pub(crate) fn node_name(&self, id: NodeId) -> String {
        self.nodes.get(&id).map_or_else(|| id.to_string(), |entry| entry.node.inventory.name.clone())
    }

    /// Gathers every touched row once, then lets go of what is over.
    fn finish(&mut self, plan_request: Option<Box<headway_planner::PlanInput>>, wake_at: Option<Timestamp>) -> Outcome {
        let draft = std::mem::take(&mut self.draft);
        for id in &draft.jobs {
            if let Some(entry) = self.jobs.get_mut(id) {
                Arc::make_mut(&mut entry.job).version += 1;
            }
        }
        for id in &draft.nodes {
            if let Some(entry) = self.nodes.get_mut(id) {
                Arc::make_mut(&mut entry.node).version += 1;
            }
        }
        // Parents before children, so that the store may hold references between rows.
        let mut changes = Vec::new();
        changes.extend(draft.nodes.iter().filter_map(|id| Some(Change::Node(self.nodes.get(id)?.node.clone()))));
        changes.extend(draft.jobs.iter().filter_map(|id| Some(Change::Job(self.jobs.get(id)?.job.clone()))));
        changes.extend(draft.plans.values().cloned().map(Change::Plan));
        changes.extend(draft.target.map(Change::Target));
        let allocations = draft.allocations.iter();
        changes.extend(allocations.filter_map(|key| Some(Change::Allocation(self.allocations.get(key)?.clone()))));
        changes.extend(draft.checkpoints.into_values().flatten().map(Change::Checkpoint));
        changes.extend(draft.policy.then(|| Change::Policy(self.policy.clone())));
        changes.extend(draft.idempotency.into_iter().map(Change::Idempotency));
        changes.extend(draft.events.into_iter().map(Change::Event));
        let replies = draft.replies.into_iter().map(|(id, reply)| (id, self.refreshed(reply))).collect();
        self.drop_ended();
        Outcome {
            changes,
            replies,
            commands: draft.commands,
            refused: Vec::new(),
            plan_request,
            wake_at,
            observations: draft.observations,
        }
    }

    /// A reply made early in a batch shows its subject as the whole batch left it.
    fn refreshed(&self, reply: Reply) -> Reply {
        let newest = |job: Arc<Job>| self.jobs.get(&job.id).map_or(job, |entry| entry.job.clone());
        match reply {
            Reply::Submitted { jobs, replayed } => {
                Reply::Submitted { jobs: jobs.into_iter().map(newest).collect(), replayed }
            }
            Reply::Job(job) => Reply::Job(newest(job)),
            Reply::Node(node) => {
                let id = node.inventory.node;
                Reply::Node(self.nodes.get(&id).map_or(node, |entry| entry.node.clone()))
            }
            other => other,
        }
    }

    fn drop_ended(&mut self) {
        let named: BTreeSet<JobId> = self.idempotency.values().flat_map(|record| record.jobs.clone()).collect();
        self.jobs.retain(|id, entry| !entry.job.state.is_final() || named.contains(id));
        let jobs = &self.jobs;
        self.allocations.retain(|(job, generation), allocation| {
            let newest =
                jobs.get(job).is_some_and(|entry| !entry.job.state.is_final() && entry.job.generation == *generation);
            newest || allocation.holds()
        });
        let allocations = &self.allocations;
        self.verdicts.retain(|id, _| jobs.get(id).is_some_and(|entry| !entry.job.state.is_final()));
        let horizon = self.now - self.config.command_repeat * 10.0;
        self.sent
            .retain(|(_, job, generation, ..), at| allocations.contains_key(&(*job, *generation)) || *at > horizon);
    }
}

/// What an idempotency key is unique in.
pub(crate) fn scope(key: &crate::event::IdempotencyKey) -> (String, String, String) {
    (key.principal.clone(), key.route.clone(), key.key.clone())
}
