//! Granting: a queued job gets the GPUs its target names once nothing else holds any of them. The only place that
//! issues generations. Also builds the launch order, which is the same each time it is built for a generation.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use headway_types::command::NodeAddress;
use headway_types::spec::{CheckpointPolicy, LrScaling};
use headway_types::{
    Assignment, Configuration, Generation, GpuHealth, GpuUuid, GroupPhase, JobId, JobSpec, LaunchOrder, NodeId,
    Sequences,
};

use crate::draft::Note;
use crate::job::JobEvent;
use crate::record::{Allocation, Availability, JobState, LastChange, NodePolicy};
use crate::state::{Engine, JobEntry, NodeEntry, Seen};

impl Engine {
    /// Every GPU that may have processes on it, with the generation that holds it. Groups that nobody knows hold
    /// their GPUs until they are gone, too.
    pub(crate) fn holders(&self) -> BTreeMap<GpuUuid, (JobId, Generation)> {
        let mut held = BTreeMap::new();
        // What a written-off node said last holds nothing: the operator vouches that it is gone.
        let lost = |entry: &&NodeEntry| matches!(entry.node.availability, Availability::Lost { .. });
        for entry in self.nodes.values().filter(|entry| !lost(entry)) {
            let Seen::Known { groups, .. } = &entry.seen else { continue };
            for (key, group) in groups {
                if !matches!(group.phase, GroupPhase::Ended { .. }) {
                    held.extend(group.gpus.iter().map(|gpu| (gpu.clone(), *key)));
                }
            }
        }
        for (key, allocation) in &self.allocations {
            for slice in allocation.placement.slices() {
                if !allocation.released.contains_key(&slice.node) {
                    held.extend(slice.gpus.iter().map(|gpu| (gpu.clone(), *key)));
                }
            }
        }
        held
    }

    /// GPUs of a node that may be granted now or as soon as they are free.
    pub(crate) fn grantable(&self, node: NodeId) -> BTreeSet<&GpuUuid> {
        self.nodes
            .get(&node)
            .filter(|entry| {
                entry.connected()
                    && entry.node.availability == Availability::Available
                    && entry.node.policy == NodePolicy::Schedulable
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
        let mut held = self.holders();
        for (job, assignment) in &target.plan.assignments {
            if self.may_start(*job)
                && assignment.placement.slices().iter().all(|slice| {
                    let grantable = self.grantable(slice.node);
                    slice.gpus.iter().all(|gpu| grantable.contains(gpu) && !held.contains_key(gpu))
                })
            {
                let generation = self.grant(*job, assignment);
                held.extend(assignment.placement.ranks().map(|(_, gpu)| (gpu.clone(), (*job, generation))));
            }
        }
    }

    fn may_start(&self, job: JobId) -> bool {
        self.jobs.get(&job).is_some_and(|entry| {
            matches!(entry.job.state, JobState::Queued { .. })
                && entry.job.not_before.is_none_or(|moment| moment <= self.now)
        })
    }

    fn grant(&mut self, job: JobId, assignment: &Assignment) -> Generation {
        let Some(entry) = self.jobs.get(&job) else { return Generation(0) };
        let (name, generation) = (entry.job.spec.name.clone(), entry.job.generation.next());
        let resumed_from = entry.job.checkpoint.clone();
        let restarts = entry.job.generation > Generation(0);
        let before = self.allocations.get(&(job, entry.job.generation)).map(|one| one.placement.clone());
        if !self.transition(job, JobEvent::Grant { generation }) {
            return generation;
        }
        let gpus = assignment.placement.gpus();
        let cause = self.reason_of(job).unwrap_or_else(|| format!("{name} starts on {gpus} GPUs"));
        let allocation = Allocation {
            job,
            generation,
            plan: self.target.as_ref().map(|target| target.plan.id),
            placement: assignment.placement.clone(),
            configuration: assignment.configuration,
            revision: 1,
            resumed_from: resumed_from.clone(),
            cause: cause.clone(),
            predicted_goodput: assignment.predicted.goodput.0,
            granted_at: self.now,
            training_at: None,
            released: BTreeMap::new(),
            ended_at: None,
        };
        self.allocations.insert((job, generation), Arc::new(allocation));
        self.draft.allocations.insert((job, generation));
        let at = self.now;
        self.edit_job(job, |job| {
            job.generation = generation;
            job.not_before = None;
            if restarts {
                job.last_change = Some(LastChange { at, reason: cause.clone() });
            }
        });
        self.rewind(job);
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
        generation
    }

    /// A new generation begins at the committed checkpoint: live numbers go back to it.
    fn rewind(&mut self, job: JobId) {
        let Some(entry) = self.jobs.get_mut(&job) else { return };
        let fresh = JobEntry::new(entry.job.clone(), None);
        entry.live.progress = fresh.live.progress;
        entry.live.samples_seen = fresh.live.samples_seen;
        entry.live.step = fresh.live.step;
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
            placement: allocation.placement.clone(),
            nodes: nodes.collect(),
            configuration: allocation.configuration,
            lr_scale: lr_scale(entry, allocation.configuration),
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

/// How a job saves itself; opaque jobs are given the defaults.
pub(crate) fn checkpoint_policy(spec: &JobSpec) -> CheckpointPolicy {
    spec.training().map_or_else(CheckpointPolicy::default, |training| training.checkpoint.clone())
}

/// The learning-rate factor for a batch k times the reference batch.
pub(crate) fn lr_scale(entry: &JobEntry, configuration: Option<Configuration>) -> f64 {
    let (Some(training), Some(configuration)) = (entry.job.spec.training(), configuration) else { return 1.0 };
    let reference = training.reference_batch;
    let k = configuration.global_batch.0 as f64 / reference.0.max(1) as f64;
    match training.lr_scaling {
        LrScaling::None => 1.0,
        LrScaling::Sqrt => k.sqrt(),
        LrScaling::Linear => k,
        LrScaling::Adascale => {
            let phi = entry.model.as_ref().and_then(|model| model.noise_scale()).map(|(phi, _)| phi);
            let tokens = |batch: Sequences| batch.tokens(training.work.seq_len()).0;
            // AdaScale (Johnson et al. 2020, eq. 4): the gain (σ²/B₀ + μ²) / (σ²/B + μ²), with φ = σ²/μ².
            phi.map_or(k.sqrt(), |phi| {
                (phi / tokens(reference) + 1.0) / (phi / tokens(configuration.global_batch) + 1.0)
            })
        }
    }
}
