//! People and scripts: they ask, wait for the answer, and ask again under the same key until they have one.

use headway_engine::event::{Actor, Event, IdempotencyKey, JobChange, Known, Request, RequestId};
use headway_engine::record::{Availability, JobState, NodePolicy};
use headway_engine::{Refusal, Reply};
use headway_types::{JobId, NodeId, Seconds};

use crate::deed::Operation;
use crate::faults::FaultKind;
use crate::item::Item;
use crate::world::World;

/// Something asked and not answered yet.
#[derive(Clone, Debug)]
pub(crate) struct Pending {
    body: Request,
    by: &'static str,
    /// Asked this long after the answer.
    then: Option<(Seconds, Request)>,
    /// Asked again even after a refusal.
    insists: bool,
}

/// Between two attempts.
const AGAIN: Seconds = Seconds(7.0);
/// Submissions carry the job's place in the scenario; other requests are numbered from here.
const OTHERS: u64 = 1 << 32;

impl World<'_> {
    pub fn submit(&mut self, index: usize) {
        let spec = self.scenario.jobs[index].spec.clone();
        let key = IdempotencyKey {
            principal: "ada".into(),
            route: "POST /jobs".into(),
            key: spec.name.clone(),
            request_hash: spec.name.clone(),
        };
        let body = Request::Submit { jobs: vec![spec], idempotency: Some(key), known: Known::default() };
        self.pending.insert(index as u64, Pending { body, by: "ada", then: None, insists: true });
        self.ask(index as u64);
    }

    /// Sends a pending request, and again after a while should no answer come.
    pub fn ask(&mut self, request: u64) {
        let Some(pending) = self.pending.get(&request) else { return };
        let (mut body, by) = (pending.body.clone(), pending.by);
        // What the shell reads, it reads each time it is asked.
        if let Request::Submit { known, .. } = &mut body {
            *known = self.store.known();
        }
        self.clock.after(AGAIN, Item::Ask(request));
        if let Some(server) = self.reached() {
            let actor = Actor::User(by.into());
            self.clock.after(
                Seconds(0.01),
                Item::Arrive { server, event: Event::Request { request: RequestId(request), actor, body } },
            );
        }
    }

    pub fn ask_for(&mut self, body: Request, then: Option<(Seconds, Request)>, insists: bool) {
        self.last_request += 1;
        let request = OTHERS + self.last_request;
        self.pending.insert(request, Pending { body, by: "root", then, insists });
        self.ask(request);
    }

    /// An answer has reached its asker.
    pub fn answered(&mut self, request: u64, reply: Reply) {
        if let Reply::Submitted { jobs, .. } = &reply
            && let (Some(job), index) = (jobs.first(), request as usize)
        {
            let cancelled_after = self.scenario.jobs[index].cancelled_after;
            match self.acknowledged.insert(index, job.id) {
                None => {
                    if let Some(after) = cancelled_after {
                        self.clock.after(after, Item::CancelOwn(index));
                    }
                }
                Some(before) if before != job.id => {
                    self.broken = Some(format!("one key made jobs {before} and {}", job.id));
                }
                Some(_) => {}
            }
            if !self.store.jobs.contains_key(&job.id) {
                self.broken = Some(format!("job {} was acknowledged before it was committed", job.spec.name));
            }
        }
        let refused = Self::is_refusal(&reply);
        // Whoever deleted the node meanwhile has said all there was to say.
        let moot = matches!(reply, Reply::Refused(Refusal::NoSuchNode(_)));
        if self.pending.get(&request).is_some_and(|pending| refused && !moot && pending.insists) {
            return;
        }
        if let Some(Pending { then: Some((after, body)), .. }) = self.pending.remove(&request)
            && !refused
        {
            self.clock.after(after, Item::AskFor(Box::new(body)));
        }
    }

    pub fn operate(&mut self, operation: Operation) {
        let by_hand = || Some("by hand".to_string());
        match operation {
            Operation::Drain { node, undone_after } => {
                let node = self.node_id(node);
                let body = Request::Drain { node, reason: by_hand(), deadline: None };
                self.ask_for(body, Some((undone_after, Request::Uncordon { node })), false);
            }
            Operation::Cordon { node, undone_after } => {
                let node = self.node_id(node);
                let body = Request::Cordon { node, reason: by_hand() };
                self.ask_for(body, Some((undone_after, Request::Uncordon { node })), false);
            }
            Operation::Hold { job, undone_after } => {
                let Some(job) = self.job_id(job) else { return };
                let body = Request::Hold { job, reason: by_hand() };
                self.ask_for(body, Some((undone_after, Request::Release { job })), false);
            }
            Operation::Cancel { job } => {
                let Some(job) = self.job_id(job) else { return };
                self.ask_for(Request::Cancel { job, reason: None, grace: None }, None, false);
            }
            Operation::Save { job } => {
                let Some(job) = self.job_id(job) else { return };
                self.ask_for(Request::Checkpoint { job }, None, false);
            }
            Operation::Resize { job, min, max } => {
                let Some(job) = self.job_id(job) else { return };
                self.ask_for(Request::Resize { job, min, max, reason: by_hand() }, None, false);
            }
            Operation::Prioritise { job, priority } => {
                let Some(job) = self.job_id(job) else { return };
                let change = JobChange { priority: Some(priority), ..JobChange::default() };
                self.ask_for(Request::Change { job, change, expected: None }, None, false);
            }
            Operation::MarkLost { node } => {
                let node = self.node_id(node);
                let row = self.store.nodes.get(&node);
                if row.is_some_and(|row| matches!(row.availability, Availability::Unreachable { .. })) {
                    self.ask_for(Request::MarkLost { node, reason: by_hand() }, None, false);
                }
            }
            Operation::DeleteNode { node } => {
                let node = self.node_id(node);
                let row = self.store.nodes.get(&node);
                if row.is_some_and(|row| row.availability != Availability::Available) {
                    self.ask_for(Request::DeleteNode { node, reason: by_hand() }, None, false);
                }
            }
            Operation::Rebalance => self.ask_for(Request::Rebalance { terms: Box::default() }, None, false),
            Operation::Plain(body) => self.ask_for(*body, None, false),
        }
    }

    /// Long after the last fault: nothing is on hold, closed or paused by mistake any more.
    pub fn tidy_up(&mut self) {
        let held = self.store.jobs.values().filter(|job| matches!(job.state, JobState::Held { .. })).map(|job| job.id);
        let held: Vec<JobId> = held.collect();
        let closed = self.store.nodes.values().filter(|node| node.policy != NodePolicy::Schedulable);
        let closed: Vec<NodeId> = closed.map(|node| node.inventory.node).collect();
        held.into_iter().for_each(|job| self.ask_for(Request::Release { job }, None, false));
        closed.into_iter().for_each(|node| self.ask_for(Request::Uncordon { node }, None, false));
        if self.scenario.faults.every.contains_key(&FaultKind::PolicyChange) {
            self.ask_for(
                Request::SetPolicy { settings: self.scenario.policy.clone().into(), expected: None },
                None,
                true,
            );
        }
    }

    /// Someone writes off a node that is never coming back under this id, and has it forgotten.
    pub fn write_off(&mut self, node: NodeId) {
        let reason = || Some("reinstalled".to_owned());
        let delete = Request::DeleteNode { node, reason: reason() };
        self.ask_for(Request::MarkLost { node, reason: reason() }, Some((Seconds(30.0), delete)), true);
    }

    fn node_id(&self, node: usize) -> NodeId {
        self.nodes[node % self.nodes.len()].inventory.node
    }

    fn job_id(&self, job: usize) -> Option<JobId> {
        self.acknowledged.get(&job).copied()
    }
}
