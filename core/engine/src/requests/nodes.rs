//! What operators do with nodes: drain, cordon, take back into service, write off.

use std::sync::Arc;

use headway_types::{NodeId, Timestamp};

use crate::draft::Note;
use crate::engine::Engine;
use crate::event::Actor;
use crate::outcome::{Refusal, Reply};
use crate::record::{AvailabilityEvent, Node, NodeHealth, NodePolicy, ReleaseProof};

impl Engine {
    pub(super) fn drain(
        &mut self,
        actor: &Actor,
        node: NodeId,
        reason: Option<String>,
        deadline: Option<Timestamp>,
    ) -> Result<Reply, Refusal> {
        let (by, since) = (actor.to_string(), self.facts.now);
        let policy = NodePolicy::Draining { by, reason: reason.clone(), since, deadline };
        let what = match self.names_of_single_runs(node).as_slice() {
            [] => "is drained".to_owned(),
            names => {
                let (names, them) = (names.join(", "), if names.len() == 1 { "it" } else { "them" });
                format!(
                    "is drained; {names} must not run twice and holds it to the end: cancel {them} to free it sooner"
                )
            }
        };
        self.set_node_policy(actor, node, policy, "node.draining", &what, reason)
    }

    /// Names of jobs on a node that must not run twice, so that no drain stops them.
    pub(crate) fn names_of_single_runs(&self, node: NodeId) -> Vec<String> {
        let keys = self.facts.holding.get(&node).into_iter().flatten();
        let jobs = keys.filter_map(|(job, generation)| {
            let job = self.facts.jobs.get(job)?;
            let runs = job.state.generation() == Some(*generation) && job.spec.limits.forbid_restart();
            runs.then(|| job.spec.name.clone())
        });
        jobs.collect()
    }

    pub(super) fn cordon(&mut self, actor: &Actor, node: NodeId, reason: Option<String>) -> Result<Reply, Refusal> {
        let policy = NodePolicy::Cordoned { by: actor.to_string(), reason: reason.clone(), since: self.facts.now };
        self.set_node_policy(actor, node, policy, "node.cordoned", "takes nothing new", reason)
    }

    /// Whoever takes a node back into service vouches for it.
    pub(super) fn uncordon(&mut self, actor: &Actor, node: NodeId) -> Result<Reply, Refusal> {
        self.known_node(node)?;
        let now = self.facts.now;
        self.facts.edit_node(node, |node| node.health = NodeHealth { scored_at: now, ..NodeHealth::default() });
        let what = "is back in service";
        self.set_node_policy(actor, node, NodePolicy::Schedulable, "node.uncordoned", what, None)
    }

    pub(super) fn known_node(&self, id: NodeId) -> Result<&Arc<Node>, Refusal> {
        self.facts.nodes.get(&id).ok_or(Refusal::NoSuchNode(id))
    }

    fn set_node_policy(
        &mut self,
        actor: &Actor,
        id: NodeId,
        policy: NodePolicy,
        verb: &'static str,
        what: &str,
        reason: Option<String>,
    ) -> Result<Reply, Refusal> {
        let name = self.known_node(id)?.inventory.name.clone();
        self.facts.edit_node(id, |node| node.policy = policy);
        let why = reason.map_or(String::new(), |reason| format!(": {reason}"));
        self.facts.note(Note::new(verb, format!("node {name} {what}{why}")).by(actor.clone()).node(id));
        self.facts.ask_round_for_somebody(format!("node {name} {what}"));
        self.node_reply(id)
    }

    pub(super) fn node_reply(&self, id: NodeId) -> Result<Reply, Refusal> {
        Ok(Reply::Node(self.known_node(id)?.clone()))
    }

    /// The operator's word is the third proof, next to the agent's report and a new boot.
    pub(super) fn mark_lost(&mut self, actor: &Actor, id: NodeId, reason: Option<String>) -> Result<Reply, Refusal> {
        let name = self.known_node(id)?.inventory.name.clone();
        if !self.facts.observe_node(id, AvailabilityEvent::WrittenOff) {
            let state = self.known_node(id)?.availability.kind();
            return Err(Refusal::WrongState(format!("node is {state}, not unreachable; drain it instead")));
        }
        let why = reason.map_or(String::new(), |reason| format!(": {reason}"));
        let message = format!("{} vouches that nothing runs on node {name} any more{why}", actor);
        self.facts.note(Note::new("node.lost", message).by(actor.clone()).node(id));
        self.release_node(id, ReleaseProof::Operator, |_| true);
        // Its stream may stand all the same. Nothing it says is heard until it has registered again and shown its ledger.
        self.refuse_session(id, "an operator has declared this node lost; register again");
        self.ask_heirs(id);
        self.facts.ask_round_for_somebody(format!("node {name} is lost"));
        self.node_reply(id)
    }
}
