//! Turns at the database for nodes that join or renew their certificate: however many come at once, few hold a connection
//! at a time, so that people find some free. The others wait in the order in which they came. A node that would wait for
//! longer than it has patience is told at once to come again, so that the server does no work for nodes that have given
//! up. Renewals have a line of their own: however many new nodes join, a certificate is renewed before it expires.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, TryAcquireError};
use tonic::Status;

/// Nodes that join at once, and that wait for it. Those with one token wait for each other in the database, so that
/// more at once would only hold connections. All who wait are served within the 15 seconds that `headway node join`
/// waits.
const JOINS: (usize, usize) = (2, 1_000);
/// Certificates that are renewed at once, and that wait for it. Each is a row of its own.
const RENEWALS: (usize, usize) = (1, 1_000);

/// The two lines; cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct RegistrarTurns {
    pub joins: Turns,
    pub renewals: Turns,
}

/// A line of nodes; cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Turns {
    /// Who is served.
    served: Arc<Semaphore>,
    /// Who waits or is served.
    places: Arc<Semaphore>,
}

/// Ends the turn when it is dropped.
#[derive(Debug)]
pub(super) struct Turn {
    _served: OwnedSemaphorePermit,
    _place: OwnedSemaphorePermit,
}

impl RegistrarTurns {
    pub fn new() -> Self {
        Self { joins: Turns::new(JOINS.0, JOINS.1), renewals: Turns::new(RENEWALS.0, RENEWALS.1) }
    }
}

impl Turns {
    /// Serves so many at a time, and lets so many more wait.
    fn new(at_once: usize, waiting: usize) -> Self {
        Self { served: Arc::new(Semaphore::new(at_once)), places: Arc::new(Semaphore::new(at_once + waiting)) }
    }

    /// Waits for a turn; refuses where too many wait already.
    pub async fn take(&self) -> Result<Turn, Status> {
        let place = match Arc::clone(&self.places).try_acquire_owned() {
            Ok(place) => place,
            Err(TryAcquireError::NoPermits | TryAcquireError::Closed) => {
                return Err(Status::unavailable("many nodes come just now: try again in some seconds"));
            }
        };
        let served = Arc::clone(&self.served).acquire_owned().await;
        let served = served.map_err(|_| Status::unavailable("the scheduler goes down"))?;
        Ok(Turn { _served: served, _place: place })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::time::Duration;

    use tonic::Code;

    use super::*;

    #[tokio::test]
    async fn a_renewal_does_not_wait_for_nodes_that_join() {
        let turns = RegistrarTurns::new();
        let joining = [turns.joins.take().await.unwrap(), turns.joins.take().await.unwrap()];
        let waiting = tokio::spawn({
            let joins = turns.joins.clone();
            async move { joins.take().await }
        });
        tokio::time::timeout(Duration::from_secs(10), turns.renewals.take()).await.unwrap().unwrap();
        assert!(!waiting.is_finished());
        drop(joining);
        waiting.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn few_are_served_at_once_some_wait_and_the_rest_are_told_to_come_again() {
        let turns = Turns::new(2, 3);
        let served = [turns.take().await.unwrap(), turns.take().await.unwrap()];
        let waiting: Vec<_> = (0..3)
            .map(|_| {
                let turns = turns.clone();
                tokio::spawn(async move { turns.take().await })
            })
            .collect();
        let full = async {
            while turns.places.available_permits() > 0 {
                tokio::task::yield_now().await
            }
        };
        tokio::time::timeout(Duration::from_secs(10), full).await.unwrap();
        assert_eq!(turns.take().await.unwrap_err().code(), Code::Unavailable);
        assert!(waiting.iter().all(|one| !one.is_finished()));
        drop(served);
        for one in waiting {
            one.await.unwrap().unwrap();
        }
        turns.take().await.unwrap();
    }
}
