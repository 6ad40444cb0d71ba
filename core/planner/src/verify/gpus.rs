//! Where a job may be: on usable GPUs of nodes that take it, in a size and on a type it accepts, on nodes that are alike or, where it may mix, of two classes.

use std::collections::BTreeSet;

use headway_types::{Assignment, Placement};

use super::delta::Delta;
use super::{Scene, Violation};
use crate::claim::Spread;

pub(super) fn check(scene: &Scene<'_>, delta: &Delta<'_>) -> Result<(), Violation> {
    if delta.is_fixed() {
        // Its GPUs are the engine's business while something is in flight; they only must not change.
        let kept = delta.stays() || (delta.from.is_none() && delta.to.is_none());
        return if kept { Ok(()) } else { Err(Violation::MovedFixed { job: delta.job.job }) };
    }
    let Some(to) = delta.to else { return Ok(()) };
    check_usable(scene, delta, &to.placement)?;
    match delta.fresh() {
        Some(fresh) => check_fresh(scene, delta, fresh),
        None => Ok(()),
    }
}

fn check_usable(scene: &Scene<'_>, delta: &Delta<'_>, placement: &Placement) -> Result<(), Violation> {
    let job = delta.job.job;
    for slice in placement.slices() {
        let node = scene.nodes.get(&slice.node).ok_or(Violation::UnknownNode { job, node: slice.node })?;
        if let Some(gpu) = slice.gpus.iter().find(|gpu| !node.gpus.contains(gpu)) {
            return Err(Violation::UnusableGpu { job, node: slice.node, gpu: gpu.clone() });
        }
        if node.draining {
            return Err(Violation::Draining { job, node: slice.node });
        }
    }
    Ok(())
}

/// What holds for GPUs that a job does not have yet. What it has it may keep whatever it says today.
fn check_fresh(scene: &Scene<'_>, delta: &Delta<'_>, to: &Assignment) -> Result<(), Violation> {
    let (job, placement) = (delta.job, &to.placement);
    let (id, gpus) = (job.job, placement.gpus());
    let (mut kinds, mut domains, mut parts) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for slice in placement.slices() {
        let node = &scene.nodes[&slice.node];
        let class = &node.class;
        if !job.needs.only.takes(&node.name, &node.labels) {
            return Err(Violation::NotAskedFor { job: id, node: slice.node });
        }
        if job.needs.avoid.contains(&slice.node) {
            return Err(Violation::Avoided { job: id, node: slice.node });
        }
        if !job.range.accepts(&class.gpu_type) {
            return Err(Violation::Type { job: id, gpu_type: class.gpu_type.clone() });
        }
        kinds.insert((&class.gpu_type, class.gpus_per_node, class.emulated, &class.stated));
        domains.insert(&class.fabric.domain);
        parts.insert(slice.gpus.len());
    }
    if kinds.len() > if job.range.mixed { 2 } else { 1 } {
        return Err(Violation::MixedClasses { job: id });
    }
    if parts.len() > 1 {
        return Err(Violation::Uneven { job: id });
    }
    if domains.len() > 1 && job.needs.spread == Spread::Require {
        return Err(Violation::MixedDomains { job: id });
    }
    let size = if job.work.is_opaque() { gpus == job.range.max } else { job.range.allows(gpus) };
    if size { Ok(()) } else { Err(Violation::Size { job: id, gpus }) }
}
