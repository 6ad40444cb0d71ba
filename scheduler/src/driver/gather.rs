//! Batches by nature: whatever has arrived while the batch before was committing. Nothing waits for company.

use std::time::Duration;

use headway_engine::Event;
use headway_types::Timestamp;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::Input;
use crate::clock::Clock;

/// Most events of one batch.
const BATCH: usize = 512;
/// As many events are decided while another batch commits; fewer wait for its end, since each batch has its price.
const WORTH_DECIDING: usize = 128;
/// A commit that takes longer holds up fewer events as well.
const SLOW_COMMIT: Duration = Duration::from_millis(20);

/// The batch to decide next.
pub(super) struct Gathering {
    batch: Vec<Input>,
    /// When the engine wants to be woken at the latest.
    pub wake_at: Option<Timestamp>,
}

impl Gathering {
    /// The first batch is due at once.
    pub fn new(now: Timestamp) -> Self {
        Self { batch: Vec::with_capacity(BATCH), wake_at: Some(now) }
    }

    /// Waits until the batch should be decided; false once nobody can send any more. Dropping the wait keeps what has
    /// been gathered.
    pub async fn gather(
        &mut self,
        inbox: &mut mpsc::Receiver<Input>,
        clock: &Clock,
        committing: Option<Instant>,
    ) -> bool {
        let (enough, patience) = match committing {
            None => (1, None),
            Some(since) => (WORTH_DECIDING, Some(since + SLOW_COMMIT)),
        };
        let wake = self.wake_at.and_then(|at| Instant::now().checked_add(clock.until(at)));
        while self.batch.len() < enough {
            // Events wait until the commit has taken too long; the timer waits for that as well.
            let deadline = if self.batch.is_empty() {
                wake.map(|wake| patience.map_or(wake, |patience| wake.max(patience)))
            } else {
                patience
            };
            let room = BATCH - self.batch.len();
            let received = match deadline {
                None => inbox.recv_many(&mut self.batch, room).await,
                Some(deadline) => match tokio::time::timeout_at(deadline, inbox.recv_many(&mut self.batch, room)).await
                {
                    Ok(received) => received,
                    Err(_) if self.batch.is_empty() => {
                        self.batch.push(Input::Event(Event::Tick));
                        return true;
                    }
                    Err(_) => return true,
                },
            };
            if received == 0 {
                return false;
            }
        }
        while self.batch.len() < BATCH {
            let Ok(input) = inbox.try_recv() else { break };
            self.batch.push(input);
        }
        true
    }

    /// Takes what has been gathered.
    pub fn batch(&mut self) -> impl Iterator<Item = Input> {
        self.batch.drain(..)
    }
}
