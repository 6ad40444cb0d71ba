//! Which running jobs must leave their GPUs: nodes that are drained or reserved for others, GPUs
//! that broke under them, ranks that keep the
//! others waiting while better nodes are free.

use headway_types::{GpuHealth, GpuUuid, NodeId, Timestamp};

use crate::record::{Allocation, NodePolicy};
use crate::state::Engine;

impl Engine {
    /// Why a job cannot stay where it is, in words; `None` if it can.
    pub(crate) fn must_leave(&self, allocation: &Allocation) -> Option<String> {
        allocation.placement.slices().iter().find_map(|slice| {
            let entry = self.nodes.get(&slice.node)?;
            let name = &entry.node.inventory.name;
            if matches!(entry.node.policy, NodePolicy::Draining { .. }) {
                return Some(format!("node {name} is drained"));
            }
            let job = self.jobs.get(&allocation.job).map(|entry| &entry.job);
            if let Some(reservation) = job.and_then(|job| self.shut_out(job, slice.node)) {
                return Some(format!("node {name} is reserved for {}", reservation.name));
            }
            let mut gpus = entry.node.inventory.gpus.iter().filter(|gpu| slice.gpus.contains(&gpu.uuid));
            if let Some(broken) = gpus.find(|gpu| gpu.health != GpuHealth::Healthy) {
                return Some(format!("GPU {} of node {name} is broken", broken.index));
            }
            let slow = self.jobs.get(&allocation.job).is_some_and(|one| one.slow_nodes.contains(&slice.node));
            let better = slow && !entry.node.health.is_trusted() && self.has_room_beside(slice.node, slice.gpus.len());
            better.then(|| format!("node {name} keeps its other ranks waiting"))
        })
    }

    /// A job that must leave for no defect but an operator's wish may stay until the deadline he gave, as long as it has
    /// nowhere else to go.
    pub(crate) fn may_linger(&self, allocation: &Allocation) -> bool {
        let waits = |at: Option<Timestamp>| at.is_some_and(|at| at > self.now);
        let mut drained = false;
        for slice in allocation.placement.slices() {
            let Some(entry) = self.nodes.get(&slice.node) else { return false };
            if self.is_kept_off(allocation.job, std::iter::once(slice.node)) {
                return false;
            }
            let broken = |uuid: &GpuUuid| {
                entry.node.inventory.gpus.iter().any(|gpu| gpu.uuid == *uuid && gpu.health != GpuHealth::Healthy)
            };
            if slice.gpus.iter().any(broken) {
                return false;
            }
            if let NodePolicy::Draining { deadline, .. } = entry.node.policy {
                if !waits(deadline) {
                    return false;
                }
                drained = true;
            }
        }
        drained
    }

    /// Whether some other node of the same GPU type has this many GPUs free.
    pub(crate) fn has_room_beside(&self, node: NodeId, gpus: usize) -> bool {
        let kind = self.nodes.get(&node).map(|entry| &entry.node.inventory.gpu_type);
        self.nodes.iter().any(|(id, entry)| {
            let held = self.held_on(*id);
            let free = self.grantable(*id).into_iter().filter(|gpu| !held.contains_key(*gpu)).count();
            *id != node && Some(&entry.node.inventory.gpu_type) == kind && free >= gpus
        })
    }
}
