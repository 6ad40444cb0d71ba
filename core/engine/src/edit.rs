//! The only ways to change a row. Each marks the row as touched, so that the outcome holds it once and at its newest.

use std::sync::Arc;

use headway_types::{Generation, GpuCount, JobId, NodeId};

use crate::draft::Note;
use crate::job::JobEvent;
use crate::record::{Allocation, AllocationPhase, AvailabilityEvent, EventRecord, Job, Node};
use crate::state::Engine;

impl Engine {
    /// Runs the transition table and stores its result; false where the table refuses.
    pub(crate) fn transition(&mut self, id: JobId, event: JobEvent) -> bool {
        let Some(entry) = self.jobs.get(&id) else { return false };
        match entry.job.state.clone().apply(id, self.now, event) {
            Ok(state) => {
                // The live numbers go with the job; what it reached last stays in its row.
                let reached = state.is_final().then_some(entry.live.loss).flatten();
                self.edit_job(id, |job| {
                    job.state = state;
                    job.loss = reached.or(job.loss);
                });
                true
            }
            Err(illegal) => {
                self.refuse_transition(Note::new("engine.illegal_transition", illegal.to_string()).job(id));
                false
            }
        }
    }

    /// Takes an allocation to its next phase; a phase it has already passed is none of its business.
    pub(crate) fn advance(&mut self, key: (JobId, Generation), next: AllocationPhase) {
        let now = self.now;
        if self.allocations.get(&key).is_some_and(|one| one.phase().may_become(next)) {
            self.edit_allocation(key, |allocation| {
                let _checked_above = allocation.enter(next, now);
            });
        }
    }

    /// Runs the table of a node's availability; false where it refuses, which for a node is no error.
    pub(crate) fn observe_node(&mut self, id: NodeId, event: AvailabilityEvent) -> bool {
        let now = self.now;
        let next = self.nodes.get(&id).and_then(|entry| entry.node.availability.apply(now, event));
        next.map(|availability| self.edit_node(id, |node| node.availability = availability)).is_some()
    }

    fn refuse_transition(&mut self, note: Note) {
        self.illegal_transitions += 1;
        self.note(note);
    }

    /// Changes a job's row; the version rises once per batch, in `finish`.
    pub(crate) fn edit_job(&mut self, id: JobId, change: impl FnOnce(&mut Job)) {
        if let Some(entry) = self.jobs.get_mut(&id) {
            let shape = |job: &Job| (job.state.name(), job.generation);
            let before = shape(&entry.job);
            change(Arc::make_mut(&mut entry.job));
            if shape(&entry.job) != before {
                self.draft.entered.jobs.insert(id);
            }
            self.draft.jobs.insert(id);
            self.unsettled = true;
        }
    }

    pub(crate) fn edit_node(&mut self, id: NodeId, change: impl FnOnce(&mut Node)) {
        if let Some(entry) = self.nodes.get_mut(&id) {
            let before = entry.node.clone();
            change(Arc::make_mut(&mut entry.node));
            if shape(&entry.node) != shape(&before) {
                self.draft.entered.nodes.insert(id);
            }
            self.draft.nodes.insert(id);
            self.unsettled = true;
        }
    }

    pub(crate) fn edit_allocation(&mut self, key: (JobId, Generation), change: impl FnOnce(&mut Allocation)) {
        if let Some(allocation) = self.allocations.get_mut(&key) {
            let shape = |allocation: &Allocation| (allocation.phase(), allocation.held_gpus());
            let before = shape(allocation);
            change(Arc::make_mut(allocation));
            if shape(allocation) != before {
                self.draft.entered.allocations.insert(key);
            }
            self.draft.allocations.insert(key);
            self.unsettled = true;
        }
    }

    /// Appends to the event log.
    pub(crate) fn note(&mut self, note: Note) {
        self.last_event_seq += 1;
        self.draft.events.push(EventRecord {
            seq: self.last_event_seq,
            at: self.now,
            actor: note.actor,
            verb: note.verb.into(),
            job: note.job,
            node: note.node,
            plan: note.plan,
            message: note.message,
            detail: note.detail,
        });
    }

    /// A job's name for sentences, or its id where it is gone.
    pub(crate) fn job_name(&self, id: JobId) -> String {
        self.jobs.get(&id).map_or_else(|| id.to_string(), |entry| entry.job.spec.name.clone())
    }

    pub(crate) fn node_name(&self, id: NodeId) -> String {
        self.nodes.get(&id).map_or_else(|| id.to_string(), |entry| entry.node.inventory.name.clone())
    }

    /// Allocations of a job that still hold GPUs.
    pub(crate) fn still_holds(&self, job: JobId) -> bool {
        self.allocations.range((job, Generation(0))..=(job, Generation(u64::MAX))).any(|(_, one)| one.holds())
    }
}

/// What a node's history tells apart.
fn shape(node: &Node) -> (&'static str, &'static str, &'static str, usize, GpuCount) {
    let standing = node.health.standing.name();
    let gpus = &node.inventory.gpus;
    (node.availability.name(), node.policy.name(), standing, gpus.len(), node.inventory.healthy())
}
