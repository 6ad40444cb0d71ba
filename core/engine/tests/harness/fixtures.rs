//! Nodes and jobs as tests want them.

use headway_types::spec::{BatchRange, CheckpointPolicy, Elasticity, LayoutLimits, Limits, Precision, Training, Work};
use headway_types::{
    Bytes, EmulatedDevice, GpuType, IdSource, JobSpec, NodeId, NodeInventory, Seconds, Sequences, Timestamp, Tokens,
    example,
};

pub fn node_id(index: u64) -> NodeId {
    IdSource::seeded(1_000 + index).node(Timestamp(0))
}

pub fn inventory(index: u64, gpus: u32) -> NodeInventory {
    NodeInventory {
        gpu_type: GpuType("emulated".into()),
        emulated: Some(EmulatedDevice { flop_per_second: 100_000_000_000, link_bytes_per_second: 50_000_000 }),
        cpus: 8,
        memory: Bytes(64 << 30),
        shm: Some(Bytes(32 << 30)),
        ..example::inventory(node_id(index), index, gpus)
    }
}

pub fn training(fenced: bool) -> Training {
    Training {
        precision: Precision::Fp32,
        batch: BatchRange { min: Sequences(16), max: Sequences(256) },
        target: Some(Tokens(5_000_000.0).into()),
        layouts: LayoutLimits::degrees(vec![1], vec![1], Sequences(16)),
        checkpoint: CheckpointPolicy { dir: None, every: Seconds(60.0), grace: Seconds(10.0), fenced, keep: None },
        ..example::training(Work::Model(example::small()))
    }
}

pub fn spec(name: &str, min: u32, max: u32, training: Option<Training>) -> JobSpec {
    JobSpec {
        elastic: Elasticity {
            min_runtime: Seconds(0.0),
            max_resizes_per_hour: 10,
            max_overhead: 1.0,
            ..Elasticity::default()
        },
        limits: Limits { max_restarts: 2, ..Limits::default() },
        ..example::spec(name, example::gpus(min, max), training)
    }
}

/// A job that takes exactly this many GPUs and is not tuned.
pub fn rigid(name: &str, gpus: u32) -> JobSpec {
    spec(name, gpus, gpus, None)
}
