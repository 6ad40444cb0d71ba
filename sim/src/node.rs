//! The simulated node: the real ledger, and a shell that obeys it with delays, crashes and reboots.

use std::collections::BTreeMap;

use headway_engine::event::SessionId;
use headway_node::{Exit, Ledger, NodeAction, NodeEvent, Process, Signal, WorkerMessage, WorkerOrder};
use headway_types::{
    AgentCommand, BootId, Bytes, EmulatedDevice, Fabric, Fault, Generation, Gpu, GpuHealth, GpuType, GpuUuid, IdSource,
    JobId, LaunchOrder, NodeId, NodeInventory, NodeReport, Seconds, Term, Timestamp,
};
use rand::RngExt;

use crate::clock::START;
use crate::gang::Gang;
use crate::world::{Item, World};

pub(crate) struct SimNode {
    pub inventory: NodeInventory,
    pub ledger: Ledger,
    pub up: bool,
    pub incarnation: u32,
    boots: u32,
    pub session: Option<SessionId>,
    pub unreachable_until: Timestamp,
    /// Streams keep their order: nothing arrives before these.
    pub reported_at: Timestamp,
    pub commanded_at: Timestamp,
    /// What really runs here.
    pub alive: BTreeMap<(JobId, Generation), LiveGroup>,
}

#[derive(Clone, Debug)]
pub(crate) struct LiveGroup {
    pub gpus: Vec<GpuUuid>,
    process: Process,
}

/// How often an agent dials or says that all is well.
const PULSE: Seconds = Seconds(5.0);

impl SimNode {
    pub fn fleet(sizes: &[u32]) -> BTreeMap<NodeId, SimNode> {
        let mut ids = IdSource::seeded(1);
        sizes.iter().enumerate().map(|(index, gpus)| (ids.node(START), index, *gpus)).map(Self::new).collect()
    }

    fn new((id, index, gpus): (NodeId, usize, u32)) -> (NodeId, SimNode) {
        let boot = BootId(format!("boot-{index}-0"));
        let gpu = |slot| Gpu {
            uuid: GpuUuid(format!("GPU-{index}-{slot}")),
            index: slot,
            memory: Bytes(16 << 30),
            health: GpuHealth::Healthy,
        };
        let inventory = NodeInventory {
            node: id,
            name: format!("node-{index}"),
            boot: boot.clone(),
            gpu_type: GpuType("emulated".into()),
            gpus: (0..gpus).map(gpu).collect(),
            emulated: Some(EmulatedDevice { flop_per_second: 100_000_000_000, link_bytes_per_second: 1_000_000_000 }),
            fabric: Fabric { domain: "rack".into() },
            cpus: 64,
            memory: Bytes(256 << 30),
            address: format!("10.0.0.{index}"),
            isolated: true,
            conditions: Vec::new(),
            agent_version: "sim".into(),
        };
        let node = SimNode {
            inventory,
            ledger: Ledger::new(id, boot),
            up: true,
            incarnation: 0,
            boots: 0,
            session: None,
            unreachable_until: START,
            reported_at: START,
            commanded_at: START,
            alive: BTreeMap::new(),
        };
        (id, node)
    }
}

impl World {
    pub fn pulse(&mut self, node: NodeId) -> Result<(), String> {
        self.clock.after(PULSE, Item::Pulse(node));
        let Some(one) = self.nodes.get(&node) else { return Ok(()) };
        let (up, reachable) = (one.up, one.unreachable_until <= self.clock.now);
        match one.session {
            Some(_) => {
                self.send_report(node, NodeReport::Heartbeat);
                Ok(())
            }
            None if up && reachable && self.scheduler.is_some() => self.open_session(node),
            None => Ok(()),
        }
    }

    pub fn send_report(&mut self, node: NodeId, report: NodeReport) {
        let delay = Seconds(self.rng.random_range(0.001..0.05));
        let Some(one) = self.nodes.get_mut(&node) else { return };
        let Some(session) = one.session else { return };
        one.reported_at = one.reported_at.max(self.clock.now + delay);
        let at = one.reported_at;
        self.clock.at(at, Item::Report { node, session, report });
    }

    pub fn send_command(&mut self, node: NodeId, command: AgentCommand) {
        let lost = self.rng.random_bool(self.scenario.faults.command_loss);
        let twice = self.rng.random_bool(self.scenario.faults.command_repeat);
        let delay = Seconds(self.rng.random_range(0.001..0.05));
        let term = Term(self.terms);
        let Some(one) = self.nodes.get_mut(&node) else { return };
        let Some(session) = one.session.filter(|_| !lost) else { return };
        one.commanded_at = one.commanded_at.max(self.clock.now + delay);
        let at = one.commanded_at;
        self.clock.at(at, Item::Command { node, session, term, command: command.clone() });
        if twice {
            self.clock.at(at + Seconds(3.0), Item::Command { node, session, term, command });
        }
    }

    /// The stream breaks; what was on its way is lost. The scheduler learns of it a little later.
    pub fn lose_session(&mut self, node: NodeId) {
        let Some(session) = self.nodes.get_mut(&node).and_then(|one| one.session.take()) else { return };
        if self.scheduler.is_some() {
            let at = self.moment(0.01, 3.0);
            self.clock.at(at, Item::SessionLost { node, session });
        }
    }

    pub fn stop_agent(&mut self, node: NodeId, reboot: bool) -> Result<(), String> {
        self.lose_session(node);
        let back = self.moment(1.0, if reboot { 120.0 } else { 40.0 });
        let Some(one) = self.nodes.get_mut(&node) else { return Ok(()) };
        if !one.up {
            return Ok(());
        }
        one.up = false;
        one.incarnation += 1;
        if reboot {
            for (key, _) in std::mem::take(&mut one.alive) {
                if let Some(gang) = self.gangs.get_mut(&key) {
                    gang.alive.remove(&node);
                }
            }
        }
        self.clock.at(back, Item::StartAgent { node, reboot });
        Ok(())
    }

    pub fn start_agent(&mut self, node: NodeId, reboot: bool) -> Result<(), String> {
        let Some(one) = self.nodes.get_mut(&node) else { return Ok(()) };
        one.up = true;
        if reboot {
            one.boots += 1;
            one.inventory.boot = BootId(format!("{}-{}", one.inventory.name, one.boots));
        }
        let boot = one.inventory.boot.clone();
        self.tell_ledger(node, NodeEvent::Restarted { boot })
    }

    /// One event through the ledger; its actions and reports follow.
    pub fn tell_ledger(&mut self, node: NodeId, event: NodeEvent) -> Result<(), String> {
        let now = self.clock.now;
        let Some(one) = self.nodes.get_mut(&node).filter(|one| one.up) else { return Ok(()) };
        let outcome = one.ledger.handle(now, event);
        let incarnation = one.incarnation;
        for action in outcome.actions {
            self.obey(node, incarnation, action);
        }
        for report in outcome.reports {
            self.send_report(node, report);
        }
        if let Some(at) = outcome.wake_at {
            self.clock.at(at, Item::Shell { node, incarnation, event: NodeEvent::Tick });
        }
        Ok(())
    }

    fn obey(&mut self, node: NodeId, incarnation: u32, action: NodeAction) {
        let shell = |event| Item::Shell { node, incarnation, event };
        match action {
            NodeAction::Prepare { order } => {
                self.ports = if self.ports == u16::MAX { 20_000 } else { self.ports + 1 };
                let port = (order.placement.first_node() == node).then_some(self.ports);
                let event = NodeEvent::PrepareDone { job: order.job, generation: order.generation, result: Ok(port) };
                let at = self.moment(0.05, 2.0);
                self.clock.at(at, shell(event));
            }
            NodeAction::Spawn { order, .. } => self.spawn(node, incarnation, *order),
            NodeAction::Adopt { order, processes } => {
                let key = (order.job, order.generation);
                let alive = self.nodes.get(&node).and_then(|one| one.alive.get(&key)).map(|group| group.process);
                for process in processes.into_iter().filter(|process| alive != Some(*process)) {
                    let (job, generation, rank) = (key.0, key.1, process.rank);
                    let event = NodeEvent::Exited { job, generation, rank, exit: Exit::Unknown, fault: None };
                    self.clock.after(Seconds(0.01), shell(event));
                }
            }
            NodeAction::Sweep { job, generation } => {
                let fault = Fault::of_infrastructure("the launch was cut short");
                self.clock.after(Seconds(0.1), shell(NodeEvent::SpawnFailed { job, generation, fault }));
            }
            NodeAction::Send { job, generation, order } => self.order_worker(node, (job, generation), order),
            NodeAction::Signal { job, generation, signal } => {
                let (after, exit) = match signal {
                    Signal::Terminate => (3.0, Exit::Signal(15)),
                    Signal::Kill => (0.05, Exit::Signal(9)),
                };
                if signal == Signal::Terminate
                    && let Some(gang) = self.gangs.get_mut(&(job, generation))
                    && gang.order.placement.first_node() == node
                {
                    gang.save_wanted = true;
                }
                self.clock.after(Seconds(after), Item::Die { node, job, generation, exit });
            }
            NodeAction::Close { .. } => {}
        }
    }

    fn spawn(&mut self, node: NodeId, incarnation: u32, order: LaunchOrder) {
        let (job, generation) = (order.job, order.generation);
        let at = self.moment(0.1, 1.0);
        let event = if self.rng.random_bool(0.02) && self.clock.now < START + self.scenario.faults.until {
            NodeEvent::SpawnFailed { job, generation, fault: Fault::of_node("no such file") }
        } else {
            let first_rank: usize = order
                .placement
                .slices()
                .iter()
                .take_while(|slice| slice.node != node)
                .map(|slice| slice.gpus.len())
                .sum();
            let process =
                Process { rank: first_rank as u32, pid: self.rng.random_range(2..60_000), started: at.0 as u64 };
            NodeEvent::Spawned { job, generation, processes: vec![process] }
        };
        self.clock.at(at, Item::Shell { node, incarnation, event });
    }

    /// What the shell itself has done becomes true as it tells its ledger.
    pub fn shell(&mut self, node: NodeId, event: NodeEvent) -> Result<(), String> {
        if let NodeEvent::Spawned { job, generation, processes } = &event {
            let key = (*job, *generation);
            let order = self.nodes.get(&node).and_then(|one| one.ledger.group(*job, *generation));
            if let (Some(order), Some(process)) = (order.map(|group| group.order.clone()), processes.first()) {
                let gpus = order.placement.slices().iter().find(|slice| slice.node == node);
                let group =
                    LiveGroup { gpus: gpus.map(|slice| slice.gpus.clone()).unwrap_or_default(), process: *process };
                if let Some(one) = self.nodes.get_mut(&node) {
                    one.alive.insert(key, group);
                }
                self.tell_ledger(node, event)?;
                return self.join(node, order);
            }
        }
        self.tell_ledger(node, event)
    }

    /// A node's process joins its gang; the last one to join starts the training.
    fn join(&mut self, node: NodeId, order: LaunchOrder) -> Result<(), String> {
        let key = (order.job, order.generation);
        let Some(row) = self.store.jobs.get(&key.0) else { return Err("a gang of an unknown job was launched".into()) };
        let before = row.checkpoint.clone().filter(|checkpoint| checkpoint.generation < key.1);
        let saved_since = row.checkpoint.as_ref().is_some_and(|checkpoint| checkpoint.generation >= key.1);
        if row.generation == key.1 && !saved_since && before != order.resume {
            return Err(format!("job {} resumes from another checkpoint than the committed one", row.spec.name));
        }
        let name = row.spec.name.clone();
        let truth = self.scenario.jobs.iter().position(|job| job.spec.name == name).unwrap_or_default();
        let now = self.clock.now;
        let gang = self.gangs.entry(key).or_insert_with(|| Gang::new(order, truth, now));
        gang.alive.insert(node, true);
        if !gang.complete() {
            return Ok(());
        }
        let job = &self.scenario.jobs[truth];
        let first = gang.order.placement.first_node();
        match job.spec.training() {
            Some(training) => {
                let capabilities = Some(training.reconfigure);
                self.clock.after(Seconds(3.0), Item::Steps { job: key.0, generation: key.1 });
                self.say(first, key, WorkerMessage::Hello { rank: 0, capabilities })
            }
            None => {
                self.clock.after(job.runs, Item::Finish { job: key.0, generation: key.1 });
                Ok(())
            }
        }
    }

    /// A worker speaks on its node's socket; an agent that is down hears nothing.
    pub fn say(&mut self, node: NodeId, key: (JobId, Generation), message: WorkerMessage) -> Result<(), String> {
        self.tell_ledger(node, NodeEvent::Worker { job: key.0, generation: key.1, message })
    }

    fn order_worker(&mut self, node: NodeId, key: (JobId, Generation), order: WorkerOrder) {
        let Some(gang) = self.gangs.get_mut(&key).filter(|gang| gang.order.placement.first_node() == node) else {
            return;
        };
        match order {
            WorkerOrder::Configure { configuration, .. } => gang.configuration = configuration,
            WorkerOrder::Checkpoint => gang.save_wanted = true,
            WorkerOrder::Stop { .. } => gang.stop_wanted = true,
        }
    }

    pub fn steps(&mut self, key: (JobId, Generation)) -> Result<(), String> {
        let now = self.clock.now;
        let Some(gang) = self.gangs.get_mut(&key) else { return Ok(()) };
        let first = gang.order.placement.first_node();
        if gang.done || gang.alive.get(&first) != Some(&true) {
            return Ok(());
        }
        if !gang.complete() {
            // A collective hangs; only a signal ends it.
            self.clock.after(Seconds(1.0), Item::Steps { job: key.0, generation: key.1 });
            return Ok(());
        }
        let truth = &self.scenario.jobs[gang.truth];
        let report = gang.advance(truth);
        let pause = gang.duration(truth);
        let stopping = gang.stop_wanted;
        let every = gang.order.checkpoint_every.0;
        let save = stopping || gang.save_wanted || now.since(gang.saved_at).0 >= every;
        let checkpoint = save.then(|| gang.checkpoint(now));
        let (step, samples_seen) = (gang.step, gang.samples);
        gang.done = stopping;
        self.say(first, key, WorkerMessage::Step { report: Box::new(report) })?;
        if let Some(checkpoint) = checkpoint {
            self.say(first, key, WorkerMessage::Checkpoint { checkpoint, duration: Seconds(0.3) })?;
        }
        if stopping {
            self.say(first, key, WorkerMessage::Stopped { step, samples_seen })?;
            return self.finish(key);
        }
        self.clock.after(pause, Item::Steps { job: key.0, generation: key.1 });
        Ok(())
    }

    pub fn finish(&mut self, key: (JobId, Generation)) -> Result<(), String> {
        let Some(gang) = self.gangs.get_mut(&key).filter(|gang| gang.complete()) else { return Ok(()) };
        gang.done = true;
        let nodes: Vec<NodeId> = gang.alive.keys().copied().collect();
        for node in nodes {
            let at = self.moment(0.01, 0.5);
            self.clock.at(at, Item::Die { node, job: key.0, generation: key.1, exit: Exit::Code(0) });
        }
        Ok(())
    }

    pub fn die(&mut self, node: NodeId, key: (JobId, Generation), exit: Exit) -> Result<(), String> {
        let Some(one) = self.nodes.get_mut(&node) else { return Ok(()) };
        let Some(group) = one.alive.remove(&key) else { return Ok(()) };
        if let Some(gang) = self.gangs.get_mut(&key) {
            gang.alive.remove(&node);
        }
        let (job, generation, rank) = (key.0, key.1, group.process.rank);
        self.tell_ledger(node, NodeEvent::Exited { job, generation, rank, exit, fault: None })
    }
}
