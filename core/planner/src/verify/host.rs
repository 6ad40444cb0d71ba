//! CPUs and memory of hosts. A node may be overdrawn only by jobs that were there before and stay as they are.

use std::collections::BTreeMap;

use headway_types::spec::NodeResources;
use headway_types::{JobId, NodeId};

use super::{Scene, Violation};

/// What the jobs of one node need together, and one that is new there.
#[derive(Default)]
struct Demand {
    cpus: u128,
    memory: u128,
    new_for_cpus: Option<JobId>,
    new_for_memory: Option<JobId>,
}

impl Demand {
    fn add(&mut self, job: JobId, needs: &NodeResources, new: bool) {
        let need = |amount: u64, sum: &mut u128, newcomer: &mut Option<JobId>| {
            *sum += u128::from(amount);
            if new && amount > 0 {
                newcomer.get_or_insert(job);
            }
        };
        need(u64::from(needs.cpus.unwrap_or(0)), &mut self.cpus, &mut self.new_for_cpus);
        need(needs.memory.map_or(0, |bytes| bytes.0), &mut self.memory, &mut self.new_for_memory);
    }
}

pub(super) fn check(scene: &Scene<'_>) -> Result<(), Violation> {
    let mut demands = BTreeMap::<NodeId, Demand>::new();
    for turn in &scene.turns {
        for slice in turn.to.iter().flat_map(|to| to.placement.slices()) {
            demands.entry(slice.node).or_default().add(turn.job.job, &turn.job.needs.per_node, !turn.stays());
        }
    }
    for (node, demand) in demands {
        let Some(host) = scene.nodes.get(&node).map(|node| node.host) else { continue };
        let cpus = host.cpus.map(u64::from);
        within(node, "CPUs", demand.cpus, cpus, demand.new_for_cpus)?;
        within(node, "bytes of memory", demand.memory, host.memory.map(|bytes| bytes.0), demand.new_for_memory)?;
    }
    Ok(())
}

fn within(
    node: NodeId,
    resource: &'static str,
    needed: u128,
    has: Option<u64>,
    newcomer: Option<JobId>,
) -> Result<(), Violation> {
    match (has, newcomer) {
        (Some(has), Some(job)) if needed > u128::from(has) => Err(Violation::Host { job, node, resource, needed, has }),
        _ => Ok(()),
    }
}
