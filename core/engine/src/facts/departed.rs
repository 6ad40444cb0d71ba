//! Rows that were let go a moment ago. A shell reads ended jobs and arrays from the store and may have read too early; within the life of a request
//! what is kept here is newer.

use std::sync::Arc;

use headway_types::{Seconds, Timestamp};
use imbl::{OrdMap, Vector};

/// Longer than any request is under way.
const KEPT: Seconds = Seconds(120.0);

/// The last of them, by when they were let go.
#[derive(Clone, Debug)]
pub(crate) struct Departed<K: Ord, V> {
    rows: OrdMap<K, (Timestamp, Arc<V>)>,
    order: Vector<(Timestamp, K)>,
}

impl<K: Ord, V> Default for Departed<K, V> {
    fn default() -> Self {
        Self { rows: OrdMap::new(), order: Vector::new() }
    }
}

impl<K: Ord + Copy, V> Departed<K, V> {
    pub fn remember(&mut self, id: K, row: Arc<V>, now: Timestamp) {
        self.order.push_back((now, id));
        self.rows.insert(id, (now, row));
    }

    pub fn get(&self, id: K) -> Option<&Arc<V>> {
        self.rows.get(&id).map(|(_, row)| row)
    }

    pub fn forget_old(&mut self, now: Timestamp) {
        while let Some((at, id)) = self.order.front().copied().filter(|(at, _)| now.since(*at).0 > KEPT.0) {
            self.order.pop_front();
            // One that came back and was let go again is younger than that.
            if self.rows.get(&id).is_some_and(|(newest, _)| *newest == at) {
                self.rows.remove(&id);
            }
        }
    }
}
