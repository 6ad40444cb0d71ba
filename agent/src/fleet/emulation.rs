//! The loop of a fleet: inputs of all sessions and moments of the one queue, one at a time. It is to its nodes what
//! the launcher and the workers are to a real one.

use std::collections::BTreeMap;
use std::time::Duration;

use headway_api::agent::{AgentToScheduler, LogChunk, LogRequest};
use headway_emulation::{MishapRates, Mishaps, Nature, Progress, Random, Run, RunEvent, Seed, Setting};
use headway_node::{NodeAction, NodeEvent};
use headway_types::{
    Fault, Generation, LaunchOrder, NodeClass, NodeCount, NodeId, NodeSlice, Seconds, Term, Timestamp,
};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::FleetConfig;
use super::clock::Clock;
use super::gang::{Gang, Part};
use super::node::{Digested, Node};
use super::offer;
use super::queue::{Due, Key, Queue};
use super::session::Input;
use super::workload;

/// Checks of a node before a launch, and the start of its processes.
const PREPARE: Seconds = Seconds(0.5);
const SPAWN: Seconds = Seconds(1.0);
/// Shortest sleep of the loop: moments closer together are handled together, each at its own time.
const GRAIN: Duration = Duration::from_millis(5);
/// No process binds it.
const RENDEZVOUS_PORT: u16 = 29_500;
/// Inputs taken at once.
const BATCH: usize = 256;

pub(super) struct Emulation {
    pub(super) nodes: Vec<Node>,
    pub(super) gangs: BTreeMap<Key, Gang>,
    pub(super) queue: Queue,
    pub(super) mishaps: Mishaps,
    pub(super) random: Random,
    numbers: BTreeMap<NodeId, usize>,
    pub(super) clock: Clock,
    seed: Seed,
    failures: f64,
}

impl Emulation {
    pub(super) fn new(config: &FleetConfig) -> Self {
        let boot = offer::fresh_boot();
        let nodes: Vec<Node> = config
            .groups
            .iter()
            .flat_map(|group| {
                (0..group.nodes.0).map(|number| {
                    offer::inventory(&config.name, group, number, &config.fabric, &config.labels, boot.clone())
                })
            })
            .map(Node::new)
            .collect();
        let numbers = nodes.iter().enumerate().map(|(number, node)| (node.inventory().node, number)).collect();
        let seed = Seed::of(&config.name);
        let mut emulation = Self {
            mishaps: Mishaps::new(seed, MishapRates::default(), config.failures, nodes.len()),
            random: Random::new(seed),
            nodes,
            gangs: BTreeMap::new(),
            queue: Queue::default(),
            numbers,
            clock: Clock::start(),
            seed,
            failures: config.failures,
        };
        emulation.expect_mishap(emulation.clock.now());
        emulation
    }

    pub(super) fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Runs until every session is gone.
    pub(super) async fn run(mut self, mut inputs: mpsc::Receiver<Input>) {
        let mut batch = Vec::with_capacity(BATCH);
        loop {
            self.catch_up();
            let wake = self.queue.next().map(|at| self.clock.instant(at).max(Instant::now() + GRAIN));
            tokio::select! {
                taken = inputs.recv_many(&mut batch, BATCH) => if taken == 0 { return },
                () = sleep_until(wake) => {}
            }
            // What was due before an input came has happened before it.
            self.catch_up();
            batch.drain(..).for_each(|input| self.input(input));
        }
    }

    pub(super) fn catch_up(&mut self) {
        let now = self.clock.now();
        while let Some((at, due)) = self.queue.pop(now) {
            self.due(at, due);
        }
    }

    pub(super) fn input(&mut self, input: Input) {
        let now = self.clock.now();
        match input {
            // An asker that has gone away needs no answer.
            Input::Register { node, reply } => drop(reply.send(self.nodes[node].registration())),
            Input::Opened { node, term, speed, reply } => drop(reply.send(self.opened(now, node, term, speed))),
            Input::Event { node, event } => {
                let subject = match &event {
                    NodeEvent::Command { command, .. } => Some(command.subject()),
                    _ => None,
                };
                self.node_event(now, node, event);
                if let Some(key) = subject {
                    self.drop_if_forgotten(node, key);
                }
            }
            Input::Log { node, request, outgoing } => {
                let chunk = AgentToScheduler::Log(self.read_log(node, &request));
                // Whoever asked through a full stream asks again.
                let _full = outgoing.try_send((&chunk).into());
            }
        }
    }

    fn opened(&mut self, now: Timestamp, node: usize, term: Term, speed: f64) -> bool {
        if speed != self.clock.speed() {
            tracing::info!(speed, "the scheduler tells the speed of time");
            self.clock.set_speed(speed);
            let every = self.report_every();
            self.gangs.values_mut().for_each(|gang| gang.run.report_every = every);
        }
        let accepted = self.nodes[node].is_up() && self.nodes[node].opened(term);
        self.node_event(now, node, NodeEvent::SessionOpened { term });
        accepted
    }

    /// A pause in the fleet's time that is no shorter than another in wall time.
    pub(super) fn pause(&self, virtually: Seconds, wall: Duration) -> Seconds {
        Seconds(virtually.0.max(wall.as_secs_f64() * self.clock.speed()))
    }

    fn due(&mut self, at: Timestamp, due: Due) {
        match due {
            // A timer that was set anew meanwhile has an entry of its own.
            Due::Tick { node } => {
                if self.nodes[node].is_timer(at) {
                    self.node_event(at, node, NodeEvent::Tick);
                }
            }
            Due::Prepared { node, key } => self.prepared(at, node, key),
            Due::Spawned { node, key } => self.spawned(at, node, key),
            Due::Run { key } => {
                if self.gangs.get(&key).is_some_and(|gang| gang.due_at == Some(at)) {
                    self.run_event(at, key, RunEvent::Tick);
                }
            }
            Due::Exited { node, key, rank, exit, fault } => self.exited(at, node, key, rank, exit, fault),
            Due::RankTimes { key } => self.rank_times(at, key),
            Due::Mishap { node, mishap } => {
                self.happen(at, node, mishap);
                self.expect_mishap(at);
            }
            Due::Repaired { node, gpu } => self.repaired(node, gpu),
            Due::EpilogDone { node, key: (job, generation) } => {
                self.node_event(at, node, NodeEvent::EpilogDone { job, generation });
            }
            Due::BackUp { node } => self.back_up(at, node),
        }
    }

    /// One event into a node's ledger, and what follows from it.
    pub(super) fn node_event(&mut self, now: Timestamp, node: usize, event: NodeEvent) {
        let Digested { actions, tick_at } = self.nodes[node].digest(now, event);
        if let Some(at) = tick_at {
            self.queue.push(at, Due::Tick { node });
        }
        actions.into_iter().for_each(|action| self.act(now, node, action));
    }

    /// Nothing here answers the ledger at once: every answer is a later moment.
    fn act(&mut self, now: Timestamp, node: usize, action: NodeAction) {
        match action {
            NodeAction::Prepare { order } => {
                self.queue.push(now + PREPARE, Due::Prepared { node, key: (order.job, order.generation) });
            }
            NodeAction::Spawn { order, .. } => {
                self.queue.push(now + SPAWN, Due::Spawned { node, key: (order.job, order.generation) });
            }
            NodeAction::Send { job, generation, order } => self.send(now, (job, generation), order),
            NodeAction::Signal { job, generation, signal } => self.signal(now, node, (job, generation), signal),
            // Emulated nodes have no shell.
            NodeAction::Epilog { order, .. } => {
                self.queue.push(now, Due::EpilogDone { node, key: (order.job, order.generation) });
            }
            // Nor have they files.
            NodeAction::Withdraw { .. } | NodeAction::RemoveEmptyDirectories { .. } | NodeAction::Prune { .. } => {}
            // A ledger outlives its process only on a new boot, on which nothing is left to adopt or to sweep.
            NodeAction::Adopt { .. } | NodeAction::Sweep { .. } | NodeAction::Close { .. } => {}
        }
    }

    fn prepared(&mut self, now: Timestamp, node: usize, (job, generation): Key) {
        let Some(order) = self.nodes[node].order((job, generation)) else { return };
        let first = order.placement.first_node() == self.nodes[node].inventory().node;
        let checked = self.nodes[node].check(&order).and_then(|()| self.gang_of(order));
        let result = checked.map(|gang| {
            gang.parts.insert(node, Part::Prepared);
            first.then_some(RENDEZVOUS_PORT)
        });
        self.node_event(now, node, NodeEvent::PrepareDone { job, generation, result });
    }

    fn spawned(&mut self, now: Timestamp, node: usize, key: Key) {
        // A node that has rebooted since has forgotten the launch.
        if !self.nodes[node].is_launching(key) {
            return;
        }
        let Some(gang) = self.gangs.get_mut(&key) else { return };
        gang.parts.insert(node, Part::Up);
        let (whole, processes) = (gang.is_whole(), self.nodes[node].processes(now, &gang.order));
        let (job, generation) = key;
        self.node_event(now, node, NodeEvent::Spawned { job, generation, processes });
        if whole {
            self.run_event(now, key, RunEvent::Begin);
            self.rank_times(now, key);
        }
    }

    /// The gang an order belongs to, made at its first node's checks.
    fn gang_of(&mut self, order: LaunchOrder) -> Result<&mut Gang, Fault> {
        let key = (order.job, order.generation);
        if !self.gangs.contains_key(&key) {
            let number = |slice: &NodeSlice| {
                let stranger = || Fault::of_infrastructure(format!("node {} is not of this fleet", slice.node));
                self.numbers.get(&slice.node).copied().ok_or_else(stranger)
            };
            let nodes = order.placement.slices().iter().map(number).collect::<Result<Vec<usize>, Fault>>()?;
            let workload = workload::read(self.seed, &order).map_err(Fault::of_job)?;
            let classes: Vec<NodeClass> = nodes.iter().map(|node| self.nodes[*node].inventory().class()).collect();
            let unlike = || Fault::of_infrastructure("its nodes are of kinds that cannot be compared");
            let each = classes.iter().map(|class| (class, NodeCount(1)));
            let class = headway_emulation::of_gang(each).ok_or_else(unlike)?;
            let setting = Setting {
                seed: self.seed,
                job: self.seed.about(order.job.0.as_bytes()),
                nature: Nature { failures: self.failures, ..Nature::GENTLE },
                order: &order,
                class: &class,
                workload,
                progress: Progress::default(),
            };
            let mut run = Run::new(&setting).map_err(|error| Fault::of_job(error.to_string()))?;
            run.report_every = self.report_every();
            self.gangs.insert(key, Gang::new(run, order, nodes));
        }
        self.gangs.get_mut(&key).ok_or_else(|| Fault::of_infrastructure("the gang is gone"))
    }

    /// A gang whose last node has forgotten it is over for good.
    fn drop_if_forgotten(&mut self, node: usize, key: Key) {
        if self.nodes[node].order(key).is_some() {
            return;
        }
        if let Some(gang) = self.gangs.get_mut(&key) {
            gang.parts.remove(&node);
            if gang.parts.is_empty() {
                self.gangs.remove(&key);
            }
        }
    }

    fn read_log(&self, node: usize, request: &LogRequest) -> LogChunk {
        let newest = || self.gangs.range((request.job, Generation(0))..).take_while(|(key, _)| key.0 == request.job);
        let found = match request.generation {
            Generation(0) => newest().filter(|(_, gang)| gang.parts.contains_key(&node)).last(),
            generation => self.gangs.get_key_value(&(request.job, generation)),
        };
        match found {
            Some((key, gang)) => gang.read(request, self.nodes[node].has_ended(*key)),
            None => LogChunk {
                request_id: request.request_id,
                bytes: Vec::new(),
                next_offset: request.offset,
                eof: true,
                error: Some("there is no output of this group on this node".to_owned()),
                marks: Vec::new(),
                clock_ms: None,
            },
        }
    }
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}
