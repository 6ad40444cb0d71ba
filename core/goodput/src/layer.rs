//! What one micro-batch costs on one rank: a layer's kernels, the host that launches them, and what ranks exchange within the layer.
//! Pipelines, gradients and whole steps are `estimate`'s business.

use crate::architecture::Architecture;
use crate::collective::{Cluster, Group};
use crate::kernel::{Kernels, LayerFfn, Passes, longer};
use crate::strategy::{Recompute, Schedule, Sharding, Strategy};

/// Share of context parallelism's ring that attention hides.
const RING_HIDDEN: f64 = 0.5;

/// What one micro-batch costs on one rank. Without sharded parameters it depends on tensor, context, expert and sequence parallelism, the micro-batch,
/// recomputation, whether launches are entangled and, across nodes, the GPUs of each, and on nothing else of the layout.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LayerCosts {
    pub layer: LayerTime,
    pub logits: f64,
    pub embedding: f64,
    pub tokens: f64,
}

impl LayerCosts {
    pub(crate) fn of(architecture: &Architecture, strategy: &Strategy, cluster: &Cluster) -> Self {
        Self::summed(&Layers::new(architecture, strategy, cluster, true))
    }

    /// The same before parameters are gathered: alike for all dp.
    pub(crate) fn ungathered(architecture: &Architecture, strategy: &Strategy, cluster: &Cluster) -> Self {
        Self::summed(&Layers::new(architecture, strategy, cluster, false))
    }

    /// Ungathered costs with gathering of parameters, which hides behind the mean layer, also where layers are of two kinds.
    pub(crate) fn gathered(mut self, architecture: &Architecture, strategy: &Strategy, cluster: &Cluster) -> Self {
        let (forward, backward) = (self.layer.total() - self.layer.backward, self.layer.backward);
        let parameters = parameter_exchange(architecture, strategy, cluster, forward, backward);
        self.layer.parameters = parameters.forward + parameters.backward;
        self.layer.backward += parameters.backward;
        self
    }

    fn summed(layers: &Layers) -> Self {
        Self {
            layer: layers.mean(),
            logits: layers.kernels.logits(),
            embedding: layers.kernels.embedding(),
            tokens: layers.kernels.tokens,
        }
    }

    /// Whether tensor collectives queue behind pipeline transfers between nodes.
    pub(crate) fn entangled(strategy: &Strategy, cluster: &Cluster) -> bool {
        strategy.tp > 1 && strategy.pp > 1 && strategy.gpus() > cluster.scale_up()
    }
}

/// Seconds of one layer and micro-batch, by what they are spent on.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LayerTime {
    pub compute: f64,
    pub recompute: f64,
    pub launches: f64,
    pub tensor: f64,
    pub context: f64,
    pub experts: f64,
    pub parameters: f64,
    /// Of all this, the backward pass.
    pub backward: f64,
}

impl LayerTime {
    pub(crate) fn total(&self) -> f64 {
        self.compute + self.recompute + self.launches + self.tensor + self.context + self.experts + self.parameters
    }

    /// The mean with another layer, of which there are all but `share`.
    fn mean(&self, share: f64, other: &LayerTime) -> LayerTime {
        let mean = |own: f64, other: f64| share * own + (1.0 - share) * other;
        LayerTime {
            compute: mean(self.compute, other.compute),
            recompute: mean(self.recompute, other.recompute),
            launches: mean(self.launches, other.launches),
            tensor: mean(self.tensor, other.tensor),
            context: mean(self.context, other.context),
            experts: mean(self.experts, other.experts),
            parameters: mean(self.parameters, other.parameters),
            backward: mean(self.backward, other.backward),
        }
    }
}

/// Collectives of one layer and pass, each with its forward and backward seconds.
#[derive(Clone, Copy, Default)]
struct Exchanges {
    tensor: Passes,
    context: Passes,
    experts: Passes,
}

struct Layers<'a> {
    architecture: &'a Architecture,
    strategy: &'a Strategy,
    cluster: &'a Cluster<'a>,
    kernels: Kernels<'a>,
    gathers: bool,
}

impl<'a> Layers<'a> {
    fn new(architecture: &'a Architecture, strategy: &'a Strategy, cluster: &'a Cluster<'a>, gathers: bool) -> Self {
        Self { architecture, strategy, cluster, kernels: Kernels::new(architecture, strategy, cluster), gathers }
    }

    /// A layer, on average over those with an ordinary FFN, with experts and without either.
    fn mean(&self) -> LayerTime {
        let mix = self.architecture.mix();
        if mix.dense >= 1.0 {
            return self.layer(LayerFfn::Dense);
        }
        if self.architecture.kinds.is_none() && mix.dense <= 0.0 {
            return self.layer(LayerFfn::Experts);
        }
        let plain = if mix.dense > 0.0 { self.layer(LayerFfn::Dense) } else { LayerTime::default() };
        if mix.without_ffn <= 0.0 {
            return plain.mean(mix.dense, &self.layer(LayerFfn::Experts));
        }
        let others = mix.experts + mix.without_ffn;
        let absent = self.layer(LayerFfn::Absent);
        if mix.experts <= 0.0 {
            return plain.mean(mix.dense, &absent);
        }
        plain.mean(mix.dense, &self.layer(LayerFfn::Experts).mean(mix.experts / others, &absent))
    }

    /// Device, host and collectives of one layer: the host launches ahead while the device works, so the longer of both counts.
    fn layer(&self, ffn: LayerFfn) -> LayerTime {
        let physics = &self.cluster.profile.physics;
        let device = self.kernels.layer(ffn);
        let exchanges = self.exchanges(ffn);
        let talk = exchanges.tensor + exchanges.context + exchanges.experts;
        let launches = self.kernels.launches(LayerCosts::entangled(self.strategy, self.cluster), ffn);
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
        let parameters = if self.gathers {
            parameter_exchange(self.architecture, self.strategy, self.cluster, forward, backward + again)
        } else {
            Passes::default()
        };
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

    /// Activation bytes of one micro-batch on one rank.
    fn activation(&self) -> f64 {
        self.strategy.precision.bytes() * self.kernels.tokens * f64::from(self.architecture.hidden)
    }

    /// Tensor: two all-reduces forward and two backward (Shoeybi et al. 2019); under sequence parallelism the same volume as gathers
    /// and scatters, and one gather again in the backward pass (Korthikanti et al. 2022). Context: a ring of keys and values (Liu et
    /// al. 2023). Experts: tokens there and back (Lepikhin et al. 2020).
    fn exchanges(&self, ffn: LayerFfn) -> Exchanges {
        let (strategy, physics) = (self.strategy, &self.cluster.profile.physics);
        let mut exchanges = Exchanges::default();
        if strategy.tp > 1 {
            let reduce = self.cluster.group(strategy.tp, 1).all_reduce(self.activation()) * physics.tensor_exposed;
            let again = if strategy.sequence_parallel { 2.5 } else { 2.0 };
            // One of each per part of the layer.
            let reduce = reduce * self.kernels.parts(ffn);
            exchanges.tensor = Passes { forward: 2.0 * reduce, backward: again * reduce };
        }
        if strategy.cp > 1 {
            let group = self.cluster.group(strategy.cp, strategy.tp);
            let values = self.kernels.tokens * self.architecture.kv_width() / f64::from(strategy.tp);
            let ring = (group.members - 1.0) * values * strategy.precision.bytes() / group.bandwidth;
            // A recurrence passes on its state, which is small.
            let share = self.architecture.mix().attention();
            let forward = ((1.0 - RING_HIDDEN) * ring + group.members * group.hop) * share;
            exchanges.context = Passes { forward, backward: 2.0 * forward };
        }
        let spread = ffn == LayerFfn::Experts && strategy.ep > 1;
        if let (true, Some(routed)) = (spread, self.architecture.experts) {
            let group = self.cluster.group(strategy.ep, 1);
            let copies = f64::from(routed.active);
            let bytes = self.activation() * copies / f64::from(strategy.tp);
            let there = group.all_to_all(bytes, copies, self.cluster.profile.traits.tokens_once);
            exchanges.experts = Passes { forward: 2.0 * there, backward: 2.0 * there };
        }
        exchanges
    }
}

/// What of gathering a layer's parameters (and scattering its gradients) computing does not hide, ZeRO-3's volumes (Rajbhandari
/// et al. 2020): both proceed together, and each slows the other a little (Galvatron).
fn parameter_exchange(
    architecture: &Architecture,
    strategy: &Strategy,
    cluster: &Cluster,
    forward: f64,
    backward: f64,
) -> Passes {
    if !strategy.sharding.gathers() || (strategy.dp * strategy.cp).max(strategy.expert_replicas()) <= 1 {
        return Passes::default();
    }
    // Breadth-first schedules gather once per step instead of once per micro-batch.
    let shared_by = if strategy.schedule == Schedule::BreadthFirst { strategy.micro_batches as f64 } else { 1.0 };
    let (shared, routed) = rank_parameters(architecture, strategy, 1.0, 0.0);
    let mut gather = gathering(strategy, cluster).gather(2.0 * shared);
    if routed > 0.0 {
        gather += gathering_experts(strategy, cluster).gather(2.0 * routed);
    }
    let gather = gather / shared_by;
    let again = if strategy.sharding == Sharding::Gradients { 0.0 } else { gather };
    let interference = cluster.profile.physics.shard_interference;
    let behind = |compute: f64, talk: f64| longer(compute, talk) + interference * compute.min(talk) - compute;
    let exposed =
        |compute: f64, talk: f64| if cluster.profile.traits.no_prefetch { talk } else { behind(compute, talk) };
    Passes { forward: exposed(forward, gather), backward: exposed(backward, gather + again) }
}

/// Replicas that share each layer's parameters.
fn gathering(strategy: &Strategy, cluster: &Cluster) -> Group {
    let members = match strategy.sharding {
        Sharding::ParametersInNode => strategy.optimizer_shards(cluster.gpus_per_node),
        _ => strategy.dp * strategy.cp,
    };
    cluster.group(members, strategy.tp)
}

/// Ranks that share each layer's part of the experts.
fn gathering_experts(strategy: &Strategy, cluster: &Cluster) -> Group {
    let members = match strategy.sharding {
        Sharding::ParametersInNode => strategy.expert_shards(cluster.gpus_per_node),
        _ => strategy.expert_replicas(),
    };
    cluster.group(members, strategy.expert_stride())
}

/// Parameters of one rank's part of so many layers and tables: those that all its replicas hold, and routed experts, which are spread over
/// some of these already.
pub(crate) fn rank_parameters(
    architecture: &Architecture,
    strategy: &Strategy,
    layers: f64,
    tables: f64,
) -> (f64, f64) {
    let (mean, routed) = architecture.mean_layer_parameters();
    let shared = (layers * mean + tables * architecture.table_parameters()) / f64::from(strategy.tp);
    (shared, layers * routed / f64::from(strategy.expert_stride()))
}
