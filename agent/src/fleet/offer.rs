//! What a fleet consists of, and what each of its nodes offers.

use core::fmt;
use std::collections::BTreeMap;
use std::str::FromStr;

use headway_emulation::hardware::KnownType;
use headway_types::{
    BootId, Bytes, Fabric, Gpu, GpuCount, GpuHealth, GpuType, GpuUuid, NodeCount, NodeId, NodeInventory, StatedDevice,
};
use sha2::{Digest, Sha256};
use uuid::Uuid;

/// Host resources that come with each GPU of a usual training node.
const CPUS_PER_GPU: u32 = 16;
const MEMORY_PER_GPU: u64 = 256 << 30;
const SHM_PER_GPU: u64 = 128 << 30;
const DISK_PER_GPU: u64 = 1 << 40;

/// Nodes alike, as somebody wrote them: `H100x8=150`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrittenGroup {
    /// The type, or the beginning of its name.
    pub name: String,
    pub gpus_per_node: GpuCount,
    /// `None`: as many as asked for elsewhere.
    pub nodes: Option<NodeCount>,
}

/// Nodes alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetGroup {
    pub gpu_type: GpuType,
    pub gpu_memory: Bytes,
    pub gpus_per_node: GpuCount,
    pub nodes: NodeCount,
    /// Of a type that is not built in.
    pub stated: Option<StatedDevice>,
}

/// Why a text is no group of nodes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("\"{text}\" is not TYPExGPUS or TYPExGPUS=NODES, as in H100x8=150")]
pub struct GroupForm {
    text: String,
}

impl FromStr for WrittenGroup {
    type Err = GroupForm;

    fn from_str(text: &str) -> Result<Self, GroupForm> {
        let form = || GroupForm { text: text.to_owned() };
        let count = |digits: &str| digits.parse::<u32>().ok().filter(|count| *count > 0).ok_or_else(form);
        let (kind, nodes) = match text.split_once('=') {
            Some((kind, nodes)) => (kind, Some(NodeCount(count(nodes)?))),
            None => (text, None),
        };
        let (name, gpus) = kind.rsplit_once('x').filter(|(name, _)| !name.is_empty()).ok_or_else(form)?;
        Ok(Self { name: name.to_owned(), gpus_per_node: GpuCount(count(gpus)?), nodes })
    }
}

impl fmt::Display for WrittenGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}", self.name, self.gpus_per_node)?;
        self.nodes.map_or(Ok(()), |nodes| write!(f, "={nodes}"))
    }
}

impl WrittenGroup {
    /// The nodes meant, of the type that its name stands for; as many as `usual` where it names no number.
    #[must_use]
    pub fn of(&self, known: KnownType, usual: NodeCount) -> FleetGroup {
        let KnownType { gpu_type, memory, stated } = known;
        let nodes = self.nodes.unwrap_or(usual);
        FleetGroup { gpu_type, gpu_memory: memory, gpus_per_node: self.gpus_per_node, nodes, stated }
    }
}

/// What node `number` (from 0) of a group offers. The same fleet name gives the same ids at every start.
pub(super) fn inventory(
    fleet: &str,
    group: &FleetGroup,
    number: u32,
    fabric: &str,
    labels: &BTreeMap<String, String>,
    boot: BootId,
) -> NodeInventory {
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
        stated: group.stated.clone(),
        cpus: CPUS_PER_GPU * group.gpus_per_node.0,
        memory: Bytes(MEMORY_PER_GPU * u64::from(group.gpus_per_node.0)),
        shm: Some(Bytes(SHM_PER_GPU * u64::from(group.gpus_per_node.0))),
        local_disk: Some(Bytes(DISK_PER_GPU * u64::from(group.gpus_per_node.0))),
        address: "127.0.0.1".to_owned(),
        isolated: true,
        not_isolated_reason: None,
        leaving_reason: None,
        conditions: Vec::new(),
        labels: labels.clone(),
        agent_version: format!("{} (emulated)", env!("CARGO_PKG_VERSION")),
        tells_shares: true,
        account: None,
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
    use crate::fleet::tests::group;

    #[test]
    fn groups_are_written_as_type_times_gpus() {
        let of: WrittenGroup = "H100x8=150".parse().unwrap();
        assert_eq!((of.name.as_str(), of.gpus_per_node.0, of.nodes), ("H100", 8, Some(NodeCount(150))));
        let of: WrittenGroup = "MI300Xx4".parse().unwrap();
        assert_eq!((of.name.as_str(), of.nodes), ("MI300X", None));
        for wrong in ["H100", "H100x0", "H100x8=", "H100x8=x", "x8"] {
            assert!(wrong.parse::<WrittenGroup>().is_err(), "{wrong}");
        }
        for text in ["H100x8=150", "MI300Xx4"] {
            assert_eq!(text.parse::<WrittenGroup>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn a_node_is_the_same_at_every_start_and_no_other() {
        let group = group("H100-80Gx8");
        let node = |fleet: &str, number| inventory(fleet, &group, number, "rack", &BTreeMap::new(), fresh_boot());
        let (first, again) = (node("lab", 0), node("lab", 0));
        assert_eq!((first.node, &first.gpus, first.name.as_str()), (again.node, &again.gpus, "lab-h100-80gx8-0001"));
        assert_ne!(first.boot, again.boot);
        assert_ne!(first.node, node("lab", 1).node);
        assert_ne!(first.node, node("other", 0).node);
    }
}
