//! The audit beside the loop: where the request under way comes from, and the writer of refusals.
//!
//! What was done is written with what it changed, in one transaction. A refusal changes nothing that it could be written with, so a
//! bounded writer takes it: who is refused faster than rows can be written loses some of them, which is counted, and said in a row of its own.

mod chain;
mod file;
pub(crate) mod sealer;
mod verification;

use std::cell::Cell;
use std::future::Future;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use headway_engine::record::Origin;
use headway_types::Timestamp;
use tokio::sync::mpsc;

pub use self::chain::{Anchor, Broken, Hash, Link, NoAnchor, Seal};
pub use self::file::{AuditFileError, FileVerified, Form, verify_file};

use crate::metrics;
use crate::store::{AuditEntry, Store, answered};

/// Refusals that may wait to be written.
const QUEUE: usize = 1_024;
/// Written at a time.
const BATCH: usize = 256;
/// Between two batches: a caller that only makes refusals makes no more rows than this lets through.
const REST: Duration = Duration::from_millis(500);

tokio::task_local! {
    static ORIGIN: (Origin, Cell<bool>);
}

/// Answers a request that comes from here.
pub async fn coming_from<F: Future>(origin: Origin, answer: F) -> F::Output {
    ORIGIN.scope((origin, Cell::new(false)), answer).await
}

/// Where the request under way comes from; `None` where it is no request of a person's.
pub fn origin() -> Option<Origin> {
    ORIGIN.try_with(|(origin, _)| origin.clone()).ok()
}

/// Likewise of one that is refused; `None` where that was noted before.
pub fn origin_of_refusal() -> Option<Origin> {
    ORIGIN.try_with(|(origin, noted)| (!noted.replace(true)).then(|| origin.clone())).ok().flatten()
}

/// Takes refusals and writes them soon.
#[derive(Clone)]
pub struct Refusals {
    queue: mpsc::Sender<AuditEntry>,
    /// Not written since it was last said how many.
    lost: Arc<AtomicU64>,
}

impl Refusals {
    /// The writer ends when all that could hand it something are gone.
    pub fn start(store: Store) -> Self {
        let (sender, receiver) = mpsc::channel(QUEUE);
        let lost = Arc::default();
        tokio::spawn(write(store, receiver, Arc::clone(&lost)));
        Self { queue: sender, lost }
    }

    pub fn note(&self, entry: AuditEntry) {
        if self.queue.try_send(entry).is_err() {
            metrics::refusals_lost(1);
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Somebody has tried so many tokens that open nothing that his address has to wait. Of each token alone nothing is kept: whoever has none
    /// would fill the audit.
    pub fn note_guesses(&self, address: Option<IpAddr>, at: Timestamp, action: &str) {
        let refused = AuditEntry::without_a_person(at, "nobody".into(), action);
        let address = address.map(|address| address.to_string());
        self.note(AuditEntry { address, code: Some("too_many_wrong_tokens".into()), ..refused });
    }
}

async fn write(store: Store, mut receiver: mpsc::Receiver<AuditEntry>, lost: Arc<AtomicU64>) {
    let mut entries = Vec::new();
    while receiver.recv_many(&mut entries, BATCH).await > 0 {
        let full = entries.len() == BATCH;
        // What is not here is said here: nobody has to look for it elsewhere.
        let unsaid = lost.swap(0, Ordering::Relaxed);
        if let (1.., Some(last)) = (unsaid, entries.last()) {
            entries.push(AuditEntry::lost(last.done_at, unsaid));
        }
        if let Err(error) = answered(store.add_to_audit(&entries)).await {
            let more = entries.len() as u64 - u64::from(unsaid > 0);
            metrics::refusals_lost(more);
            lost.fetch_add(unsaid + more, Ordering::Relaxed);
            tracing::warn!(lost = more, error = &error as &dyn std::error::Error, "refusals are not in the audit");
        }
        if full {
            tokio::time::sleep(REST).await;
        }
        entries.clear();
    }
}
