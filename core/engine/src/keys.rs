//! Idempotency keys: what each has made or acted on. They expire in the order they came, so forgetting costs nothing per
//! batch however many are remembered.

use std::collections::{BTreeMap, VecDeque};

use headway_types::Timestamp;

use crate::event::IdempotencyKey;
use crate::record::IdempotencyRecord;

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

fn scope(key: &IdempotencyKey) -> Scope {
    (key.principal.clone(), key.route.clone(), key.key.clone())
}
