//! Idempotency keys: what each has made or acted on. They expire in the order they came, so forgetting costs nothing per
//! batch however many are remembered.

use std::collections::{BTreeMap, VecDeque};

use headway_types::Timestamp;

use uuid::Uuid;

use crate::event::{Actor, IdempotencyKey, Request};
use crate::outcome::{Refusal, Reply};
use crate::record::IdempotencyRecord;
use crate::state::Engine;

/// What a key is unique in: principal, route, key.
type Scope = (String, String, String);

#[derive(Clone, Debug, Default)]
pub(crate) struct Keys {
    records: BTreeMap<Scope, IdempotencyRecord>,
    by_age: VecDeque<(Timestamp, Scope)>,
}

impl Keys {
    pub fn new(mut records: Vec<IdempotencyRecord>) -> Self {
        records.sort_by_key(|record| record.at);
        let mut keys = Self::default();
        records.into_iter().for_each(|record| keys.remember(record));
        keys
    }

    pub fn get(&self, key: &IdempotencyKey) -> Option<&IdempotencyRecord> {
        self.records.get(&scope(key))
    }

    /// Times must not step back from call to call.
    pub fn remember(&mut self, record: IdempotencyRecord) {
        let scope = scope(&record.key);
        self.by_age.push_back((record.at, scope.clone()));
        self.records.insert(scope, record);
    }

    /// Drops every key used before `horizon`.
    pub fn forget_before(&mut self, horizon: Timestamp) {
        while let Some((_, scope)) = self.by_age.pop_front_if(|(at, _)| *at < horizon) {
            self.records.remove(&scope);
        }
    }
}

impl Engine {
    /// Does what is asked, unless the key has done it before. What was refused may be asked again.
    pub(crate) fn once(&mut self, actor: &Actor, key: IdempotencyKey, body: Request) -> Result<Reply, Refusal> {
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
    pub(crate) fn known(&self, key: &IdempotencyKey) -> Result<Option<Vec<Uuid>>, Refusal> {
        match self.keys.get(key) {
            None => Ok(None),
            Some(known) if known.key.request_hash != key.request_hash => {
                Err(Refusal::KeyReused { key: key.key.clone() })
            }
            Some(known) => Ok(Some(known.subjects.clone())),
        }
    }

    pub(crate) fn remember(&mut self, key: IdempotencyKey, subjects: Vec<Uuid>) {
        let record = IdempotencyRecord { key, subjects, at: self.now };
        self.keys.remember(record.clone());
        self.draft.idempotency.push(record);
    }
}

/// What a reply is about, by the id it has; a policy and a project have none, and are put, not posted.
fn subject(reply: &Reply) -> Option<Uuid> {
    match reply {
        Reply::Job(job) => Some(job.id.0),
        Reply::Node(node) => Some(node.inventory.node.0),
        Reply::Round(plan) => Some(plan.0),
        Reply::Plan(record) => Some(record.plan.id.0),
        Reply::Reservation(one) => Some(one.id.0),
        Reply::Submitted { .. } | Reply::Replayed { .. } | Reply::Repeated { .. } => None,
        Reply::Policy(_) | Reply::Project(_) | Reply::Refused(_) => None,
    }
}

fn scope(key: &IdempotencyKey) -> Scope {
    (key.principal.clone(), key.route.clone(), key.key.clone())
}
