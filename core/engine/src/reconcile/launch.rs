//! The launch order of a generation, the same each time it is built.

use headway_types::command::NodeAddress;
use headway_types::spec::{LrScaling, Precision, Run, Training, Work};
use headway_types::{ArrayPlace, JobSpec, LaunchOrder, ModelShape};

use crate::facts::Facts;
use crate::record::{Allocation, Element, Job};

/// Everything the gang's nodes need to launch it.
pub(super) fn launch_order(facts: &Facts, job: &Job, allocation: &Allocation) -> LaunchOrder {
    let spec = &job.spec;
    let training = spec.training();
    let policy = spec.checkpoint_policy();
    let root = facts.config.checkpoint_root.trim_end_matches('/');
    let nodes = allocation.placement.slices().iter().map(|slice| {
        let inventory = facts.nodes.get(&slice.node).map(|node| &node.inventory);
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
        array: job.element.as_ref().and_then(|element| array_place(facts, element)),
        owner: job.owner.clone(),
        run: run(spec),
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
        notice: spec.limits.signal,
        watched: spec.limits.watch(),
    }
}

/// Of a job with a training section, that says how many tokens its samples have.
fn run(spec: &JobSpec) -> Run {
    let mut run = spec.role().run.clone();
    if let (Some(progress), Some(training)) = (&mut run.progress, spec.training()) {
        progress.sequence_length = Some(training.work.seq_len());
    }
    run
}

fn array_place(facts: &Facts, element: &Element) -> Option<ArrayPlace> {
    let &Element { array, index, count, .. } = element;
    let indices = &facts.array(array)?.indices;
    let (first, last) = (indices.iter().next()?, indices.iter().last()?);
    Some(ArrayPlace { array, index, count, first, last })
}

fn model(training: &Training) -> Option<(ModelShape, Precision)> {
    match &training.work {
        Work::Model(shape) => Some((*shape, training.precision)),
        Work::Curve { .. } => None,
    }
}
