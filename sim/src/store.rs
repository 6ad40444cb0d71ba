//! What has been committed: the simulated Postgres. It keeps rows whole, as the real store does, guards every commit by
//! the term, and hands a new leader the same snapshot. It also refuses what no row may ever do.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use headway_engine::record::{
    Allocation, Array, Awaited, EventRecord, IdempotencyRecord, Job, JobState, Node, PlanRecord, PlanState,
    PolicySettings, Project, Reservation,
};
use headway_engine::{Change, Known, Observation, Snapshot};
use headway_goodput::{JobModel, Lessons};
use headway_types::{ArrayId, GpuUuid, JobId, NodeId, PlanId, ReservationId, Sequences, Term};

use crate::world::Key;

#[derive(Debug, Default)]
pub(crate) struct Store {
    term: Term,
    pub jobs: BTreeMap<JobId, Job>,
    pub nodes: BTreeMap<NodeId, Node>,
    pub allocations: BTreeMap<Key, Allocation>,
    /// GPUs that committed allocations hold.
    pub held: BTreeMap<GpuUuid, Key>,
    plans: BTreeMap<PlanId, PlanRecord>,
    target: Option<PlanId>,
    idempotency: BTreeMap<String, IdempotencyRecord>,
    policy: PolicySettings,
    pub projects: BTreeMap<String, Project>,
    reservations: BTreeMap<ReservationId, Reservation>,
    arrays: BTreeMap<ArrayId, Array>,
    models: BTreeMap<JobId, JobModel>,
    lessons: Lessons,
    /// The event log.
    pub events: Vec<EventRecord>,
}

/// Why nothing was written.
#[derive(Debug)]
pub(crate) enum CommitError {
    /// A newer term has begun.
    OldTerm,
    /// The rows break a rule, named here.
    Broken(String),
}

impl Store {
    pub fn new(policy: PolicySettings) -> Self {
        Self { policy, ..Self::default() }
    }

    pub fn begin_term(&mut self) -> Term {
        self.term.0 += 1;
        self.term
    }

    /// One transaction.
    pub fn commit(&mut self, term: Term, changes: &[Change]) -> Result<(), CommitError> {
        if term < self.term {
            return Err(CommitError::OldTerm);
        }
        // Within one transaction what is released may be granted again, whichever row comes first.
        for change in changes {
            if let Change::Allocation(one) = change {
                self.held.retain(|_, holder| *holder != (one.job, one.generation));
            }
        }
        changes.iter().try_for_each(|change| self.write(change)).map_err(CommitError::Broken)
    }

    fn write(&mut self, change: &Change) -> Result<(), String> {
        match change {
            Change::Job(job) => self.write_job(job)?,
            Change::Node(node) => {
                self.nodes.insert(node.inventory.node, Node::clone(node));
            }
            Change::NodeGone(node) => drop(self.nodes.remove(node)),
            Change::Allocation(allocation) => self.write_allocation(allocation)?,
            Change::Checkpoint(_)
            | Change::Transition(_)
            | Change::Deed(_)
            | Change::Realised(_)
            | Change::Notice(_)
            | Change::NoticeGivenUp { .. } => {}
            Change::Plan(plan) => {
                self.plans.insert(plan.plan.id, PlanRecord::clone(plan));
            }
            Change::Target(plan) => self.target = Some(*plan),
            Change::Term(term) => self.term = self.term.max(*term),
            // No backup is restored in a simulation.
            Change::Returned => {}
            Change::Policy(policy) => self.policy = policy.clone(),
            Change::Project(project) => drop(self.projects.insert(project.name.clone(), Project::clone(project))),
            Change::ProjectGone(name) => drop(self.projects.remove(name)),
            Change::Array(array) => drop(self.arrays.insert(array.id, Array::clone(array))),
            Change::Reservation(one) => drop(self.reservations.insert(one.id, Reservation::clone(one))),
            Change::ReservationGone(id) => drop(self.reservations.remove(id)),
            Change::Idempotency(record) => {
                let known = self.idempotency.insert(record.key.key.clone(), record.clone());
                if known.is_some_and(|known| known.subjects != record.subjects) {
                    return Err(format!("key {} made jobs twice", record.key.key));
                }
            }
            Change::Event(event) => {
                if event.seq != self.last_event_seq() + 1 {
                    return Err(format!("event {} follows event {}", event.seq, self.last_event_seq()));
                }
                self.events.push(event.clone());
            }
        }
        Ok(())
    }

    fn last_event_seq(&self) -> u64 {
        self.events.last().map_or(0, |event| event.seq)
    }

    fn write_job(&mut self, job: &Job) -> Result<(), String> {
        if let Some(old) = self.jobs.get(&job.id) {
            if job.generation < old.generation || job.version <= old.version {
                return Err(format!("job {} went back: {} v{}", job.spec.name, job.generation, job.version));
            }
            if samples(job) < samples(old) || job.progress.0 < old.progress.0 {
                return Err(format!("job {} lost progress", job.spec.name));
            }
            // A transaction may commit a generation's last checkpoint and issue the next one.
            let stale = job.checkpoint.as_ref().filter(|one| one.generation < old.generation);
            if stale.is_some() && job.checkpoint != old.checkpoint {
                return Err(format!("job {} under {} took a stale checkpoint", job.spec.name, job.generation));
            }
            if old.state.is_final() && job.state != old.state {
                return Err(format!("job {} rose from the dead: {} to {}", job.spec.name, old.state, job.state));
            }
        }
        if matches!(&job.state, JobState::Failed { message, .. } if message.is_empty()) {
            return Err(format!("job {} failed without a reason", job.spec.name));
        }
        self.jobs.insert(job.id, Job::clone(job));
        Ok(())
    }

    fn write_allocation(&mut self, allocation: &Allocation) -> Result<(), String> {
        let key = (allocation.job, allocation.generation);
        let name = self.jobs.get(&key.0).map_or_else(|| key.0.to_string(), |job| job.spec.name.clone());
        match self.allocations.get(&key) {
            Some(old) if old.placement != allocation.placement || old.resumed_from != allocation.resumed_from => {
                return Err(format!("the allocation of {name} {} changed its past", key.1));
            }
            Some(old) if old.released.keys().any(|node| !allocation.released.contains_key(node)) => {
                return Err(format!("the allocation of {name} {} took back a release", key.1));
            }
            Some(_) => {}
            None => {
                let job = self.jobs.get(&key.0).ok_or_else(|| format!("{name} was granted GPUs and is no job"))?;
                if job.generation != key.1 {
                    return Err(format!("{name} was granted GPUs under {}, but has {}", key.1, job.generation));
                }
                if job.checkpoint != allocation.resumed_from {
                    return Err(format!("{name} {} does not resume from the committed checkpoint", key.1));
                }
            }
        }
        for slice in allocation.placement.slices() {
            if allocation.released.contains_key(&slice.node) {
                continue;
            }
            for gpu in &slice.gpus {
                if let Some(other) = self.held.insert(gpu.clone(), key) {
                    return Err(format!("GPU {gpu} is granted to {name} {} and to {other:?}", key.1));
                }
            }
        }
        self.allocations.insert(key, allocation.clone());
        Ok(())
    }

    pub fn observe(&mut self, observations: &[Observation]) {
        for observation in observations {
            match observation {
                Observation::Model { job, model } => drop(self.models.insert(*job, JobModel::clone(model))),
                Observation::Lessons { lessons } => self.lessons = Lessons::clone(lessons),
                Observation::Steps { .. } => {}
            }
        }
    }

    /// What is read of the jobs that a request names.
    pub fn known(&self) -> Known {
        let jobs = self.jobs.iter().map(|(id, job)| (*id, Arc::new(job.clone()))).collect();
        let named =
            self.jobs.values().map(|job| ((job.spec.project.clone(), job.spec.name.clone()), Awaited::Job(job.id)));
        let arrays = self.arrays.values().map(|array| (array.id, Arc::new(array.clone()))).collect();
        Known { jobs, arrays, names: named.collect() }
    }

    pub fn snapshot(&self) -> Snapshot {
        let named: BTreeSet<JobId> =
            self.idempotency.values().flat_map(|record| record.subjects.iter().copied().map(JobId)).collect();
        let live = |id: &JobId| self.jobs.get(id).filter(|job| !job.state.is_final());
        let jobs = self.jobs.values().filter(|job| live(&job.id).is_some() || named.contains(&job.id));
        let newest = |one: &Allocation| live(&one.job).is_some_and(|job| job.generation == one.generation);
        let models = self.models.iter().filter(|(id, _)| live(id).is_some());
        Snapshot {
            jobs: jobs.cloned().collect(),
            nodes: self.nodes.values().cloned().collect(),
            allocations: self.allocations.values().filter(|one| one.holds() || newest(one)).cloned().collect(),
            target: self.target.and_then(|id| self.plans.get(&id).cloned()),
            proposals: self.plans.values().filter(|plan| plan.state == PlanState::Proposed).cloned().collect(),
            idempotency: self.idempotency.values().cloned().collect(),
            policy: self.policy.clone(),
            projects: self.projects.values().cloned().collect(),
            reservations: self.reservations.values().cloned().collect(),
            arrays: self.arrays.values().cloned().collect(),
            models: models.map(|(id, one)| (*id, one.clone())).collect(),
            lessons: self.lessons.clone(),
            last_event_seq: self.last_event_seq(),
            restored: None,
        }
    }
}

fn samples(job: &Job) -> Sequences {
    job.checkpoint.as_ref().map_or(Sequences(0), |checkpoint| checkpoint.samples_seen)
}
