//! The prior of step time: a sum of terms per optimizer step, each from a formula of the field (docs/goodput.md names them).
//! What reports teach is not here but in `correction`; this module has no memory.

use std::collections::BTreeMap;

use headway_types::{
    Configuration, EmulatedDevice, GpuCount, Layout, ModelShape, NodeCount, Seconds, Sequences, Shares, spec,
};
use serde::{Deserialize, Serialize};

use crate::architecture::{Architecture, parameters, training_flops_per_token};
use crate::catalog::Device;
use crate::collective::Cluster;
use crate::estimate::{micro_time_with, step_time_with};
use crate::layer::LayerCosts;
use crate::layouts::Lead;
use crate::physics::{Parameters, Profile};
use crate::strategy::{Recompute, Strategy};

/// Tensor parallelism over a usual node, and a large micro-batch: the ends between which a lead lies.
const WHOLE_NODE: u32 = 8;
const LARGE: u64 = 16;

/// Step time term by term. Terms of one group scale alike: `micro` terms with the number of micro-batches, `step` terms not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct StepTime {
    /// Forward and backward passes of all micro-batches through the fullest stage's layers.
    pub compute: Seconds,
    /// Output projection and loss.
    pub logits: Seconds,
    /// Forward passes done again.
    pub recompute: Seconds,
    /// The device waiting for the host to launch its kernels, and the host's own work per micro-batch.
    pub launches: Seconds,
    /// Tensor-parallel all-reduces.
    pub tensor_collectives: Seconds,
    /// Keys and values passed around for context parallelism.
    pub context_collectives: Seconds,
    /// Tokens sent to their experts and back.
    pub expert_collectives: Seconds,
    /// What computing does not hide of gathering parameters and scattering gradients layer by layer.
    pub parameter_collectives: Seconds,
    /// Stages waiting for the first and the last micro-batch.
    pub pipeline_bubble: Seconds,
    /// Activations and their gradients between stages.
    pub pipeline_transfers: Seconds,
    /// What the backward pass does not hide of the gradient reduction.
    pub data_collectives: Seconds,
    pub optimizer: Seconds,
    /// Optimizer states moved to and from the host or disk, and the update there.
    pub offload: Seconds,
    /// Fixed cost per step.
    pub overhead: Seconds,
}

impl StepTime {
    /// Seconds that follow the micro-batches.
    #[must_use]
    pub fn micro(&self) -> Seconds {
        self.compute
            + self.logits
            + self.recompute
            + self.launches
            + self.collectives()
            + self.pipeline_bubble
            + self.pipeline_transfers
    }

    /// Seconds that follow parameters and replicas, once per step.
    #[must_use]
    pub fn step(&self) -> Seconds {
        self.data_collectives + self.optimizer + self.offload
    }

    #[must_use]
    pub fn total(&self) -> Seconds {
        self.micro() + self.step() + self.overhead
    }

    /// Seconds in which ranks wait for each other's data.
    #[must_use]
    pub fn communication(&self) -> Seconds {
        self.collectives() + self.pipeline_transfers + self.data_collectives
    }

    fn collectives(&self) -> Seconds {
        self.tensor_collectives + self.context_collectives + self.expert_collectives + self.parameter_collectives
    }

    /// The same with `times` as many micro-batches: all that follows them grows alike, but for the bubble, which fills and drains the
    /// pipeline once per step.
    #[must_use]
    pub fn repeated(&self, times: u64) -> StepTime {
        self.scaled(times as f64)
    }

    fn scaled(&self, times: f64) -> StepTime {
        let many = |seconds: Seconds| seconds * times;
        StepTime {
            compute: many(self.compute),
            logits: many(self.logits),
            recompute: many(self.recompute),
            launches: many(self.launches),
            tensor_collectives: many(self.tensor_collectives),
            context_collectives: many(self.context_collectives),
            expert_collectives: many(self.expert_collectives),
            parameter_collectives: many(self.parameter_collectives),
            pipeline_transfers: many(self.pipeline_transfers),
            ..*self
        }
    }

    /// What a step takes where other replicas, which share this one's network, do other work before they exchange gradients.
    fn held_up_by(&self, other: &StepTime) -> StepTime {
        if other.micro() <= self.micro() {
            return *self;
        }
        let StepTime { data_collectives, optimizer, offload, overhead, .. } = *self;
        StepTime { data_collectives, optimizer, offload, overhead, ..*other }
    }

    /// Every term with its name, in the order of a step.
    #[must_use]
    pub fn terms(&self) -> [(&'static str, Seconds); 14] {
        [
            ("compute", self.compute),
            ("logits", self.logits),
            ("recompute", self.recompute),
            ("launches", self.launches),
            ("tensor collectives", self.tensor_collectives),
            ("context collectives", self.context_collectives),
            ("expert collectives", self.expert_collectives),
            ("parameter collectives", self.parameter_collectives),
            ("pipeline bubble", self.pipeline_bubble),
            ("pipeline transfers", self.pipeline_transfers),
            ("data collectives", self.data_collectives),
            ("optimizer", self.optimizer),
            ("offload", self.offload),
            ("overhead", self.overhead),
        ]
    }
}

/// How a job lies on its nodes: tp fastest, then dp, then pp (Megatron-LM's rank order).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spread {
    pub gpus: GpuCount,
    pub nodes: NodeCount,
}

impl Spread {
    pub(crate) fn per_node(self) -> u32 {
        (self.gpus.0 / self.nodes.0.max(1)).max(1)
    }
}

/// Constants of software nobody has named: what a scheduled job's prior starts from.
pub(crate) fn unnamed_software() -> &'static Profile {
    static UNNAMED: std::sync::LazyLock<Profile> = std::sync::LazyLock::new(|| Parameters::built_in().profile(None));
    &UNNAMED
}

/// Prior step time on one device with `micro_batches` micro-batches per replica.
#[must_use]
pub fn step_time(
    shape: &ModelShape,
    precision: spec::Precision,
    device: &Device,
    spread: Spread,
    configuration: &Configuration,
    micro_batches: u64,
) -> StepTime {
    PriorTimes::new(shape, precision, *device).of_replica(spread, configuration, micro_batches, step_time_with)
}

/// Prior step times of one model on one device, or where some nodes of a gang are faster, on both. What a layer takes is the same in many
/// layouts, so it is kept from question to question.
#[derive(Clone, Debug)]
pub(crate) struct PriorTimes {
    shape: ModelShape,
    architecture: Architecture,
    precision: spec::Precision,
    device: Device,
    layers: BTreeMap<LayerKey, LayerCosts>,
    /// On the faster nodes, and by what their micro-batches are known to be off.
    ahead: Option<(Box<PriorTimes>, f64)>,
}

/// What a layer's costs depend on before parameters are gathered: tp, cp, ep, micro-batch, sequence parallelism, recomputation (selective
/// counts only where parameters are gathered), entanglement, and the job's GPUs per node where a group may leave it. Packed: it is looked up for every
/// configuration that is weighed.
type LayerKey = (u128, u64, u8);

fn layer_key(strategy: &Strategy, recompute: Recompute, entangled: bool, per_node: u32) -> LayerKey {
    let per_node = if strategy.cp > 1 || strategy.ep > 1 { per_node } else { 0 };
    let degrees = [strategy.tp, strategy.cp, strategy.ep, per_node];
    let packed = degrees.into_iter().fold(0, |packed, degree| packed << 32 | u128::from(degree));
    let flags = u8::from(strategy.sequence_parallel) | u8::from(entangled) << 1 | (recompute as u8) << 2;
    (packed, strategy.micro_batch, flags)
}

impl PriorTimes {
    pub(crate) fn new(shape: &ModelShape, precision: spec::Precision, device: Device) -> Self {
        let (architecture, layers) = (Architecture::from(shape), BTreeMap::new());
        Self { shape: *shape, architecture, precision, device, layers, ahead: None }
    }

    /// The same where some nodes have this device, which is faster, and whose micro-batches are off by a factor.
    pub(crate) fn with_ahead(self, device: Device, off: f64) -> Self {
        let ahead = Box::new(Self::new(&self.shape, self.precision, device));
        Self { ahead: Some((ahead, off)), ..self }
    }

    /// How many times as fast a micro-batch is on the faster nodes, at least and at most; 1 where there are none.
    pub(crate) fn lead(&mut self) -> Lead {
        let Some((mut ahead, off)) = self.ahead.take() else { return [1.0; 2] };
        let whole = if self.shape.kv_heads.is_multiple_of(WHOLE_NODE) { WHOLE_NODE } else { 1 };
        let mut leads = Vec::new();
        // What is fixed per micro-batch weighs most in small ones, and links in large groups.
        for (tp, micro_batch) in [(1, 1), (1, LARGE), (whole, 1), (whole, LARGE)] {
            let layout = Layout { tp, ..Layout::single() };
            let micro_batch = Sequences(micro_batch);
            let once = Configuration { layout, micro_batch, global_batch: micro_batch };
            let alone = Spread { gpus: GpuCount(tp), nodes: NodeCount(1) };
            leads.push(self.step_time(alone, &once, 1).micro().0 / (off * ahead.step_time(alone, &once, 1).micro().0));
        }
        self.ahead = Some((ahead, off));
        let known = leads.into_iter().filter(|lead| lead.is_finite());
        known.fold([f64::INFINITY, 1.0], |[least, most], lead| [lead.min(least), lead.max(most)]).map(|lead| {
            // Nobody is ahead by so much.
            lead.clamp(1.0, f64::from(Shares::MOST))
        })
    }

    pub(crate) fn device(&self) -> &Device {
        &self.device
    }

    /// With so many cycles of micro-batches.
    pub(crate) fn step_time(&mut self, spread: Spread, configuration: &Configuration, cycles: u64) -> StepTime {
        self.time(spread, configuration, cycles, step_time_with)
    }

    /// The same without what a step costs once, but for its overhead; on emulated devices with it.
    pub(crate) fn micro_time(&mut self, spread: Spread, configuration: &Configuration, cycles: u64) -> StepTime {
        self.time(spread, configuration, cycles, micro_time_with)
    }

    /// Replicas wait for each other once per step: that of the faster nodes counts where its share takes longer.
    fn time(
        &mut self,
        spread: Spread,
        configuration: &Configuration,
        cycles: u64,
        with: impl Fn(&LayerCosts, &Architecture, &Strategy, &Cluster) -> StepTime,
    ) -> StepTime {
        let Shares { slower, faster, .. } = configuration.layout.execution.shares;
        let of_slower = self.of_replica(spread, configuration, u64::from(slower) * cycles, &with);
        let Some((ahead, off)) = self.ahead.as_mut().filter(|_| slower != faster) else { return of_slower };
        let of_faster = ahead.of_replica(spread, configuration, u64::from(faster) * cycles, &with);
        of_slower.held_up_by(&of_faster.scaled(*off))
    }

    fn of_replica(
        &mut self,
        spread: Spread,
        configuration: &Configuration,
        micro_batches: u64,
        with: impl Fn(&LayerCosts, &Architecture, &Strategy, &Cluster) -> StepTime,
    ) -> StepTime {
        let hardware = match &self.device {
            Device::Emulated(emulated) => {
                return emulated_step_time(&self.shape, *emulated, configuration, micro_batches);
            }
            Device::Catalogued(hardware) => hardware,
        };
        let strategy = Strategy::with(configuration, micro_batches, self.precision);
        let cluster = Cluster::usual(hardware, unnamed_software(), spread.per_node());
        let gathers = strategy.sharding.gathers();
        let recompute = match strategy.recompute {
            Recompute::Selective if !gathers => Recompute::None,
            recompute => recompute,
        };
        let entangled = LayerCosts::entangled(&strategy, &cluster);
        let key = layer_key(&strategy, recompute, entangled, spread.per_node());
        let architecture = &self.architecture;
        let costs = self.layers.entry(key).or_insert_with(|| LayerCosts::ungathered(architecture, &strategy, &cluster));
        if gathers {
            return with(&costs.gathered(architecture, &strategy, &cluster), architecture, &strategy, &cluster);
        }
        with(costs, architecture, &strategy, &cluster)
    }
}

/// Exactly what a worker pads its steps to: equal stages, no launch cost, no overlap, one ring of each stage's replicas over the
/// stated link.
fn emulated_step_time(
    shape: &ModelShape,
    device: EmulatedDevice,
    configuration: &Configuration,
    micro_batches: u64,
) -> StepTime {
    let tokens = configuration.micro_batch.tokens(shape.seq_len).0;
    let stages = f64::from(configuration.layout.pp.max(1));
    let micro = training_flops_per_token(shape) * tokens / device.flop_per_second as f64 / stages;
    let replicas = f64::from(configuration.layout.dp.max(1));
    let bytes = 2.0 * (replicas - 1.0) / replicas * 4.0 * parameters(shape) / stages;
    StepTime {
        compute: Seconds(micro * micro_batches as f64),
        pipeline_bubble: Seconds(micro * (stages - 1.0)),
        data_collectives: Seconds(bytes / device.link_bytes_per_second as f64),
        ..StepTime::default()
    }
}

#[cfg(test)]
#[path = "step_time_tests.rs"]
mod tests;
