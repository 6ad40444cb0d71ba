//! What a restore builds from the rows: indices that are only kept for speed, and what rows of earlier releases lack. And
//! what goes with the row of a node.

use std::sync::Arc;

use headway_types::{Gpu, GpuHealth, NodeId};

use super::Facts;
use crate::record::Availability;

impl Facts {
    pub(super) fn index(&mut self) {
        for (key, allocation) in &self.allocations {
            for slice in allocation.placement.slices() {
                if !allocation.released.contains_key(&slice.node) {
                    self.holding.entry(slice.node).or_default().insert(*key);
                }
            }
        }
        // Where two nodes offer one GPU, it belongs to the one that was granted it: written off neither itself nor there.
        let mut offers: Vec<(bool, NodeId, &Gpu)> = Vec::new();
        for (id, node) in &self.nodes {
            let gone = matches!(node.availability, Availability::Lost { .. });
            offers.extend(node.inventory.gpus.iter().map(|gpu| (gone || gpu.health != GpuHealth::Healthy, *id, gpu)));
        }
        offers.sort_by_key(|(doubtful, id, _)| (*doubtful, *id));
        for (_, id, gpu) in offers {
            self.homes.entry(gpu.uuid.clone()).or_insert(id);
        }
    }

    /// Lets go of a node that holds nothing; its GPUs are nobody's until some node offers them.
    pub fn drop_node(&mut self, id: NodeId) {
        self.nodes.remove(&id);
        self.holding.remove(&id);
        self.homes.retain(|_, home| *home != id);
        self.draft.nodes.insert(id);
        self.draft.entered.nodes.insert(id);
        self.unsettled = true;
    }

    /// Rows of earlier releases do not say which layout a job's checkpoints are bound to: that of its newest generation
    /// that saved, or may have saved unheard.
    pub(super) fn bind_layouts(&mut self) {
        for ((id, generation), allocation) in &self.allocations {
            let Some(job) = self.jobs.get_mut(id).filter(|job| job.layout.is_none()) else { continue };
            let saved = job.checkpoint.as_ref().is_some_and(|one| one.generation == *generation);
            let unheard = !job.speaks() && allocation.launched_at.is_some();
            if let Some(configuration) = allocation.configuration.filter(|_| saved || unheard) {
                Arc::make_mut(job).layout = Some(configuration.layout);
            }
        }
    }
}
