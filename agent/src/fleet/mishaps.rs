//! What breaks in a fleet, and how it is mended.

use headway_emulation::{Mishap, RunEvent};
use headway_node::{Exit, NodeEvent};
use headway_types::{Fault, GpuHealth, Seconds, Timestamp};

use super::emulation::Emulation;
use super::gang::Part;
use super::offer;
use super::queue::{Due, Key};

/// A process that loses its GPU aborts.
const ABORTED: Exit = Exit::Code(134);

impl Emulation {
    /// Enters the next mishap into the queue.
    pub(super) fn expect_mishap(&mut self, now: Timestamp) {
        if let Some((at, node, mishap)) = self.mishaps.next(now) {
            self.queue.push(at, Due::Mishap { node, mishap });
        }
    }

    pub(super) fn happen(&mut self, now: Timestamp, node: usize, mishap: Mishap) {
        if !self.nodes[node].is_up() {
            return;
        }
        tracing::info!(node = %self.nodes[node].inventory().name, ?mishap, "mishap");
        match mishap {
            Mishap::GpuBreak { gpu, cause, repair } => {
                let gpu = (gpu * self.nodes[node].inventory().gpus.len() as f64) as usize;
                self.break_gpu(now, node, gpu, &cause, repair);
            }
            Mishap::Reboot { down } => self.go_down(now, node, down),
            Mishap::Crash { code } => {
                if let Some(key) = self.victim(node) {
                    let rank = self.nodes[node].living(key).first().copied();
                    self.exited(now, node, key, rank, Exit::Code(code), None);
                }
            }
            Mishap::Hang => {
                if let Some(key) = self.victim(node) {
                    self.run_event(now, key, RunEvent::Hang);
                }
            }
            Mishap::Straggler { rank, factor, lasts } => {
                let Some(key) = self.victim(node) else { return };
                let Some(gang) = self.gangs.get(&key) else { return };
                let ranks = self.nodes[node].ranks(&gang.order);
                let rank = ranks.start + (rank * f64::from(ranks.end - ranks.start)) as u32;
                self.run_event(now, key, RunEvent::Straggle { rank, factor, lasts });
            }
        }
    }

    /// One of the gangs that run on a node.
    fn victim(&mut self, node: usize) -> Option<Key> {
        let running = self.nodes[node].running();
        running.get(self.random.below(running.len())).copied()
    }

    fn break_gpu(&mut self, now: Timestamp, node: usize, gpu: usize, cause: &str, repair: Seconds) {
        let Some(uuid) = self.nodes[node].inventory().gpus.get(gpu).map(|gpu| gpu.uuid.clone()) else { return };
        if !self.nodes[node].set_health(gpu, GpuHealth::Broken(cause.to_owned())) {
            return;
        }
        self.queue.push(now + repair, Due::Repaired { node, gpu });
        for key in self.nodes[node].running() {
            let Some(gang) = self.gangs.get(&key) else { continue };
            let Some(rank) = gang.order.placement.ranks().position(|(_, used)| *used == uuid) else { continue };
            let process = self.nodes[node].process_of(key, rank as u32);
            let fault = Fault::of_node(format!("GPU {uuid} broke: {cause}"));
            self.exited(now, node, key, process, ABORTED, Some(fault));
        }
    }

    pub(super) fn repaired(&mut self, node: usize, gpu: usize) {
        self.nodes[node].set_health(gpu, GpuHealth::Healthy);
    }

    /// Everything on the node dies, and nobody is there to say so.
    fn go_down(&mut self, now: Timestamp, node: usize, down: Seconds) {
        self.nodes[node].go_down();
        for gang in self.gangs.values_mut().filter(|gang| gang.parts.contains_key(&node)) {
            if gang.is_up_on(node) {
                gang.run.handle(now, RunEvent::Break);
            }
            gang.parts.insert(node, Part::Gone);
        }
        self.queue.push(now + down, Due::BackUp { node });
    }

    pub(super) fn back_up(&mut self, now: Timestamp, node: usize) {
        let boot = offer::fresh_boot();
        self.nodes[node].come_up(boot.clone());
        self.node_event(now, node, NodeEvent::Restarted { boot });
    }
}
