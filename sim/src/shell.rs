//! What a node's agent does for its ledger: checks, launches, signals, each with its delay and its failures.

use headway_node::{Exit, NodeAction, NodeEvent, Signal, WorkerMessage, WorkerOrder};
use headway_types::{Fault, GpuHealth, LaunchOrder, Seconds};

use crate::faults::Chance;
use crate::gang::Gang;
use crate::item::Item;
use crate::node::LiveGroup;
use crate::world::{Key, World};

impl World<'_> {
    pub fn obey(&mut self, node: usize, incarnation: u32, action: NodeAction) {
        let shell = |event| Item::Shell { node, incarnation, event };
        match action {
            NodeAction::Prepare { order } => self.prepare(node, incarnation, &order),
            NodeAction::Spawn { order, .. } => self.spawn(node, incarnation, order),
            NodeAction::Adopt { order, processes } => {
                let key = (order.job, order.generation);
                let group = self.nodes[node].alive.get(&key);
                let gone: Vec<u32> = processes
                    .into_iter()
                    .filter(|process| group.and_then(|group| group.processes.get(&process.rank)) != Some(process))
                    .map(|process| process.rank)
                    .collect();
                for rank in gone {
                    let event =
                        NodeEvent::Exited { job: key.0, generation: key.1, rank, exit: Exit::Unknown, fault: None };
                    self.clock.after(Seconds(0.01), shell(event));
                }
            }
            NodeAction::Sweep { job, generation, .. } => {
                self.sweep(node, (job, generation));
                let fault = Fault::of_infrastructure("the launch was cut short");
                self.clock.after(Seconds(0.1), shell(NodeEvent::SpawnFailed { job, generation, fault }));
            }
            NodeAction::Send { job, generation, order } => self.order_worker(node, (job, generation), order),
            NodeAction::Signal { job, generation, signal } => self.signal(node, (job, generation), signal),
            NodeAction::Epilog { order, .. } => {
                let (job, generation) = (order.job, order.generation);
                self.clock.after(Seconds(1.0), shell(NodeEvent::EpilogDone { job, generation }));
            }
            NodeAction::Withdraw { .. } | NodeAction::Close { .. } => {}
            // Simulated nodes have no files.
            NodeAction::RemoveEmptyDirectories { .. } | NodeAction::Prune { .. } => {}
        }
    }

    fn prepare(&mut self, node: usize, incarnation: u32, order: &LaunchOrder) {
        self.ports = if self.ports == u16::MAX { 20_000 } else { self.ports + 1 };
        let one = &self.nodes[node];
        let first = order.placement.first_node() == one.inventory.node;
        let slices = order.placement.slices();
        let share = slices.iter().find(|slice| slice.node == one.inventory.node);
        let broken =
            one.inventory.gpus.iter().any(|gpu| {
                gpu.health != GpuHealth::Healthy && share.is_some_and(|slice| slice.gpus.contains(&gpu.uuid))
            });
        let result = if broken {
            Err(Fault::of_node("a GPU is broken"))
        } else if one.spoiled_until > self.clock.now || self.chance(Chance::PrepareFails) {
            Err(Fault::of_node("the checkpoint directory is not visible here"))
        } else {
            Ok(first.then_some(self.ports))
        };
        let hangs = self.chance(Chance::PrepareHangs);
        let at = if hangs { self.moment(150.0, 400.0) } else { self.moment(0.05, 2.0) };
        let event = NodeEvent::PrepareDone { job: order.job, generation: order.generation, result };
        self.clock.at(at, Item::Shell { node, incarnation, event });
    }

    fn spawn(&mut self, node: usize, incarnation: u32, order: Box<LaunchOrder>) {
        let at = self.moment(0.1, 1.0);
        if self.nodes[node].spoiled_until > self.clock.now || self.chance(Chance::SpawnFails) {
            let (job, generation) = (order.job, order.generation);
            let event = NodeEvent::SpawnFailed { job, generation, fault: Fault::of_node("no such user here") };
            self.clock.at(at, Item::Shell { node, incarnation, event });
        } else {
            self.clock.at(at, Item::Born { node, incarnation, order });
        }
    }

    /// Processes begin to live; the ledger hears of it a moment later, or never if the agent dies between.
    pub fn born(&mut self, node: usize, incarnation: u32, order: Box<LaunchOrder>) -> Result<(), String> {
        let key = (order.job, order.generation);
        let id = self.nodes[node].inventory.node;
        let processes = self.processes(id, &order);
        let share = order.placement.slices().iter().find(|slice| slice.node == id);
        let gpus = share.map(|slice| slice.gpus.clone()).unwrap_or_default();
        self.check_birth(node, key, &order, &gpus)?;
        let listed = processes.values().copied().collect();
        let ranks: Vec<u32> = processes.keys().copied().collect();
        let told_at = self.moment(0.01, 0.3);
        let group = LiveGroup { gpus: gpus.clone(), processes, stopping: false, paused_until: None, told_at };
        self.nodes[node].alive.insert(key, group);
        self.nodes[node].past.push((key, gpus));
        self.touched.insert(node);
        let event = NodeEvent::Spawned { job: key.0, generation: key.1, processes: listed };
        self.clock.at(told_at, Item::Shell { node, incarnation, event });
        self.join(node, key, *order, &ranks)
    }

    /// A node's processes join their gang; the last ones to join start it.
    fn join(&mut self, node: usize, key: Key, order: LaunchOrder, ranks: &[u32]) -> Result<(), String> {
        let id = self.nodes[node].inventory.node;
        let truth = self.scenario.jobs.iter().position(|job| job.spec.name == order.job_name).unwrap_or_default();
        let now = self.clock.now;
        let rotten = order.resume.as_ref().is_some_and(|from| self.rotten.contains(&from.path));
        let gang = self.gangs.entry(key).or_insert_with(|| Gang::new(order, truth, now));
        gang.alive.extend(ranks.iter().map(|rank| (id, *rank)));
        if !gang.complete() || gang.started {
            return Ok(());
        }
        gang.started = true;
        if let Some(workload) = self.scenario.jobs[truth].hidden {
            return self.begin_hidden(key, workload);
        }
        gang.saved_at = now;
        let first = gang.first_node();
        let members: Vec<(headway_types::NodeId, u32)> = gang.alive.iter().copied().collect();
        let Some(first) = self.node_index(first) else { return Ok(()) };
        let job = &self.scenario.jobs[truth];
        let startup = Seconds(job.startup.0);
        let training = job.spec.training().map(|training| training.reconfigure);
        for (member, rank) in members {
            if let (Some(index), Some(capabilities)) = (self.node_index(member), training) {
                self.say(index, key, WorkerMessage::Hello { rank, capabilities: Some(capabilities) });
            }
        }
        if rotten {
            self.clock.after(startup, Item::Die { node: first, key, rank: None, exit: Exit::Code(1), fault: None });
        } else {
            self.clock.after(startup, Item::Train { key });
        }
        Ok(())
    }

    fn sweep(&mut self, node: usize, key: Key) {
        let id = self.nodes[node].inventory.node;
        self.nodes[node].alive.remove(&key);
        if let Some(gang) = self.gangs.get_mut(&key) {
            gang.alive.retain(|(member, _)| *member != id);
        }
        self.touch_gang(key);
    }

    fn order_worker(&mut self, node: usize, key: Key, order: WorkerOrder) {
        let id = self.nodes[node].inventory.node;
        let Some(gang) = self.gangs.get_mut(&key).filter(|gang| gang.first_node() == id) else { return };
        if gang.hidden.is_some() {
            return self.order_hidden(key, order);
        }
        match order {
            WorkerOrder::Configure { configuration, .. } => gang.next_configuration = Some(configuration),
            WorkerOrder::Checkpoint => gang.save_wanted = true,
            WorkerOrder::Stop { .. } => gang.stop_wanted = true,
        }
        self.interrupt(key);
    }

    fn signal(&mut self, node: usize, key: Key, signal: Signal) {
        if matches!(signal, Signal::Notice { .. }) {
            return;
        }
        let Some(group) = self.nodes[node].alive.get_mut(&key) else { return };
        group.stopping = true;
        if self.gangs.get(&key).is_some_and(|gang| gang.hidden.is_some()) {
            return self.signal_hidden(node, key, signal);
        }
        let ranks: Vec<u32> = group.processes.keys().copied().collect();
        let id = self.nodes[node].inventory.node;
        let hung = self.gangs.get(&key).is_some_and(|gang| gang.hung);
        let (after, exit) = match signal {
            // Stuck in a collective it never returns to the interpreter, and the handler never runs.
            Signal::Terminate if hung => return,
            Signal::Terminate | Signal::Notice { .. } => (3.0, Exit::Signal(15)),
            Signal::Kill => (0.05, Exit::Signal(9)),
        };
        if signal == Signal::Terminate
            && let Some(gang) = self.gangs.get_mut(&key)
            && gang.first_node() == id
        {
            gang.save_wanted = true;
        }
        for rank in ranks {
            self.clock.after(Seconds(after), Item::Die { node, key, rank: Some(rank), exit, fault: None });
        }
    }

    /// A process ends: this rank, or the first that is left.
    pub fn die(&mut self, node: usize, key: Key, rank: Option<u32>, exit: Exit, fault: Option<Fault>) {
        let id = self.nodes[node].inventory.node;
        let Some(group) = self.nodes[node].alive.get_mut(&key) else { return };
        let Some(rank) = rank.or_else(|| group.processes.keys().next().copied()) else { return };
        if group.processes.remove(&rank).is_none() {
            return;
        }
        let told_at = group.told_at;
        if group.processes.is_empty() {
            self.nodes[node].alive.remove(&key);
        }
        if let Some(gang) = self.gangs.get_mut(&key) {
            gang.alive.remove(&(id, rank));
        }
        self.touch_gang(key);
        let event = NodeEvent::Exited { job: key.0, generation: key.1, rank, exit, fault };
        let incarnation = self.nodes[node].incarnation;
        let at = told_at.max(self.clock.now) + Seconds(0.001);
        self.clock.at(at, Item::Shell { node, incarnation, event });
    }
}
