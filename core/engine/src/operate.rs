//! Requests about nodes, plans, policy, projects and reservations: what operators want.

use headway_types::NodeId;

use crate::admission::actor_name;
use crate::draft::Note;
use crate::event::{Actor, Request};
use crate::outcome::{Refusal, Reply};
use crate::record::{AvailabilityEvent, NodeHealth, NodePolicy, PolicySettings, ReleaseProof};
use crate::state::Engine;

impl Engine {
    pub(crate) fn operate(&mut self, actor: &Actor, body: Request) -> Result<Reply, Refusal> {
        match body {
            Request::Drain { node, reason, deadline } => {
                let (by, since) = (actor_name(actor), self.now);
                let policy = NodePolicy::Draining { by, reason: reason.clone(), since, deadline };
                self.set_node_policy(actor, node, policy, "node.draining", "is drained", reason)
            }
            Request::Cordon { node, reason } => {
                let policy = NodePolicy::Cordoned { by: actor_name(actor), reason: reason.clone(), since: self.now };
                self.set_node_policy(actor, node, policy, "node.cordoned", "takes nothing new", reason)
            }
            Request::Uncordon { node } => {
                // Whoever takes a node back into service vouches for it.
                let now = self.now;
                self.edit_node(node, |node| node.health = NodeHealth { scored_at: now, ..NodeHealth::default() });
                let what = "is back in service";
                self.set_node_policy(actor, node, NodePolicy::Schedulable, "node.uncordoned", what, None)
            }
            Request::MarkLost { node, reason } => self.mark_lost(actor, node, reason),
            Request::Rebalance { min_gain } => Ok(Reply::Round(self.rebalance(actor, min_gain))),
            Request::Approve { plan } => self.approve(actor, plan),
            Request::Reject { plan, reason } => self.reject(actor, plan, reason),
            Request::SetPolicy { settings } => self.set_policy(actor, settings),
            Request::PutProject { name, rules, expected, dry_run } => {
                self.put_project(actor, name, rules, expected, dry_run)
            }
            Request::DeleteProject { name, expected } => self.delete_project(actor, &name, expected),
            Request::Reserve { wish } => self.reserve(actor, wish),
            Request::CancelReservation { reservation } => self.cancel_reservation(actor, reservation),
            other => Err(Refusal::Invalid(format!("{other:?} is no operator's request"))),
        }
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
        let entry = self.nodes.get(&id).ok_or(Refusal::NoSuchNode(id))?;
        let name = entry.node.inventory.name.clone();
        self.edit_node(id, |node| node.policy = policy);
        let why = reason.map_or(String::new(), |reason| format!(": {reason}"));
        self.note(Note::new(verb, format!("node {name} {what}{why}")).by(actor.clone()).node(id));
        self.rounds.ask(format!("node {name} {what}"));
        self.node_reply(id)
    }

    fn node_reply(&self, id: NodeId) -> Result<Reply, Refusal> {
        Ok(Reply::Node(self.nodes.get(&id).ok_or(Refusal::NoSuchNode(id))?.node.clone()))
    }

    /// The operator's word is the third proof, next to the agent's report and a new boot.
    fn mark_lost(&mut self, actor: &Actor, id: NodeId, reason: Option<String>) -> Result<Reply, Refusal> {
        let entry = self.nodes.get(&id).ok_or(Refusal::NoSuchNode(id))?;
        let name = entry.node.inventory.name.clone();
        if !self.observe_node(id, AvailabilityEvent::WrittenOff) {
            let state = self.nodes[&id].node.availability.name();
            return Err(Refusal::WrongState(format!("node is {state}, not unreachable; drain it instead")));
        }
        let why = reason.map_or(String::new(), |reason| format!(": {reason}"));
        let message = format!("{} vouches that nothing runs on node {name} any more{why}", actor_name(actor));
        self.note(Note::new("node.lost", message).by(actor.clone()).node(id));
        self.release_node(id, ReleaseProof::Operator, |_| true);
        self.ask_heirs(id);
        self.rounds.ask(format!("node {name} is lost"));
        self.node_reply(id)
    }

    fn set_policy(&mut self, actor: &Actor, settings: PolicySettings) -> Result<Reply, Refusal> {
        check_objective(&settings.objective)?;
        if !(settings.usage_half_life.0.is_finite() && settings.usage_half_life.0 >= 60.0) {
            return Err(Refusal::Invalid("usage_half_life must be at least 60 s".into()));
        }
        if !(settings.round_pause.0 >= 0.0 && settings.round_every.0 >= 1.0) {
            return Err(Refusal::Invalid("round_every must be at least 1 s and round_pause not negative".into()));
        }
        let message = format!("policy is now {:?}, a round at least every {} s", settings.mode, settings.round_every.0);
        if settings.usage_half_life != self.policy.usage_half_life {
            // What was used until now decayed by the former half-life.
            self.settle_all();
        }
        self.policy = settings.clone();
        self.draft.policy = true;
        self.note(Note::new("policy.changed", message).by(actor.clone()));
        self.rounds.ask("the policy was changed".into());
        Ok(Reply::Policy(settings))
    }
}

/// What the planner relies on.
fn check_objective(objective: &headway_planner::Policy) -> Result<(), Refusal> {
    let cap = objective.power_cap.as_ref();
    let watts = cap.into_iter().flat_map(|cap| [cap.watts, cap.idle].into_iter().chain(cap.busy.values().copied()));
    let not_negative = [
        objective.min_gain,
        objective.fresh_gain,
        objective.min_batch_gain,
        objective.service_exponent,
        objective.patience.map_or(0.0, |patience| patience.0),
        objective.domain_loss,
        objective.tolerance,
    ];
    let positive = [objective.epsilon, objective.horizon.0, objective.settling.0];
    let well = objective.power.is_finite()
        && not_negative.into_iter().chain(watts).all(|number| number.is_finite() && number >= 0.0)
        && positive.into_iter().all(|number| number.is_finite() && number > 0.0);
    if well {
        return Ok(());
    }
    let what = "objective: numbers must be finite, epsilon, horizon and settling positive, the others not negative";
    Err(Refusal::Invalid(what.into()))
}
