//! What operators say nodes are, for jobs to choose by.

use std::collections::BTreeMap;

use headway_types::NodeId;
use headway_types::spec::MOST_NODE_LABELS;

use crate::draft::Note;
use crate::engine::Engine;
use crate::event::Actor;
use crate::outcome::{Refusal, Reply};

impl Engine {
    /// `expected`: only if the node is at this version now. What runs there stays: a job chooses its nodes when it starts.
    pub(super) fn label_node(
        &mut self,
        actor: &Actor,
        id: NodeId,
        labels: &BTreeMap<String, Option<String>>,
        expected: Option<u64>,
    ) -> Result<Reply, Refusal> {
        let node = self.known_node(id)?;
        let name = node.inventory.name.clone();
        let version = node.version + u64::from(self.facts.draft.nodes.contains(&id));
        if expected.is_some_and(|expected| expected != version) {
            return Err(Refusal::VersionChanged { what: format!("node {name}"), now: version });
        }
        let mut after = node.as_ref().clone();
        for (label, value) in labels {
            // What says the same as the agent follows the agent from then on.
            if after.inventory.labels.get(label) == value.as_ref() {
                after.labels.remove(label);
            } else {
                after.labels.insert(label.clone(), value.clone());
            }
        }
        let (before, now) = (node.labels(), after.labels());
        if now.len() > MOST_NODE_LABELS {
            return Err(Refusal::Invalid(format!(
                "node {name} would have {} labels, at most {MOST_NODE_LABELS}",
                now.len()
            )));
        }
        if after.labels == node.labels {
            return self.node_reply(id);
        }
        let list = |labels: Vec<String>| Some(labels.join(", ")).filter(|labels| !labels.is_empty());
        let set = now.iter().filter(|(label, value)| before.get(*label) != Some(value));
        let set = list(set.map(|(label, value)| format!("{label}={value}")).collect());
        let gone = list(before.keys().filter(|label| !now.contains_key(*label)).cloned().collect());
        let set = set.map(|labels| format!("is labelled {labels}"));
        let changes: Vec<String> =
            set.into_iter().chain(gone.map(|labels| format!("has no label {labels} any more"))).collect();
        self.facts.edit_node(id, |node| node.labels = after.labels);
        if !changes.is_empty() {
            let message = format!("node {name} {}", changes.join(" and "));
            self.facts.note(Note::new("node.labelled", message.clone()).by(actor.clone()).node(id));
            self.facts.ask_round_for_somebody(message);
        }
        self.node_reply(id)
    }
}
