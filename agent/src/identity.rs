//! Who this node is: an id that survives restarts, and the boot it is in.

use headway_types::{BootId, NodeId};
use uuid::Uuid;

use crate::AgentError;
use crate::files::{Files, write_durably};

pub(crate) struct Identity {
    pub(crate) node: NodeId,
    pub(crate) boot: BootId,
}

impl Identity {
    /// Reads the node's id, or makes one on the first start.
    pub(crate) fn load(files: &Files) -> Result<Self, AgentError> {
        let path = files.node_id();
        let known = std::fs::read_to_string(&path).ok().and_then(|text| text.trim().parse().ok());
        let node = match known {
            Some(node) => node,
            None => {
                let node = NodeId(Uuid::now_v7());
                write_durably(&path, node.to_string().as_bytes()).map_err(AgentError::io("storing the node id"))?;
                node
            }
        };
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")
            .map_err(AgentError::io("reading the boot id"))?;
        Ok(Self { node, boot: BootId(boot.trim().to_owned()) })
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
        let first = Identity::load(&files).unwrap().node;
        assert_eq!(Identity::load(&files).unwrap().node, first);
    }
}
