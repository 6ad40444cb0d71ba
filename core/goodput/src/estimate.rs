//! Step time of any strategy on any cluster: the layers of the fullest stage, what ranks wait for, the pipeline around it, and what a step
//! costs once. Formulas and sources are in docs/goodput.md, constants in `physics`.

use headway_types::Seconds;

use crate::architecture::Architecture;
use crate::collective::{Cluster, Group};
use crate::kernel::{Kernels, Passes, longer};
use crate::step_time::StepTime;
use crate::strategy::{Offload, Precision, Recompute, Schedule, Sharding, Strategy};

/// Share of context parallelism's ring that attention hides.
const RING_HIDDEN: f64 = 0.5;
/// Host link per GPU, bytes/s (PCIe 4 ×16), NVMe per GPU, bytes/s, and the host memory traffic of one GPU's share of the CPU's Adam.
const HOST_LINK: f64 = 25e9;
const DISK: f64 = 3e9;
const HOST_MEMORY: f64 = 25e9;
/// Bytes of optimizer states per parameter (two moments and master weights) and what Adam on the CPU moves.
const STATE_BYTES: f64 = 12.0;
const HOST_ADAM_BYTES: f64 = 28.0;

/// Step time term by term.
#[must_use]
pub fn step_time_of(architecture: &Architecture, strategy: &Strategy, cluster: &Cluster) -> StepTime {
    Estimate { architecture, strategy, cluster, kernels: Kernels::new(architecture, strategy, cluster) }.step_time()
}

/// Layers on the last stage and on the fullest other one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct StageLayers {
    pub last: f64,
    pub other: f64,
}

impl StageLayers {
    /// Cuts `layers` into stages: evenly, or so that the last one's `extra` (in layers) is made up for.
    pub(crate) fn cut(layers: u32, stages: u32, extra: f64, by_cost: bool) -> Self {
        let (layers, stages) = (f64::from(layers), f64::from(stages));
        if stages <= 1.0 {
            return Self { last: layers, other: layers };
        }
        if !by_cost {
            let even = libm::ceil(layers / stages);
            return Self { last: even, other: even };
        }
        let last = libm::floor(((layers - (stages - 1.0) * extra) / stages).clamp(0.0, layers / stages));
        Self { last, other: libm::ceil((layers - last) / (stages - 1.0)) }
    }
}

/// Seconds of one layer and micro-batch, by what they are spent on.
#[derive(Clone, Copy, Debug, Default)]
struct LayerTime {
    compute: f64,
    recompute: f64,
    launches: f64,
    tensor: f64,
    context: f64,
    experts: f64,
    parameters: f64,
    /// Of all this, the backward pass.
    backward: f64,
}

impl LayerTime {
    fn total(&self) -> f64 {
        self.compute + self.recompute + self.launches + self.tensor + self.context + self.experts + self.parameters
    }
}

/// Collectives of one layer and pass, each with its forward and backward seconds.
#[derive(Clone, Copy, Default)]
struct Exchanges {
    tensor: Passes,
    context: Passes,
    experts: Passes,
}

struct Estimate<'a> {
    architecture: &'a Architecture,
    strategy: &'a Strategy,
    cluster: &'a Cluster<'a>,
    kernels: Kernels<'a>,
}

impl Estimate<'_> {
    fn step_time(&self) -> StepTime {
        let (strategy, physics) = (self.strategy, &self.cluster.profile.physics);
        let (batches, stages) = (strategy.micro_batches as f64, f64::from(strategy.pp));
        let layer = self.mean_layer();
        let one = layer.total();
        let (logits, embedding) = (self.kernels.logits(), self.kernels.embedding());
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

        let scale = physics.compute * self.straggling();
        let micro = batches * scale;
        let seconds = |value: f64| Seconds(value * micro * layers);
        let host = batches * physics.micro_batch_seconds * self.straggling();
        let backward = layer.backward * f64::from(self.architecture.layers) / stages * physics.compute;
        let forward = (one - layer.backward) * f64::from(self.architecture.layers) / stages * physics.compute;
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
            pipeline_transfers: Seconds(self.transfers() * self.straggling()),
            data_collectives: Seconds(self.gradient_reduction(forward, backward) * self.straggling()),
            optimizer: Seconds(self.optimizer() * self.straggling()),
            offload: Seconds(self.offload() * self.straggling()),
            overhead: Seconds(physics.step_seconds * self.straggling()),
        }
    }

    /// The slowest of many ranks makes all wait; a little more with every doubling of the nodes.
    fn straggling(&self) -> f64 {
        let nodes = f64::from(self.strategy.gpus()) / f64::from(self.cluster.scale_up());
        1.0 + self.cluster.profile.physics.straggling * libm::log2(nodes.max(1.0))
    }

    /// A layer, on average over those with and without experts.
    fn mean_layer(&self) -> LayerTime {
        let dense = f64::from(self.architecture.dense_layers()) / f64::from(self.architecture.layers);
        if dense >= 1.0 {
            return self.layer(self.kernels.dense_layer(), false);
        }
        let with_experts = self.layer(self.kernels.expert_layer(), true);
        if dense <= 0.0 {
            return with_experts;
        }
        let plain = self.layer(self.kernels.dense_layer(), false);
        let mean = |plain: f64, expert: f64| dense * plain + (1.0 - dense) * expert;
        LayerTime {
            compute: mean(plain.compute, with_experts.compute),
            recompute: mean(plain.recompute, with_experts.recompute),
            launches: mean(plain.launches, with_experts.launches),
            tensor: mean(plain.tensor, with_experts.tensor),
            context: mean(plain.context, with_experts.context),
            experts: mean(plain.experts, with_experts.experts),
            parameters: mean(plain.parameters, with_experts.parameters),
            backward: mean(plain.backward, with_experts.backward),
        }
    }

    /// Device, host and collectives of one layer: the host launches ahead while the device works, so the longer of both counts.
    fn layer(&self, device: Passes, experts: bool) -> LayerTime {
        let physics = &self.cluster.profile.physics;
        let exchanges = self.exchanges(experts);
        let talk = exchanges.tensor + exchanges.context + exchanges.experts;
        let launches = self.kernels.launches(self.entangled());
        let forward = longer(device.forward + talk.forward, launches);
        let backward = longer(device.backward + talk.backward, launches * physics.launch_backward);
        let again = match self.strategy.recompute {
            Recompute::None => 0.0,
            Recompute::Full => forward,
            Recompute::Selective if self.strategy.fused_attention => {
                if self.strategy.sharding.gathers() {
                    0.5 * forward
                } else {
                    0.0
                }
            }
            Recompute::Selective => self.kernels.attention().forward,
        };
        let parameters = self.parameter_exchange(forward, backward + again);
        LayerTime {
            compute: device.forward + device.backward,
            recompute: again,
            launches: forward + backward - device.forward - device.backward - talk.forward - talk.backward,
            tensor: exchanges.tensor.forward + exchanges.tensor.backward,
            context: exchanges.context.forward + exchanges.context.backward,
            experts: exchanges.experts.forward + exchanges.experts.backward,
            parameters: parameters.forward + parameters.backward,
            backward: backward + again + parameters.backward,
        }
    }

    fn entangled(&self) -> bool {
        let strategy = self.strategy;
        strategy.tp > 1 && strategy.pp > 1 && strategy.gpus() > self.cluster.scale_up()
    }

    /// Activation bytes of one micro-batch on one rank.
    fn activation(&self) -> f64 {
        self.strategy.precision.bytes() * self.kernels.tokens * f64::from(self.architecture.hidden)
    }

    /// Tensor: two all-reduces forward and two backward (Shoeybi et al. 2019); under sequence parallelism the same volume as gathers
    /// and scatters, and one gather again in the backward pass (Korthikanti et al. 2022). Context: a ring of keys and values (Liu et
    /// al. 2023). Experts: tokens there and back (Lepikhin et al. 2020).
    fn exchanges(&self, experts: bool) -> Exchanges {
        let (strategy, physics) = (self.strategy, &self.cluster.profile.physics);
        let mut exchanges = Exchanges::default();
        if strategy.tp > 1 {
            let reduce = self.cluster.group(strategy.tp, 1).all_reduce(self.activation()) * physics.tensor_exposed;
            let again = if strategy.sequence_parallel { 2.5 } else { 2.0 };
            exchanges.tensor = Passes { forward: 2.0 * reduce, backward: again * reduce };
        }
        if strategy.cp > 1 {
            let group = self.cluster.group(strategy.cp, strategy.tp);
            let values = self.kernels.tokens * self.architecture.kv_width() / f64::from(strategy.tp);
            let ring = (group.members - 1.0) * values * strategy.precision.bytes() / group.bandwidth;
            let forward = (1.0 - RING_HIDDEN) * ring + group.members * group.hop;
            exchanges.context = Passes { forward, backward: 2.0 * forward };
        }
        if let (true, Some(routed)) = (experts && strategy.ep > 1, self.architecture.experts) {
            let group = self.cluster.group(strategy.ep, strategy.tp * strategy.cp);
            let sequence_share = if strategy.sequence_parallel { f64::from(strategy.tp) } else { 1.0 };
            let there = group.all_to_all(self.activation() * f64::from(routed.active) / sequence_share);
            exchanges.experts = Passes { forward: 2.0 * there, backward: 2.0 * there };
        }
        exchanges
    }

    /// Replicas that share each layer's parameters.
    fn gathering(&self) -> Group {
        let strategy = self.strategy;
        let members = match strategy.sharding {
            Sharding::ParametersInNode => strategy.optimizer_shards(self.cluster.gpus_per_node),
            _ => strategy.dp * strategy.cp,
        };
        self.cluster.group(members, strategy.tp)
    }

    /// Parameters of one rank's part of one layer (routed experts spread over expert parallelism).
    fn layer_parameters(&self) -> f64 {
        let dense = f64::from(self.architecture.dense_layers()) / f64::from(self.architecture.layers);
        let (outside, routed) = self.architecture.layer_parameters();
        let mean = if dense >= 1.0 {
            outside
        } else {
            dense * self.architecture.dense_layer_parameters()
                + (1.0 - dense) * (outside + routed / f64::from(self.strategy.ep))
        };
        mean / f64::from(self.strategy.tp)
    }

    /// What of gathering a layer's parameters (and scattering its gradients) computing does not hide, ZeRO-3's volumes (Rajbhandari
    /// et al. 2020): both proceed together, and each slows the other a little (Galvatron).
    fn parameter_exchange(&self, forward: f64, backward: f64) -> Passes {
        let strategy = self.strategy;
        if !strategy.sharding.gathers() || strategy.dp * strategy.cp <= 1 {
            return Passes::default();
        }
        // Breadth-first schedules gather once per step instead of once per micro-batch.
        let rounds = if strategy.schedule == Schedule::BreadthFirst { strategy.micro_batches as f64 } else { 1.0 };
        let gather = self.gathering().gather(2.0 * self.layer_parameters()) / rounds;
        let again = if strategy.sharding == Sharding::Gradients { 0.0 } else { gather };
        let interference = self.cluster.profile.physics.shard_interference;
        let exposed = |compute: f64, talk: f64| longer(compute, talk) + interference * compute.min(talk) - compute;
        Passes { forward: exposed(forward, gather), backward: exposed(backward, gather + again) }
    }

    /// Activations to the next stage and gradients back, on the critical path of every micro-batch (Pipette). Tensor-parallel ranks
    /// send a share each and gather it inside the node.
    fn transfers(&self) -> f64 {
        let (strategy, physics) = (self.strategy, &self.cluster.profile.physics);
        if strategy.pp <= 1 {
            return 0.0;
        }
        let between = strategy.gpus() > self.cluster.scale_up();
        let rate = if between { self.cluster.network_rate() } else { self.cluster.link_rate(2) };
        let one = self.activation() / f64::from(strategy.tp) / rate + physics.transfer_seconds;
        2.0 * f64::from(strategy.vpp) * strategy.micro_batches as f64 * one * physics.transfer_exposed
    }

    /// Parameters one GPU of the fullest stage holds.
    fn stage_parameters(&self) -> f64 {
        let (architecture, strategy) = (self.architecture, self.strategy);
        let tables = if strategy.pp > 1 || architecture.tied { 1.0 } else { 2.0 };
        self.layer_parameters() * f64::from(architecture.layers) / f64::from(strategy.pp)
            + tables * architecture.table_parameters() / f64::from(strategy.tp)
    }

    /// Gradients summed over replicas; only the last micro-batch's backward pass hides part of it. Sharded optimizers scatter
    /// instead and gather the new parameters (ZeRO-1).
    fn gradient_reduction(&self, forward: f64, backward: f64) -> f64 {
        let (strategy, profile) = (self.strategy, self.cluster.profile);
        let replicas = strategy.dp * strategy.cp;
        if replicas <= 1 {
            return 0.0;
        }
        let group = self.cluster.group(replicas, strategy.tp);
        let fp32 = profile.traits.fp32_gradients || strategy.precision == Precision::Fp32;
        let gradients = if fp32 { 4.0 } else { 2.0 } * self.stage_parameters();
        let weights = strategy.precision.bytes() * self.stage_parameters();
        let shards = strategy.optimizer_shards(self.cluster.gpus_per_node);
        let hidden = 1.0 - libm::exp(-profile.physics.overlap);
        let exposed = |time: f64, behind: f64| time - hidden * time.min(behind);
        match strategy.sharding {
            Sharding::None => exposed(group.all_reduce(gradients), backward),
            Sharding::Optimizer { .. } if shards < replicas => {
                let gather = self.cluster.group(shards, strategy.tp).gather(weights);
                exposed(group.all_reduce(gradients) + gather, backward)
            }
            Sharding::Optimizer { .. } => {
                let gather = group.gather(weights);
                let gather = if profile.traits.overlapped_gather { exposed(gather, forward) } else { gather };
                exposed(group.gather(gradients), backward) + gather
            }
            Sharding::Gradients | Sharding::Parameters => 0.0,
            Sharding::ParametersInNode => {
                let nodes = self.cluster.group(replicas / shards.max(1), strategy.tp * shards);
                exposed(nodes.all_reduce(gradients / f64::from(shards)), backward)
            }
        }
    }

    fn owned_parameters(&self) -> f64 {
        self.stage_parameters() / f64::from(self.strategy.optimizer_shards(self.cluster.gpus_per_node))
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
