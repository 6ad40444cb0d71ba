//! Granting: a queued job gets the GPUs its target names once nothing else holds any of them. The only place that
//! issues generations. Also builds the launch order, which is the same each time it is built for a generation.

use std::collections::BTreeSet;
use std::sync::Arc;

use headway_types::command::NodeAddress;
use headway_types::spec::{CheckpointPolicy, LrScaling, Precision, Training, Work};
use headway_types::{
    Assignment, Configuration, Generation, GpuHealth, GpuUuid, JobId, JobSpec, LaunchOrder, ModelShape, NodeId,
    NodeSlice, Seconds,
};

use crate::draft::Note;
use crate::entry::JobEntry;
use crate::job::JobEvent;
use crate::record::{Allocation, Availability, JobState, LastChange};
use crate::state::Engine;

impl Engine {
    /// GPUs of a node that may be granted now or as soon as they are free.
    pub(crate) fn grantable(&self, node: NodeId) -> BTreeSet<&GpuUuid> {
        self.nodes
            .get(&node)
            .filter(|entry| {
                entry.connected() && entry.node.availability == Availability::Available && entry.node.takes_work()
            })
            .map(|entry| {
                let gpus = entry.node.inventory.gpus.iter();
                gpus.filter(|gpu| gpu.health == GpuHealth::Healthy).map(|gpu| &gpu.uuid).collect()
            })
            .unwrap_or_default()
    }

    /// Grants what the target gives to queued jobs, oldest job first.
    pub(crate) fn grant_targets(&mut self) {
        let Some(target) = self.target.clone() else { return };
        for (job, assignment) in &target.plan.assignments {
            let free = |slice: &NodeSlice| {
                let (grantable, held) = (self.grantable(slice.node), self.held_on(slice.node));
                slice.gpus.iter().all(|gpu| grantable.contains(gpu) && !held.contains_key(gpu))
            };
            let kept_off = self.is_kept_off(*job, assignment.placement.slices().iter().map(|slice| slice.node));
            let hopeless = self.is_exhausted(*job, assignment);
            if !kept_off && !hopeless && self.may_start(*job) && assignment.placement.slices().iter().all(free) {
                self.grant(*job, assignment);
            }
        }
    }

    pub(crate) fn may_start(&self, job: JobId) -> bool {
        self.jobs.get(&job).is_some_and(|entry| {
            matches!(entry.job.state, JobState::Queued { .. })
                && entry.job.not_before.is_none_or(|moment| moment <= self.now)
        })
    }

    /// Whether the plan's configuration has since run out of device memory: the next round has another.
    fn is_exhausted(&self, job: JobId, assignment: &Assignment) -> bool {
        let model = self.jobs.get(&job).and_then(|entry| entry.model.as_ref());
        let node = self.nodes.get(&assignment.placement.first_node());
        let (Some(model), Some(node), Some(at)) = (model, node, &assignment.configuration) else { return false };
        model.is_exhausted(&node.node.inventory.class(), at)
    }

    fn grant(&mut self, job: JobId, assignment: &Assignment) {
        let Some(entry) = self.jobs.get(&job) else { return };
        let (name, generation) = (entry.job.spec.name.clone(), entry.job.generation.next());
        let waited = match entry.job.state {
            JobState::Queued { since } => self.now.since(since),
            _ => Seconds(0.0),
        };
        let resumed_from = entry.job.checkpoint.clone();
        let restarts = entry.job.generation > Generation(0);
        let before = self.allocations.get(&(job, entry.job.generation)).map(|one| one.placement.clone());
        let lr_scale = lr_scale(entry, assignment.configuration);
        if !self.transition(job, JobEvent::Grant { generation }) {
            return;
        }
        let gpus = assignment.placement.gpus();
        let cause = self.reason_of(job).unwrap_or_else(|| format!("{name} starts on {gpus} GPUs"));
        let allocation = Allocation {
            plan: self.target.as_ref().map(|target| target.plan.id),
            configuration: assignment.configuration,
            lr_scale,
            resumed_from: resumed_from.clone(),
            cause: cause.clone(),
            predicted_goodput: assignment.predicted.goodput.0,
            ..Allocation::new(job, generation, assignment.placement.clone(), self.now)
        };
        self.take(allocation);
        // What a former generation said late says nothing about this one.
        if let Some(entry) = self.jobs.get_mut(&job) {
            entry.leave_generation();
        }
        let at = self.now;
        self.edit_job(job, |job| {
            job.generation = generation;
            job.not_before = None;
            job.turn.waited += waited;
            if restarts {
                job.last_change = Some(LastChange { at, reason: cause.clone() });
            }
        });
        let from = resumed_from.map_or("from the beginning".to_string(), |one| format!("from step {}", one.step));
        let (verb, message) = match before {
            Some(before) if before == assignment.placement => {
                ("job.granted", format!("{name} starts again on its {gpus} GPUs, {from}"))
            }
            Some(before) => {
                ("job.moved", format!("{name} goes from {} to {}, {from}: {cause}", before.gpus(), gpus.words()))
            }
            None => ("job.granted", format!("{name} gets {}, {from}: {cause}", gpus.words())),
        };
        let mut note = Note::new(verb, message).job(job).with("gpus", gpus).with("generation", generation);
        if let Some(configuration) = assignment.configuration {
            note = note.with("configuration", configuration);
        }
        self.note(note);
    }

    /// From now on these GPUs are taken, whatever else happens, until each node has proven them free.
    fn take(&mut self, allocation: Allocation) {
        let key = (allocation.job, allocation.generation);
        for slice in allocation.placement.slices() {
            self.holding.entry(slice.node).or_default().insert(key);
            self.draft.shown_nodes.insert(slice.node);
        }
        self.allocations.insert(key, Arc::new(allocation));
        self.draft.allocations.insert(key);
        self.draft.entered.allocations.insert(key);
    }

    /// The target's sentence for a job's move.
    pub(crate) fn reason_of(&self, job: JobId) -> Option<String> {
        let target = self.target.as_ref()?;
        target.plan.report.moves.iter().find(|one| one.job == job).map(|one| one.reason.clone())
    }

    /// Everything the gang's nodes need to launch it.
    pub(crate) fn launch_order(&self, entry: &JobEntry, allocation: &Allocation) -> LaunchOrder {
        let (job, spec) = (&entry.job, &entry.job.spec);
        let training = spec.training();
        let policy = checkpoint_policy(spec);
        let root = self.config.checkpoint_root.trim_end_matches('/');
        let nodes = allocation.placement.slices().iter().map(|slice| {
            let inventory = self.nodes.get(&slice.node).map(|entry| &entry.node.inventory);
            NodeAddress {
                node: slice.node,
                name: inventory.map_or_else(String::new, |one| one.name.clone()),
                address: inventory.map_or_else(String::new, |one| one.address.clone()),
            }
        });
        LaunchOrder {
            job: job.id,
            generation: allocation.generation,
            job_name: spec.name.clone(),
            owner: job.owner.clone(),
            run: spec.role().run.clone(),
            model: training.and_then(model),
            placement: allocation.placement.clone(),
            nodes: nodes.collect(),
            configuration: allocation.configuration,
            lr_scale: allocation.lr_scale,
            lr_scaling: training.map_or(LrScaling::None, |training| training.lr_scaling),
            reference_batch: training.map(|training| training.reference_batch),
            // Two jobs that name the same directory must not share generations.
            checkpoint_dir: format!("{}/{}", policy.dir.as_deref().unwrap_or(root).trim_end_matches('/'), job.id),
            checkpoint_every: policy.every,
            resume: allocation.resumed_from.clone(),
            grace: policy.grace,
        }
    }
}

fn model(training: &Training) -> Option<(ModelShape, Precision)> {
    match &training.work {
        Work::Model(shape) => Some((*shape, training.precision)),
        Work::Curve { .. } => None,
    }
}

/// How a job saves itself; opaque jobs are given the defaults.
pub(crate) fn checkpoint_policy(spec: &JobSpec) -> CheckpointPolicy {
    spec.training().map_or_else(CheckpointPolicy::default, |training| training.checkpoint.clone())
}

/// The learning-rate factor for a configuration's batch, by the job's rule and what is known of its noise.
pub(crate) fn lr_scale(entry: &JobEntry, configuration: Option<Configuration>) -> f64 {
    let (Some(model), Some(configuration)) = (&entry.model, configuration) else { return 1.0 };
    model.learning_rate_factor(configuration.global_batch)
}
