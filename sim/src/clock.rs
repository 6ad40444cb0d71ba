//! The virtual clock: what happens next, in order of time and, at one moment, of asking.

use std::collections::BTreeMap;

use headway_types::{Seconds, Timestamp};

/// Where virtual time begins; late enough for UUIDv7.
pub(crate) const START: Timestamp = Timestamp(1_700_000_000_000_000);

#[derive(Debug)]
pub(crate) struct Clock<T> {
    pub now: Timestamp,
    asked: u64,
    queue: BTreeMap<(Timestamp, u64), T>,
}

impl<T> Clock<T> {
    pub fn new() -> Self {
        Self { now: START, asked: 0, queue: BTreeMap::new() }
    }

    pub fn at(&mut self, at: Timestamp, item: T) {
        self.asked += 1;
        self.queue.insert((at.max(self.now), self.asked), item);
    }

    pub fn after(&mut self, delay: Seconds, item: T) {
        self.at(self.now + delay, item);
    }

    /// The next item up to the horizon; time moves to it.
    pub fn next_before(&mut self, horizon: Timestamp) -> Option<T> {
        let entry = self.queue.first_entry().filter(|entry| entry.key().0 <= horizon)?;
        self.now = entry.key().0;
        Some(entry.remove())
    }
}
