//! Requests with an idempotency key.

use uuid::Uuid;

use crate::engine::Engine;
use crate::event::{Actor, IdempotencyKey, Request};
use crate::outcome::{NodeDeleted, Refusal, Reply};
use crate::record::IdempotencyRecord;

impl Engine {
    /// Does what is asked, unless the key has done it before. What was refused may be asked again.
    pub(super) fn once(&mut self, actor: &Actor, key: IdempotencyKey, body: Request) -> Result<Reply, Refusal> {
        if let Some(subjects) = self.known(&key)? {
            return Ok(Reply::Repeated { subjects });
        }
        let reply = self.answer(actor, body);
        if let Some(subject) = subject(&reply) {
            self.remember(key, vec![subject]);
        }
        Ok(reply)
    }

    /// What a key was used for; it cannot stand for two requests.
    pub(super) fn known(&self, key: &IdempotencyKey) -> Result<Option<Vec<Uuid>>, Refusal> {
        match self.facts.keys.get(key) {
            None => Ok(None),
            Some(known) if known.key.request_hash != key.request_hash => {
                Err(Refusal::KeyReused { key: key.key.clone() })
            }
            Some(known) => Ok(Some(known.subjects.clone())),
        }
    }

    pub(super) fn remember(&mut self, key: IdempotencyKey, subjects: Vec<Uuid>) {
        let record = IdempotencyRecord { key, subjects, at: self.facts.now, reply: None };
        self.facts.keys.remember(record.clone());
        self.facts.draft.idempotency.push(record);
    }
}

/// What a reply is about, by the id it has; a policy and a project have none, and are put, not posted.
fn subject(reply: &Reply) -> Option<Uuid> {
    match reply {
        Reply::Job(job) => Some(job.id.0),
        Reply::Array(done) => Some(done.array.id.0),
        Reply::Node(node) | Reply::NodeDeleted(NodeDeleted { node, .. }) => Some(node.inventory.node.0),
        Reply::Rebalance(plan) => Some(plan.0),
        Reply::Plan(record) => Some(record.plan.id.0),
        Reply::Reservation(one) => Some(one.id.0),
        Reply::Submitted { .. } | Reply::Replayed { .. } | Reply::Repeated { .. } => None,
        Reply::Policy(_) | Reply::Project(_) | Reply::Readmitted(_) | Reply::DryRun(_) | Reply::Refused(_) => None,
    }
}
