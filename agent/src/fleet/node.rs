//! One emulated node: what it offers, its ledger, and its line's outbox.

use std::sync::Arc;

use headway_node::{Ledger, NodeAction, NodeEvent, Phase, Process};
use headway_types::spec::RunPer;
use headway_types::{BootId, Fault, GpuHealth, LaunchOrder, NodeInventory, NodeReport, Term, Timestamp};
use tokio::sync::watch;

use super::queue::Key;
use crate::outbox::Outbox;

pub(super) struct Node {
    inventory: NodeInventory,
    ledger: Ledger,
    outbox: Arc<Outbox>,
    up: watch::Sender<bool>,
    /// Where the ledger's timer stands in the queue.
    tick_at: Option<Timestamp>,
    last_pid: u32,
}

/// What the emulation must do after a node has digested an event.
pub(super) struct Digested {
    pub(super) actions: Vec<NodeAction>,
    /// A tick to enter into the queue.
    pub(super) tick_at: Option<Timestamp>,
}

impl Node {
    pub(super) fn new(inventory: NodeInventory) -> Self {
        Self {
            ledger: Ledger::new(inventory.node, inventory.boot.clone()),
            inventory,
            outbox: Arc::default(),
            up: watch::Sender::new(true),
            tick_at: None,
            last_pid: 1,
        }
    }

    pub(super) fn outbox(&self) -> Arc<Outbox> {
        Arc::clone(&self.outbox)
    }

    pub(super) fn watch(&self) -> watch::Receiver<bool> {
        self.up.subscribe()
    }

    pub(super) fn inventory(&self) -> &NodeInventory {
        &self.inventory
    }

    pub(super) fn is_up(&self) -> bool {
        *self.up.borrow()
    }

    /// Whether the ledger's timer stands at this moment.
    pub(super) fn is_timer(&self, at: Timestamp) -> bool {
        self.tick_at == Some(at)
    }

    /// The first message of a session.
    pub(super) fn registered(&self) -> NodeReport {
        NodeReport::Registered { inventory: Box::new(self.inventory.clone()), groups: self.ledger.statuses() }
    }

    /// Likewise, with the term that it follows.
    pub(super) fn registration(&self) -> (NodeReport, Term) {
        (self.registered(), self.ledger.term())
    }

    /// A session was welcomed. False where the ledger follows a newer term.
    pub(super) fn opened(&self, term: Term) -> bool {
        let accepted = term >= self.ledger.term();
        if accepted {
            self.outbox.open();
        }
        accepted
    }

    pub(super) fn report(&self, report: NodeReport) {
        self.outbox.push(report);
    }

    /// One event into the ledger; its reports go out. A node that is down hears nothing.
    pub(super) fn digest(&mut self, now: Timestamp, event: NodeEvent) -> Digested {
        if !self.is_up() {
            return Digested { actions: Vec::new(), tick_at: None };
        }
        if event == NodeEvent::Tick {
            self.tick_at = None;
        }
        let outcome = self.ledger.handle(now, event);
        if let Some(refusal) = outcome.refusal {
            tracing::debug!(node = %self.inventory.name, %refusal, "refused");
        }
        outcome.reports.into_iter().for_each(|report| self.outbox.push(report));
        let sooner = outcome.wake_at.filter(|at| self.tick_at.is_none_or(|known| *at < known));
        self.tick_at = sooner.or(self.tick_at);
        Digested { actions: outcome.actions, tick_at: sooner }
    }

    /// Whether the GPUs of an order are there and healthy.
    pub(super) fn check(&self, order: &LaunchOrder) -> Result<(), Fault> {
        for (_, uuid) in order.placement.ranks().filter(|(node, _)| *node == self.inventory.node) {
            match self.inventory.gpus.iter().find(|gpu| gpu.uuid == *uuid).map(|gpu| &gpu.health) {
                Some(GpuHealth::Healthy) => {}
                Some(GpuHealth::Broken(cause)) => return Err(Fault::of_node(format!("GPU {uuid} is broken: {cause}"))),
                None => return Err(Fault::of_infrastructure(format!("this node has no GPU {uuid}"))),
            }
        }
        Ok(())
    }

    /// Processes for a group that is being launched: one for the node or one per GPU.
    pub(super) fn processes(&mut self, now: Timestamp, order: &LaunchOrder) -> Vec<Process> {
        let ranks = self.ranks(order);
        let ranks = match order.run.per {
            RunPer::Node => ranks.start..ranks.end.min(ranks.start + 1),
            RunPer::Gpu => ranks,
        };
        ranks
            .map(|rank| {
                self.last_pid = self.last_pid.wrapping_add(1);
                Process { rank, pid: self.last_pid, started: now.0.unsigned_abs() }
            })
            .collect()
    }

    /// Global ranks of an order on this node.
    pub(super) fn ranks(&self, order: &LaunchOrder) -> std::ops::Range<u32> {
        headway_node::Share::of(order, self.inventory.node)
            .map_or(0..0, |share| share.first_rank..share.first_rank + share.slice.gpus.len() as u32)
    }

    /// The process that runs a GPU of a group: the node's only one, or that rank's own.
    pub(super) fn process_of(&self, key: Key, rank: u32) -> Option<u32> {
        let living = self.living(key);
        living.iter().copied().find(|one| *one == rank).or(living.first().copied())
    }

    /// Ranks whose processes live.
    pub(super) fn living(&self, (job, generation): Key) -> Vec<u32> {
        let members = self.ledger.group(job, generation).map_or(&[][..], |group| group.phase.members());
        members.iter().filter(|member| member.exit.is_none()).map(|member| member.process.rank).collect()
    }

    pub(super) fn is_launching(&self, (job, generation): Key) -> bool {
        self.ledger.group(job, generation).is_some_and(|group| matches!(group.phase, Phase::Launching { .. }))
    }

    /// The order of a group the ledger still holds.
    pub(super) fn order(&self, (job, generation): Key) -> Option<LaunchOrder> {
        self.ledger.group(job, generation).map(|group| group.order.clone())
    }

    pub(super) fn has_ended(&self, (job, generation): Key) -> bool {
        self.ledger.group(job, generation).is_none_or(|group| group.phase.is_ended())
    }

    /// Groups with processes, by job.
    pub(super) fn running(&self) -> Vec<Key> {
        let running = |group: &&headway_node::Group| matches!(group.phase, Phase::Running { .. });
        self.ledger.groups().filter(running).map(|group| (group.job(), group.generation())).collect()
    }

    /// Power is gone, and with it whatever ran and whatever was still to be said.
    pub(super) fn go_down(&mut self) {
        self.up.send_replace(false);
        self.outbox.close();
    }

    /// It is back on a new boot; the ledger still has to be told.
    pub(super) fn come_up(&mut self, boot: BootId) {
        self.inventory.boot = boot;
        self.tick_at = None;
        self.up.send_replace(true);
    }

    /// False if the GPU was in that health already.
    pub(super) fn set_health(&mut self, gpu: usize, health: GpuHealth) -> bool {
        let Some(gpu) = self.inventory.gpus.get_mut(gpu) else { return false };
        let changed = std::mem::discriminant(&gpu.health) != std::mem::discriminant(&health);
        if changed {
            gpu.health = health;
            self.outbox.push(NodeReport::Inventory { inventory: Box::new(self.inventory.clone()) });
        }
        changed
    }
}
