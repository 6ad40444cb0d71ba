//! The simulated node: the real ledger, and an agent that comes and goes.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use headway_node::{Ledger, NodeAction, NodeEvent, Process, WorkerMessage};
use headway_types::{
    AgentCommand, BootId, Bytes, EmulatedDevice, Generation, GpuType, GpuUuid, IdSource, JobId, NodeId, NodeInventory,
    NodeReport, Seconds, Timestamp, example,
};
use rand::RngExt;

use crate::clock::START;
use crate::deed::Comeback;
use crate::item::Item;
use crate::scenario::NodeShape;
use crate::world::{Key, World};

pub(crate) struct SimNode {
    pub inventory: NodeInventory,
    pub ledger: Ledger,
    pub up: bool,
    /// Down together with its agent.
    pub rebooting: bool,
    pub incarnation: u32,
    boots: u32,
    pub link: Option<u64>,
    pub reports_blocked_until: Timestamp,
    pub commands_blocked_until: Timestamp,
    pub paused_until: Option<Timestamp>,
    /// Until then nothing can be prepared or launched.
    pub spoiled_until: Timestamp,
    /// Step reports without a session.
    pub ring: VecDeque<NodeReport>,
    /// What really runs here.
    pub alive: BTreeMap<Key, LiveGroup>,
    /// Generations this ledger was ever told to launch.
    pub launched: BTreeSet<Key>,
    /// Groups that ran here, with their GPUs.
    pub past: Vec<(Key, Vec<GpuUuid>)>,
}

#[derive(Clone, Debug)]
pub(crate) struct LiveGroup {
    pub gpus: Vec<GpuUuid>,
    pub processes: BTreeMap<u32, Process>,
    pub stopping: bool,
    pub paused_until: Option<Timestamp>,
    /// When its ledger hears of the launch; of an exit it hears after that.
    pub told_at: Timestamp,
}

impl SimNode {
    pub fn fleet(shapes: &[NodeShape]) -> (Vec<SimNode>, IdSource) {
        let mut ids = IdSource::seeded(1);
        let nodes = shapes.iter().enumerate().map(|(index, shape)| Self::new(ids.node(START), index, shape)).collect();
        (nodes, ids)
    }

    fn new(id: NodeId, index: usize, shape: &NodeShape) -> SimNode {
        let boot = BootId(format!("boot-{index}-0"));
        let emulated = EmulatedDevice { flop_per_second: 100_000_000_000, link_bytes_per_second: 1_000_000_000 };
        let inventory = NodeInventory {
            boot: boot.clone(),
            gpu_type: GpuType(shape.gpu_type.clone()),
            emulated: (shape.gpu_type == "emulated").then_some(emulated),
            stated: shape.stated.clone(),
            memory: Bytes(256 << 30),
            shm: Some(Bytes(128 << 30)),
            local_disk: Some(Bytes(1 << 40)),
            agent_version: "sim".into(),
            ..example::inventory(id, index as u64, shape.gpus)
        };
        SimNode {
            inventory,
            ledger: Ledger::new(id, boot),
            up: true,
            rebooting: false,
            incarnation: 0,
            boots: 0,
            link: None,
            reports_blocked_until: START,
            commands_blocked_until: START,
            paused_until: None,
            spoiled_until: START,
            ring: VecDeque::new(),
            alive: BTreeMap::new(),
            launched: BTreeSet::new(),
            past: Vec::new(),
        }
    }

    /// Whether a session cannot be opened or kept.
    pub fn is_blocked(&self, now: Timestamp) -> bool {
        self.reports_blocked_until.max(self.commands_blocked_until) > now
    }

    pub fn name(&self) -> &str {
        &self.inventory.name
    }
}

impl World<'_> {
    pub fn node_index(&self, id: NodeId) -> Option<usize> {
        self.places.get(&id).copied()
    }

    pub fn stop_agent(&mut self, node: usize, comeback: Comeback, back_after: Seconds) {
        if !self.nodes[node].up {
            return;
        }
        self.close_agent_end(node);
        let one = &mut self.nodes[node];
        one.up = false;
        one.rebooting = comeback == Comeback::Rebooted;
        one.incarnation += 1;
        one.paused_until = None;
        one.ring.clear();
        if comeback == Comeback::Rebooted {
            self.kill_silently(node);
        }
        self.touched.insert(node);
        self.clock.after(back_after, Item::StartAgent { node, comeback });
    }

    /// Every process of the node is gone, and nobody there has seen how.
    fn kill_silently(&mut self, node: usize) {
        let id = self.nodes[node].inventory.node;
        for (key, _) in std::mem::take(&mut self.nodes[node].alive) {
            if let Some(gang) = self.gangs.get_mut(&key) {
                gang.alive.retain(|(member, _)| *member != id);
                self.touch_gang(key);
            }
        }
    }

    pub fn start_agent(&mut self, node: usize, comeback: Comeback) -> Result<(), String> {
        self.touched.insert(node);
        if matches!(comeback, Comeback::DiskLost | Comeback::Reinstalled) {
            // Processes of a ledger that is gone are orphans: they are killed before the node registers.
            self.kill_silently(node);
        }
        let fresh = (comeback == Comeback::Reinstalled).then(|| self.ids.node(self.clock.now));
        let one = &mut self.nodes[node];
        one.up = true;
        one.rebooting = false;
        match comeback {
            Comeback::Restarted => {}
            Comeback::Rebooted => {
                one.boots += 1;
                one.inventory.boot = BootId(format!("{}-{}", one.inventory.name, one.boots));
            }
            Comeback::DiskLost | Comeback::Reinstalled => {
                let former = one.inventory.node;
                one.inventory.node = fresh.unwrap_or(former);
                self.places.remove(&former);
                self.places.insert(one.inventory.node, node);
                one.ledger = Ledger::new(one.inventory.node, one.inventory.boot.clone());
                one.launched.clear();
                if fresh.is_some() {
                    self.clock.after(Seconds(60.0), Item::WriteOff(former));
                }
            }
        }
        let boot = self.nodes[node].inventory.boot.clone();
        self.tell_ledger(node, NodeEvent::Restarted { boot })?;
        self.greet_again(node);
        Ok(())
    }

    /// Workers that live notice that their agent is back.
    fn greet_again(&mut self, node: usize) {
        let id = self.nodes[node].inventory.node;
        let keys: Vec<Key> = self.nodes[node].alive.keys().copied().collect();
        for key in keys {
            let Some(gang) = self.gangs.get(&key).filter(|gang| gang.started) else { continue };
            let truth = self.scenario.jobs[gang.truth].spec.training();
            let Some(capabilities) = truth.map(|training| Some(training.reconfigure)) else { continue };
            let ranks: Vec<u32> = gang.alive.iter().filter(|one| one.0 == id).map(|one| one.1).collect();
            for rank in ranks {
                let at = self.moment(0.1, 2.0);
                self.say_at(at, node, key, WorkerMessage::Hello { rank, capabilities });
            }
        }
    }

    /// A worker speaks on its node's socket; an agent that is down hears nothing.
    pub fn say(&mut self, node: usize, key: Key, message: WorkerMessage) {
        self.say_at(self.clock.now, node, key, message);
    }

    fn say_at(&mut self, at: Timestamp, node: usize, key: Key, message: WorkerMessage) {
        let event = NodeEvent::Worker { job: key.0, generation: key.1, message };
        let incarnation = self.nodes[node].incarnation;
        self.clock.at(at, Item::Shell { node, incarnation, event });
    }

    /// One event through the ledger; its actions and reports follow.
    pub fn tell_ledger(&mut self, node: usize, event: NodeEvent) -> Result<(), String> {
        let now = self.clock.now;
        let one = &mut self.nodes[node];
        if !one.up {
            return Ok(());
        }
        let stale = match &event {
            NodeEvent::Command { term, .. } if *term < one.ledger.term() => Some(one.ledger.clone()),
            _ => None,
        };
        if let NodeEvent::Command { term, command, .. } = &event
            && self.diary.is_some()
        {
            let line = format!("{} is told under {term} to {}", one.name(), words(command, &self.store));
            self.write_down(|| line);
        }
        let one = &mut self.nodes[node];
        let outcome = one.ledger.handle(now, event);
        if let Some(kept) = self.scenario.fences_kept {
            one.ledger.forget_fences(kept);
        }
        if stale.is_some_and(|before| before != one.ledger || !outcome.actions.is_empty()) {
            return Err(format!("a command of an old term took effect on {}", one.name()));
        }
        let incarnation = one.incarnation;
        if let Some(refusal) = outcome.refusal {
            let name = self.nodes[node].name().to_owned();
            self.write_down(|| format!("{name} refuses: {refusal}"));
        }
        self.touched.insert(node);
        for action in outcome.actions {
            self.check_launch(node, &action)?;
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

    /// A ledger launches each generation once, and none older than one it has launched.
    fn check_launch(&mut self, node: usize, action: &NodeAction) -> Result<(), String> {
        let NodeAction::Spawn { order, .. } = action else { return Ok(()) };
        let key = (order.job, order.generation);
        let launched = &mut self.nodes[node].launched;
        let newest = launched.range((key.0, Generation(0))..=(key.0, Generation(u64::MAX))).next_back();
        if newest.is_some_and(|newest| *newest >= key) {
            return Err(format!("{} launches {} of {} again", self.nodes[node].name(), key.1, order.job_name));
        }
        self.nodes[node].launched.insert(key);
        Ok(())
    }
}

/// A command in words, with the job's name.
fn words(command: &AgentCommand, store: &crate::store::Store) -> String {
    let (job, generation): (JobId, Generation) = command.subject();
    let name = store.jobs.get(&job).map_or("?", |job| job.spec.name.as_str());
    let verb = match command {
        AgentCommand::Prepare { .. } => "prepare".to_owned(),
        AgentCommand::Launch { .. } => "launch".to_owned(),
        AgentCommand::Stop { mode, .. } => format!("stop ({mode:?})").to_lowercase(),
        AgentCommand::Configure { .. } => "reconfigure".to_owned(),
        AgentCommand::Checkpoint { .. } => "save".to_owned(),
        AgentCommand::Notify { .. } => "notify".to_owned(),
        AgentCommand::Prune { .. } => "prune".to_owned(),
        AgentCommand::Forget { .. } => "forget".to_owned(),
    };
    format!("{verb} {name} {generation}")
}

impl World<'_> {
    /// Fresh processes for this node's slice of an order.
    pub fn processes(&mut self, node: NodeId, order: &headway_types::LaunchOrder) -> BTreeMap<u32, Process> {
        let Some(share) = headway_node::Share::of(order, node) else { return BTreeMap::new() };
        let count = match order.run.per {
            headway_types::spec::RunPer::Node => 1,
            headway_types::spec::RunPer::Gpu => share.slice.gpus.len() as u32,
        };
        let first = share.first_rank;
        let started = self.clock.now.0.unsigned_abs();
        (first..first + count)
            .map(|rank| (rank, Process { rank, pid: self.rng.random_range(2..60_000), started }))
            .collect()
    }
}
