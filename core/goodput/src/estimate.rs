//! Step time of any strategy on any cluster: the layers of the fullest stage, what ranks wait for, the pipeline around it, and what a step
//! costs once. Formulas and sources are in docs/goodput.md, constants in `physics`.

use headway_types::Seconds;

use crate::architecture::Architecture;
use crate::collective::{Cluster, log2};
use crate::layer::{LayerCosts, rank_parameters};
use crate::physics::Profile;
use crate::step_time::StepTime;
use crate::strategy::{Offload, Precision, Sharding, Strategy};

/// Host link per GPU, bytes/s (PCIe 4 ×16), NVMe per GPU, bytes/s, and the host memory traffic of one GPU's share of the CPU's Adam.
const HOST_LINK: f64 = 25e9;
const DISK: f64 = 3e9;
const HOST_MEMORY: f64 = 25e9;
/// Bytes of a bucket of gradients in PyTorch's data parallelism.
const BUCKET: f64 = 25.0 * 1024.0 * 1024.0;
/// Bytes of optimizer states per parameter (two moments and master weights) and what Adam on the CPU moves.
const STATE_BYTES: f64 = 12.0;
const HOST_ADAM_BYTES: f64 = 28.0;

/// Step time term by term.
#[must_use]
pub fn step_time_of(architecture: &Architecture, strategy: &Strategy, cluster: &Cluster) -> StepTime {
    step_time_with(&LayerCosts::of(architecture, strategy, cluster), architecture, strategy, cluster)
}

/// The same with a layer's costs known already.
pub(crate) fn step_time_with(
    costs: &LayerCosts,
    architecture: &Architecture,
    strategy: &Strategy,
    cluster: &Cluster,
) -> StepTime {
    Estimate { architecture, strategy, cluster }.step_time(costs)
}

/// The same without what a step costs once, but for its overhead.
pub(crate) fn micro_time_with(
    costs: &LayerCosts,
    architecture: &Architecture,
    strategy: &Strategy,
    cluster: &Cluster,
) -> StepTime {
    let estimate = Estimate { architecture, strategy, cluster };
    estimate.micro_time(costs, estimate.straggling())
}

/// The embedding and the output projection.
const TABLES: u32 = 2;

/// Whether layers can be cut into so many chunks of a pipeline, all alike but for the embedding and the output projection in a layer's place.
#[must_use]
pub fn divides_layers(layers: u32, chunks: u32) -> bool {
    layers.is_multiple_of(chunks) || (chunks > 1 && (layers + TABLES).is_multiple_of(chunks))
}

/// Layers on the first stage, on the last one, and on the fullest other one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct StageLayers {
    pub first: f64,
    pub other: f64,
    pub last: f64,
}

impl StageLayers {
    /// Cuts `layers` into stages: evenly, the embedding and the output projection counted as a layer each where only that comes out even
    /// (Megatron-Core's `account_for_*_in_pipeline_split`), or so that the last one's `extra` (in layers) is made up for.
    pub(crate) fn cut(layers: u32, stages: u32, extra: f64, by_cost: bool) -> Self {
        let with_tables = !layers.is_multiple_of(stages) && (layers + TABLES).is_multiple_of(stages);
        let (layers, stages) = (f64::from(layers), f64::from(stages));
        if stages <= 1.0 {
            return Self { first: layers, other: layers, last: layers };
        }
        if !by_cost {
            let even = libm::ceil(layers / stages);
            let end = if with_tables { even - 1.0 } else { even };
            return Self { first: end, other: even, last: end };
        }
        let last = libm::floor(((layers - (stages - 1.0) * extra) / stages).clamp(0.0, layers / stages));
        let other = libm::ceil((layers - last) / (stages - 1.0));
        Self { first: other, other, last }
    }
}

/// Whether a pipeline has a stage without a layer, so that the run cannot start. Cut by cost, a stage takes layers until it has its
/// share of the layers and of the output projection; what follows the layers fills two more stages at most.
#[must_use]
pub fn leaves_a_stage_empty(architecture: &Architecture, strategy: &Strategy, profile: &Profile) -> bool {
    let chunks = strategy.pp.saturating_mul(strategy.vpp);
    if chunks > architecture.layers.max(1) && !divides_layers(architecture.layers, chunks) {
        return true;
    }
    let (layers, stages) = (f64::from(architecture.layers), f64::from(strategy.pp));
    let share = (layers + architecture.projection_in_layers()) / stages;
    profile.traits.stages_by_cost && stages > 2.0 && libm::ceil(layers / share) + 1.0 < stages
}

/// Parameters of one rank that so many ranks hold alike, `stride` apart, and how many of these share the optimizer's work on them.
struct Held {
    parameters: f64,
    replicas: u32,
    stride: u32,
    shards: u32,
}

struct Estimate<'a> {
    architecture: &'a Architecture,
    strategy: &'a Strategy,
    cluster: &'a Cluster<'a>,
}

impl Estimate<'_> {
    fn step_time(&self, costs: &LayerCosts) -> StepTime {
        let (layer, physics) = (&costs.layer, &self.cluster.profile.physics);
        let straggling = self.straggling();
        let layers = f64::from(self.architecture.layers) / f64::from(self.strategy.pp);
        let backward = layer.backward * layers * physics.compute;
        let forward = (layer.total() - layer.backward) * layers * physics.compute;
        StepTime {
            data_collectives: Seconds(self.gradient_reduction(forward, backward) * straggling),
            optimizer: Seconds(self.optimizer() * straggling),
            offload: Seconds(self.offload() * straggling),
            ..self.micro_time(costs, straggling)
        }
    }

    /// All but what a step costs once.
    fn micro_time(&self, costs: &LayerCosts, straggling: f64) -> StepTime {
        let (strategy, physics) = (self.strategy, &self.cluster.profile.physics);
        let batches = strategy.micro_batches as f64;
        let LayerCosts { layer, logits, embedding, tokens } = *costs;
        let one = layer.total();
        let cut = StageLayers::cut(
            self.architecture.layers,
            strategy.pp,
            logits / one.max(1e-12),
            self.cluster.profile.traits.stages_by_cost,
        );
        // The slowest stage sets the pace; it is the last one or one in the middle.
        let with_logits = cut.last * one + logits + if strategy.pp == 1 { embedding } else { 0.0 };
        let last_is_slowest = strategy.pp == 1 || with_logits >= cut.other * one;
        let (layers, slowest) = if last_is_slowest { (cut.last, with_logits) } else { (cut.other, cut.other * one) };
        let all = f64::from(self.architecture.layers) * one + logits + embedding;
        let waiting = if strategy.pp == 1 { 0.0 } else { (all - slowest).max(0.0) / f64::from(strategy.vpp) };

        let scale = physics.compute * straggling;
        let micro = batches * scale;
        let seconds = |value: f64| Seconds(value * micro * layers);
        let host = batches * physics.micro_batch_seconds * straggling;
        StepTime {
            compute: seconds(layer.compute),
            logits: if last_is_slowest { Seconds((with_logits - cut.last * one) * micro) } else { Seconds(0.0) },
            recompute: seconds(layer.recompute),
            launches: Seconds(layer.launches * micro * layers + host),
            tensor_collectives: seconds(layer.tensor),
            context_collectives: seconds(layer.context),
            expert_collectives: seconds(layer.experts),
            parameter_collectives: seconds(layer.parameters),
            pipeline_bubble: Seconds(waiting * scale),
            pipeline_transfers: Seconds(self.transfers(tokens) * straggling),
            overhead: Seconds(physics.step_seconds * straggling),
            ..StepTime::default()
        }
    }

    /// The slowest of many ranks makes all wait; a little more with every doubling of the nodes.
    fn straggling(&self) -> f64 {
        let nodes = f64::from(self.strategy.gpus()) / f64::from(self.cluster.scale_up());
        1.0 + self.cluster.profile.physics.straggling * log2(nodes.max(1.0))
    }

    /// Activations to the next stage and gradients back, on the critical path of every micro-batch (Pipette). Tensor-parallel ranks
    /// send a share each and gather it inside the node.
    fn transfers(&self, tokens: f64) -> f64 {
        let (strategy, physics) = (self.strategy, &self.cluster.profile.physics);
        if strategy.pp <= 1 {
            return 0.0;
        }
        let between = strategy.gpus() > self.cluster.scale_up();
        let rate = if between { self.cluster.network_rate() } else { self.cluster.link_rate(2) };
        let activation = strategy.precision.bytes() * tokens * f64::from(self.architecture.hidden);
        let one = activation / f64::from(strategy.tp) / rate + physics.transfer_seconds;
        let every = f64::from(strategy.vpp) * strategy.micro_batches as f64;
        // Behind another chunk's computation a transfer costs nothing; while the pipeline fills and drains there is no such chunk.
        let hidden = self.cluster.profile.traits.overlapped_transfers && strategy.vpp > 1;
        let transfers = if hidden { every.min(f64::from(strategy.pp - 1)) } else { every };
        2.0 * transfers * one * physics.transfer_exposed
    }

    /// Parameters one GPU of the fullest stage holds, apart by who holds the same: those of every replica, and routed experts.
    fn held(&self) -> [Held; 2] {
        let (architecture, strategy) = (self.architecture, self.strategy);
        let tables = if strategy.pp > 1 || architecture.tied { 1.0 } else { 2.0 };
        let layers = f64::from(architecture.layers) / f64::from(strategy.pp);
        let (shared, routed) = rank_parameters(architecture, strategy, layers, tables);
        let gpus_per_node = self.cluster.gpus_per_node;
        [
            Held {
                parameters: shared,
                replicas: strategy.dp * strategy.cp,
                stride: strategy.tp,
                shards: strategy.optimizer_shards(gpus_per_node),
            },
            Held {
                parameters: routed,
                replicas: strategy.expert_replicas(),
                stride: strategy.expert_stride(),
                shards: strategy.expert_shards(gpus_per_node),
            },
        ]
    }

    /// Gradients summed over replicas; only the last micro-batch's backward pass hides part of it. Sharded optimizers scatter
    /// instead and gather the new parameters (ZeRO-1).
    fn gradient_reduction(&self, forward: f64, backward: f64) -> f64 {
        let profile = self.cluster.profile;
        let (sums, returns) = self.held().iter().fold((0.0, 0.0), |(sums, returns), held| {
            let (sum, back) = self.reduction(held);
            (sums + sum, returns + back)
        });
        let hidden = 1.0 - libm::exp(-profile.physics.overlap);
        let exposed = |time: f64, behind: f64| time - hidden * time.min(behind);
        let returns = if profile.traits.overlapped_gather { exposed(returns, forward) } else { returns };
        exposed(sums, backward) + returns
    }

    /// Seconds to sum gradients, and to bring new weights back from whoever updates them.
    fn reduction(&self, held: &Held) -> (f64, f64) {
        let (strategy, profile) = (self.strategy, self.cluster.profile);
        let Held { parameters, replicas, stride, shards } = *held;
        if replicas <= 1 || parameters <= 0.0 {
            return (0.0, 0.0);
        }
        let group = self.cluster.group(replicas, stride);
        let fp32 = profile.traits.fp32_gradients || strategy.precision == Precision::Fp32;
        let gradients = if fp32 { 4.0 } else { 2.0 } * parameters;
        let narrow = profile.traits.keeps_narrow && self.cluster.multiplies_narrow(strategy);
        let weights = if narrow { 1.0 } else { strategy.precision.bytes() } * parameters;
        // Each bucket of gradients goes once around the ring to be summed, and once more to come back, as sums or as new weights.
        let around = (group.nodes - 1.0).max(0.0) * profile.physics.ring_step;
        let pieces = |bytes: f64| libm::ceil(bytes / BUCKET);
        let rings = if profile.traits.small_buckets { pieces(gradients) * around } else { 0.0 };
        match strategy.sharding {
            Sharding::None => (group.all_reduce(gradients) + 2.0 * rings, 0.0),
            Sharding::Optimizer { .. } if shards < replicas => {
                let gather = self.cluster.group(shards, stride).gather(weights);
                (group.all_reduce(gradients) + 2.0 * rings + gather, 0.0)
            }
            Sharding::Optimizer { .. } => {
                let back = if profile.traits.broadcast_weights { pieces(weights) * around } else { rings };
                (group.gather(gradients) + rings, group.gather(weights) + back)
            }
            Sharding::Gradients | Sharding::Parameters => (0.0, 0.0),
            Sharding::ParametersInNode => {
                let nodes = self.cluster.group(replicas / shards.max(1), stride * shards);
                (nodes.all_reduce(gradients / f64::from(shards)), 0.0)
            }
        }
    }

    fn owned_parameters(&self) -> f64 {
        self.held().iter().map(|held| held.parameters / f64::from(held.shards.max(1))).sum()
    }

    fn optimizer(&self) -> f64 {
        if self.strategy.offload != Offload::None {
            return 0.0;
        }
        self.cluster.profile.physics.optimizer_bytes * self.owned_parameters() / self.cluster.hardware.memory_bandwidth
    }

    /// Gradients to the host, Adam on the CPU, weights back (ZeRO-Offload, Ren et al. 2021); states through NVMe as well
    /// (ZeRO-Infinity, Rajbhandari et al. 2021). Nominal rates, not fitted.
    fn offload(&self) -> f64 {
        let owned = self.owned_parameters();
        let host = owned * (2.0 * self.strategy.precision.bytes() / HOST_LINK + HOST_ADAM_BYTES / HOST_MEMORY);
        match self.strategy.offload {
            Offload::None => 0.0,
            Offload::Host => host,
            Offload::Disk => host.max(2.0 * STATE_BYTES * owned / DISK),
        }
    }
}

#[cfg(test)]
#[path = "estimate_tests.rs"]
mod tests;
