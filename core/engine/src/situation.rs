//! The situation: facts and what was seen, read together. Everything the engine decides by looking at both is a function
//! of it; nothing here changes anything.

pub(crate) mod breakdown;
mod contradicted;
mod departure;
pub(crate) mod gang;
mod leave;
pub(crate) mod time;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use headway_types::spec::NodeChoice;
use headway_types::{Assignment, Generation, GpuHealth, GpuUuid, GroupPhase, JobId, NodeId, Seconds};

pub(crate) use self::leave::Leave;
use crate::facts::Facts;
use crate::record::{Allocation, Availability, Job, Node};
use crate::seen::{JobSeen, Seen};

#[derive(Clone, Copy)]
pub(crate) struct Situation<'a> {
    pub facts: &'a Facts,
    pub seen: &'a Seen,
}

impl<'a> Situation<'a> {
    /// Rows of jobs with a live generation, and what was seen of them.
    pub fn live_jobs(self) -> impl Iterator<Item = (&'a Arc<Job>, &'a JobSeen)> {
        let seen = move |id| self.seen.jobs.get(id).map(|seen| &**seen);
        self.facts.roll.live.iter().filter_map(move |id| Some((self.facts.jobs.get(id)?, seen(id)?)))
    }

    /// GPUs of a node that may be granted now or as soon as they are free.
    pub fn grantable(self, id: NodeId) -> BTreeSet<&'a GpuUuid> {
        let node = self.facts.nodes.get(&id).filter(|node| {
            self.seen.connected(id) && node.availability == Availability::Available && node.takes_work()
        });
        let healthy = node.into_iter().flat_map(|node| &node.inventory.gpus);
        healthy.filter(|gpu| gpu.health == GpuHealth::Healthy).map(|gpu| &gpu.uuid).collect()
    }

    /// Every GPU of a node that may have processes on it, with the generation that holds it. Groups that nobody knows
    /// hold their GPUs until they are gone, too.
    pub fn held_on(self, id: NodeId) -> BTreeMap<GpuUuid, (JobId, Generation)> {
        let mut held = BTreeMap::new();
        let node = self.facts.nodes.get(&id);
        // What a node said before it was written off holds nothing: the operator has vouched for that.
        let vouched = node.is_some_and(|node| !matches!(node.availability, Availability::Lost { .. }));
        let said = self.seen.nodes.get(&id).filter(|_| vouched).and_then(|seen| seen.contact.groups());
        for (key, group) in said.into_iter().flatten() {
            if !matches!(group.phase, GroupPhase::Ended { .. }) {
                held.extend(group.gpus.iter().map(|gpu| (gpu.clone(), *key)));
            }
        }
        for key in self.facts.holding.get(&id).into_iter().flatten() {
            let slices = self.facts.allocations.get(key).into_iter().flat_map(|one| one.placement.slices());
            for slice in slices.filter(|slice| slice.node == id) {
                held.extend(slice.gpus.iter().map(|gpu| (gpu.clone(), *key)));
            }
        }
        held
    }

    /// Whether some other node of the same GPU type, and of this choice, has this many GPUs free.
    pub fn has_room_beside(self, node: NodeId, gpus: usize, choice: &NodeChoice) -> bool {
        self.alike_beside(node, choice).any(|(id, _)| self.free_on(id) >= gpus)
    }

    /// How many GPUs of a node may be granted and are held by nobody.
    pub fn free_on(self, id: NodeId) -> usize {
        let held = self.held_on(id);
        self.grantable(id).into_iter().filter(|gpu| !held.contains_key(*gpu)).count()
    }

    /// Whether some other node of the same GPU type, and of this choice, takes work, be it free or not.
    pub fn has_alike_beside(self, node: NodeId, choice: &NodeChoice) -> bool {
        self.alike_beside(node, choice).any(|(_, other)| other.takes_work())
    }

    fn alike_beside(self, node: NodeId, choice: &NodeChoice) -> impl Iterator<Item = (NodeId, &'a Node)> {
        let kind = self.facts.nodes.get(&node).map(|node| &node.inventory.gpu_type);
        let others = self.facts.nodes.iter().filter(move |(id, _)| **id != node);
        let others = others.map(|(id, other)| (*id, &**other));
        others.filter(move |(_, other)| {
            Some(&other.inventory.gpu_type) == kind && choice.takes(&other.inventory.name, &other.labels())
        })
    }

    /// The newest live change that the node of its first rank has taken.
    pub fn taken_revision(self, allocation: &Allocation) -> u64 {
        let key = (allocation.job, allocation.generation);
        self.seen.group(allocation.placement.first_node(), key).map_or(0, |group| group.revision)
    }

    /// Whether a configuration that a plan assigns has since run out of device memory: the next round has another.
    pub fn is_exhausted(self, job: JobId, assignment: &Assignment) -> bool {
        let model = self.seen.jobs.get(&job).and_then(|seen| seen.model.as_ref());
        let class = self.facts.class_of(&assignment.placement);
        let (Some(model), Some(class), Some(at)) = (model, class, &assignment.configuration) else { return false };
        model.is_exhausted(&class, at)
    }

    /// What the model, as corrected by reports so far, expects of a job's present configuration.
    pub fn expected_step_time(self, job: &Job, seen: &JobSeen) -> Option<Seconds> {
        let allocation = self.facts.live_allocation(job)?;
        let class = self.facts.class_of(&allocation.placement)?;
        let (gpus, nodes) = (allocation.placement.gpus(), allocation.placement.nodes());
        let step = seen.model.as_ref()?.step_time(&class, gpus, nodes, &allocation.configuration?);
        step.ok().map(|step| step.time)
    }

    /// The same for all jobs that have one.
    pub fn step_times(self) -> BTreeMap<JobId, Seconds> {
        self.live_jobs().filter_map(|(job, seen)| Some((job.id, self.expected_step_time(job, seen)?))).collect()
    }
}
