//! Who this node is: an id that survives restarts, and the boot it is in.

use std::path::Path;

use headway_types::{BootId, NodeId};
use uuid::Uuid;

use crate::AgentError;
use crate::files::{Files, NODE_ID, write_durably};

pub(crate) struct Identity {
    pub(crate) node: NodeId,
    pub(crate) boot: BootId,
}

impl Identity {
    /// Reads the node's id, or makes one on the first start. `certified`: what its certificate says.
    pub(crate) fn load(files: &Files, certified: Option<NodeId>) -> Result<Self, AgentError> {
        let node = known_or(&files.node_id(), certified)?;
        if let Some(other) = certified.filter(|certified| *certified != node) {
            return Err(AgentError::Certificate {
                message: format!(
                    "it is of node {other}, and the data directory of node {node}: join again, or bring the right file"
                ),
            });
        }
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")
            .map_err(AgentError::io("reading the boot id"))?;
        Ok(Self { node, boot: BootId(boot.trim().to_owned()) })
    }
}

/// The id of the node whose data directory this is; made, if there is none yet.
pub(crate) fn node_id_in(data_dir: &Path) -> Result<NodeId, AgentError> {
    known_or(&data_dir.join(NODE_ID), None)
}

fn known_or(path: &Path, otherwise: Option<NodeId>) -> Result<NodeId, AgentError> {
    let known = std::fs::read_to_string(path).ok().and_then(|text| text.trim().parse().ok());
    match known {
        Some(node) => Ok(node),
        None => {
            let node = otherwise.unwrap_or_else(|| NodeId(Uuid::now_v7()));
            write_durably(path, node.to_string().as_bytes()).map_err(AgentError::io("storing the node id"))?;
            Ok(node)
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_node_keeps_its_id() {
        let dir = tempfile::tempdir().unwrap();
        let (files, _lock) = Files::open(dir.path(), false).unwrap();
        let first = Identity::load(&files, None).unwrap().node;
        assert_eq!(Identity::load(&files, Some(first)).unwrap().node, first);
        assert_eq!(node_id_in(dir.path()).unwrap(), first);
        let other = Identity::load(&files, Some(NodeId(Uuid::from_u128(7)))).map(|one| one.node);
        assert!(matches!(other, Err(AgentError::Certificate { .. })), "a certificate of another node is none of this");
    }
}
