//! What a fleet consists of, and what each of its nodes offers.

use std::str::FromStr;

use headway_emulation::hardware::{GpuTypeError, gpu_type};
use headway_types::{
    BootId, Bytes, Fabric, Gpu, GpuCount, GpuHealth, GpuType, GpuUuid, NodeCount, NodeId, NodeInventory,
};
use sha2::{Digest, Sha256};
use uuid::Uuid;

/// Host resources that come with each GPU of a usual training node.
const CPUS_PER_GPU: u32 = 16;
const MEMORY_PER_GPU: u64 = 256 << 30;
const SHM_PER_GPU: u64 = 128 << 30;
const DISK_PER_GPU: u64 = 1 << 40;

/// Nodes alike: `H100x8=150`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetGroup {
    pub gpu_type: GpuType,
    pub gpu_memory: Bytes,
    pub gpus_per_node: GpuCount,
    /// `None`: as many as asked for elsewhere.
    pub nodes: Option<NodeCount>,
}

/// Why a text is no group of nodes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FleetGroupError {
    #[error("\"{text}\" is not TYPExGPUS or TYPExGPUS=NODES, as in H100x8=150")]
    Form { text: String },
    #[error(transparent)]
    GpuType(#[from] GpuTypeError),
}

impl FromStr for FleetGroup {
    type Err = FleetGroupError;

    fn from_str(text: &str) -> Result<Self, FleetGroupError> {
        let form = || FleetGroupError::Form { text: text.to_owned() };
        let count = |digits: &str| digits.parse::<u32>().ok().filter(|count| *count > 0).ok_or_else(form);
        let (kind, nodes) = match text.split_once('=') {
            Some((kind, nodes)) => (kind, Some(NodeCount(count(nodes)?))),
            None => (text, None),
        };
        let (name, gpus) = kind.rsplit_once('x').ok_or_else(form)?;
        let gpus_per_node = GpuCount(count(gpus)?);
        let (gpu_type, gpu_memory) = gpu_type(name)?;
        Ok(Self { gpu_type, gpu_memory, gpus_per_node, nodes })
    }
}

/// What node `number` (from 0) of a group offers. The same fleet name gives the same ids at every start.
pub(super) fn inventory(fleet: &str, group: &FleetGroup, number: u32, fabric: &str, boot: BootId) -> NodeInventory {
    let kind = format!("{}x{}", group.gpu_type, group.gpus_per_node);
    let node = node_id(fleet, &kind, number);
    let gpus = (0..group.gpus_per_node.0)
        .map(|index| Gpu {
            uuid: GpuUuid(format!("EMU-{node}-{index}")),
            index,
            memory: group.gpu_memory,
            health: GpuHealth::Healthy,
        })
        .collect();
    NodeInventory {
        node,
        name: format!("{fleet}-{}-{:04}", kind.to_lowercase(), number + 1),
        boot,
        gpu_type: group.gpu_type.clone(),
        gpus,
        emulated: None,
        fabric: Fabric { domain: fabric.to_owned() },
        cpus: CPUS_PER_GPU * group.gpus_per_node.0,
        memory: Bytes(MEMORY_PER_GPU * u64::from(group.gpus_per_node.0)),
        shm: Some(Bytes(SHM_PER_GPU * u64::from(group.gpus_per_node.0))),
        local_disk: Some(Bytes(DISK_PER_GPU * u64::from(group.gpus_per_node.0))),
        address: "127.0.0.1".to_owned(),
        isolated: true,
        conditions: Vec::new(),
        agent_version: format!("{} (emulated)", env!("CARGO_PKG_VERSION")),
    }
}

/// A boot nobody has seen before.
pub(super) fn fresh_boot() -> BootId {
    BootId(Uuid::now_v7().to_string())
}

fn node_id(fleet: &str, kind: &str, number: u32) -> NodeId {
    let digest = Sha256::digest(format!("headway fleet\n{fleet}\n{kind}\n{number}"));
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&digest[..16]);
    NodeId(uuid::Builder::from_custom_bytes(bytes).into_uuid())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn groups_are_written_as_type_times_gpus() {
        let group: FleetGroup = "H100x8=150".parse().unwrap();
        assert_eq!((group.gpu_type.0.as_str(), group.gpus_per_node.0), ("H100-80G", 8));
        assert_eq!(group.nodes, Some(NodeCount(150)));
        let group: FleetGroup = "MI300Xx4".parse().unwrap();
        assert_eq!((group.gpu_type.0.as_str(), group.nodes), ("MI300X", None));
        for wrong in ["H100", "H100x0", "H100x8=", "H100x8=x", "x8"] {
            assert!(wrong.parse::<FleetGroup>().is_err(), "{wrong}");
        }
        assert!("A100x8".parse::<FleetGroup>().unwrap_err().to_string().contains("A100-40G"));
    }

    #[test]
    fn a_node_is_the_same_at_every_start_and_no_other() {
        let group: FleetGroup = "H100x8".parse().unwrap();
        let node = |fleet: &str, number| inventory(fleet, &group, number, "rack", fresh_boot());
        let (first, again) = (node("lab", 0), node("lab", 0));
        assert_eq!((first.node, &first.gpus, first.name.as_str()), (again.node, &again.gpus, "lab-h100-80gx8-0001"));
        assert_ne!(first.boot, again.boot);
        assert_ne!(first.node, node("lab", 1).node);
        assert_ne!(first.node, node("other", 0).node);
    }
}
