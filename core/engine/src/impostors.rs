//! Somebody who says that it is a node, and was not believed by the port for agents. People hear of it; nothing else changes.

use headway_types::NodeId;

use crate::draft::Note;
use crate::engine::Engine;

impl Engine {
    pub(crate) fn node_refused(&mut self, node: NodeId, name: &str, why: &str) {
        let message = format!("an agent was refused: {why}");
        self.facts.note(Note::new("node.refused", message).node(node).with("name", name));
    }
}
