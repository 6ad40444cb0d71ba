//! Models, specifications and nodes for tests and benchmarks, built once: a test changes the field that it is about.

use std::collections::{BTreeMap, BTreeSet};

use crate::command::NodeAddress;
use crate::report::Flexibility;
use crate::spec::{
    BatchPolicy, BatchRange, CheckpointPolicy, Command, Elasticity, GpuRange, Hooks, LayoutLimits, Limits, LrScaling,
    NodeChoice, NodeResources, NoiseKind, Precision, PrintedProgress, PrintingRank, Priority, Role, Run, RunPer,
    Training, Work,
};
use crate::{
    BootId, Bytes, Capabilities, Fabric, Generation, Gpu, GpuCount, GpuHealth, GpuType, GpuUuid, JobId, JobSpec,
    LaunchOrder, ModelShape, NodeClass, NodeId, NodeInventory, NodeSlice, Placement, Seconds, Sequences,
};

/// A script that takes any change.
pub const FLEXIBLE: Capabilities = Capabilities { batch: Flexibility::Live, layout: Flexibility::Restart };

/// A decoder whose curves are cheap.
#[must_use]
pub fn tiny() -> ModelShape {
    ModelShape {
        layers: 4,
        hidden: 64,
        heads: 4,
        kv_heads: 4,
        ffn_hidden: 172,
        gated: true,
        vocab: 256,
        seq_len: 64,
        ..ModelShape::default()
    }
}

/// A decoder that takes seconds rather than hours on an emulated device.
#[must_use]
pub fn small() -> ModelShape {
    ModelShape {
        hidden: 256,
        heads: 8,
        kv_heads: 8,
        ffn_hidden: 1024,
        gated: false,
        vocab: 8_000,
        seq_len: 256,
        tied: true,
        ..tiny()
    }
}

#[must_use]
pub fn llama2_7b() -> ModelShape {
    ModelShape {
        layers: 32,
        hidden: 4096,
        heads: 32,
        kv_heads: 32,
        ffn_hidden: 11_008,
        vocab: 32_000,
        seq_len: 4096,
        ..tiny()
    }
}

#[must_use]
pub fn llama3_8b() -> ModelShape {
    ModelShape { kv_heads: 8, ffn_hidden: 14_336, vocab: 128_256, seq_len: 8192, ..llama2_7b() }
}

/// A recipe whose batch may be half and sixteen times the reference.
#[must_use]
pub fn training(work: Work) -> Training {
    Training {
        work,
        precision: Precision::Bf16,
        reference_batch: Sequences(16),
        batch: BatchRange { min: Sequences(8), max: Sequences(256) },
        batch_policy: BatchPolicy::default(),
        lr_scaling: LrScaling::Sqrt,
        target: None,
        layouts: LayoutLimits::degrees(vec![1], vec![1], Sequences(8)),
        checkpoint: CheckpointPolicy::default(),
        reconfigure: FLEXIBLE,
        kappa: 1.0,
        noise: NoiseKind::default(),
    }
}

/// Every size in between, on any GPUs.
#[must_use]
pub fn gpus(min: u32, max: u32) -> GpuRange {
    GpuRange { min: GpuCount(min), max: GpuCount(max), sizes: Vec::new(), types: Vec::new(), mixed: false }
}

#[must_use]
pub fn spec(name: &str, gpus: GpuRange, training: Option<Training>) -> JobSpec {
    let run = Run {
        per: RunPer::Node,
        command: Command::Shell("train".into()),
        workdir: None,
        env: BTreeMap::new(),
        hooks: Hooks::default(),
        secrets: BTreeMap::new(),
        secret_files: BTreeSet::new(),
        progress: None,
    };
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
        elastic: Elasticity::default(),
        limits: Limits::default(),
        after: Vec::new(),
        array: None,
        notify: Vec::new(),
    }
}

/// A script on these GPUs of one node.
#[must_use]
pub fn order(job: JobId, generation: u64, node: NodeId, gpus: Vec<GpuUuid>) -> LaunchOrder {
    LaunchOrder {
        job,
        generation: Generation(generation),
        job_name: "job".into(),
        array: None,
        owner: "ada".into(),
        model: None,
        run: Run {
            per: RunPer::Gpu,
            command: Command::Shell("true".into()),
            workdir: None,
            env: BTreeMap::new(),
            hooks: Hooks::default(),
            secrets: BTreeMap::new(),
            secret_files: BTreeSet::new(),
            progress: None,
        },
        placement: Placement::try_new(vec![NodeSlice { node, gpus }]).expect("the GPUs are different ones"),
        nodes: vec![NodeAddress { node, name: "n".into(), address: "127.0.0.1".into() }],
        configuration: None,
        lr_scale: 1.0,
        lr_scaling: LrScaling::None,
        reference_batch: None,
        checkpoint_dir: "/tmp/checkpoints".into(),
        checkpoint_every: Seconds(60.0),
        resume: None,
        grace: Seconds(20.0),
        notice: None,
        watched: false,
    }
}

/// Nodes of one rack with real GPUs.
#[must_use]
pub fn class(gpu_type: &str, gpus_per_node: u32) -> NodeClass {
    NodeClass {
        gpu_type: GpuType(gpu_type.into()),
        gpus_per_node: GpuCount(gpus_per_node),
        emulated: None,
        fabric: Fabric { domain: "rack".into() },
        stated: None,
        ahead: None,
    }
}

/// `node-0` with its GPUs `GPU-0-0`, `GPU-0-1`, …
#[must_use]
pub fn inventory(node: NodeId, index: u64, gpus: u32) -> NodeInventory {
    let gpu = |slot| Gpu {
        uuid: GpuUuid(format!("GPU-{index}-{slot}")),
        index: slot,
        memory: Bytes(80 << 30),
        health: GpuHealth::Healthy,
    };
    let NodeClass { gpu_type, emulated, fabric, stated, .. } = class("H100-80G", gpus);
    NodeInventory {
        node,
        name: format!("node-{index}"),
        boot: BootId("first".into()),
        gpu_type,
        gpus: (0..gpus).map(gpu).collect(),
        emulated,
        fabric,
        stated,
        cpus: 64,
        memory: Bytes(512 << 30),
        shm: None,
        local_disk: None,
        address: format!("10.0.0.{index}"),
        isolated: true,
        not_isolated_reason: None,
        conditions: Vec::new(),
        leaving_reason: None,
        labels: BTreeMap::new(),
        agent_version: "test".into(),
        tells_shares: true,
        account: None,
    }
}

/// Steps read from lines such as `step 12 loss 3.4`.
#[must_use]
pub fn progress() -> PrintedProgress {
    PrintedProgress {
        regex: r"step (?P<step>\d+) loss (?P<loss>\S+)".into(),
        rank: PrintingRank::First,
        samples_per_step: None,
        tokens_per_step: None,
        sequence_length: None,
    }
}
