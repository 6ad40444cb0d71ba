//! The prior of step time: a sum of terms per optimizer step, each from a formula of the field (docs/goodput.md names them).
//! What reports teach is not here but in `correction`; this module has no memory.

use headway_types::spec::Precision;
use headway_types::{Configuration, EmulatedDevice, GpuCount, Layout, ModelShape, NodeCount, Seconds};
use serde::{Deserialize, Serialize};

use crate::catalog::{Device, Hardware};
use crate::memory::activation_bytes_per_token_and_layer;
use crate::shape::{
    forward_layer_flops_per_token, forward_logit_flops_per_token, parameters, stage_parameters,
    training_flops_per_token,
};

/// Share of its best matrix rate a GPU keeps over whole layers with wide matrices.
const LAYER_SHARE: f64 = 0.72;
/// Inner dimension (h/tp) at which narrow matrices halve the rate.
const HALF_RATE_WIDTH: f64 = 256.0;
/// Host time to launch one layer's kernels, forward and backward, seconds: the floor for small shards.
const LAYER_LAUNCH: f64 = 0.85e-3 * (1.0 + 1.6);
/// Share of a link's rate that collectives reach.
const LINK_SHARE: f64 = 0.75;
/// Seconds per hop of a ring, inside a node and between nodes.
const HOP_INTRA: f64 = 5e-6;
const HOP_INTER: f64 = 15e-6;
/// Share of the gradient reduction that the last micro-batch's backward pass can hide.
const OVERLAP: f64 = 0.5;
/// Bytes per parameter the AdamW update reads and writes.
const OPTIMIZER_BYTES: f64 = 30.0;
/// Data loading, host synchronisation and logging per step, seconds.
const OVERHEAD: f64 = 0.03;

/// Step time term by term. Terms of one group scale alike: `micro` terms with the number of micro-batches, `step` terms not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StepTime {
    /// Forward and backward passes of all micro-batches on the fullest stage.
    pub compute: Seconds,
    /// Tensor-parallel all-reduces.
    pub tensor_collectives: Seconds,
    /// Stages waiting for the first and the last micro-batch.
    pub pipeline_bubble: Seconds,
    /// Activations and their gradients between stages.
    pub pipeline_transfers: Seconds,
    /// What the backward pass does not hide of the gradient all-reduce.
    pub data_collectives: Seconds,
    pub optimizer: Seconds,
    /// Fixed cost per step.
    pub overhead: Seconds,
}

impl StepTime {
    /// Seconds that follow the micro-batches.
    #[must_use]
    pub fn micro(&self) -> Seconds {
        self.compute + self.tensor_collectives + self.pipeline_bubble + self.pipeline_transfers
    }

    /// Seconds that follow parameters and replicas, once per step.
    #[must_use]
    pub fn step(&self) -> Seconds {
        self.data_collectives + self.optimizer
    }

    #[must_use]
    pub fn total(&self) -> Seconds {
        self.micro() + self.step() + self.overhead
    }
}

/// How a job lies on its nodes: tp fastest, then dp, then pp (Megatron-LM's rank order).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spread {
    pub gpus: GpuCount,
    pub nodes: NodeCount,
}

impl Spread {
    fn per_node(self) -> u32 {
        (self.gpus.0 / self.nodes.0.max(1)).max(1)
    }

    /// Members of a dp group that share a node.
    fn local_replicas(self, layout: Layout) -> u32 {
        (self.per_node() / layout.tp.max(1)).clamp(1, layout.dp.max(1))
    }
}

/// Prior step time with `micro_batches` micro-batches per replica.
#[must_use]
pub fn step_time(
    shape: &ModelShape,
    precision: Precision,
    device: &Device,
    spread: Spread,
    configuration: &Configuration,
    micro_batches: u64,
) -> StepTime {
    match device {
        Device::Emulated(emulated) => emulated_step_time(shape, *emulated, configuration, micro_batches),
        Device::Catalogued(hardware) => {
            Roofline { shape, precision, hardware, spread, configuration }.step_time(micro_batches as f64)
        }
    }
}

/// Exactly what a worker pads its steps to: no launch cost, no overlap, one ring over the stated link.
fn emulated_step_time(
    shape: &ModelShape,
    device: EmulatedDevice,
    configuration: &Configuration,
    micro_batches: u64,
) -> StepTime {
    let tokens = configuration.micro_batch.tokens(shape.seq_len).0;
    let micro = training_flops_per_token(shape) * tokens / device.flop_per_second as f64;
    let bytes = ring_share(configuration.layout.dp) * 4.0 * parameters(shape);
    StepTime {
        compute: Seconds(micro * micro_batches as f64),
        data_collectives: Seconds(bytes / device.link_bytes_per_second as f64),
        ..StepTime::default()
    }
}

/// Traffic of a ring all-reduce over its message: 2(n − 1)/n.
fn ring_share(members: u32) -> f64 {
    let members = f64::from(members.max(1));
    2.0 * (members - 1.0) / members
}

struct Roofline<'a> {
    shape: &'a ModelShape,
    precision: Precision,
    hardware: &'a Hardware,
    spread: Spread,
    configuration: &'a Configuration,
}

impl Roofline<'_> {
    fn step_time(&self, micro_batches: f64) -> StepTime {
        let layout = self.configuration.layout;
        let stages = f64::from(layout.pp);
        let compute = self.compute_per_micro_batch();
        let collectives = self.tensor_collectives_per_micro_batch();
        let stage_micro = compute + collectives;
        let transfers = if layout.pp > 1 { 2.0 * micro_batches * self.transfer() } else { 0.0 };
        let backward = 2.0 / 3.0 * stage_micro;
        let reduce = self.gradient_reduction();
        StepTime {
            compute: Seconds(micro_batches * compute),
            tensor_collectives: Seconds(micro_batches * collectives),
            pipeline_bubble: Seconds((stages - 1.0) * stage_micro),
            pipeline_transfers: Seconds(transfers),
            data_collectives: Seconds(reduce - OVERLAP * reduce.min(backward)),
            optimizer: Seconds(OPTIMIZER_BYTES * self.local_parameters() / self.hardware.memory_bandwidth),
            overhead: Seconds(OVERHEAD),
        }
    }

    fn tokens(&self) -> f64 {
        self.configuration.micro_batch.tokens(self.shape.seq_len).0
    }

    fn layers_per_stage(&self) -> f64 {
        f64::from(self.shape.layers) / f64::from(self.configuration.layout.pp)
    }

    fn bytes_per_value(&self) -> f64 {
        if self.precision == Precision::Fp32 { 4.0 } else { 2.0 }
    }

    fn local_parameters(&self) -> f64 {
        let layout = self.configuration.layout;
        stage_parameters(self.shape, layout.tp, layout.pp)
    }

    /// The slowest of arithmetic, memory traffic and kernel launches, on the last stage (it has the output projection).
    fn compute_per_micro_batch(&self) -> f64 {
        let tp = f64::from(self.configuration.layout.tp);
        let forward = forward_layer_flops_per_token(self.shape) / f64::from(self.configuration.layout.pp)
            + forward_logit_flops_per_token(self.shape);
        let width = f64::from(self.shape.hidden) / tp;
        let rate = self.hardware.matmul_rate(self.precision) * LAYER_SHARE * width / (width + HALF_RATE_WIDTH);
        let arithmetic = 3.0 * forward * self.tokens() / tp / rate;
        let activations = self.tokens()
            * self.layers_per_stage()
            * activation_bytes_per_token_and_layer(self.shape, self.configuration.layout.tp, self.precision);
        // Forward writes activations and backward reads them; weights pass three times.
        let traffic = 2.0 * activations + 3.0 * self.bytes_per_value() * self.local_parameters();
        let launches = LAYER_LAUNCH * self.layers_per_stage();
        arithmetic.max(traffic / self.hardware.memory_bandwidth).max(launches)
    }

    /// Four all-reduces of the activations per layer: two forward, two backward (Shoeybi et al. 2019).
    fn tensor_collectives_per_micro_batch(&self) -> f64 {
        let tp = self.configuration.layout.tp;
        if tp <= 1 {
            return 0.0;
        }
        let message = self.bytes_per_value() * self.tokens() * f64::from(self.shape.hidden);
        let ring = ring_share(tp) * message / (self.hardware.intra_node * LINK_SHARE);
        let hops = 2.0 * f64::from(tp - 1) * HOP_INTRA;
        4.0 * self.layers_per_stage() * (ring + hops)
    }

    /// One activation to the next stage. Pipelines that span nodes move at the slowest hop's pace.
    fn transfer(&self) -> f64 {
        let message = self.bytes_per_value() * self.tokens() * f64::from(self.shape.hidden);
        if self.spread.nodes.0 > 1 {
            message / (self.hardware.inter_node * LINK_SHARE) + HOP_INTER
        } else {
            message / (self.hardware.intra_node * LINK_SHARE) + HOP_INTRA
        }
    }

    /// Ring all-reduce of fp32 gradients. Across nodes every local member brings its own network port.
    fn gradient_reduction(&self) -> f64 {
        let layout = self.configuration.layout;
        if layout.dp <= 1 {
            return 0.0;
        }
        let local = self.spread.local_replicas(layout);
        let (link, hop) = if local < layout.dp {
            ((f64::from(local) * self.hardware.inter_node).min(self.hardware.intra_node), HOP_INTER)
        } else {
            (self.hardware.intra_node, HOP_INTRA)
        };
        let hops = 2.0 * f64::from(layout.dp - 1) * hop;
        ring_share(layout.dp) * 4.0 * self.local_parameters() / (link * LINK_SHARE) + hops
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::catalog;
    use crate::examples::{emulated_class, gpt3_175b, llama3_8b, tiny};
    use headway_types::{GpuType, Sequences};

    fn configuration(dp: u32, tp: u32, pp: u32, micro: u64, global: u64) -> Configuration {
        let layout = Layout { dp, tp, pp };
        Configuration { layout, micro_batch: Sequences(micro), global_batch: Sequences(global) }
    }

    fn on(shape: &ModelShape, gpu: &str, nodes: u32, configuration: &Configuration) -> StepTime {
        let device = Device::Catalogued(catalog::find(&GpuType(gpu.into())).unwrap());
        let spread = Spread { gpus: configuration.layout.gpus(), nodes: NodeCount(nodes) };
        step_time(shape, Precision::Bf16, &device, spread, configuration, configuration.accumulation().unwrap())
    }

    #[test]
    fn an_emulated_step_is_what_the_worker_pads_it_to() {
        let class = emulated_class(4);
        let device = catalog::device(&class).unwrap();
        let at = configuration(4, 1, 1, 2, 32);
        let spread = Spread { gpus: GpuCount(4), nodes: NodeCount(1) };
        let time = step_time(&tiny(), Precision::Fp32, &device, spread, &at, 4);
        let padded = 4.0 * (training_flops_per_token(&tiny()) * 128.0 / 1e9) + 1.5 * 4.0 * parameters(&tiny()) / 4e6;
        assert!((time.total().0 - padded).abs() < 1e-12);
        assert_eq!(time.overhead, Seconds(0.0));
    }

    #[test]
    fn a_published_175b_step_lies_within_a_third() {
        // Korthikanti et al. 2022: 64 A100-80G, tp 8, pp 8, micro-batch 1, batch 64: 13.75 s per step.
        let time = on(&gpt3_175b(), "A100-80G", 8, &configuration(1, 8, 8, 1, 64)).total().0;
        assert!((13.75 / 1.33..13.75 * 1.33).contains(&time), "{time}");
    }

    #[test]
    fn an_8b_model_on_one_h100_node_reaches_a_usual_utilisation() {
        let at = configuration(2, 2, 2, 1, 64);
        let time = on(&llama3_8b(), "H100-80G", 1, &at).total().0;
        let utilisation = training_flops_per_token(&llama3_8b()) * 64.0 * 8192.0 / time / (8.0 * 989e12);
        assert!((0.3..0.55).contains(&utilisation), "{utilisation}");
    }

    #[test]
    fn the_bubble_is_p_minus_1_over_m_of_the_work() {
        let time = on(&gpt3_175b(), "A100-80G", 8, &configuration(1, 8, 8, 1, 64));
        let work = time.compute + time.tensor_collectives;
        assert!((time.pipeline_bubble.0 / work.0 - 7.0 / 64.0).abs() < 1e-12);
    }

    #[test]
    fn reducing_over_nodes_costs_more_than_inside_one() {
        let at = configuration(8, 1, 1, 1, 64);
        let (one, two) = (on(&llama3_8b(), "H100-80G", 1, &at), on(&llama3_8b(), "H100-80G", 8, &at));
        assert!(two.data_collectives.0 > one.data_collectives.0);
        assert_eq!(two.compute, one.compute);
    }
}
