//! What a script can be told of a layout.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::execution::{Execution, Offload, Recompute, Schedule, Sharding};
use crate::unit::{GpuCount, Sequences};

/// Parallel degrees a script supports; empty lists mean "any".
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct LayoutLimits {
    pub tp: Vec<u32>,
    pub pp: Vec<u32>,
    /// Largest micro-batch, in sequences.
    pub max_micro_batch: Sequences,
    #[serde(default)]
    pub execution: ExecutionLimits,
    /// What holds instead on so many GPUs. Where any size is named, the job's range allows no other.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub sizes: BTreeMap<GpuCount, SizeLayouts>,
}

/// What a script supports on one number of GPUs; empty lists mean "any".
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SizeLayouts {
    pub tp: Vec<u32>,
    pub pp: Vec<u32>,
    #[serde(default)]
    pub execution: ExecutionLimits,
}

impl LayoutLimits {
    /// Of a script that can be told degrees and nothing more.
    #[must_use]
    pub fn degrees(tp: Vec<u32>, pp: Vec<u32>, max_micro_batch: Sequences) -> Self {
        Self { tp, pp, max_micro_batch, execution: ExecutionLimits::default(), sizes: BTreeMap::new() }
    }

    /// Tensor and pipeline degrees on so many GPUs, and how they may be carried out.
    #[must_use]
    pub fn on(&self, gpus: GpuCount) -> (&[u32], &[u32], &ExecutionLimits) {
        match self.sizes.get(&gpus) {
            Some(size) => (&size.tp, &size.pp, &size.execution),
            None => (&self.tp, &self.pp, &self.execution),
        }
    }
}

/// What a script can be told of a layout beyond dp, tp and pp. Lists are ascending and never empty; the default is what every script can
/// do.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(default)]
pub struct ExecutionLimits {
    pub cp: Vec<u32>,
    pub ep: Vec<u32>,
    pub vpp: Vec<u32>,
    pub schedule: Vec<Schedule>,
    pub sharding: Vec<Sharding>,
    pub recompute: Vec<Recompute>,
    /// Whether it knows sequence parallelism beside plain tensor parallelism.
    pub sequence_parallel: bool,
    pub offload: Vec<Offload>,
    /// Whether it counts the embedding and the output projection as a layer each where only that cuts its layers into equal stages.
    pub uneven_stages: bool,
    /// Whether replicas may do unequal numbers of micro-batches, where a gang has nodes of two classes.
    pub uneven_shares: bool,
}

impl Default for ExecutionLimits {
    fn default() -> Self {
        Self {
            cp: vec![1],
            ep: vec![1],
            vpp: vec![1],
            schedule: vec![Schedule::default()],
            sharding: vec![Sharding::default()],
            recompute: vec![Recompute::default()],
            sequence_parallel: false,
            offload: vec![Offload::default()],
            uneven_stages: false,
            uneven_shares: false,
        }
    }
}

impl ExecutionLimits {
    /// Whether the script can be told so.
    #[must_use]
    pub fn allow(&self, execution: &Execution) -> bool {
        let Execution { cp, ep, vpp, schedule, sharding, recompute, sequence_parallel, offload, shares } = execution;
        self.cp.contains(cp)
            && self.ep.contains(ep)
            && self.vpp.contains(vpp)
            && self.schedule.contains(schedule)
            && self.sharding.contains(sharding)
            && self.recompute.contains(recompute)
            && self.offload.contains(offload)
            && (self.sequence_parallel || !sequence_parallel)
            && (self.uneven_shares || shares.are_even())
    }
}
