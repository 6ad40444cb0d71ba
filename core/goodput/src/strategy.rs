//! How a model is trained on its GPUs, in full: degrees of parallelism, schedule, sharding, recomputation, offload and precision. Wider
//! than `headway_types::Configuration`, which holds what a scheduled job can be told.

use headway_types::{Configuration, Layout, spec};
pub use headway_types::{Offload, Recompute, Schedule};
use serde::{Deserialize, Serialize};

/// What data-parallel replicas share instead of each holding it whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sharding {
    #[default]
    None,
    /// Optimizer states (ZeRO-1, distributed optimizer), over all replicas or groups of this many.
    Optimizer { group: Option<u32> },
    /// And gradients, parameters gathered once per micro-batch (ZeRO-2, FSDP `SHARD_GRAD_OP`).
    Gradients,
    /// And parameters, gathered for each pass (ZeRO-3, FSDP).
    Parameters,
    /// The same inside a node, replicated between nodes (HSDP).
    ParametersInNode,
}

impl Sharding {
    /// Whether each layer's parameters are gathered when they are used.
    #[must_use]
    pub fn gathers(self) -> bool {
        matches!(self, Sharding::Gradients | Sharding::Parameters | Sharding::ParametersInNode)
    }
}

impl From<headway_types::Sharding> for Sharding {
    fn from(told: headway_types::Sharding) -> Self {
        match told {
            headway_types::Sharding::None => Sharding::None,
            headway_types::Sharding::Optimizer => Sharding::Optimizer { group: None },
            headway_types::Sharding::Gradients => Sharding::Gradients,
            headway_types::Sharding::Parameters => Sharding::Parameters,
        }
    }
}

/// Number format of the matrix multiplications.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Precision {
    #[default]
    Bf16,
    Fp16,
    Fp32,
    Fp8,
    Fp4,
}

impl Precision {
    /// Bytes of a weight or activation outside the narrow matrix multiplications.
    #[must_use]
    pub fn bytes(self) -> f64 {
        if self == Precision::Fp32 { 4.0 } else { 2.0 }
    }

    /// Whether matrices are multiplied in fewer than 16 bits.
    #[must_use]
    pub fn is_narrow(self) -> bool {
        matches!(self, Precision::Fp8 | Precision::Fp4)
    }
}

impl From<spec::Precision> for Precision {
    fn from(precision: spec::Precision) -> Self {
        match precision {
            spec::Precision::Bf16 => Precision::Bf16,
            spec::Precision::Fp16 => Precision::Fp16,
            spec::Precision::Fp32 => Precision::Fp32,
            spec::Precision::Fp8 => Precision::Fp8,
        }
    }
}

/// Everything about a training step but the model and the hardware.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Strategy {
    pub dp: u32,
    pub tp: u32,
    pub pp: u32,
    /// Context parallelism: ranks that share a sequence.
    pub cp: u32,
    /// Expert parallelism: ranks of a stage that share the experts; divides tp × cp × dp. Above 1 an expert is whole on its rank, whatever
    /// tensor parallelism does outside the experts; at 1 tensor parallelism splits experts as well.
    pub ep: u32,
    /// Chunks of layers per pipeline stage.
    pub vpp: u32,
    /// Sequences per forward pass of a replica.
    pub micro_batch: u64,
    /// Micro-batches per replica and step.
    pub micro_batches: u64,
    pub schedule: Schedule,
    pub sequence_parallel: bool,
    pub sharding: Sharding,
    pub recompute: Recompute,
    pub offload: Offload,
    pub precision: Precision,
    pub fused_attention: bool,
}

impl Strategy {
    /// What a job's configuration means, with fused attention.
    #[must_use]
    pub fn with(configuration: &Configuration, micro_batches: u64, precision: spec::Precision) -> Self {
        let Layout { dp, tp, pp, execution } = configuration.layout;
        Self {
            dp,
            tp,
            pp,
            cp: execution.cp,
            ep: execution.ep,
            vpp: execution.vpp,
            // A single stage has no schedule to choose.
            schedule: if pp > 1 { execution.schedule } else { Schedule::default() },
            sequence_parallel: execution.sequence_parallel,
            sharding: execution.sharding.into(),
            recompute: execution.recompute,
            offload: execution.offload,
            micro_batch: configuration.micro_batch.0,
            micro_batches,
            precision: precision.into(),
            ..Self::single()
        }
    }

    /// The same for a replica that does most of so many cycles of micro-batches.
    #[must_use]
    pub fn of_faster(configuration: &Configuration, cycles: u64, precision: spec::Precision) -> Self {
        let most = configuration.layout.execution.shares.faster;
        Self::with(configuration, u64::from(most) * cycles, precision)
    }

    /// One GPU, one sequence, nothing shared.
    #[must_use]
    pub fn single() -> Self {
        Self {
            dp: 1,
            tp: 1,
            pp: 1,
            cp: 1,
            ep: 1,
            vpp: 1,
            micro_batch: 1,
            micro_batches: 1,
            schedule: Schedule::default(),
            sequence_parallel: false,
            sharding: Sharding::default(),
            recompute: Recompute::default(),
            offload: Offload::default(),
            precision: Precision::default(),
            fused_attention: true,
        }
    }

    #[must_use]
    pub fn gpus(&self) -> u32 {
        self.dp * self.tp * self.pp * self.cp
    }

    /// Ranks that share one expert's multiplications.
    #[must_use]
    pub fn expert_split(&self) -> u32 {
        if self.ep > 1 { 1 } else { self.tp }
    }

    /// Ranks that hold the same part of the experts.
    #[must_use]
    pub fn expert_replicas(&self) -> u32 {
        let ranks = self.dp.saturating_mul(self.cp).saturating_mul(self.tp);
        (ranks / self.expert_stride()).max(1)
    }

    /// Ranks from one that holds a part of the experts to the next that holds the same.
    #[must_use]
    pub fn expert_stride(&self) -> u32 {
        (self.ep * self.expert_split()).max(1)
    }

    /// Ranks with the same part of the experts that the optimizer states of it are spread over.
    #[must_use]
    pub fn expert_shards(&self, gpus_per_node: u32) -> u32 {
        let (copies, stride) = (self.expert_replicas(), self.expert_stride());
        match self.sharding {
            Sharding::None => 1,
            Sharding::Optimizer { group: Some(group) } => (group.saturating_mul(self.tp) / stride).clamp(1, copies),
            Sharding::Optimizer { group: None } | Sharding::Gradients | Sharding::Parameters => copies,
            Sharding::ParametersInNode => (gpus_per_node / stride).clamp(1, copies),
        }
    }

    /// Sequences per step.
    #[must_use]
    pub fn global_batch(&self) -> u64 {
        u64::from(self.dp) * self.micro_batch * self.micro_batches
    }

    /// Replicas the optimizer states are spread over.
    #[must_use]
    pub fn optimizer_shards(&self, gpus_per_node: u32) -> u32 {
        let replicas = self.dp.saturating_mul(self.cp).max(1);
        match self.sharding {
            Sharding::None => 1,
            Sharding::Optimizer { group } => group.unwrap_or(replicas).clamp(1, replicas),
            Sharding::Gradients | Sharding::Parameters => replicas,
            Sharding::ParametersInNode => (gpus_per_node / self.tp.max(1)).clamp(1, replicas),
        }
    }

    /// Micro-batches whose activations a stage holds at once that has so many before it, interleaving included (Korthikanti et al. 2022).
    #[must_use]
    pub fn in_flight(&self, stages_before: u32) -> f64 {
        let (stages, batches) = (f64::from(self.pp), self.micro_batches as f64);
        match self.schedule {
            Schedule::OneForwardOneBackward => {
                let interleaved = if self.vpp > 1 { (stages - 1.0) / f64::from(self.vpp) } else { 0.0 };
                (stages + interleaved - f64::from(stages_before)).min(batches).max(1.0)
            }
            Schedule::GPipe | Schedule::BreadthFirst if self.pp > 1 => batches,
            Schedule::GPipe | Schedule::BreadthFirst => 1.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_forward_one_backward_holds_no_more_than_its_stages() {
        let at = |micro_batches, vpp| Strategy { pp: 4, vpp, micro_batches, ..Strategy::single() }.in_flight(0);
        assert_eq!((at(2, 1), at(64, 1), at(64, 3)), (2.0, 4.0, 5.0));
        let second = |micro_batches| Strategy { pp: 4, micro_batches, ..Strategy::single() }.in_flight(1);
        assert_eq!((second(2), second(64)), (2.0, 3.0));
        let gpipe = Strategy { pp: 4, micro_batches: 64, schedule: Schedule::GPipe, ..Strategy::single() };
        assert_eq!(gpipe.in_flight(0), 64.0);
    }

    #[test]
    fn experts_are_sharded_over_those_that_hold_the_same() {
        let at = |tp, dp, ep, sharding| Strategy { dp, tp, ep, sharding, ..Strategy::single() };
        let in_node = at(1, 64, 8, Sharding::ParametersInNode);
        assert_eq!((in_node.expert_replicas(), in_node.expert_shards(8)), (8, 1), "each on a node of its own");
        let few = at(8, 8, 2, Sharding::Optimizer { group: None });
        assert_eq!((few.expert_replicas(), few.expert_shards(8), few.optimizer_shards(8)), (32, 32, 8));
        let split = at(8, 8, 1, Sharding::Parameters);
        assert_eq!((split.expert_replicas(), split.expert_stride(), split.expert_shards(8)), (8, 8, 8));
        assert_eq!(at(1, 64, 64, Sharding::Parameters).expert_shards(8), 1);
    }

    #[test]
    fn optimizer_states_spread_over_what_the_sharding_says() {
        let at = |sharding| Strategy { dp: 32, tp: 2, sharding, ..Strategy::single() }.optimizer_shards(8);
        assert_eq!(at(Sharding::None), 1);
        assert_eq!(at(Sharding::Optimizer { group: None }), 32);
        assert_eq!(at(Sharding::Optimizer { group: Some(8) }), 8);
        assert_eq!(at(Sharding::ParametersInNode), 4);
    }
}
