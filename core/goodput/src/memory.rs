//! Memory per GPU of a strategy, by use. Formulas of the field (docs/goodput.md),
//! constants in `physics`. It never looks at time.

use serde::{Deserialize, Serialize};

use crate::architecture::Architecture;
use crate::collective::Cluster;
use crate::estimate::StageLayers;
use crate::layer::rank_parameters;
use crate::physics::Profile;
use crate::recurrent::passed_values;
use crate::strategy::{Offload, Precision, Recompute, Sharding, Strategy};

/// Share of a device's memory that a job may plan with: the rest is the driver's and what the estimate gets wrong.
pub const USABLE: f64 = 0.95;
/// Layers whose gathered parameters are alive at once: the present one and the next.
const GATHERED_LAYERS: f64 = 2.0;
/// Bytes per entry of the attention matrix: softmax input, output and dropout mask (Korthikanti et al. 2022).
const MATRIX_BYTES: f64 = 5.0;
/// Share of a layer's activations that selective recomputation keeps where attention keeps no matrix: every second layer is whole.
const SELECTIVE_KEEPS: f64 = 0.5;
/// Share that attention has in a plain layer's activations beside the FFN's own width: with its norm 13 of
/// 18 bytes per hidden value (Korthikanti et al. 2022, equation 1).
const ATTENTION_KEEPS: f64 = 13.0 / 18.0;
/// Bytes per value that a recurrent layer keeps between its matrices, and of its normed input.
const RECURRENT_BYTES: f64 = 2.0;

/// Memory per GPU by use, in bytes, on the fullest stage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MemoryUse {
    /// Parameters, gradients and optimizer states.
    pub states: f64,
    pub activations: f64,
    pub logits: f64,
    /// Context, buffers and fragmentation.
    pub reserve: f64,
    /// The same states in host memory or on disk, per GPU.
    pub offloaded: f64,
}

impl MemoryUse {
    /// Bytes on the device.
    #[must_use]
    pub fn total(&self) -> f64 {
        self.states + self.activations + self.logits + self.reserve
    }
}

/// Bytes per parameter of weights, gradients and optimizer states: half-precision weights 2 (or as many in 8 bits, with their
/// transpose), gradients 4 in fp32 or 2, master weights and two moments 12 (Megatron-LM); in fp32 the weights are their own master.
fn state_bytes(precision: Precision, half_gradients: bool) -> (f64, f64, f64) {
    match precision {
        Precision::Fp32 => (4.0, 4.0, 8.0),
        _ => (2.0, if half_gradients { 2.0 } else { 4.0 }, 12.0),
    }
}

/// Memory of a strategy on the fullest stage: the first, which holds most micro-batches, the second, which may have a layer more, or the last,
/// which has the logits.
#[must_use]
pub fn memory_of(architecture: &Architecture, strategy: &Strategy, cluster: &Cluster) -> MemoryUse {
    let stages = Stages::new(architecture, strategy, cluster);
    let cut = stages.cut();
    if strategy.pp <= 1 {
        let tables = if architecture.tied { 1.0 } else { 2.0 };
        return stages.memory_use(cut.last, tables, 1.0, true);
    }
    let first = stages.memory_use(cut.first, 1.0, strategy.in_flight(0), false);
    let second = stages.memory_use(cut.other, 0.0, strategy.in_flight(1), false);
    let last = stages.memory_use(cut.last, 1.0, last_in_flight(strategy), true);
    [second, last].into_iter().fold(first, |most, stage| if stage.total() > most.total() { stage } else { most })
}

/// The last stage turns each micro-batch around at once, unless its schedule runs all forward passes first.
fn last_in_flight(strategy: &Strategy) -> f64 {
    match strategy.schedule {
        crate::strategy::Schedule::OneForwardOneBackward => 1.0,
        _ => strategy.in_flight(0),
    }
}

/// What all stages have in common.
struct Stages<'a> {
    architecture: &'a Architecture,
    strategy: &'a Strategy,
    profile: &'a Profile,
    /// Of parameters that every replica holds, and of routed experts.
    state_bytes: [StateBytes; 2],
    /// Bytes of the layers whose parameters are gathered.
    gathered: f64,
    /// Bytes that a layer keeps of a micro-batch, and those that it has while it is computed.
    kept: f64,
    whole: f64,
}

/// Bytes per parameter of a rank.
#[derive(Clone, Copy)]
struct StateBytes {
    device: f64,
    /// Of the optimizer, over those who share its work.
    moments: f64,
    shards: f64,
}

impl<'a> Stages<'a> {
    fn new(architecture: &'a Architecture, strategy: &'a Strategy, cluster: &'a Cluster<'a>) -> Self {
        let profile = cluster.profile;
        let (weights, gradients, moments) = state_bytes(strategy.precision, profile.traits.half_gradients);
        let of = |shards: u32| {
            let shards = f64::from(shards);
            let (held, summed) = match strategy.sharding {
                Sharding::None | Sharding::Optimizer { .. } => (1.0, 1.0),
                Sharding::Gradients => (1.0, shards),
                Sharding::Parameters | Sharding::ParametersInNode => (shards, shards),
            };
            let device = (weights + profile.physics.buffer_bytes) / held + gradients / summed;
            StateBytes { device, moments, shards }
        };
        let gpus_per_node = cluster.gpus_per_node;
        let state_bytes = [of(strategy.optimizer_shards(gpus_per_node)), of(strategy.expert_shards(gpus_per_node))];
        let gathered = if strategy.sharding.gathers() {
            GATHERED_LAYERS * weights * rank_parameters(architecture, strategy, 1.0, 0.0).0
        } else {
            0.0
        };
        let narrow = profile.traits.keeps_narrow && cluster.multiplies_narrow(strategy);
        let mut stages = Self { architecture, strategy, profile, state_bytes, gathered, kept: 0.0, whole: 0.0 };
        stages.kept = stages.layer_activations(strategy.recompute == Recompute::None, narrow);
        stages.whole = stages.layer_activations(true, narrow);
        stages
    }

    fn cut(&self) -> StageLayers {
        let architecture = self.architecture;
        let extra = architecture.projection_in_layers();
        StageLayers::cut(architecture.layers, self.strategy.pp, extra, self.profile.traits.stages_by_cost)
    }

    fn tokens(&self) -> f64 {
        self.strategy.micro_batch as f64 * f64::from(self.architecture.seq_len) / f64::from(self.strategy.cp)
    }

    /// Bytes of states on the device and off it.
    fn states(&self, layers: f64, tables: f64) -> (f64, f64) {
        let (shared, routed) = rank_parameters(self.architecture, self.strategy, layers, tables);
        let [of_shared, of_routed] = self.state_bytes;
        let gathered = if layers > 0.0 { self.gathered } else { 0.0 };
        let device = shared * of_shared.device + routed * of_routed.device + gathered;
        let spread = |parameters: f64, of: StateBytes| parameters * of.moments / of.shards;
        let moments = spread(shared, of_shared) + spread(routed, of_routed);
        if self.strategy.offload == Offload::None { (device + moments, 0.0) } else { (device, moments) }
    }

    /// Activations one layer keeps of one micro-batch: Korthikanti et al. 2022's terms with fitted sizes, and the attention matrix
    /// where it is kept.
    fn layer_activations(&self, attention_matrix: bool, narrow: bool) -> f64 {
        let (strategy, architecture, physics) = (self.strategy, self.architecture, &self.profile.physics);
        let (tp, hidden) = (f64::from(strategy.tp), f64::from(architecture.hidden));
        let whole = if strategy.sequence_parallel { 1.0 / tp } else { 0.4 + 0.6 / tp };
        let keeps_gathered = self.profile.traits.keeps_gathered && strategy.sequence_parallel && strategy.tp > 1;
        let gathered = if keeps_gathered { physics.activation_gathered * hidden } else { 0.0 };
        let expert_width = architecture.experts.map_or(0.0, |experts| {
            f64::from(experts.active) * f64::from(experts.ffn_hidden) + f64::from(experts.shared_ffn_hidden)
        });
        let mix = architecture.mix();
        let width = match (architecture.kinds, architecture.experts) {
            (Some(_), _) => mix.dense * f64::from(architecture.ffn_hidden) + mix.experts * expert_width,
            (None, Some(_)) => expert_width,
            (None, None) => f64::from(architecture.ffn_hidden),
        };
        let gate = if architecture.gated { 1.0 } else { 2.0 / 3.0 };
        let matrix = if strategy.fused_attention || !attention_matrix {
            0.0
        } else {
            MATRIX_BYTES * f64::from(architecture.heads) * f64::from(architecture.seq_len) / tp * mix.attention()
        };
        let (keeps, recurrent) = match architecture.kinds {
            None => (1.0, 0.0),
            Some(kinds) => {
                let with_ffn = mix.dense + mix.experts;
                let keeps = ATTENTION_KEEPS * mix.attention() + (1.0 - ATTENTION_KEEPS) * with_ffn;
                let values = kinds.recurrent.map_or(0.0, |of| hidden * whole + passed_values(&of) / tp);
                (keeps, RECURRENT_BYTES * mix.recurrent * values)
            }
        };
        let per_token = physics.activation_hidden * hidden * whole * keeps
            + gathered
            + physics.activation_ffn * width * gate / tp
            + matrix
            + recurrent;
        let narrow = if narrow { physics.narrow_activations } else { 1.0 };
        self.tokens() * per_token * narrow * strategy.precision.bytes() / 2.0
    }

    fn memory_use(&self, layers: f64, tables: f64, in_flight: f64, last: bool) -> MemoryUse {
        let (strategy, physics) = (self.strategy, &self.profile.physics);
        let (states, offloaded) = self.states(layers, tables);
        let ranks = if strategy.sequence_parallel { f64::from(strategy.tp) } else { 1.0 };
        let input = self.tokens() * f64::from(self.architecture.hidden) * strategy.precision.bytes() / ranks;
        let activations = match strategy.recompute {
            // While a layer is computed again, all of it is there.
            Recompute::Full => layers * input * in_flight + self.whole,
            Recompute::Selective if strategy.fused_attention && strategy.sharding.gathers() => {
                SELECTIVE_KEEPS * layers * self.kept * in_flight
            }
            Recompute::None | Recompute::Selective => layers * self.kept * in_flight,
        };
        let logits = if last {
            let carried = if strategy.micro_batches > 1 { physics.logit_carry } else { 0.0 };
            let vocab = f64::from(self.architecture.vocab) / f64::from(strategy.tp);
            self.tokens() * vocab * (physics.logit_bytes + carried)
        } else {
            0.0
        };
        let reserve = physics.context_bytes + physics.fragmentation * (states + activations + logits);
        MemoryUse { states, activations, logits, reserve, offloaded }
    }
}

#[cfg(test)]
#[path = "memory_tests.rs"]
mod tests;
