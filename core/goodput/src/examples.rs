//! Shapes, classes and trainings that the tests of this crate share.

use headway_types::example;
pub use headway_types::example::{class as class_of, llama2_7b, llama3_8b, tiny};
use headway_types::spec::{BatchRange, LayoutLimits, Training, Work};
use headway_types::{
    Configuration, EmulatedDevice, Generation, JobId, ModelShape, NodeClass, Seconds, Sequences, StepReport,
};

pub fn gpt3_175b() -> ModelShape {
    ModelShape {
        layers: 96,
        hidden: 12_288,
        heads: 96,
        kv_heads: 96,
        ffn_hidden: 49_152,
        gated: false,
        vocab: 51_200,
        seq_len: 2048,
        tied: true,
        ..ModelShape::default()
    }
}

pub fn emulated_class(gpus_per_node: u32) -> NodeClass {
    let device = EmulatedDevice { flop_per_second: 1_000_000_000, link_bytes_per_second: 4_000_000 };
    NodeClass { emulated: Some(device), ..class_of("emulated", gpus_per_node) }
}

pub fn training(work: Work, reference: u64, batch: (u64, u64)) -> Training {
    Training {
        reference_batch: Sequences(reference),
        batch: BatchRange { min: Sequences(batch.0), max: Sequences(batch.1) },
        layouts: LayoutLimits::degrees(vec![], vec![], Sequences(8)),
        ..example::training(work)
    }
}

/// A report of `steps` steps that took so many seconds together.
pub fn report(configuration: Configuration, steps: u32, duration: f64) -> StepReport {
    StepReport {
        job: JobId("00000000-0000-0000-0000-000000000000".parse().unwrap_or_default()),
        generation: Generation(1),
        step: 1,
        steps,
        samples_seen: Sequences(1),
        tokens: configuration.global_batch.tokens(64) * f64::from(steps),
        duration: Seconds(duration),
        configuration,
        loss: None,
        noise: None,
        preconditioned: None,
        memory_peak: None,
    }
}
