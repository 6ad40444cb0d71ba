//! Which workers are connected, so that an end is told only after their last words. Counts connections, nothing else.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use headway_types::{Generation, JobId};
use tokio::sync::watch;

type Key = (JobId, Generation, u32);

/// Open connections by job, generation and rank.
#[derive(Clone, Default)]
pub(crate) struct Connections(Arc<watch::Sender<BTreeMap<Key, u32>>>);

/// One open connection; dropped once everything it said has reached the node's loop.
pub(crate) struct Connection {
    connections: Connections,
    key: Key,
}

impl Connections {
    pub(crate) fn open(&self, job: JobId, generation: Generation, rank: u32) -> Connection {
        let key = (job, generation, rank);
        self.0.send_modify(|open| *open.entry(key).or_default() += 1);
        Connection { connections: self.clone(), key }
    }

    /// Returns once no rank of the range is connected, or after `limit`: a connection may have been handed to a
    /// process that outlives its rank.
    pub(crate) async fn closed(&self, job: JobId, generation: Generation, ranks: Range<u32>, limit: Duration) {
        let mut open = self.0.subscribe();
        let (first, end) = ((job, generation, ranks.start), (job, generation, ranks.end));
        let none_left = open.wait_for(|open| open.range(first..end).next().is_none());
        if tokio::time::timeout(limit, none_left).await.is_err() {
            tracing::warn!(job_id = %job, %generation, "a worker's connection outlives its process");
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.connections.0.send_modify(|open| {
            let left = open.get(&self.key).map_or(0, |count| count - 1);
            if left == 0 {
                open.remove(&self.key);
            } else {
                open.insert(self.key, left);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(3600);

    #[tokio::test]
    async fn an_end_waits_for_all_connections_of_its_ranks_only() {
        let (job, generation) = (JobId(uuid::Uuid::from_u128(1)), Generation(2));
        let connections = Connections::default();
        let (one, two) = (connections.open(job, generation, 0), connections.open(job, generation, 0));
        let _other = connections.open(job, generation, 1);
        let mut waiting = std::pin::pin!(connections.closed(job, generation, 0..1, LONG));
        drop(one);
        let still_open = tokio::time::timeout(Duration::from_millis(20), &mut waiting).await;
        assert!(still_open.is_err());
        drop(two);
        assert!(tokio::time::timeout(Duration::from_secs(20), waiting).await.is_ok());
    }

    #[tokio::test]
    async fn a_connection_that_stays_open_does_not_hide_an_end() {
        let (job, generation) = (JobId(uuid::Uuid::from_u128(1)), Generation(2));
        let connections = Connections::default();
        let _open = connections.open(job, generation, 0);
        connections.closed(job, generation, 0..u32::MAX, Duration::from_millis(20)).await;
    }
}
