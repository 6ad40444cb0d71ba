//! What happens when: the one queue of a fleet's moments.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use headway_emulation::Mishap;
use headway_node::Exit;
use headway_types::{Fault, Generation, JobId, Timestamp};

/// A gang: a job's generation.
pub(super) type Key = (JobId, Generation);

/// Something whose time has come.
#[derive(Debug)]
pub(super) enum Due {
    /// The ledger of a node asked for it.
    Tick {
        node: usize,
    },
    /// A node has checked a group.
    Prepared {
        node: usize,
        key: Key,
    },
    /// The processes of a group are up on a node.
    Spawned {
        node: usize,
        key: Key,
    },
    /// The gang's run asked for it.
    Run {
        key: Key,
    },
    /// One rank's process of a group, or all of them, are gone.
    Exited {
        node: usize,
        key: Key,
        rank: Option<u32>,
        exit: Exit,
        fault: Option<Fault>,
    },
    RankTimes {
        key: Key,
    },
    Mishap {
        node: usize,
        mishap: Mishap,
    },
    Repaired {
        node: usize,
        gpu: usize,
    },
    EpilogDone {
        node: usize,
        key: Key,
    },
    BackUp {
        node: usize,
    },
}

/// Ordered by time, then by entry.
#[derive(Default)]
pub(super) struct Queue {
    heap: BinaryHeap<Reverse<Entry>>,
    entered: u64,
}

struct Entry {
    at: Timestamp,
    number: u64,
    due: Due,
}

impl Queue {
    pub(super) fn push(&mut self, at: Timestamp, due: Due) {
        self.entered += 1;
        self.heap.push(Reverse(Entry { at, number: self.entered, due }));
    }

    /// The moment of the next.
    pub(super) fn next(&self) -> Option<Timestamp> {
        self.heap.peek().map(|Reverse(entry)| entry.at)
    }

    /// The next whose time has come, with that time.
    pub(super) fn pop(&mut self, now: Timestamp) -> Option<(Timestamp, Due)> {
        if self.next()? > now {
            return None;
        }
        self.heap.pop().map(|Reverse(entry)| (entry.at, entry.due))
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_come_in_order_and_those_of_one_time_as_they_were_entered() {
        let mut queue = Queue::default();
        for (at, node) in [(5, 1), (3, 2), (5, 3), (9, 4)] {
            queue.push(Timestamp(at), Due::Tick { node });
        }
        let mut order = Vec::new();
        while let Some((at, Due::Tick { node })) = queue.pop(Timestamp(5)) {
            order.push((at.0, node));
        }
        assert_eq!(order, [(3, 2), (5, 1), (5, 3)]);
        assert_eq!(queue.next(), Some(Timestamp(9)));
    }
}
