//! Shapes, classes and trainings that the tests of this crate share.

use headway_types::report::{Capabilities, Flexibility};
use headway_types::spec::{
    BatchPolicy, BatchRange, CheckpointPolicy, LayoutLimits, LrScaling, NoiseKind, Precision, Training, Work,
};
use headway_types::{EmulatedDevice, Fabric, GpuCount, GpuType, ModelShape, NodeClass, Sequences};

pub fn tiny() -> ModelShape {
    decoder(4, 64, 4, 4, 172, true, 256, 64)
}

pub fn llama3_8b() -> ModelShape {
    decoder(32, 4096, 32, 8, 14336, true, 128_256, 8192)
}

pub fn llama2_7b() -> ModelShape {
    decoder(32, 4096, 32, 32, 11008, true, 32_000, 4096)
}

pub fn gpt3_175b() -> ModelShape {
    ModelShape { tied: true, ..decoder(96, 12_288, 96, 96, 49_152, false, 51_200, 2048) }
}

#[allow(clippy::too_many_arguments)]
fn decoder(
    layers: u32,
    hidden: u32,
    heads: u32,
    kv_heads: u32,
    ffn_hidden: u32,
    gated: bool,
    vocab: u32,
    seq_len: u32,
) -> ModelShape {
    ModelShape { layers, hidden, heads, kv_heads, ffn_hidden, gated, vocab, seq_len, tied: false }
}

pub fn class_of(gpu_type: &str, gpus_per_node: u32) -> NodeClass {
    NodeClass {
        gpu_type: GpuType(gpu_type.into()),
        gpus_per_node: GpuCount(gpus_per_node),
        emulated: None,
        fabric: Fabric { domain: "rack1".into() },
        stated: None,
    }
}

pub fn emulated_class(gpus_per_node: u32) -> NodeClass {
    let device = EmulatedDevice { flop_per_second: 1_000_000_000, link_bytes_per_second: 4_000_000 };
    NodeClass { emulated: Some(device), ..class_of("emulated", gpus_per_node) }
}

pub fn training(work: Work, reference: u64, batch: (u64, u64)) -> Training {
    Training {
        work,
        precision: Precision::Bf16,
        reference_batch: Sequences(reference),
        batch: BatchRange { min: Sequences(batch.0), max: Sequences(batch.1) },
        batch_policy: BatchPolicy::default(),
        lr_scaling: LrScaling::Sqrt,
        target: None,
        layouts: LayoutLimits::degrees(vec![], vec![], Sequences(8)),
        checkpoint: CheckpointPolicy::default(),
        reconfigure: Capabilities { batch: Flexibility::Live, layout: Flexibility::Restart },
        kappa: 1.0,
        noise: NoiseKind::default(),
    }
}
