//! Which running jobs must leave their GPUs: nodes that are drained or reserved for others, GPUs that broke under them,
//! ranks that keep the others waiting while better nodes are free.

use std::collections::BTreeMap;
use std::sync::Arc;

use headway_types::{GpuHealth, GpuUuid, JobId, NodeId};

use super::Situation;
use crate::record::{Allocation, Job, Node, NodePolicy, Reservation, lineage};
use crate::reports::pace::STAYS_SLOW;

/// How a job leaves that cannot stay where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Leave {
    /// Whether it may stay until there is another place for it.
    pub lingers: bool,
    /// The node that it leaves for being slow, if that is why. While it is there its GPUs are nobody's to start on, itself least of all.
    pub slow: Option<NodeId>,
}

impl<'a> Situation<'a> {
    /// Why a job cannot stay where it is, in words; `None` if it can. A job that must not run twice always stays: to leave
    /// would be its end.
    pub fn must_leave(self, allocation: &Allocation) -> Option<String> {
        let job = self.facts.jobs.get(&allocation.job);
        if job.is_some_and(|job| job.spec.limits.forbid_restart()) {
            return None;
        }
        let by_the_node = allocation.placement.slices().iter().find_map(|slice| {
            let node = self.facts.nodes.get(&slice.node)?;
            let name = &node.inventory.name;
            if matches!(node.policy, NodePolicy::Draining { .. }) {
                return Some(format!("node {name} is drained"));
            }
            if let Some(leaves) = departure_words(node) {
                return Some(leaves);
            }
            if let Some(reserved) = job.and_then(|job| self.reserved_words(job, slice.node)) {
                return Some(reserved);
            }
            let mut gpus = node.inventory.gpus.iter().filter(|gpu| slice.gpus.contains(&gpu.uuid));
            if let Some(broken) = gpus.find(|gpu| gpu.health != GpuHealth::Healthy) {
                return Some(format!("GPU {} of node {name} is broken", broken.index));
            }
            None
        });
        let slow = || self.slow_node(allocation).map(|node| self.facts.node_name(node));
        by_the_node.or_else(|| slow().map(|name| format!("node {name} keeps its other ranks waiting")))
    }

    /// Returns the words for a node of the job that goes away by itself. Its time is short, so no round is waited for.
    pub fn departure_under(self, allocation: &Allocation) -> Option<String> {
        let mut slices = allocation.placement.slices().iter();
        slices.find_map(|slice| departure_words(self.facts.nodes.get(&slice.node)?))
    }

    /// The node that a job leaves since it keeps the job's other ranks waiting, where there is room beside it: one that others speak
    /// against too, or where it stays so. A job that is slow wherever it runs has taken its word back, and stays.
    fn slow_node(self, allocation: &Allocation) -> Option<NodeId> {
        let job = self.facts.jobs.get(&allocation.job)?;
        let found = &self.seen.jobs.get(&allocation.job)?.slow_nodes;
        let left = allocation.placement.slices().iter().find(|slice| {
            let times = found.get(&slice.node).copied().unwrap_or(0);
            let stays = times >= STAYS_SLOW && job.suspects.contains(&slice.node);
            let trusted = self.facts.nodes.get(&slice.node).is_some_and(|node| node.health.is_trusted());
            (stays || (times > 0 && !trusted))
                && self.has_room_beside(slice.node, slice.gpus.len(), &job.spec.role().nodes)
        });
        left.map(|slice| slice.node)
    }

    /// A job that must leave for no defect but because an operator drains its nodes may stay until the deadline he gave,
    /// as long as it has nowhere else to go.
    pub fn may_linger(self, allocation: &Allocation) -> bool {
        let job = self.facts.jobs.get(&allocation.job);
        let mut drained = false;
        for slice in allocation.placement.slices() {
            let Some(node) = self.facts.nodes.get(&slice.node) else { return false };
            // A node that leaves by itself waits for no other place: what has not saved by then is lost.
            if node.inventory.leaving_reason.is_some()
                || job.is_some_and(|job| self.shut_out(job, slice.node).is_some())
            {
                return false;
            }
            let broken = |uuid: &GpuUuid| {
                node.inventory.gpus.iter().any(|gpu| gpu.uuid == *uuid && gpu.health != GpuHealth::Healthy)
            };
            if slice.gpus.iter().any(broken) {
                return false;
            }
            if let NodePolicy::Draining { deadline, .. } = node.policy {
                if deadline.is_none_or(|at| at <= self.facts.now) {
                    return false;
                }
                drained = true;
            }
        }
        drained
    }

    /// Jobs that must leave where they run, and how. Asked once per job and not once per GPU: a gang's answer looks at all of its nodes.
    pub fn leaving(self) -> BTreeMap<JobId, Leave> {
        let goes = |job: &Arc<Job>| {
            let allocation = self.facts.live_allocation(job)?;
            let leave = |_| Leave { lingers: self.may_linger(allocation), slow: self.slow_node(allocation) };
            self.must_leave(allocation).map(|why| (job.id, leave(why)))
        };
        self.facts.live_jobs().filter_map(goes).collect()
    }

    pub(super) fn is_member(self, job: &Job, of: &Reservation) -> bool {
        let project = || {
            let own = std::iter::once(job.spec.project.as_str());
            own.chain(lineage(&self.facts.projects, &job.spec.project)).any(|name| of.projects.contains(name))
        };
        of.jobs.contains(&job.id) || of.users.contains(&job.owner) || project()
    }

    /// Returns whether some queued job may not start on what its target gives it: a node is reserved for others, or has come
    /// to run jobs as an account that does not take those of the job's owner.
    pub fn is_kept_off(self, job: JobId, mut nodes: impl Iterator<Item = NodeId>) -> bool {
        let Some(job) = self.facts.jobs.get(&job) else { return false };
        nodes.any(|node| self.is_of_others(job, node) || self.may_not_start_on(job, node))
    }

    /// Returns whether a node runs all jobs as an account that does not take those of the job's owner.
    fn is_of_others(self, job: &Job, node: NodeId) -> bool {
        let account = self.facts.nodes.get(&node).and_then(|node| node.inventory.account.as_ref());
        account.is_some_and(|account| !account.takes(&job.owner))
    }
}

fn departure_words(node: &Node) -> Option<String> {
    let reason = node.inventory.leaving_reason.as_ref()?;
    Some(format!("node {} leaves: {reason}", node.inventory.name))
}
