//! Facts: rows, and the draft of the batch in hand. Rows change only by the functions here: each marks its row as touched,
//! so that the outcome holds it once and at its newest. Nothing here knows what was seen.

pub(crate) mod arrays;
mod departed;
mod displaced;
mod indices;
pub(crate) mod owners;
pub(crate) mod roll;
pub(crate) mod usage;
mod wanted;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use headway_types::{
    ArrayId, AvailabilityKind, Configuration, Generation, GpuCount, GpuSeconds, GpuType, GpuUuid, IdSource, JobId,
    NodeClass, NodeId, NodePolicyKind, Placement, PlanId, ReservationId, StandingKind, Term, Timestamp,
};
use imbl::OrdMap;

use crate::account::GpuTime;
use crate::config::EngineConfig;
use crate::dependencies::{Dependents, waits_for};
use crate::draft::{Draft, Note};
use crate::event::Actor;
use crate::job::JobEvent;
use crate::keys::Keys;
use crate::notices;
use crate::record::{
    Allocation, AllocationPhase, Array, AvailabilityEvent, EventRecord, Job, JobState, Node, PlanRecord,
    PolicySettings, Project, Reservation, Shape, class_of,
};
use crate::snapshot::Snapshot;
use arrays::{Arrays, Lot};
use departed::Departed;
use owners::Owners;
use roll::{Place, Roll};
pub(crate) use wanted::RoundWanted;

/// Subjects of which the log is told that something impossible was met, at most.
const TOLD_AT_MOST: usize = 1_000;

/// What is decided and stored, and what the batch in hand has done to it.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    pub config: EngineConfig,
    pub term: Term,
    pub ids: IdSource,
    /// Time of the batch in hand; never steps back.
    pub now: Timestamp,
    /// Live jobs, and ended ones that still hold GPUs. A round shares them as they are when it is asked for.
    pub jobs: OrdMap<JobId, Arc<Job>>,
    /// Which of them a batch has to look at.
    pub roll: Roll,
    /// Who waits for whom.
    pub dependents: Dependents,
    /// Of which a job is kept.
    pub arrays: Arrays,
    /// What their unfinished ones come to, by user.
    pub owners: Owners,
    pub departed: Departed<JobId, Job>,
    pub departed_arrays: Departed<ArrayId, Array>,
    pub nodes: BTreeMap<NodeId, Arc<Node>>,
    pub allocations: BTreeMap<(JobId, Generation), Arc<Allocation>>,
    /// Allocations with an unreleased slice, by node.
    pub holding: BTreeMap<NodeId, BTreeSet<(JobId, Generation)>>,
    /// Which node offers a GPU.
    pub homes: BTreeMap<GpuUuid, NodeId>,
    pub target: Option<Arc<PlanRecord>>,
    pub proposals: BTreeMap<PlanId, Arc<PlanRecord>>,
    pub projects: BTreeMap<String, Arc<Project>>,
    /// Those that are not over.
    pub reservations: BTreeMap<ReservationId, Arc<Reservation>>,
    pub keys: Keys,
    pub policy: PolicySettings,
    pub round_wanted: Option<RoundWanted>,
    /// Something has changed that reconcile must look at.
    pub unsettled: bool,
    pub draft: Draft,
    last_event_seq: u64,
    illegal_transitions: u64,
    impossible_states: u64,
    /// Where something impossible was met and the log was told.
    impossible_told: BTreeSet<(&'static str, Option<JobId>, Option<NodeId>)>,
}

impl Facts {
    /// Takes over from the store.
    pub fn restore(config: EngineConfig, term: Term, seed: u64, now: Timestamp, snapshot: Snapshot) -> Self {
        let jobs: OrdMap<JobId, Arc<Job>> = snapshot.jobs.into_iter().map(|job| (job.id, Arc::new(job))).collect();
        let allocations = snapshot.allocations.into_iter().map(|mut one| {
            // Rows of the first release do not say when their processes were up.
            let running = jobs.get(&one.job).and_then(|job| match job.state {
                JobState::Running { generation, since } if generation == one.generation => Some(since),
                _ => None,
            });
            one.launched_at = one.launched_at.or(running);
            ((one.job, one.generation), Arc::new(one))
        });
        let mut facts = Self {
            config,
            term,
            ids: IdSource::seeded(seed),
            now,
            allocations: allocations.collect(),
            roll: Roll::of(&jobs),
            dependents: Dependents::of_all(&jobs),
            arrays: Arrays::of_all(snapshot.arrays, &jobs),
            owners: Owners::of(&jobs),
            departed: Departed::default(),
            departed_arrays: Departed::default(),
            jobs,
            nodes: snapshot.nodes.into_iter().map(|node| (node.inventory.node, Arc::new(node))).collect(),
            holding: BTreeMap::new(),
            homes: BTreeMap::new(),
            target: snapshot.target.map(Arc::new),
            proposals: snapshot.proposals.into_iter().map(|one| (one.plan.id, Arc::new(one))).collect(),
            projects: snapshot.projects.into_iter().map(|one| (one.name.clone(), Arc::new(one))).collect(),
            reservations: snapshot.reservations.into_iter().map(|one| (one.id, Arc::new(one))).collect(),
            keys: Keys::new(snapshot.idempotency),
            policy: snapshot.policy,
            round_wanted: None,
            unsettled: true,
            draft: Draft::default(),
            last_event_seq: snapshot.last_event_seq,
            illegal_transitions: 0,
            impossible_states: 0,
            impossible_told: BTreeSet::new(),
        };
        facts.ask_round_again("the scheduler took over".into());
        facts.index();
        facts.bind_layouts();
        facts
    }

    /// The newest generation's allocation, while its row is kept.
    pub fn newest_allocation(&self, job: &Job) -> Option<&Arc<Allocation>> {
        self.allocations.get(&(job.id, job.generation))
    }

    /// Returns whether the job must not be started again: its specification forbids it, and a process of the generation
    /// that it is in may have been launched. A generation without a row may have been. A job that waits has not used its
    /// start, whatever number its newest generation has: after a launch it never waits again.
    pub fn has_used_its_only_start(&self, job: &Job) -> bool {
        let launched = || self.newest_allocation(job).is_none_or(|allocation| allocation.prepared_at.is_some());
        job.spec.limits.forbid_restart() && job.state.generation().is_some() && launched()
    }

    /// The allocation whose processes may be alive.
    pub fn live_allocation(&self, job: &Job) -> Option<&Arc<Allocation>> {
        self.allocations.get(&(job.id, job.state.generation()?))
    }

    /// Whether the job's newest generation is this one and the job is not over.
    pub fn is_newest(&self, job: JobId, generation: Generation) -> bool {
        self.jobs.get(&job).is_some_and(|job| job.generation == generation && !job.state.is_final())
    }

    /// Whether this generation was granted GPUs on this node.
    pub fn is_placed_on(&self, job: JobId, generation: Generation, node: NodeId) -> bool {
        self.allocations
            .get(&(job, generation))
            .is_some_and(|allocation| allocation.placement.slices().iter().any(|slice| slice.node == node))
    }

    /// What a gang there is valued by: the class of its nodes, or of the slowest where they are of two.
    pub fn class_of(&self, placement: &Placement) -> Option<NodeClass> {
        class_of(placement, |node| self.nodes.get(&node).map(|node| &**node))
    }

    /// GPUs of a placement by their type; those of nodes that are gone have none.
    pub fn gpus_by_type(&self, placement: &Placement) -> BTreeMap<GpuType, GpuCount> {
        let mut gpus: BTreeMap<GpuType, GpuCount> = BTreeMap::new();
        for slice in placement.slices() {
            if let Some(node) = self.nodes.get(&slice.node) {
                gpus.entry(node.inventory.gpu_type.clone()).or_default().0 += slice.gpus.len() as u32;
            }
        }
        gpus
    }

    pub fn shape_of(&self, placement: &Placement, configuration: Option<Configuration>) -> Shape {
        Shape { gpus: self.gpus_by_type(placement), nodes: placement.nodes(), configuration }
    }

    /// The shape of a job that the target gives another one; `None` where it keeps its shape.
    pub fn leaves(&self, job: &Job) -> Option<Shape> {
        let held = self.live_allocation(job)?;
        let to = self.target.as_ref()?.plan.assignments.get(&job.id)?;
        let shape = self.shape_of(&held.placement, held.configuration);
        (shape != self.shape_of(&to.placement, to.configuration)).then_some(shape)
    }

    /// Allocations of a job, whatever became of them.
    fn allocations_of(&self, job: JobId) -> impl Iterator<Item = (&(JobId, Generation), &Arc<Allocation>)> {
        allocations_of(&self.allocations, job)
    }

    /// Whether allocations of a job still hold GPUs.
    pub fn still_holds(&self, job: JobId) -> bool {
        self.allocations_of(job).any(|(_, one)| one.holds())
    }

    /// Allocations of a job that hold nothing and of which no live generation is one.
    pub fn over(&self, job: JobId, live: Option<Generation>) -> Vec<(JobId, Generation)> {
        let over = self.allocations_of(job).filter(|((_, generation), one)| !one.holds() && live != Some(*generation));
        over.map(|(key, _)| *key).collect()
    }

    pub fn attained(&self, job: &Job) -> GpuSeconds {
        attained(job, &self.allocations, self.now)
    }

    /// Whether a queued job waits for no other job, and its wait after a failure, if there was one, is over.
    pub fn may_start(&self, job: JobId) -> bool {
        let free = |job: &Job| matches!(job.state, JobState::Queued { .. }) && job.wants_gpus(self.now);
        self.jobs.get(&job).is_some_and(|job| free(job))
    }

    /// Whether a job takes this size, whatever it took when it was planned.
    pub fn takes(&self, job: JobId, gpus: GpuCount) -> bool {
        self.jobs.get(&job).is_some_and(|job| job.spec.role().gpus.allows(gpus))
    }

    /// A job's name for sentences, or its id where it is gone.
    pub fn job_name(&self, id: JobId) -> String {
        self.jobs.get(&id).map_or_else(|| id.to_string(), |job| job.spec.name.clone())
    }

    pub fn node_name(&self, id: NodeId) -> String {
        self.nodes.get(&id).map_or_else(|| id.to_string(), |node| node.inventory.name.clone())
    }

    /// The target's sentence for a job's move.
    pub fn reason_of(&self, job: JobId) -> Option<String> {
        let target = self.target.as_ref()?;
        target.plan.report.moves.iter().find(|one| one.job == job).map(|one| one.reason.clone())
    }

    /// Runs the transition table and stores its result; false where the table refuses.
    #[must_use]
    pub fn transition(&mut self, id: JobId, event: JobEvent) -> bool {
        let Some(job) = self.jobs.get(&id) else {
            self.impossible("an event came for a job that is not kept", Some(id), None);
            return false;
        };
        match job.state.clone().apply(id, self.now, event) {
            Ok(state) => {
                self.edit_job(id, |job| job.state = state);
                true
            }
            Err(illegal) => {
                self.illegal_transitions += 1;
                self.note(Note::new("engine.illegal_transition", illegal.to_string()).job(id));
                false
            }
        }
    }

    /// Takes an allocation to its next phase; a phase it has already passed is none of its business.
    pub fn advance(&mut self, key: (JobId, Generation), next: AllocationPhase) {
        let now = self.now;
        if self.allocations.get(&key).is_some_and(|one| one.phase().may_become(next)) {
            self.edit_allocation(key, |allocation| {
                let _checked_above = allocation.enter(next, now);
            });
        }
    }

    /// Runs the table of a node's availability; false where it refuses, which for a node is no error.
    pub fn observe_node(&mut self, id: NodeId, event: AvailabilityEvent) -> bool {
        let now = self.now;
        let next = self.nodes.get(&id).and_then(|node| node.availability.apply(now, event));
        if next.is_some() {
            // Readers see with a job that its nodes are out of contact.
            let jobs = self.holding.get(&id).into_iter().flatten().map(|(job, _)| *job);
            self.draft.shown_jobs.extend(jobs);
        }
        next.map(|availability| self.edit_node(id, |node| node.availability = availability)).is_some()
    }

    /// Changes a job's row; the version rises once per batch, when the outcome is gathered.
    pub fn edit_job(&mut self, id: JobId, change: impl FnOnce(&mut Job)) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return self.impossible("a job that is not kept was to change", Some(id), None);
        };
        let shape = |job: &Job| (job.state.kind(), job.generation);
        let (before, from, waited) = (shape(job), Place::of(job), waits_for(job));
        let (lot, counted) = (Lot::of(job), !job.state.is_final());
        change(Arc::make_mut(job));
        if !job.after.is_empty() {
            self.dependents.renew(id, &waited, &waits_for(job));
        }
        self.owners.renew(job, counted);
        self.roll.move_to(id, from, Place::of(job));
        if shape(job) != before {
            self.draft.entered.jobs.insert(id);
        }
        self.draft.jobs.insert(id);
        self.unsettled = true;
        if lot.is_some() {
            self.renew_element(id, lot);
        }
    }

    pub fn edit_node(&mut self, id: NodeId, change: impl FnOnce(&mut Node)) {
        let Some(node) = self.nodes.get_mut(&id) else {
            return self.impossible("a node that is not known was to change", None, Some(id));
        };
        let before = shape(node);
        change(Arc::make_mut(node));
        if shape(node) != before {
            self.draft.entered.nodes.insert(id);
        }
        self.draft.nodes.insert(id);
        self.unsettled = true;
    }

    pub fn edit_allocation(&mut self, key: (JobId, Generation), change: impl FnOnce(&mut Allocation)) {
        let Some(allocation) = self.allocations.get_mut(&key) else {
            return self.impossible("an allocation that is not kept was to change", Some(key.0), None);
        };
        let shape = |allocation: &Allocation| (allocation.phase(), allocation.held_gpus());
        let before = shape(allocation);
        change(Arc::make_mut(allocation));
        if shape(allocation) != before {
            self.draft.entered.allocations.insert(key);
        }
        self.draft.allocations.insert(key);
        self.unsettled = true;
    }

    /// Appends to the event log, and to the outbox what the job's webhooks are told of it.
    pub fn note(&mut self, note: Note) {
        self.last_event_seq += 1;
        let message = match (&note.actor, &self.draft.because) {
            (Actor::User(_), Some(reason)) => format!("{}: {reason}", note.message),
            _ => note.message,
        };
        let event = EventRecord {
            seq: self.last_event_seq,
            at: self.now,
            actor: note.actor,
            verb: note.verb.into(),
            job: note.job,
            node: note.node,
            plan: note.plan,
            message,
            detail: note.detail,
        };
        if let Some(job) = event.job.and_then(|job| self.jobs.get(&job)) {
            self.draft.notices.extend(notices::of_event(job, &event));
        }
        self.draft.events.push(event);
    }

    /// A state that the rest of the engine rules out. The step that needed it is left out; that is counted each time, and
    /// told in the log once per subject, because a step left out in silence is a job that hangs for no reason anyone sees.
    pub fn impossible(&mut self, what: &'static str, job: Option<JobId>, node: Option<NodeId>) {
        self.impossible_states += 1;
        if self.impossible_told.len() < TOLD_AT_MOST && self.impossible_told.insert((what, job, node)) {
            let message = format!("{what}: a step was left out; this is a fault of the scheduler, please report it");
            let note = Note::new("engine.impossible_state", message);
            self.note(Note { job, node, ..note });
        }
    }

    pub fn illegal_transitions(&self) -> u64 {
        self.illegal_transitions
    }

    pub fn impossible_states(&self) -> u64 {
        self.impossible_states
    }
}

/// GPU-time in the job's life, that of generations which still hold GPUs included.
pub(crate) fn attained(
    job: &Job,
    allocations: &BTreeMap<(JobId, Generation), Arc<Allocation>>,
    now: Timestamp,
) -> GpuSeconds {
    let held = allocations_of(allocations, job.id).filter(|(_, one)| one.holds());
    job.attained + held.map(|(_, one)| GpuTime::of(one, now).total()).sum()
}

fn allocations_of(
    allocations: &BTreeMap<(JobId, Generation), Arc<Allocation>>,
    job: JobId,
) -> impl Iterator<Item = (&(JobId, Generation), &Arc<Allocation>)> {
    allocations.range((job, Generation(0))..=(job, Generation(u64::MAX)))
}

/// What a node's history tells apart.
fn shape(node: &Node) -> (AvailabilityKind, NodePolicyKind, StandingKind, usize, GpuCount) {
    let (inventory, standing) = (&node.inventory, node.health.standing.kind());
    (node.availability.kind(), node.policy.kind(), standing, inventory.gpus.len(), inventory.healthy())
}

#[cfg(test)]
mod tests {
    use headway_types::NodeId;

    use super::*;

    #[test]
    fn an_impossible_state_is_counted_each_time_and_told_once_per_subject() {
        let mut facts = Facts::restore(EngineConfig::default(), Term(1), 1, Timestamp(1_000_000), Snapshot::default());
        let (job, node) = (facts.ids.job(facts.now), NodeId(uuid::Uuid::nil()));
        for _ in 0..3 {
            facts.edit_job(job, |job| job.restarts += 1);
        }
        facts.edit_node(node, |node| node.version += 1);
        assert_eq!(facts.impossible_states(), 4);
        let told: Vec<_> =
            facts.draft.events.iter().map(|event| (event.verb.as_str(), event.job, event.node)).collect();
        assert_eq!(told, [("engine.impossible_state", Some(job), None), ("engine.impossible_state", None, Some(node))]);
    }
}
