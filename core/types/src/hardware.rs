//! What a node offers: GPUs, their health, the fabric between them, and host resources.

use core::fmt;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::id::{BootId, GpuUuid, NodeId};
use crate::unit::{Bytes, GpuCount, NodeCount};

/// A GPU model as the hardware catalog names it ("H100-80G", "A100-40G", "emulated").
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct GpuType(pub String);

impl GpuType {
    /// What a gang is said to have that holds GPUs of several types: "A100-80G+H100-80G"; `None`: of none.
    #[must_use]
    pub fn joined(types: impl IntoIterator<Item = GpuType>) -> Option<GpuType> {
        let mut types: Vec<String> = types.into_iter().map(|of| of.0).collect();
        types.sort_unstable();
        types.dedup();
        (!types.is_empty()).then(|| GpuType(types.join("+")))
    }

    /// The types that it joins.
    pub fn each(&self) -> impl Iterator<Item = GpuType> {
        self.0.split('+').map(|name| GpuType(name.to_owned()))
    }
}

impl fmt::Display for GpuType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Whether a GPU may be granted.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "state", content = "cause")]
pub enum GpuHealth {
    Healthy,
    /// Why it must not be granted, in words an operator understands.
    Broken(String),
}

/// One GPU (or emulated slot) of a node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Gpu {
    pub uuid: GpuUuid,
    /// Index on the node, as `CUDA_VISIBLE_DEVICES` counts.
    pub index: u32,
    pub memory: Bytes,
    pub health: GpuHealth,
}

/// A device that keeps time instead of computing fast: the worker pads each step to what a device of this speed
/// would take, so that more slots mean more throughput although all share the node's cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct EmulatedDevice {
    /// Achieved model FLOP/s per slot.
    pub flop_per_second: u64,
    /// Achieved all-reduce bandwidth per slot.
    pub link_bytes_per_second: u64,
}

/// What one GPU of a node can do, as a file says (the site's catalog, or a measurement on the node), where the built-in catalog
/// does not decide. Whole numbers, so that classes compare; rates are per second, per GPU and per direction.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct StatedDevice {
    /// Whose fitted factors it has; an unknown family has none.
    pub family: String,
    /// Dense half-precision peak, FLOP/s.
    pub peak_flops: u64,
    /// Best matrix multiplication in 16, 8 and 4 bits, FLOP/s; what it cannot do narrower it does at the wider rate.
    pub matmul_flops: u64,
    pub matmul_8bit_flops: u64,
    pub matmul_4bit_flops: u64,
    /// In 32 bits, outside the half-precision units.
    pub matmul_32bit_flops: u64,
    pub memory: Bytes,
    pub memory_bytes_per_second: u64,
    /// Scale-up link (NVLink, xGMI, PCIe); of a mesh, to one peer.
    pub link_bytes_per_second: u64,
    /// Whether each pair of GPUs has a link of its own instead of a switch.
    pub mesh: bool,
    /// GPUs the scale-up network joins, where it is more than a node.
    pub domain: Option<u32>,
    pub network_bytes_per_second: u64,
    /// Streaming multiprocessors or compute units.
    pub multiprocessors: u32,
    /// Whether the rates of memory, link and network are what a probe achieved instead of what data sheets promise.
    pub measured: bool,
}

/// What a node is to the planner: GPU type, GPU count, device and fabric domain. The planner counts nodes as one class that differ in
/// their domain only.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NodeClass {
    pub gpu_type: GpuType,
    /// GPUs a node of this class has when all are healthy.
    pub gpus_per_node: GpuCount,
    pub emulated: Option<EmulatedDevice>,
    pub fabric: Fabric,
    /// Absent: the built-in catalog's entry of the type holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stated: Option<StatedDevice>,
    /// Of a gang over nodes of two classes, valued by the slower: the faster one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ahead: Option<Ahead>,
}

/// Nodes of a gang that are faster than its others. In rank order they come last.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Ahead {
    pub class: Box<NodeClass>,
    pub nodes: NodeCount,
}

/// The network a node reaches other nodes through. Nodes of one fabric domain talk at full bandwidth.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Fabric {
    /// Name of the domain (rack, leaf, pod); nodes with equal names share it.
    pub domain: String,
}

/// A trouble of a node that is no GPU's own.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Condition {
    pub kind: ConditionKind,
    /// With the numbers behind it, in words an operator understands.
    pub message: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConditionKind {
    /// The agent's disk is nearly full.
    DiskPressure,
    /// The host is nearly out of memory.
    MemoryPressure,
    /// GPUs run slower than they could (heat, power).
    Throttled,
    /// No cgroups, or none with controllers, keep what runs there within bounds of memory.
    Unbounded,
    /// Its ledger was damaged and it went on with an older one; until somebody has looked.
    LedgerDamaged,
}

impl ConditionKind {
    /// Whether nothing new starts on the node while it lasts; else a person should know, no more.
    #[must_use]
    pub fn keeps_work_away(self) -> bool {
        match self {
            Self::DiskPressure | Self::MemoryPressure => true,
            Self::Throttled | Self::Unbounded | Self::LedgerDamaged => false,
        }
    }
}

/// What an agent offers when it registers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeInventory {
    pub node: NodeId,
    pub name: String,
    pub boot: BootId,
    pub gpu_type: GpuType,
    pub gpus: Vec<Gpu>,
    pub emulated: Option<EmulatedDevice>,
    pub fabric: Fabric,
    /// What its GPUs can do, by its agent's word or else the site's catalog.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stated: Option<StatedDevice>,
    pub cpus: u32,
    pub memory: Bytes,
    /// Size of its shared memory (`/dev/shm`); absent: nobody has said.
    #[serde(default)]
    pub shm: Option<Bytes>,
    /// Size of its own disk for jobs; absent: nobody has said.
    #[serde(default)]
    pub local_disk: Option<Bytes>,
    /// Address other nodes reach this one at (the rendezvous listens there).
    pub address: String,
    /// How GPUs are kept apart between jobs: a device filter, or only `CUDA_VISIBLE_DEVICES` ("not isolated").
    pub isolated: bool,
    /// Why there is no such filter, in words an operator understands; absent where there is one, and where an agent does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_isolated_reason: Option<String>,
    #[serde(default)]
    pub conditions: Vec<Condition>,
    /// Why the node goes away soon, in words an operator understands. Absent: it stays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leaving_reason: Option<String>,
    /// By its agent's word; what an operator says goes before.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    pub agent_version: String,
    /// Whether its agent tells workers of uneven shares; those of former releases do not.
    #[serde(default)]
    pub tells_shares: bool,
    /// The one account that all jobs run as there. Absent: each job runs as its owner, workers are emulated, or the agent is of a
    /// release that does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<NodeAccount>,
}

/// The account that a node runs every job as, whoever submitted it. Code of that account can read what such a job reads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeAccount {
    /// Name of the Unix user.
    pub user: String,
    /// Whether jobs of other owners may run as this user too, as whoever started the agent has said.
    pub takes_others: bool,
}

impl NodeAccount {
    /// Whether a job of this owner may run as the account.
    #[must_use]
    pub fn takes(&self, owner: &str) -> bool {
        self.takes_others || self.user == owner
    }
}

impl NodeInventory {
    /// The class of nodes this one belongs to.
    #[must_use]
    pub fn class(&self) -> NodeClass {
        NodeClass {
            gpu_type: self.gpu_type.clone(),
            gpus_per_node: GpuCount(self.gpus.len() as u32),
            emulated: self.emulated,
            fabric: self.fabric.clone(),
            stated: self.stated.clone(),
            ahead: None,
        }
    }

    /// Whether the node is of this class, wherever it is in the fabric.
    #[must_use]
    pub fn is_of(&self, class: &NodeClass) -> bool {
        let NodeClass { gpu_type, gpus_per_node, emulated, fabric: _, stated, ahead: _ } = class;
        self.gpu_type == *gpu_type
            && self.gpus.len() == gpus_per_node.0 as usize
            && self.emulated == *emulated
            && self.stated == *stated
    }

    /// GPUs that may be granted.
    #[must_use]
    pub fn healthy(&self) -> GpuCount {
        GpuCount(self.gpus.iter().filter(|gpu| gpu.health == GpuHealth::Healthy).count() as u32)
    }
}
