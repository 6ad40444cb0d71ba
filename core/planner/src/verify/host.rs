//! What hosts have besides GPUs. A node may be overdrawn only by jobs that were there before and stay as they are.

use std::collections::BTreeMap;

use headway_types::spec::{HostResource, NodeResources};
use headway_types::{JobId, NodeId};

use super::{Scene, Violation};

/// What the jobs of one node need together, and one that is new there, per resource.
#[derive(Default)]
struct Demand(BTreeMap<HostResource, (u128, Option<JobId>)>);

impl Demand {
    fn add(&mut self, job: JobId, needs: &NodeResources, new: bool) {
        for of in HostResource::ALL {
            let Some(need) = needs.amount(of).filter(|need| *need > 0) else { continue };
            let (sum, newcomer) = self.0.entry(of).or_default();
            *sum += u128::from(need);
            if new {
                newcomer.get_or_insert(job);
            }
        }
    }
}

pub(super) fn check(scene: &Scene<'_>) -> Result<(), Violation> {
    let mut demands = BTreeMap::<NodeId, Demand>::new();
    for delta in &scene.deltas {
        for slice in delta.to.iter().flat_map(|to| to.placement.slices()) {
            demands.entry(slice.node).or_default().add(delta.job.job, &delta.job.needs.per_node, !delta.stays());
        }
    }
    for (node, demand) in demands {
        let Some(host) = scene.nodes.get(&node).map(|node| node.host) else { continue };
        for (of, (needed, newcomer)) in demand.0 {
            let (Some(has), Some(job)) = (host.amount(of), newcomer) else { continue };
            if needed > u128::from(has) {
                return Err(Violation::Host { job, node, resource: of.in_words(), needed, has });
            }
        }
    }
    Ok(())
}
