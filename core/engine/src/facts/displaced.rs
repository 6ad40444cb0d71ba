//! Who takes GPUs that others give up, and what is lost with them: kept in rows when it happens, since a day later neither the plan that decided it
//! nor the jobs that gained need be there.

use std::collections::BTreeMap;

use headway_types::{Generation, GpuCount, GpuUuid, JobId, NodeId};

use super::Facts;
use crate::account::GpuTime;
use crate::record::{Allocation, Displacement, Displacer, StopCause};

/// What a job remembers by name; its allocations remember all.
const DISPLACEMENTS_KEPT: usize = 5;

impl Facts {
    /// What is to end remembers why, and who has its GPUs next.
    pub(crate) fn tell_why_it_ends(&mut self, key: (JobId, Generation), cause: StopCause) {
        let displaced = matches!(cause, StopCause::Preempt | StopCause::Rescale);
        let takers = self.allocations.get(&key).filter(|_| displaced).map(|one| self.takers(one));
        self.edit_allocation(key, |one| {
            one.stopped_for = Some(cause);
            one.displaced_by = takers.unwrap_or_default();
        });
    }

    /// The jobs to which the target gives GPUs of this allocation, whoever gets most first.
    fn takers(&self, of: &Allocation) -> Vec<Displacer> {
        let Some(target) = &self.target else { return Vec::new() };
        let held: BTreeMap<NodeId, &[GpuUuid]> =
            of.placement.slices().iter().map(|slice| (slice.node, slice.gpus.as_slice())).collect();
        let others = target.plan.assignments.iter().filter(|(job, _)| **job != of.job);
        let takes = others.filter_map(|(id, assignment)| {
            let slices = assignment.placement.slices().iter();
            let taken = slices.filter_map(|slice| {
                let held = held.get(&slice.node)?;
                Some(slice.gpus.iter().filter(|gpu| held.contains(gpu)).count() as u32)
            });
            let gpus = GpuCount(taken.sum());
            let job = self.jobs.get(id).filter(|_| gpus.0 > 0)?;
            Some(Displacer { job: *id, name: job.spec.name.clone(), owner: job.owner.clone(), gpus })
        });
        let mut takers: Vec<Displacer> = takes.collect();
        takers.sort_by_key(|one| (core::cmp::Reverse(one.gpus), one.job));
        takers
    }

    /// A job has left a generation: its row says what that went into, and to whom its GPUs went.
    pub(crate) fn count_spent(&mut self, key: (JobId, Generation)) {
        let Some(allocation) = self.allocations.get(&key) else { return };
        // Its GPUs may not be proven free yet, but it will compute nothing more.
        let spent = GpuTime::of(&Allocation { ended_at: Some(self.now), ..Allocation::clone(allocation) }, self.now);
        let (at, by) = (allocation.stopping_at.unwrap_or(self.now), allocation.displaced_by.clone());
        self.edit_job(key.0, |job| {
            job.spent += spent;
            if !by.is_empty() {
                job.displaced.push(Displacement { at, generation: key.1, by, lost: spent.rework });
                let beyond = job.displaced.len().saturating_sub(DISPLACEMENTS_KEPT);
                job.displaced.drain(..beyond);
            }
        });
    }
}
