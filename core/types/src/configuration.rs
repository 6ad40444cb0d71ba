//! How a job trains on the GPUs it has: parallel layout, micro-batch and global batch.

use core::fmt;

use serde::{Deserialize, Serialize};

use crate::unit::{GpuCount, Sequences};

/// Parallel layout: degrees of data, tensor and pipeline parallelism. Uniform over the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Layout {
    /// Data-parallel replicas.
    pub dp: u32,
    /// Tensor-parallel degree; never spans nodes.
    pub tp: u32,
    /// Pipeline stages.
    pub pp: u32,
}

impl Layout {
    /// Pure data parallelism on `gpus` GPUs.
    #[must_use]
    pub fn data_parallel(gpus: GpuCount) -> Self {
        Self { dp: gpus.0, tp: 1, pp: 1 }
    }

    /// GPUs the layout occupies: dp × tp × pp. More than can be counted is as many as can.
    #[must_use]
    pub fn gpus(self) -> GpuCount {
        GpuCount(self.dp.saturating_mul(self.tp).saturating_mul(self.pp))
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "dp{} tp{} pp{}", self.dp, self.tp, self.pp)
    }
}

/// Layout, micro-batch and global batch: everything the worker must be told to train.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Configuration {
    pub layout: Layout,
    /// Sequences per forward pass of one data-parallel replica.
    pub micro_batch: Sequences,
    /// Sequences per optimizer step over all replicas: dp × micro-batch × accumulation.
    pub global_batch: Sequences,
}

impl Configuration {
    /// Micro-batches each replica accumulates per optimizer step, or `None` where the batch does not divide.
    #[must_use]
    pub fn accumulation(&self) -> Option<u64> {
        let per_round = u64::from(self.layout.dp).checked_mul(self.micro_batch.0)?;
        (per_round > 0 && self.global_batch.0 > 0 && self.global_batch.0.is_multiple_of(per_round))
            .then(|| self.global_batch.0 / per_round)
    }

    /// What it takes to go from `self` to `next` on the same GPUs.
    #[must_use]
    pub fn tier_to(&self, next: &Configuration) -> Option<Tier> {
        if self == next {
            None
        } else if self.layout != next.layout {
            Some(Tier::Layout)
        } else if self.micro_batch != next.micro_batch {
            Some(Tier::MicroBatch)
        } else {
            Some(Tier::Batch)
        }
    }
}

impl fmt::Display for Configuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} mb{} gb{}", self.layout, self.micro_batch, self.global_batch)
    }
}

/// What a change costs, cheapest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tier {
    /// Only the global batch changes: takes effect at the next step.
    Batch,
    /// The micro-batch changes: the schedule is rebuilt in the running process.
    MicroBatch,
    /// The layout changes on the same GPUs: checkpoint, reshard, resume.
    Layout,
    /// The GPUs change: checkpoint, new generation elsewhere, resume.
    Migration,
}

impl Tier {
    /// Whether workers go on running through the change.
    #[must_use]
    pub fn is_live(self) -> bool {
        matches!(self, Tier::Batch | Tier::MicroBatch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn configuration(dp: u32, micro: u64, global: u64) -> Configuration {
        Configuration {
            layout: Layout { dp, tp: 1, pp: 1 },
            micro_batch: Sequences(micro),
            global_batch: Sequences(global),
        }
    }

    #[test]
    fn accumulation_is_what_is_left_of_the_batch() {
        assert_eq!(configuration(4, 2, 32).accumulation(), Some(4));
        assert_eq!(configuration(4, 2, 30).accumulation(), None);
        assert_eq!(configuration(0, 2, 30).accumulation(), None);
        assert_eq!(configuration(u32::MAX, u64::MAX, 30).accumulation(), None);
    }

    #[test]
    fn a_batch_change_is_the_cheapest_tier() {
        let from = configuration(4, 2, 32);
        assert_eq!(from.tier_to(&from), None);
        assert_eq!(from.tier_to(&configuration(4, 2, 64)), Some(Tier::Batch));
        assert_eq!(from.tier_to(&configuration(4, 4, 64)), Some(Tier::MicroBatch));
        assert_eq!(from.tier_to(&configuration(2, 2, 32)), Some(Tier::Layout));
    }
}
