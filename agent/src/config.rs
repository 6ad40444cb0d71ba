//! What an agent is told at start, and what it offers from that. GPUs are declared or emulated; nothing is probed.

use std::path::PathBuf;

use headway_types::{
    BootId, Bytes, EmulatedDevice, Fabric, Gpu, GpuCount, GpuHealth, GpuType, GpuUuid, NodeId, NodeInventory,
};

use crate::logs::OutputLimits;
use crate::user::RunAs;

/// Everything an agent needs to know.
#[derive(Clone, Debug)]
pub struct AgentConfig {
    /// `http://host:port` or `https://host:port` of the scheduler's agent port.
    pub server_url: String,
    pub token: String,
    /// Identity, ledger, socket and logs live here; one agent per directory.
    pub data_dir: PathBuf,
    pub name: String,
    /// Host name or IP other nodes reach this one at.
    pub address: String,
    pub gpus: DeclaredGpus,
    /// Nodes of one domain talk at full bandwidth.
    pub fabric: String,
    /// What `{python}` stands for in `run.command`.
    pub python: String,
    /// What `{headway}` stands for: this binary, for emulated workers.
    pub headway_binary: PathBuf,
    /// Whom workers run as.
    pub run_as: RunAs,
    /// How much of workers' output is kept.
    pub output: OutputLimits,
    /// PEM certificates to trust; required with `https`.
    pub tls_ca: Option<PathBuf>,
}

/// GPUs as the operator states them.
#[derive(Clone, Debug)]
pub struct DeclaredGpus {
    pub gpu_type: GpuType,
    pub count: GpuCount,
    pub memory: Bytes,
    pub emulated: Option<EmulatedDevice>,
}

impl AgentConfig {
    pub(crate) fn inventory(&self, node: NodeId, boot: BootId) -> NodeInventory {
        let kind = if self.gpus.emulated.is_some() { "EMU" } else { "DECLARED" };
        let gpus = (0..self.gpus.count.0)
            .map(|index| Gpu {
                uuid: GpuUuid(format!("{kind}-{node}-{index}")),
                index,
                memory: self.gpus.memory,
                health: GpuHealth::Healthy,
            })
            .collect();
        NodeInventory {
            node,
            name: self.name.clone(),
            boot,
            gpu_type: self.gpus.gpu_type.clone(),
            gpus,
            emulated: self.gpus.emulated,
            fabric: Fabric { domain: self.fabric.clone() },
            cpus: std::thread::available_parallelism().map_or(1, |cpus| cpus.get() as u32),
            memory: host_memory(),
            address: self.address.clone(),
            // CUDA_VISIBLE_DEVICES alone keeps honest jobs apart, no others.
            isolated: false,
            conditions: Vec::new(),
            agent_version: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }
}

fn host_memory() -> Bytes {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kibibytes =
        text.lines().find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix("kB")?.trim().parse().ok());
    Bytes(kibibytes.map_or(0, |kib: u64| kib * 1024))
}
