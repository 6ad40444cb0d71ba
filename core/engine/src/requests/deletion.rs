//! Deletion of nodes that are gone for good. Nothing of such a node is kept but its history: an agent that comes back under the
//! id registers as a new node, shows its ledger, and is told to stop what no job owns any more.
//!
//! Deleting proves nothing. Whoever holds GPUs there keeps them until the agent, a reboot or an operator has proved them
//! free, so that a node is deleted only once nothing depends on it.

use std::collections::BTreeSet;

use headway_types::{GpuCount, JobId, NodeId};

use crate::draft::Note;
use crate::engine::Engine;
use crate::event::Actor;
use crate::outcome::{NodeDeleted, Refusal, Reply};
use crate::record::{Availability, Node};
use crate::situation::gang::Part;

impl Engine {
    pub(super) fn delete_node(&mut self, actor: &Actor, id: NodeId, reason: Option<String>) -> Result<Reply, Refusal> {
        let node = self.facts.nodes.get(&id).cloned().ok_or(Refusal::NoSuchNode(id))?;
        self.check_deletable(id, &node).map_err(Refusal::WrongState)?;
        let name = &node.inventory.name;
        let why = reason.map_or(String::new(), |reason| format!(": {reason}"));
        let gpus = node.inventory.gpus.len().try_into().unwrap_or(u32::MAX);
        let message = format!("node {name} with {} is deleted{why}", GpuCount(gpus).words());
        self.facts.note(Note::new("node.deleted", message).by(actor.clone()).node(id).with("gpus", gpus));
        let (reservations, cancelled) = self.leave_reservations(actor, id, name);
        let rows = self.facts.policy.objective.rows.iter().filter(|row| row.amount.names(id, name));
        let rows = rows.map(|row| row.name.clone()).collect();
        // Who offers GPUs of it as well has had them refused so far.
        self.ask_heirs(id);
        // A stream that nothing has come on for a lease may stand all the same; what came on it would be heard by nobody.
        self.refuse_session(id, "this node was deleted; it may register again as a new one");
        self.facts.drop_node(id);
        self.seen.nodes.remove(&id);
        self.seen.forget_sent_to(id);
        self.rounds.forget_node(id);
        self.facts.ask_round_for_somebody(format!("node {name} was deleted"));
        Ok(Reply::NodeDeleted(NodeDeleted { node, reservations, cancelled, rows }))
    }

    /// What speaks against deleting a node, with what to do about it.
    fn check_deletable(&self, id: NodeId, node: &Node) -> Result<(), String> {
        let (at, name, lease) = (self.situation(), &node.inventory.name, self.facts.config.lease.0);
        let held: BTreeSet<JobId> = at.held_on(id).into_values().map(|(job, _)| job).collect();
        let holders: Vec<String> = held.into_iter().map(|job| self.facts.job_name(job)).collect();
        let holders = holders.join(", ");
        if node.availability == Availability::Available && self.seen.connected(id) {
            return Err(match holders.as_str() {
                "" => format!("the agent of node {name} is connected; stop it first, or the node would register again"),
                _ => format!(
                    "node {name} runs {holders}; drain it (`headway node drain {name}`), and stop its agent when it is empty"
                ),
            });
        }
        if matches!(node.availability, Availability::Registering { .. }) {
            return Err(format!(
                "node {name} has not been heard since the scheduler took over and may be there; that is known when its lease of {lease} s \
                 is over"
            ));
        }
        if !holders.is_empty() {
            return Err(match node.availability {
                Availability::Unreachable { .. } => format!(
                    "GPUs of node {name} are still granted to {holders}; if nothing runs there any more, say so first \
                     (`headway node lost {name}`)"
                ),
                _ => format!(
                    "GPUs of node {name} are still granted to {holders}; its agent proves them free when it is back, or you do when its \
                     lease of {lease} s is over (`headway node lost {name}`)"
                ),
            });
        }
        // How its part of a gang ended counts until the other parts are known to be over, and the job has been judged by them.
        let counts = self.facts.allocations.values().find(|one| {
            let here = |(node, part): &(NodeId, Part)| *node == id && *part != Part::Lost;
            let live = self.facts.jobs.get(&one.job).and_then(|job| job.state.generation()) == Some(one.generation);
            self.facts.is_newest(one.job, one.generation) && (one.holds() || live) && at.parts(one).iter().any(here)
        });
        match counts {
            None => Ok(()),
            Some(one) => Err(format!(
                "{} had a part on node {name} and is not over; delete the node when it is",
                self.facts.job_name(one.job)
            )),
        }
    }
}
