//! Which GPUs on which nodes. The order is the rank order.

use serde::{Deserialize, Serialize};

use crate::id::{GpuUuid, NodeId};
use crate::unit::{GpuCount, NodeCount};

/// The GPUs a placement takes on one node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NodeSlice {
    pub node: NodeId,
    pub gpus: Vec<GpuUuid>,
}

/// An ordered, non-empty list of node slices without a repeated node or GPU.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "Vec<NodeSlice>", into = "Vec<NodeSlice>")]
pub struct Placement(Vec<NodeSlice>);

/// Why a list of slices is no placement.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlacementError {
    #[error("a placement needs at least one GPU on every node it names")]
    Empty,
    #[error("node {0} is named twice in one placement")]
    RepeatedNode(NodeId),
    #[error("GPU {0} is named twice in one placement")]
    RepeatedGpu(GpuUuid),
}

impl Placement {
    /// Checks that no node or GPU repeats and that no slice is empty.
    pub fn try_new(slices: Vec<NodeSlice>) -> Result<Self, PlacementError> {
        use std::collections::BTreeSet;
        if slices.is_empty() || slices.iter().any(|slice| slice.gpus.is_empty()) {
            return Err(PlacementError::Empty);
        }
        let mut nodes = BTreeSet::new();
        let mut gpus = BTreeSet::new();
        for slice in &slices {
            if !nodes.insert(slice.node) {
                return Err(PlacementError::RepeatedNode(slice.node));
            }
            for gpu in &slice.gpus {
                if !gpus.insert(gpu) {
                    return Err(PlacementError::RepeatedGpu(gpu.clone()));
                }
            }
        }
        Ok(Self(slices))
    }

    #[must_use]
    pub fn slices(&self) -> &[NodeSlice] {
        &self.0
    }

    /// The node of rank 0, where the rendezvous port lives.
    #[must_use]
    pub fn first_node(&self) -> NodeId {
        self.0[0].node
    }

    #[must_use]
    pub fn gpus(&self) -> GpuCount {
        GpuCount(self.0.iter().map(|slice| slice.gpus.len() as u32).sum())
    }

    #[must_use]
    pub fn nodes(&self) -> NodeCount {
        NodeCount(self.0.len() as u32)
    }

    /// Every (node, GPU) pair in rank order.
    pub fn ranks(&self) -> impl Iterator<Item = (NodeId, &GpuUuid)> {
        self.0.iter().flat_map(|slice| slice.gpus.iter().map(move |gpu| (slice.node, gpu)))
    }
}

impl TryFrom<Vec<NodeSlice>> for Placement {
    type Error = PlacementError;
    fn try_from(slices: Vec<NodeSlice>) -> Result<Self, PlacementError> {
        Self::try_new(slices)
    }
}

impl From<Placement> for Vec<NodeSlice> {
    fn from(placement: Placement) -> Self {
        placement.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::IdSource;
    use crate::time::Timestamp;

    fn gpus(names: &[&str]) -> Vec<GpuUuid> {
        names.iter().map(|name| GpuUuid((*name).into())).collect()
    }

    #[test]
    fn a_placement_names_each_node_and_gpu_once() {
        let mut ids = IdSource::seeded(1);
        let (a, b) = (ids.node(Timestamp(0)), ids.node(Timestamp(0)));
        let slice = |node, names: &[&str]| NodeSlice { node, gpus: gpus(names) };
        assert!(Placement::try_new(vec![slice(a, &["x", "y"]), slice(b, &["z"])]).is_ok());
        assert_eq!(Placement::try_new(vec![]), Err(PlacementError::Empty));
        assert_eq!(Placement::try_new(vec![slice(a, &["x"]), slice(a, &["y"])]), Err(PlacementError::RepeatedNode(a)));
        assert_eq!(
            Placement::try_new(vec![slice(a, &["x"]), slice(b, &["x"])]),
            Err(PlacementError::RepeatedGpu(GpuUuid("x".into())))
        );
    }
}
