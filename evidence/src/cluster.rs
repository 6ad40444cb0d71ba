//! The nodes of a run, as people write them: `H100x8=4,A100-80Gx8=4`; `H100x8=4@3` has a network of 3 GB/s per GPU.

use core::str::FromStr;

use headway_goodput::catalog::{self, Catalog};
use headway_sim::NodeShape;
use headway_types::{Fabric, GpuCount, GpuType, NodeClass, StatedDevice};

/// Alike nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    pub gpu_type: GpuType,
    pub gpus: u32,
    pub nodes: u32,
    /// GB/s per GPU and direction between nodes, where it is not the catalog's.
    pub network: Option<u32>,
}

/// All nodes of a run, the type that requests are meant in first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cluster(Vec<Group>);

/// Why a text is no cluster.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClusterError {
    #[error("\"{0}\" is not TYPExGPUS=NODES or TYPExGPUS=NODES@GIGABYTES")]
    Form(String),
    #[error("no GPU type of the catalog is meant by \"{0}\"")]
    Unknown(String),
}

impl FromStr for Cluster {
    type Err = ClusterError;

    fn from_str(text: &str) -> Result<Self, ClusterError> {
        let groups = text.split(',').map(|part| group(part.trim())).collect::<Result<Vec<Group>, _>>()?;
        Ok(Self(groups))
    }
}

fn group(text: &str) -> Result<Group, ClusterError> {
    let form = || ClusterError::Form(text.to_owned());
    let (kind, nodes) = text.rsplit_once('=').ok_or_else(form)?;
    let (nodes, network) = match nodes.split_once('@') {
        Some((nodes, network)) => (nodes, Some(network.parse::<u32>().map_err(|_| form())?)),
        None => (nodes, None),
    };
    let (name, gpus) = kind.rsplit_once('x').ok_or_else(form)?;
    let (gpus, nodes): (u32, u32) = (gpus.parse().map_err(|_| form())?, nodes.parse().map_err(|_| form())?);
    if !(1..=16).contains(&gpus) || !(1..=10_000).contains(&nodes) || network == Some(0) {
        return Err(form());
    }
    let known = headway_emulation::hardware::gpu_type(name, &Catalog::default());
    let gpu_type = known.map_err(|_| ClusterError::Unknown(name.to_owned()))?.gpu_type;
    Ok(Group { gpu_type, gpus, nodes, network })
}

impl Cluster {
    #[must_use]
    pub fn groups(&self) -> &[Group] {
        &self.0
    }

    #[must_use]
    pub fn gpus(&self) -> GpuCount {
        GpuCount(self.0.iter().map(|group| group.gpus * group.nodes).sum())
    }

    #[must_use]
    pub fn shapes(&self) -> Vec<NodeShape> {
        let shape =
            |group: &Group| NodeShape { gpus: group.gpus, gpu_type: group.gpu_type.0.clone(), stated: group.stated() };
        self.0.iter().flat_map(|group| vec![shape(group); group.nodes as usize]).collect()
    }

    /// Classes with their share of all GPUs, in the order written.
    pub fn classes(&self) -> impl Iterator<Item = (NodeClass, f64)> {
        let all = f64::from(self.gpus().0);
        self.0.iter().map(move |group| (group.class(), f64::from(group.gpus * group.nodes) / all))
    }
}

impl Group {
    #[must_use]
    pub fn class(&self) -> NodeClass {
        NodeClass {
            gpu_type: self.gpu_type.clone(),
            gpus_per_node: GpuCount(self.gpus),
            emulated: None,
            fabric: Fabric { domain: "rack".into() },
            stated: self.stated(),
            ahead: None,
        }
    }

    fn stated(&self) -> Option<StatedDevice> {
        let network = u64::from(self.network?) * 1_000_000_000;
        let stated = Catalog::built_in().stated(&self.gpu_type.0)?.clone();
        Some(StatedDevice { network_bytes_per_second: network, ..stated })
    }

    /// Whether the goodput model knows the GPUs.
    #[must_use]
    pub fn is_known(&self) -> bool {
        catalog::device(&self.class()).is_ok()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_slow_network_is_the_nodes_own() {
        let class = |text: &str| text.parse::<Cluster>().unwrap().groups()[0].class();
        assert_eq!(class("H100x8=2@3").stated.unwrap().network_bytes_per_second, 3_000_000_000);
        assert_eq!(class("H100x8=2").stated, None);
        assert!("H100x8=2@0".parse::<Cluster>().is_err());
    }

    #[test]
    fn a_cluster_is_written_as_for_an_emulated_fleet() {
        let cluster: Cluster = "H100x8=4,A100-80Gx8=2".parse().unwrap();
        assert_eq!((cluster.gpus(), cluster.shapes().len()), (GpuCount(48), 6));
        assert_eq!(cluster.groups()[0].gpu_type.0, "H100-80G");
        assert!(cluster.groups().iter().all(Group::is_known));
        assert_eq!("H100x8".parse::<Cluster>(), Err(ClusterError::Form("H100x8".into())));
        assert_eq!("Potatox8=1".parse::<Cluster>(), Err(ClusterError::Unknown("Potato".into())));
    }
}
