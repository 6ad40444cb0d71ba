//! How a job trains on the GPUs it has: parallel layout, micro-batch and global batch.

use core::fmt;

use serde::{Deserialize, Serialize};

use crate::execution::Execution;
use crate::unit::{GpuCount, Sequences};
use crate::word::words;

/// Parallel layout: degrees of data, tensor and pipeline parallelism and how its ranks execute a step. Uniform over the job, and
/// nothing of it changes while a process runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Layout {
    /// Data-parallel replicas.
    pub dp: u32,
    /// Tensor-parallel degree; never spans nodes.
    pub tp: u32,
    /// Pipeline stages.
    pub pp: u32,
    #[serde(default, skip_serializing_if = "Execution::is_plain")]
    pub execution: Execution,
}

impl Layout {
    /// One rank.
    #[must_use]
    pub fn single() -> Self {
        Self { dp: 1, tp: 1, pp: 1, execution: Execution::PLAIN }
    }

    /// Pure data parallelism on `gpus` GPUs.
    #[must_use]
    pub fn data_parallel(gpus: GpuCount) -> Self {
        Self { dp: gpus.0, ..Self::single() }
    }

    /// Micro-batches of all replicas in one cycle: one each, where their shares are even.
    #[must_use]
    pub fn micro_batches(self) -> u64 {
        self.execution.shares.micro_batches(self.dp)
    }

    /// GPUs the layout occupies: dp × tp × pp × cp. More than can be counted is as many as can.
    #[must_use]
    pub fn gpus(self) -> GpuCount {
        let degrees = [self.tp, self.pp, self.execution.cp];
        GpuCount(degrees.into_iter().fold(self.dp, u32::saturating_mul))
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "dp{} tp{} pp{}{}", self.dp, self.tp, self.pp, self.execution)
    }
}

/// Layout, micro-batch and global batch: everything the worker must be told to train.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(from = "Written", into = "Written")]
pub struct Configuration {
    pub layout: Layout,
    /// Sequences per forward pass of one data-parallel replica.
    pub micro_batch: Sequences,
    /// Sequences per optimizer step over all replicas: dp × micro-batch × accumulation, where shares are even.
    pub global_batch: Sequences,
}

/// A configuration as written: the execution stands beside the layout, and only where it is not plain.
#[derive(Serialize, Deserialize)]
struct Written {
    layout: Layout,
    #[serde(default, skip_serializing_if = "Execution::is_plain")]
    execution: Execution,
    micro_batch: Sequences,
    global_batch: Sequences,
}

impl From<Written> for Configuration {
    fn from(written: Written) -> Self {
        let Written { layout, execution, micro_batch, global_batch } = written;
        Self { layout: Layout { execution, ..layout }, micro_batch, global_batch }
    }
}

impl From<Configuration> for Written {
    fn from(configuration: Configuration) -> Self {
        let Configuration { layout, micro_batch, global_batch } = configuration;
        let plain = Layout { execution: Execution::PLAIN, ..layout };
        Self { layout: plain, execution: layout.execution, micro_batch, global_batch }
    }
}

impl Configuration {
    /// Cycles of micro-batches per optimizer step, or `None` where the batch does not divide: what each replica accumulates where shares are even.
    #[must_use]
    pub fn cycles(&self) -> Option<u64> {
        let per_cycle = self.layout.micro_batches().checked_mul(self.micro_batch.0)?;
        (per_cycle > 0 && self.global_batch.0 > 0 && self.global_batch.0.is_multiple_of(per_cycle))
            .then(|| self.global_batch.0 / per_cycle)
    }

    /// Micro-batches that each replica accumulates per optimizer step; `None` where not all do as many.
    #[must_use]
    pub fn accumulation(&self) -> Option<u64> {
        self.cycles().filter(|_| self.layout.execution.shares.are_even())
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
        let Layout { dp, tp, pp, execution } = self.layout;
        write!(f, "dp{dp} tp{tp} pp{pp} mb{} gb{}{execution}", self.micro_batch, self.global_batch)
    }
}

words! {
    /// What a change costs, cheapest first.
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
    use crate::execution::{Recompute, Sharding};
    use crate::shares::Shares;

    fn configuration(dp: u32, micro: u64, global: u64) -> Configuration {
        Configuration {
            layout: Layout { dp, tp: 1, pp: 1, ..Layout::single() },
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
    fn uneven_shares_divide_into_cycles() {
        let shares = Shares { slower: 1, faster: 2, of_faster: 2 };
        let uneven = |global| {
            let even = configuration(4, 2, global);
            let execution = Execution { shares, ..Execution::PLAIN };
            Configuration { layout: Layout { execution, ..even.layout }, ..even }
        };
        assert_eq!((uneven(36).cycles(), uneven(36).accumulation()), (Some(3), None));
        assert_eq!(uneven(32).cycles(), None);
        assert_eq!(uneven(36).tier_to(&configuration(4, 2, 36)), Some(Tier::Layout));
        assert_eq!(uneven(36).to_string(), "dp4 tp1 pp1 mb2 gb36 shares1:2");
        let value = serde_json::json!(uneven(36));
        assert_eq!(value["execution"]["shares"], serde_json::json!({"slower": 1, "faster": 2, "of_faster": 2}));
        assert_eq!(serde_json::from_value::<Configuration>(value).expect("reads"), uneven(36));
    }

    #[test]
    fn a_batch_change_is_the_cheapest_tier() {
        let from = configuration(4, 2, 32);
        assert_eq!(from.tier_to(&from), None);
        assert_eq!(from.tier_to(&configuration(4, 2, 64)), Some(Tier::Batch));
        assert_eq!(from.tier_to(&configuration(4, 4, 64)), Some(Tier::MicroBatch));
        assert_eq!(from.tier_to(&configuration(2, 2, 32)), Some(Tier::Layout));
    }

    #[test]
    fn another_execution_is_another_layout_and_context_parallelism_takes_gpus() {
        let plain = configuration(4, 2, 32);
        let execution = Execution { sharding: Sharding::Optimizer, ..Execution::PLAIN };
        let sharded = Configuration { layout: Layout { execution, ..plain.layout }, ..plain };
        assert_eq!(plain.tier_to(&sharded), Some(Tier::Layout));
        assert_eq!(sharded.to_string(), "dp4 tp1 pp1 mb2 gb32 zero1");
        assert_eq!(Layout { execution: Execution { cp: 2, ..execution }, ..plain.layout }.gpus(), GpuCount(8));
    }

    #[test]
    fn the_execution_is_written_beside_the_layout_and_may_be_missing() {
        let plain = configuration(4, 2, 32);
        let text = r#"{"layout":{"dp":4,"tp":1,"pp":1},"micro_batch":2,"global_batch":32}"#;
        assert_eq!(serde_json::to_string(&plain).expect("writes"), text);
        assert_eq!(serde_json::from_str::<Configuration>(text).expect("reads"), plain);
        let execution = Execution { recompute: Recompute::Full, sequence_parallel: true, ..Execution::PLAIN };
        let told = Configuration { layout: Layout { execution, ..plain.layout }, ..plain };
        let value = serde_json::json!(told);
        assert_eq!(value["execution"]["recompute"], "full");
        assert!(value["layout"].get("execution").is_none());
        assert_eq!(serde_json::from_value::<Configuration>(value).expect("reads"), told);
    }
}
