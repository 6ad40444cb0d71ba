//! Promises only the whole world can be held to.

use std::collections::{BTreeMap, BTreeSet};

use headway_types::NodeId;

use crate::node::SimNode;
use crate::world::World;

/// No GPU is used by the processes of two groups.
pub(crate) fn check_gpus(nodes: &BTreeMap<NodeId, SimNode>) -> Result<(), String> {
    for node in nodes.values() {
        let mut used = BTreeSet::new();
        for (key, group) in &node.alive {
            for gpu in &group.gpus {
                if !used.insert(gpu) {
                    return Err(format!("GPU {gpu} of node {} is used twice, also by {key:?}", node.inventory.name));
                }
            }
        }
    }
    Ok(())
}

/// Every acknowledged job is there, every job was acknowledged once, and all have ended.
pub(crate) fn check_end(world: &World) -> Result<(), String> {
    for (index, id) in &world.acknowledged {
        if !world.store.jobs.contains_key(id) {
            return Err(format!("acknowledged job {} is lost", world.scenario.jobs[*index].spec.name));
        }
    }
    if world.store.jobs.len() != world.scenario.jobs.len() {
        return Err(format!("{} jobs for {} submissions", world.store.jobs.len(), world.scenario.jobs.len()));
    }
    match world.store.jobs.values().find(|job| !job.state.is_final()) {
        Some(job) => {
            let held = world.store.allocations.values().filter(|one| one.holds()).count();
            Err(format!("job {} is still {:?} ({held} allocations hold GPUs)", job.spec.name, job.state))
        }
        None => Ok(()),
    }
}
