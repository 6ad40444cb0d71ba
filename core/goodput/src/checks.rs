//! What a configuration must satisfy before anything is computed of it: the allocation exists, the layout is allowed, the batch divides.

use headway_types::{Configuration, GpuCount, Layout, NodeClass, NodeCount};

use crate::batches::interleaved;
use crate::catalog::{self, Device};
use crate::infeasible::{Cycle, Infeasible};
use crate::layouts::Room;
use crate::model::JobModel;

impl JobModel {
    /// Whether the allocation exists on the class at all.
    pub(crate) fn check_allocation(
        &self,
        class: &NodeClass,
        gpus: GpuCount,
        nodes: NodeCount,
    ) -> Result<(), Infeasible> {
        let per_node = class.gpus_per_node;
        if gpus.0 == 0 || nodes.0 == 0 || gpus.0.div_ceil(nodes.0) > per_node.0 {
            return Err(Infeasible::NodesTooSmall { gpus, nodes, per_node });
        }
        if !gpus.0.is_multiple_of(nodes.0) {
            return Err(Infeasible::Uneven { gpus, nodes });
        }
        let precision = self.training.precision;
        match catalog::device(class)? {
            Device::Catalogued(hardware) if !hardware.supports(precision.into()) => {
                Err(Infeasible::Precision { gpu_type: class.gpu_type.clone(), precision })
            }
            Device::Catalogued(_) | Device::Emulated(_) => Ok(()),
        }
    }

    /// Whether model, script and class allow the layout.
    pub(crate) fn check_layout(
        &self,
        class: &NodeClass,
        gpus: GpuCount,
        nodes: NodeCount,
        layout: Layout,
    ) -> Result<(), Infeasible> {
        let Some(shape) = self.shape() else { return Err(Infeasible::Opaque) };
        let room = Room { shape, limits: &self.training.layouts, class, gpus, nodes, lead: [1.0; 2] };
        let obstacle = room.obstacle(layout);
        obstacle.map_or(Ok(()), |detail| Err(Infeasible::Layout { layout, detail }))
    }

    /// Cycles of micro-batches of a batch that the recipe allows.
    pub(crate) fn check_batch(&self, configuration: &Configuration) -> Result<u64, Infeasible> {
        let (global_batch, range) = (configuration.global_batch.0, self.training.batch);
        if configuration.micro_batch > self.training.layouts.max_micro_batch {
            let largest = self.training.layouts.max_micro_batch.0;
            return Err(Infeasible::MicroBatch { micro_batch: configuration.micro_batch.0, largest });
        }
        if global_batch < range.min.0 || global_batch > range.max.0 {
            return Err(Infeasible::BatchOutside { global_batch, range });
        }
        let cycles = configuration.cycles().ok_or_else(|| indivisible(configuration))?;
        let multiple_of = interleaved(configuration.layout);
        if !cycles.is_multiple_of(multiple_of) {
            return Err(Infeasible::Interleaving { micro_batches: cycles, multiple_of });
        }
        Ok(cycles)
    }
}

pub(crate) fn indivisible(configuration: &Configuration) -> Infeasible {
    Infeasible::Indivisible {
        global_batch: configuration.global_batch.0,
        cycle: Cycle::of(configuration.layout),
        micro_batch: configuration.micro_batch.0,
    }
}
