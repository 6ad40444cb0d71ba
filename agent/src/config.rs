//! What an agent is told at start, and what it offers from that. GPUs are discovered, declared or emulated.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use headway_types::{BootId, Bytes, EmulatedDevice, Fabric, GpuCount, GpuType, NodeId, NodeInventory, StatedDevice};

use crate::AgentError;
use crate::cgroup::CgroupRoot;
use crate::gpu::Device;
use crate::logs::OutputLimits;
use crate::pressure;
use crate::user::RunAs;
use crate::warm::WarmLimits;

/// Everything an agent needs to know.
#[derive(Clone, Debug)]
pub struct AgentConfig {
    /// `https://host:port` of the scheduler's agent port (with a token `http://…` on loopback as well); of each of its servers, where there are
    /// several. None: those that the node has joined.
    pub server_urls: Vec<String>,
    pub access: Access,
    /// Identity, ledger, socket and logs live here; one agent per directory.
    pub data_dir: PathBuf,
    pub name: String,
    /// Host name or IP other nodes reach this one at.
    pub address: String,
    pub gpus: GpuOffer,
    /// What GPUs of a type can do here, where the scheduler's catalog does not know it or is wrong of this node; empty: the catalog
    /// says.
    pub hardware: BTreeMap<GpuType, StatedDevice>,
    /// Nodes of one domain talk at full bandwidth.
    pub fabric: String,
    /// What jobs may choose this node by, unless an operator says otherwise.
    pub labels: BTreeMap<String, String>,
    /// What `{python}` stands for in `run.command`.
    pub python: String,
    /// What `{headway}` stands for: this binary, for emulated workers.
    pub headway_binary: PathBuf,
    /// Shared memory and own disk that jobs may count on; absent: what the file systems hold.
    pub shm: Option<Bytes>,
    pub local_disk: Option<Bytes>,
    /// Whom workers run as.
    pub run_as: RunAs,
    /// Where all jobs run as the agent's own user: whether jobs of other owners do so too.
    pub allow_others: bool,
    /// Of an owner as whom workers may run.
    pub least_uid: u32,
    /// Where workers' cgroups may be made.
    pub cgroups: CgroupRoot,
    /// Whether a job has no more of the host's memory than its GPUs' share.
    pub bound_memory: bool,
    /// How long a job's step reports are summed up before one goes to the scheduler.
    pub report_every: Duration,
    /// How much of workers' output is kept.
    pub output: OutputLimits,
    /// Interpreters that are kept warm.
    pub warm: WarmLimits,
}

/// What opens the scheduler to a node, or a fleet.
#[derive(Clone)]
pub enum Access {
    /// The file that `headway node join` has written.
    Certificate(PathBuf),
    /// A token that all agents share, where the scheduler takes one. `tls_ca`: PEM certificates to trust; required with `https`.
    Token { secret: String, tls_ca: Option<PathBuf> },
}

impl std::fmt::Debug for Access {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Certificate(file) => f.debug_tuple("Certificate").field(file).finish(),
            Self::Token { tls_ca, .. } => f.debug_struct("Token").field("tls_ca", tls_ca).finish_non_exhaustive(),
        }
    }
}

/// Where the GPUs come from.
#[derive(Clone, Debug)]
pub enum GpuOffer {
    /// Whatever NVML or ROCm knows; the type is the driver's unless the operator states it.
    Discovered {
        gpu_type: Option<GpuType>,
    },
    Declared(DeclaredGpus),
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
    /// `devices`: as they are at the start; all of one type, since a class has one.
    pub(crate) fn inventory(
        &self,
        node: NodeId,
        boot: BootId,
        devices: Vec<Device>,
    ) -> Result<NodeInventory, AgentError> {
        let mut types = devices.iter().map(|device| device.gpu_type.clone());
        let gpu_type = types.next().unwrap_or(GpuType(String::new()));
        if let Some(other) = types.find(|other| *other != gpu_type) {
            let message = format!("{gpu_type} and {other} in one node; state one with --gpu-type");
            return Err(AgentError::Gpus { message });
        }
        let stated = self.hardware.get(&gpu_type).cloned();
        if stated.is_none() && !self.hardware.is_empty() {
            let known: Vec<&str> = self.hardware.keys().map(|known| known.0.as_str()).collect();
            let message = format!(
                "the hardware file has no entry for {gpu_type}, only {}; name one so, or state the type with --gpu-type",
                known.join(", ")
            );
            return Err(AgentError::Gpus { message });
        }
        let emulated = match &self.gpus {
            GpuOffer::Declared(declared) => declared.emulated,
            GpuOffer::Discovered { .. } => None,
        };
        Ok(NodeInventory {
            node,
            name: self.name.clone(),
            boot,
            gpu_type,
            gpus: devices.into_iter().map(|device| device.gpu).collect(),
            emulated,
            fabric: Fabric { domain: self.fabric.clone() },
            stated,
            cpus: std::thread::available_parallelism().map_or(1, |cpus| cpus.get() as u32),
            memory: host_memory(),
            shm: self.shm.or_else(|| pressure::size_of(Path::new("/dev/shm"))),
            local_disk: self.local_disk.or_else(|| pressure::size_of(&self.data_dir)),
            address: self.address.clone(),
            // Until a filter has shown what it does.
            isolated: false,
            not_isolated_reason: None,
            conditions: Vec::new(),
            leaving_reason: None,
            labels: self.labels.clone(),
            agent_version: env!("CARGO_PKG_VERSION").to_owned(),
            tells_shares: true,
            account: self.run_as.account(self.allow_others),
        })
    }
}

fn host_memory() -> Bytes {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kibibytes =
        text.lines().find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix("kB")?.trim().parse().ok());
    Bytes(kibibytes.map_or(0, |kib: u64| kib * 1024))
}
