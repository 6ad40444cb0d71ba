//! Nodes and jobs as tests want them.

use std::collections::BTreeMap;

use headway_types::report::Flexibility;
use headway_types::spec::{
    BatchPolicy, BatchRange, CheckpointPolicy, Command, Elasticity, GpuRange, LayoutLimits, Limits, LrScaling,
    NodeChoice, NodeResources, NoiseKind, Precision, Priority, Role, Run, RunPer, Training, Work,
};
use headway_types::{
    BootId, Bytes, Capabilities, EmulatedDevice, Fabric, Gpu, GpuCount, GpuHealth, GpuType, GpuUuid, IdSource, JobSpec,
    ModelShape, NodeId, NodeInventory, Seconds, Sequences, Timestamp, Tokens,
};

pub fn node_id(index: u64) -> NodeId {
    IdSource::seeded(1_000 + index).node(Timestamp(0))
}

pub fn inventory(index: u64, gpus: u32) -> NodeInventory {
    let gpu = |slot| Gpu {
        uuid: GpuUuid(format!("GPU-{index}-{slot}")),
        index: slot,
        memory: Bytes(16 << 30),
        health: GpuHealth::Healthy,
    };
    NodeInventory {
        node: node_id(index),
        name: format!("node-{index}"),
        boot: BootId("first".into()),
        gpu_type: GpuType("emulated".into()),
        gpus: (0..gpus).map(gpu).collect(),
        emulated: Some(EmulatedDevice { flop_per_second: 100_000_000_000, link_bytes_per_second: 50_000_000 }),
        fabric: Fabric { domain: "rack".into() },
        stated: None,
        cpus: 8,
        memory: Bytes(64 << 30),
        shm: Some(Bytes(32 << 30)),
        local_disk: None,
        address: format!("10.0.0.{index}"),
        isolated: true,
        conditions: Vec::new(),
        agent_version: "test".into(),
    }
}

pub fn training(fenced: bool) -> Training {
    Training {
        work: Work::Model(ModelShape {
            layers: 4,
            hidden: 256,
            heads: 8,
            kv_heads: 8,
            ffn_hidden: 1024,
            gated: false,
            vocab: 8_000,
            seq_len: 256,
            tied: true,
        }),
        precision: Precision::Fp32,
        reference_batch: Sequences(16),
        batch: BatchRange { min: Sequences(16), max: Sequences(256) },
        batch_policy: BatchPolicy::default(),
        lr_scaling: LrScaling::Sqrt,
        target: Some(Tokens(5_000_000.0)),
        layouts: LayoutLimits::degrees(vec![1], vec![1], Sequences(16)),
        checkpoint: CheckpointPolicy { dir: None, every: Seconds(60.0), grace: Seconds(10.0), fenced },
        reconfigure: Capabilities { batch: Flexibility::Live, layout: Flexibility::Restart },
        kappa: 1.0,
        noise: NoiseKind::default(),
    }
}

pub fn spec(name: &str, min: u32, max: u32, training: Option<Training>) -> JobSpec {
    let run = Run { per: RunPer::Node, command: Command::Shell("train".into()), workdir: None, env: BTreeMap::new() };
    let gpus = GpuRange { min: GpuCount(min), max: GpuCount(max), sizes: Vec::new(), types: Vec::new() };
    JobSpec {
        name: name.into(),
        project: "default".into(),
        priority: Priority::default(),
        labels: BTreeMap::new(),
        roles: vec![Role {
            name: "trainer".into(),
            gpus,
            per_node: NodeResources::default(),
            nodes: NodeChoice::default(),
            training,
            run,
        }],
        elastic: Elasticity {
            min_runtime: Seconds(0.0),
            max_resizes_per_hour: 10,
            max_overhead: 1.0,
            ..Elasticity::default()
        },
        limits: Limits { max_restarts: 2, ..Limits::default() },
    }
}

/// A job that takes exactly this many GPUs and is not tuned.
pub fn rigid(name: &str, gpus: u32) -> JobSpec {
    spec(name, gpus, gpus, None)
}
