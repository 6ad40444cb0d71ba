//! The audit beside the loop: where the request under way comes from, and the writer of refusals.
//!
//! What was done is written with what it changed, in one transaction. A refusal changes nothing that it could be written with, so a
//! bounded writer takes it: who is refused faster than rows can be written loses some of them, which is counted and said.

use std::future::Future;
use std::time::Duration;

use headway_engine::record::Origin;
use tokio::sync::mpsc;

use crate::metrics;
use crate::store::{AuditEntry, Store};

/// Refusals that may wait to be written.
const QUEUE: usize = 1_024;
/// Written at a time.
const BATCH: usize = 256;
/// Between two batches: a caller that only makes refusals makes no more rows than this lets through.
const REST: Duration = Duration::from_millis(500);

tokio::task_local! {
    static ORIGIN: Origin;
}

/// Answers a request that comes from here.
pub async fn coming_from<F: Future>(origin: Origin, answer: F) -> F::Output {
    ORIGIN.scope(origin, answer).await
}

/// Where the request under way comes from; `None` where it is no request of a person's.
pub fn origin() -> Option<Origin> {
    ORIGIN.try_with(Clone::clone).ok()
}

/// Takes refusals and writes them soon.
#[derive(Clone)]
pub struct Refusals(mpsc::Sender<AuditEntry>);

impl Refusals {
    /// The writer ends when all that could hand it something are gone.
    pub fn start(store: Store) -> Self {
        let (sender, receiver) = mpsc::channel(QUEUE);
        tokio::spawn(write(store, receiver));
        Self(sender)
    }

    pub fn note(&self, entry: AuditEntry) {
        if self.0.try_send(entry).is_err() {
            metrics::refusals_lost(1);
        }
    }
}

async fn write(store: Store, mut receiver: mpsc::Receiver<AuditEntry>) {
    let mut entries = Vec::new();
    while receiver.recv_many(&mut entries, BATCH).await > 0 {
        if let Err(error) = store.add_to_audit(&entries).await {
            metrics::refusals_lost(entries.len() as u64);
            tracing::warn!(
                lost = entries.len(),
                error = &error as &dyn std::error::Error,
                "refusals are not in the audit"
            );
        }
        if entries.len() == BATCH {
            tokio::time::sleep(REST).await;
        }
        entries.clear();
    }
}
