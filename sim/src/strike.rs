//! Faults strike: a kind becomes a deed with everything about it drawn, and deeds take effect.

use headway_engine::Request;
use headway_engine::record::{Availability, PolicyMode};
use headway_node::Exit;
use headway_types::command::GroupStatus;
use headway_types::{
    CheckpointRef, Condition, ConditionKind, Fault, Generation, GpuHealth, GroupPhase, NodeReport, Seconds, Sequences,
};
use rand::RngExt;

use crate::clock::START;
use crate::deed::{Comeback, Crash, Deed, Operation, Way};
use crate::faults::FaultKind;
use crate::item::Item;
use crate::world::{Key, World};

impl World<'_> {
    pub fn next_fault(&mut self, kind: FaultKind) {
        let Some(mean) = self.scenario.faults.every.get(&kind).copied() else { return };
        let chance: f64 = self.rng.random_range(0.0001..1.0);
        let at = self.clock.now + mean * -chance.ln();
        if at < START + self.scenario.faults.until {
            self.clock.at(at, Item::Fault(kind));
        }
    }

    pub fn strike(&mut self, kind: FaultKind) {
        self.next_fault(kind);
        *self.tried.entry(format!("{kind:?}")).or_default() += 1;
        if kind == FaultKind::PolicyChange {
            return self.change_policy();
        }
        let deed = self.draw(kind);
        self.apply(deed);
    }

    fn seconds(&mut self, from: f64, to: f64) -> Seconds {
        Seconds(self.rng.random_range(from..to))
    }

    fn leases(&mut self, from: f64, to: f64) -> Seconds {
        Seconds((self.scenario.config.lease.0 * self.rng.random_range(from..to)).max(0.5))
    }

    fn draw(&mut self, kind: FaultKind) -> Deed {
        use FaultKind as F;
        let node = self.rng.random_range(0..self.nodes.len());
        let job = self.rng.random_range(0..self.scenario.jobs.len().max(1));
        match kind {
            F::SchedulerCrash => {
                let when = [Crash::Now, Crash::BeforeCommit, Crash::AfterCommit][self.rng.random_range(0..3)];
                Deed::CrashScheduler { when, back_after: self.seconds(1.0, 60.0) }
            }
            F::SchedulerPause => Deed::PauseScheduler { lasts: self.leases(0.2, 4.0), successor_after: None },
            F::Takeover => {
                let lasts = self.leases(0.5, 6.0);
                let successor_after = Some(Seconds(lasts.0 * self.rng.random_range(0.1..0.9)));
                Deed::PauseScheduler { lasts, successor_after }
            }
            F::ClockJump => {
                let corrected_after = self.rng.random_bool(0.5).then(|| self.seconds(10.0, 300.0));
                Deed::JumpClock { by: self.seconds(1.0, 600.0), corrected_after }
            }
            F::ClockFreeze => Deed::FreezeClock { lasts: self.seconds(5.0, 120.0) },
            F::AgentCrash => {
                Deed::StopAgent { node, comeback: Comeback::Restarted, back_after: self.seconds(1.0, 40.0) }
            }
            F::NodeReboot => {
                Deed::StopAgent { node, comeback: Comeback::Rebooted, back_after: self.seconds(20.0, 120.0) }
            }
            F::DiskLoss => Deed::StopAgent { node, comeback: Comeback::DiskLost, back_after: self.seconds(1.0, 60.0) },
            F::Reinstall => {
                Deed::StopAgent { node, comeback: Comeback::Reinstalled, back_after: self.seconds(10.0, 120.0) }
            }
            F::AgentPause => Deed::PauseAgent { node, lasts: self.leases(0.2, 4.0) },
            F::Disconnect => Deed::Disconnect { node },
            F::Partition => Deed::Cut { node, way: Way::Both, lasts: self.seconds(2.0, 180.0) },
            F::ReportsBlocked => Deed::Cut { node, way: Way::Reports, lasts: self.seconds(2.0, 90.0) },
            F::CommandsBlocked => Deed::Cut { node, way: Way::Commands, lasts: self.seconds(2.0, 90.0) },
            F::WorkerDeath => Deed::KillWorker { node },
            F::WorkerPause => Deed::PauseWorkers { node, lasts: self.leases(0.2, 4.0) },
            F::WorkerHang => Deed::HangWorkers { node },
            F::Straggler => {
                Deed::SlowWorkers { node, factor: self.rng.random_range(1.2..4.0), lasts: self.seconds(60.0, 600.0) }
            }
            F::GpuBreak => Deed::BreakGpu { node, gpu: self.rng.random_range(0..8), lasts: self.seconds(60.0, 900.0) },
            F::NodeTrouble => {
                use ConditionKind as K;
                let kind = [K::DiskPressure, K::MemoryPressure, K::Throttled][self.rng.random_range(0..3)];
                Deed::Trouble { node, kind, lasts: self.seconds(30.0, 300.0) }
            }
            F::BadNode => Deed::Spoil { node, lasts: self.seconds(60.0, 900.0) },
            F::StaleCheckpoint => Deed::OfferStaleCheckpoint { node },
            F::FalseReport => Deed::ReportFalsely { node },
            operator => Deed::Operate(self.draw_operation(operator, node, job)),
        }
    }

    fn draw_operation(&mut self, kind: FaultKind, node: usize, job: usize) -> Operation {
        use FaultKind as F;
        match kind {
            F::Drain => Operation::Drain { node, undone_after: self.seconds(30.0, 200.0) },
            F::Cordon => Operation::Cordon { node, undone_after: self.seconds(30.0, 200.0) },
            F::Hold => Operation::Hold { job, undone_after: self.seconds(5.0, 200.0) },
            F::Cancel => Operation::Cancel { job },
            // The one who is silent is the one who is written off, and the one who was is the one who is deleted.
            F::MarkLost => {
                let silent = self.first_node(|seen| matches!(seen, Availability::Unreachable { .. }));
                Operation::MarkLost { node: silent.unwrap_or(node) }
            }
            F::DeleteNode => {
                let lost = self.first_node(|seen| matches!(seen, Availability::Lost { .. }));
                let away = || self.first_node(|seen| *seen != Availability::Available);
                Operation::DeleteNode { node: lost.or_else(away).unwrap_or(node) }
            }
            F::SaveNow => Operation::Save { job },
            _ => Operation::Rebalance,
        }
    }

    /// The first node of which this is stored.
    fn first_node(&self, is: impl Fn(&Availability) -> bool) -> Option<usize> {
        let stored = |node: usize| self.store.nodes.get(&self.nodes[node].inventory.node);
        (0..self.nodes.len()).find(|node| stored(*node).is_some_and(|row| is(&row.availability)))
    }

    /// Advisory or paused for a while, and back.
    fn change_policy(&mut self) {
        let before = self.scenario.policy.clone();
        let mut settings = before.clone();
        settings.mode = if self.rng.random_bool(0.5) { PolicyMode::Advisory } else { PolicyMode::Paused };
        let after = self.seconds(10.0, 300.0);
        self.ask_for(
            Request::SetPolicy { settings: settings.into(), expected: None },
            Some((after, Request::SetPolicy { settings: before.into(), expected: None })),
            true,
        );
    }

    pub fn apply(&mut self, deed: Deed) {
        self.write_down(|| format!("! {deed}"));
        let now = self.clock.now;
        match deed {
            Deed::CrashScheduler { when, back_after } => self.crash(when, back_after),
            Deed::PauseScheduler { lasts, successor_after } => {
                let Some(mut server) = self.servers.last_entry() else { return };
                server.get_mut().paused_until = Some(now + lasts);
                if let Some(after) = successor_after {
                    self.clock.after(after, Item::StartServer);
                }
            }
            Deed::JumpClock { by, corrected_after } => {
                self.host_clock.ahead += by;
                if let Some(after) = corrected_after {
                    self.clock.after(after, Item::CorrectClock);
                }
            }
            Deed::FreezeClock { lasts } => self.host_clock.frozen = Some((self.host_now(), now + lasts)),
            Deed::StopAgent { node, comeback, back_after } => self.stop_agent(node, comeback, back_after),
            Deed::PauseAgent { node, lasts } => self.nodes[node].paused_until = Some(now + lasts),
            Deed::Disconnect { node } => self.close_agent_end(node),
            Deed::Cut { node, way, lasts } => {
                let one = &mut self.nodes[node];
                if way != Way::Commands {
                    one.reports_blocked_until = one.reports_blocked_until.max(now + lasts);
                }
                if way != Way::Reports {
                    one.commands_blocked_until = one.commands_blocked_until.max(now + lasts);
                }
            }
            Deed::KillWorker { node } => {
                if let Some(key) = self.victim(node) {
                    self.die(node, key, None, Exit::Code(1), None);
                }
            }
            Deed::PauseWorkers { node, lasts } => self.pause_workers(node, lasts),
            Deed::HangWorkers { node } => {
                if let Some(key) = self.victim(node) {
                    self.hang(key);
                }
            }
            Deed::SlowWorkers { node, factor, lasts } => {
                let id = self.nodes[node].inventory.node;
                if let Some(gang) = self.victim(node).and_then(|key| self.gangs.get_mut(&key)) {
                    gang.slow.insert(id, (factor, now + lasts));
                }
            }
            Deed::BreakGpu { node, gpu, lasts } => self.break_gpu(node, gpu, lasts),
            Deed::Trouble { node, kind, lasts } => {
                let message = "96 % used".into();
                self.nodes[node].inventory.conditions.push(Condition { kind, message });
                self.tell_inventory(node);
                self.clock.after(lasts, Item::Relieve { node });
            }
            Deed::Spoil { node, lasts } => self.nodes[node].spoiled_until = now + lasts,
            Deed::OfferStaleCheckpoint { node } => self.offer_stale_checkpoint(node),
            Deed::ReportFalsely { node } => self.report_falsely(node),
            Deed::Operate(operation) => self.operate(operation),
        }
    }

    fn crash(&mut self, when: Crash, back_after: Seconds) {
        self.crash_back_after = None;
        let Some(id) = self.servers.keys().next_back().copied() else { return };
        if when == Crash::Now {
            return self.crash_server(id, Some(back_after));
        }
        if let Some(server) = self.servers.get_mut(&id) {
            server.crash_at_next = Some(when);
        }
    }

    /// A group of the node, where it has one.
    pub fn victim(&mut self, node: usize) -> Option<Key> {
        let keys: Vec<Key> = self.nodes[node].alive.keys().copied().collect();
        (!keys.is_empty()).then(|| keys[self.rng.random_range(0..keys.len())])
    }

    fn pause_workers(&mut self, node: usize, lasts: Seconds) {
        let until = self.clock.now + lasts;
        let Some(key) = self.victim(node) else { return };
        if let Some(group) = self.nodes[node].alive.get_mut(&key) {
            group.paused_until = Some(until);
        }
        if let Some(gang) = self.gangs.get_mut(&key) {
            let from = gang.paused_until.map_or(self.clock.now, |known| known.max(self.clock.now));
            gang.stood_still += until.since(from);
            gang.paused_until = gang.paused_until.max(Some(until));
        }
        self.touch_gang(key);
        // The account turns back when they go on.
        self.clock.at(until, Item::Relieve { node });
    }

    fn break_gpu(&mut self, node: usize, gpu: usize, lasts: Seconds) {
        let index = gpu % self.nodes[node].inventory.gpus.len();
        let gpu = &mut self.nodes[node].inventory.gpus[index];
        gpu.health = GpuHealth::Broken("XID 79: it has fallen off the bus".into());
        let uuid = gpu.uuid.clone();
        self.tell_inventory(node);
        self.clock.after(lasts, Item::Heal { node, gpu: index });
        let users: Vec<Key> = self.nodes[node]
            .alive
            .iter()
            .filter(|(_, group)| group.gpus.contains(&uuid))
            .map(|(key, _)| *key)
            .collect();
        for key in users {
            self.die(node, key, None, Exit::Code(1), Some(Fault::of_node(format!("GPU {index}: XID 79"))));
        }
    }

    pub fn heal(&mut self, node: usize, gpu: usize) {
        self.nodes[node].inventory.gpus[gpu].health = GpuHealth::Healthy;
        self.tell_inventory(node);
    }

    /// A passing trouble is over.
    pub fn relieve(&mut self, node: usize) {
        self.touched.insert(node);
        let keys: Vec<Key> = self.nodes[node].alive.keys().copied().collect();
        keys.into_iter().for_each(|key| self.touch_gang(key));
        if self.nodes[node].inventory.conditions.pop().is_some() {
            self.tell_inventory(node);
        }
    }

    fn tell_inventory(&mut self, node: usize) {
        self.touched.insert(node);
        if self.nodes[node].up {
            let inventory = Box::new(self.nodes[node].inventory.clone());
            self.send_report(node, NodeReport::Inventory { inventory });
        }
    }

    /// An offer of a generation that is over, ahead of everything its job has.
    fn offer_stale_checkpoint(&mut self, node: usize) {
        let Some((job, newest)) = self.nodes[node].past.last().map(|(key, _)| *key) else { return };
        let generation = Generation(newest.0.saturating_sub(1).max(1));
        let current = self.store.jobs.get(&job).map(|job| job.generation);
        if current.is_none_or(|current| current <= generation) {
            return;
        }
        let checkpoint = CheckpointRef {
            generation,
            path: format!("{job}/{generation}/late"),
            step: 1_000_000,
            samples_seen: Sequences(1_000_000_000),
            manifest_sha256: "0".repeat(64),
        };
        self.send_report(node, NodeReport::CheckpointWritten { job, checkpoint, duration: Seconds(1.0) });
    }

    fn report_falsely(&mut self, node: usize) {
        let one = &self.nodes[node];
        let Some((key, gpus)) = one.past.iter().rev().find(|(key, _)| !one.alive.contains_key(key)).cloned() else {
            return;
        };
        let status =
            GroupStatus { job: key.0, generation: key.1, gpus, phase: GroupPhase::Running, revision: 0, notice: 0 };
        self.send_report(node, NodeReport::Group { status });
    }
}
