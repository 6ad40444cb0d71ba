//! Batches by nature: whatever has arrived while the batch before was committing.

use std::time::Duration;

use headway_types::Timestamp;
use tokio::time::Instant;

use super::Input;
use super::inbox::{Batch, Inbox};
use crate::clock::Clock;

/// As many events are decided while another batch commits; fewer wait for its end, since each batch has its price.
const WORTH_DECIDING: usize = 128;
/// A commit that takes longer holds up fewer events as well.
const SLOW_COMMIT: Duration = Duration::from_millis(20);

/// The batch to decide next.
pub(super) struct Gathering {
    batch: Batch,
    /// When the engine wants to be woken at the latest.
    pub wake_at: Option<Timestamp>,
}

impl Gathering {
    /// The first batch is due at once.
    pub fn new(now: Timestamp) -> Self {
        Self { batch: Batch::default(), wake_at: Some(now) }
    }

    /// Waits until the batch should be decided. Dropping the wait keeps what has been gathered.
    pub async fn gather(&mut self, inbox: &mut Inbox, clock: &Clock, committing: Option<Instant>) {
        let patience = patience(committing);
        let wake = self.wake_at.and_then(|at| Instant::now().checked_add(clock.until(at)));
        while !self.is_enough(committing) {
            // Events wait until patience is over; the timer waits for that as well.
            let deadline = if self.batch.is_empty() {
                wake.map(|wake| patience.map_or(wake, |patience| wake.max(patience)))
            } else {
                patience
            };
            let receiving = inbox.receive(&mut self.batch);
            let late = match deadline {
                None => {
                    receiving.await;
                    false
                }
                Some(deadline) => tokio::time::timeout_at(deadline, receiving).await.is_err(),
            };
            if late && self.batch.is_empty() {
                self.batch.add_tick();
            }
        }
        inbox.take_waiting(&mut self.batch);
    }

    /// Whether what has been gathered should wait no longer.
    fn is_enough(&self, committing: Option<Instant>) -> bool {
        let waited = patience(committing).is_none_or(|until| until <= Instant::now());
        self.batch.len() >= WORTH_DECIDING || (waited && !self.batch.is_empty())
    }

    /// When the first of what has been gathered came to be.
    pub fn oldest(&self) -> Instant {
        self.batch.oldest()
    }

    /// Takes what has been gathered.
    pub fn take_batch(&mut self) -> Vec<Input> {
        self.batch.take()
    }
}

/// Until when fewer events than are worth deciding wait for the end of the commit under way.
fn patience(committing: Option<Instant>) -> Option<Instant> {
    committing.map(|since| since + SLOW_COMMIT)
}
