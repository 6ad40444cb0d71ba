//! A cluster driven by hand: the test says what nodes report, the harness keeps time, plans and commits.

mod fixtures;
mod follow;
mod unplanned;

use std::collections::BTreeMap;
use std::sync::Arc;

use headway_engine::event::{Actor, Event, IdempotencyKey, Known, Request, RequestId, SessionId};
use headway_engine::record::{
    Allocation, Array, Awaited, IdempotencyRecord, Job, JobState, Node, PlanRecord, PolicySettings, Project, Realised,
    Reservation,
};
use headway_engine::{Change, Engine, EngineConfig, Observation, Outcome, Reply, Snapshot};
use headway_goodput::{JobModel, Lessons};
use headway_planner::CurveCache;
use headway_types::command::GroupStatus;
use headway_types::{
    AgentCommand, ArrayId, CheckpointRef, Generation, GroupOutcome, GroupPhase, JobId, JobSpec, NodeId, NodeInventory,
    NodeReport, PlanId, ReservationId, Seconds, Sequences, StepReport, StopMode, Term, Timestamp,
};

pub use fixtures::{inventory, node_id, rigid, spec, training};
pub use follow::{elastic, follow, gpus, of, resize};
pub use unplanned::answer;

pub struct Cluster {
    pub engine: Engine,
    config: EngineConfig,
    pub now: Timestamp,
    pub commands: Vec<(NodeId, AgentCommand)>,
    pub events: Vec<String>,
    pub messages: Vec<String>,
    pub jobs: BTreeMap<JobId, Job>,
    pub allocations: BTreeMap<(JobId, Generation), Allocation>,
    nodes: BTreeMap<NodeId, Node>,
    pub plans: BTreeMap<PlanId, PlanRecord>,
    pub realised: Vec<Realised>,
    target: Option<PlanId>,
    idempotency: Vec<IdempotencyRecord>,
    policy: PolicySettings,
    pub projects: BTreeMap<String, Project>,
    pub reservations: BTreeMap<ReservationId, Reservation>,
    pub arrays: BTreeMap<ArrayId, Array>,
    curves: CurveCache,
    /// What was learnt of jobs, as it was last handed over to be kept.
    kept_models: BTreeMap<JobId, JobModel>,
    kept_lessons: Lessons,
    term: u64,
    /// Of when the backup is that the store was restored from.
    pub restored: Option<Timestamp>,
    seq: u64,
    session: u64,
    sessions: BTreeMap<NodeId, SessionId>,
    /// Sessions the engine ended, with the reason.
    pub refused: Vec<String>,
    /// When the engine last asked to be woken.
    pub wake_at: Option<Timestamp>,
}

impl Cluster {
    /// Nodes of this many GPUs each, all registered.
    pub fn new(nodes: &[u32]) -> Self {
        Self::of(EngineConfig::default(), nodes)
    }

    /// Likewise under limits of their own.
    pub fn of(config: EngineConfig, nodes: &[u32]) -> Self {
        let now = Timestamp(1_700_000_000_000_000);
        let engine = Engine::restore(config.clone(), Term(1), 7, now, Snapshot::default());
        let mut cluster = Cluster {
            engine,
            config,
            now,
            commands: Vec::new(),
            events: Vec::new(),
            messages: Vec::new(),
            jobs: BTreeMap::new(),
            allocations: BTreeMap::new(),
            nodes: BTreeMap::new(),
            plans: BTreeMap::new(),
            realised: Vec::new(),
            target: None,
            idempotency: Vec::new(),
            policy: PolicySettings::default(),
            projects: BTreeMap::new(),
            reservations: BTreeMap::new(),
            arrays: BTreeMap::new(),
            curves: CurveCache::default(),
            kept_models: BTreeMap::new(),
            kept_lessons: Lessons::default(),
            term: 1,
            restored: None,
            seq: 0,
            session: 0,
            sessions: BTreeMap::new(),
            refused: Vec::new(),
            wake_at: None,
        };
        for (index, gpus) in nodes.iter().enumerate() {
            cluster.register(inventory(index as u64, *gpus), Vec::new());
        }
        cluster
    }

    /// One batch: commits, plans at once if asked, and goes on until no plan is wanted.
    pub fn feed(&mut self, event: Event) -> Vec<Reply> {
        self.feed_all(vec![event])
    }

    /// Likewise of several events that came together.
    pub fn feed_all(&mut self, events: Vec<Event>) -> Vec<Reply> {
        let mut replies = Vec::new();
        let mut next = events;
        while !next.is_empty() {
            let outcome = self.engine.handle(self.now, std::mem::take(&mut next));
            self.engine.check_invariants().unwrap();
            assert_eq!((self.engine.illegal_transitions(), self.engine.impossible_states()), (0, 0));
            if let Some(round) = &outcome.plan_request {
                let input = round.input();
                let plan = self.plan(&input);
                next.push(answer(&input, plan));
            }
            replies.extend(self.commit(outcome));
        }
        replies
    }

    fn commit(&mut self, outcome: Outcome) -> Vec<Reply> {
        for change in outcome.changes {
            match change {
                Change::Job(job) => drop(self.jobs.insert(job.id, Job::clone(&job))),
                Change::Node(node) => drop(self.nodes.insert(node.inventory.node, Node::clone(&node))),
                Change::NodeGone(node) => drop(self.nodes.remove(&node)),
                Change::Allocation(one) => {
                    self.allocations.insert((one.job, one.generation), Allocation::clone(&one));
                }
                Change::Plan(plan) => drop(self.plans.insert(plan.plan.id, PlanRecord::clone(&plan))),
                Change::Target(plan) => self.target = Some(plan),
                Change::Term(term) => self.term = self.term.max(term.0),
                Change::Returned => self.restored = None,
                Change::Policy(policy) => self.policy = policy,
                Change::Idempotency(record) => self.idempotency.push(record),
                Change::Project(project) => drop(self.projects.insert(project.name.clone(), Project::clone(&project))),
                Change::ProjectGone(name) => drop(self.projects.remove(&name)),
                Change::Array(array) => drop(self.arrays.insert(array.id, Array::clone(&array))),
                Change::Reservation(one) => drop(self.reservations.insert(one.id, Reservation::clone(&one))),
                Change::ReservationGone(id) => drop(self.reservations.remove(&id)),
                Change::Realised(one) => self.realised.push(*one),
                Change::Checkpoint(_)
                | Change::Transition(_)
                | Change::Deed(_)
                | Change::Notice(_)
                | Change::NoticeGivenUp { .. } => {}
                Change::Event(event) => {
                    self.seq = event.seq;
                    self.events.push(event.verb);
                    self.messages.push(event.message);
                }
            }
        }
        for observation in outcome.observations {
            match observation {
                Observation::Model { job, model } => drop(self.kept_models.insert(job, JobModel::clone(&model))),
                Observation::Lessons { lessons } => self.kept_lessons = Lessons::clone(&lessons),
                Observation::Steps { .. } => {}
            }
        }
        self.wake_at = outcome.wake_at;
        self.commands.extend(outcome.commands);
        self.refused.extend(outcome.refused.into_iter().map(|(_, _, reason)| reason));
        outcome.replies.into_iter().map(|(_, reply)| reply).collect()
    }

    /// The scheduler dies and another takes over from what was committed; no observation was written in time.
    pub fn restart(&mut self) {
        self.restart_with(BTreeMap::new(), Lessons::default());
    }

    /// The same where observations had been written.
    pub fn restart_knowing(&mut self) {
        self.restart_with(self.kept_models.clone(), self.kept_lessons.clone());
    }

    fn restart_with(&mut self, models: BTreeMap<JobId, JobModel>, lessons: Lessons) {
        self.term += 1;
        let snapshot = Snapshot {
            jobs: self.jobs.values().filter(|job| !job.state.is_final()).cloned().collect(),
            nodes: self.nodes.values().cloned().collect(),
            allocations: self.allocations.values().filter(|one| self.is_needed(one)).cloned().collect(),
            target: self.target.and_then(|id| self.plans.get(&id).cloned()),
            proposals: Vec::new(),
            idempotency: self.idempotency.clone(),
            policy: self.policy.clone(),
            projects: self.projects.values().cloned().collect(),
            reservations: self.reservations.values().cloned().collect(),
            arrays: self.arrays.values().cloned().collect(),
            models,
            lessons,
            last_event_seq: self.seq,
            restored: self.restored,
        };
        self.engine = Engine::restore(self.config.clone(), Term(self.term), 7 + self.term, self.now, snapshot);
        self.commands.clear();
        self.sessions.clear();
        self.feed(Event::Tick);
    }

    fn is_needed(&self, allocation: &Allocation) -> bool {
        let live = |job: &Job| !job.state.is_final() && job.generation == allocation.generation;
        allocation.holds() || self.jobs.get(&allocation.job).is_some_and(live)
    }

    /// Time passes for a scheduler that is awake.
    pub fn pass(&mut self, seconds: f64) {
        self.pass_beating(seconds, &[]);
    }

    /// Time passes in steps while these nodes go on beating.
    pub fn pass_beating(&mut self, seconds: f64, nodes: &[u64]) {
        let mut left = seconds;
        while left > 0.0 {
            self.now = self.now + Seconds(left.min(5.0));
            left -= 5.0;
            for node in nodes {
                self.report(*node, NodeReport::Heartbeat);
            }
            self.feed(Event::Tick);
        }
    }

    pub fn request(&mut self, body: Request) -> Reply {
        self.request_of("ada", body)
    }

    fn request_of(&mut self, user: &str, body: Request) -> Reply {
        let event = Event::Request { request: RequestId(1), actor: Actor::User(user.into()), body };
        self.feed(event).remove(0)
    }

    pub fn submit(&mut self, spec: JobSpec) -> JobId {
        self.submit_as("ada", spec)
    }

    pub fn submit_as(&mut self, user: &str, spec: JobSpec) -> JobId {
        let submit = Request::Submit { jobs: vec![spec], idempotency: None, known: Known::default() };
        let reply = self.request_of(user, submit);
        self.pass(1.0);
        match reply {
            Reply::Submitted { jobs, .. } => jobs[0].id,
            other => panic!("{other:?}"),
        }
    }

    /// What a shell would have read of all jobs there are.
    pub fn known(&self) -> Known {
        let jobs = self.jobs.iter().map(|(id, job)| (*id, Arc::new(job.clone()))).collect();
        let named =
            self.jobs.values().map(|job| ((job.spec.project.clone(), job.spec.name.clone()), Awaited::Job(job.id)));
        let families =
            self.arrays.values().map(|array| ((array.project.clone(), array.name.clone()), Awaited::Array(array.id)));
        let arrays = self.arrays.values().map(|array| (array.id, Arc::new(array.clone()))).collect();
        Known { jobs, arrays, names: named.chain(families).collect() }
    }

    pub fn submit_keyed(&mut self, spec: JobSpec, hash: &str) -> Reply {
        let key = IdempotencyKey {
            principal: "ada".into(),
            route: "POST /jobs".into(),
            key: "k".into(),
            request_hash: hash.into(),
        };
        self.request(Request::Submit { jobs: vec![spec], idempotency: Some(key), known: Known::default() })
    }

    pub fn register(&mut self, inventory: NodeInventory, groups: Vec<GroupStatus>) {
        self.session += 1;
        let (node, session) = (inventory.node, SessionId(self.session));
        self.sessions.insert(node, session);
        let report = NodeReport::Registered { inventory: Box::new(inventory), groups };
        self.feed(Event::Agent { node, session, report });
    }

    /// A registration under a session the harness forgets again: that of a machine nobody drives any further.
    pub fn register_anew(&mut self, inventory: NodeInventory) {
        let former = self.sessions.get(&inventory.node).copied();
        let node = inventory.node;
        self.register(inventory, Vec::new());
        if let Some(former) = former {
            self.sessions.insert(node, former);
        }
    }

    /// The node's stream ends.
    pub fn disconnect(&mut self, node: u64) {
        self.feed(self.gone(node));
    }

    pub fn gone(&self, node: u64) -> Event {
        let node = node_id(node);
        Event::AgentDisconnected { node, session: self.sessions[&node] }
    }

    pub fn event(&self, node: u64, report: NodeReport) -> Event {
        let node = node_id(node);
        Event::Agent { node, session: self.sessions[&node], report }
    }

    pub fn report(&mut self, node: u64, report: NodeReport) {
        let event = self.event(node, report);
        self.feed(event);
    }

    pub fn node_count(&self) -> u64 {
        self.nodes.len() as u64
    }

    pub fn node(&self, node: u64) -> &Node {
        &self.nodes[&node_id(node)]
    }

    /// The worker says what it can change.
    pub fn declare(&mut self, job: JobId) {
        let (node, generation) = (self.nodes_of(job)[0], self.jobs[&job].generation);
        let capabilities = training(true).reconfigure;
        self.report(node, NodeReport::Declared { job, generation, capabilities });
    }

    pub fn rank_times(&mut self, node: u64, job: JobId, busy: &[(u32, f64)]) {
        let generation = self.jobs[&job].generation;
        let busy = busy.iter().map(|(rank, seconds)| (*rank, Seconds(*seconds))).collect();
        self.report(node, NodeReport::RankTimes { job, generation, busy });
    }

    pub fn state(&self, job: JobId) -> &JobState {
        &self.jobs[&job].state
    }

    pub fn allocation(&self, job: JobId) -> &Allocation {
        &self.allocations[&(job, self.jobs[&job].generation)]
    }

    pub fn nodes_of(&self, job: JobId) -> Vec<u64> {
        let slices = self.allocation(job).placement.slices();
        slices.iter().map(|slice| (0..).find(|index| node_id(*index) == slice.node).unwrap()).collect()
    }

    pub fn status(&self, job: JobId, generation: Generation, phase: GroupPhase) -> GroupStatus {
        let revision = self.commands.iter().filter(|(_, command)| command.subject() == (job, generation));
        let revision = revision.filter_map(|(_, command)| match command {
            AgentCommand::Configure { revision, .. } => Some(*revision),
            _ => None,
        });
        GroupStatus { job, generation, gpus: Vec::new(), phase, revision: revision.max().unwrap_or(0), notice: 0 }
    }

    pub fn group(&mut self, node: u64, job: JobId, phase: GroupPhase) {
        let status = self.status(job, self.jobs[&job].generation, phase);
        self.report(node, NodeReport::Group { status });
    }

    /// Takes a granted job through both phases on all its nodes.
    pub fn start(&mut self, job: JobId) {
        assert!(matches!(self.state(job), JobState::Starting { .. }), "{:?}", self.state(job));
        for (rank, node) in self.nodes_of(job).into_iter().enumerate() {
            let rendezvous_port = (rank == 0).then_some(29_500);
            self.group(node, job, GroupPhase::Prepared { rendezvous_port });
        }
        for node in self.nodes_of(job) {
            self.group(node, job, GroupPhase::Running);
        }
        assert!(matches!(self.state(job), JobState::Running { .. }));
    }

    /// Every node of the job reports this end.
    pub fn end(&mut self, job: JobId, outcome: &GroupOutcome) {
        let generation = self.jobs[&job].generation;
        for node in self.nodes_of(job) {
            let status = self.status(job, generation, GroupPhase::Ended { outcome: outcome.clone() });
            self.report(node, NodeReport::Group { status });
        }
    }

    pub fn steps(&mut self, job: JobId, samples: u64, noise: Option<headway_types::NoiseSample>) {
        let report = StepReport { noise, ..self.report_of(job, samples) };
        let node = self.nodes_of(job)[0];
        self.report(node, NodeReport::Steps { report: Box::new(report) });
    }

    /// A step's report as the job's present configuration gives it.
    pub fn report_of(&self, job: JobId, samples: u64) -> StepReport {
        let allocation = self.allocation(job);
        let configuration = allocation.configuration.unwrap();
        StepReport {
            job,
            generation: allocation.generation,
            step: samples / configuration.global_batch.0,
            steps: 1,
            samples_seen: Sequences(samples),
            tokens: Sequences(configuration.global_batch.0).tokens(256),
            duration: Seconds(1.0),
            configuration,
            loss: Some(2.0),
            noise: None,
            preconditioned: None,
            memory_peak: None,
        }
    }

    pub fn checkpoint(&mut self, job: JobId, generation: Generation, samples: u64) {
        let checkpoint = CheckpointRef {
            generation,
            path: format!("/c/{generation}/{samples}"),
            step: samples / 16,
            samples_seen: Sequences(samples),
            manifest_sha256: "00".into(),
        };
        let node = self.nodes_of(job)[0];
        self.report(node, NodeReport::CheckpointWritten { job, checkpoint, duration: Seconds(0.1) });
    }

    pub fn stops(&self, job: JobId) -> Vec<StopMode> {
        let modes = self.commands.iter().filter_map(|(_, command)| match command {
            AgentCommand::Stop { job: one, mode, .. } if *one == job => Some(*mode),
            _ => None,
        });
        modes.collect()
    }

    pub fn count(&self, verb: &str) -> usize {
        self.events.iter().filter(|one| *one == verb).count()
    }
}
