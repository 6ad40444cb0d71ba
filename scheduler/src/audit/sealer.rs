//! The sealer: while this server leads, whatever was added to the audit becomes a link of its chain within a second. It holds up nobody who writes,
//! and what it cannot do is told: a metric, the overview, the log.

use std::time::Duration;

use headway_engine::attention::Kind;
use headway_types::Seconds;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::cluster::Cluster;
use crate::metrics;
use crate::store::{Store, StoreError, Unsealed, answered};
use crate::troubles::Trouble;

const EVERY: Duration = Duration::from_millis(400);
/// Rows in one transaction.
const BATCH: u32 = 1_000;
/// Between two batches of many: others want to commit, too.
const REST: Duration = Duration::from_millis(20);
/// Between two lines of the log that say where the chain ends.
const ANCHORED_EVERY: Duration = Duration::from_secs(3_600);
/// Rows that have waited for longer are a matter for people.
const LATE: Seconds = Seconds(60.0);

/// Seals until shutdown.
pub async fn run(cluster: Cluster, stop: CancellationToken) {
    let mut sealer = Sealer { store: cluster.store().clone(), anchored: None, sealed: Instant::now() };
    loop {
        if cluster.ready() {
            let unsealed = sealer.pass(&stop).await;
            metrics::audit_unsealed(unsealed);
            let late = unsealed.lag > LATE;
            cluster.troubles().tell(Kind::AuditUnsealed, cluster.now(), late.then(|| in_words(unsealed)));
        } else {
            // Whoever leads says it.
            metrics::audit_unsealed(Unsealed::default());
            cluster.troubles().tell(Kind::AuditUnsealed, cluster.now(), None);
            sealer.sealed = Instant::now();
        }
        tokio::select! {
            () = stop.cancelled() => break,
            () = tokio::time::sleep(EVERY) => {}
        }
    }
    if cluster.ready() {
        sealer.pass(&stop).await;
        sealer.tell_head().await;
    }
}

fn in_words(unsealed: Unsealed) -> Trouble {
    Trouble {
        headline: format!(
            "Rows of the audit have waited {} to be sealed: until then nobody can tell whether they are changed",
            unsealed.lag.words()
        ),
        next_step: "See the scheduler's log and whether Postgres is slow: headway audit head".into(),
    }
}

struct Sealer {
    store: Store,
    /// When the log last said where the chain ends.
    anchored: Option<Instant>,
    /// When all was sealed last, or as much as a batch.
    sealed: Instant,
}

impl Sealer {
    /// Seals what there is; what is left.
    async fn pass(&mut self, stop: &CancellationToken) -> Unsealed {
        match self.seal(stop).await {
            Ok(unsealed) => {
                self.sealed = Instant::now();
                if self.anchored.is_none_or(|at| at.elapsed() >= ANCHORED_EVERY) {
                    self.tell_head().await;
                }
                unsealed
            }
            Err(error) => {
                tracing::debug!(error = &error as &dyn std::error::Error, "the audit is not sealed");
                // How much waits nobody can say now.
                Unsealed { rows: 0, lag: Seconds(self.sealed.elapsed().as_secs_f64()) }
            }
        }
    }

    async fn seal(&self, stop: &CancellationToken) -> Result<Unsealed, StoreError> {
        loop {
            let sealed = answered(self.store.seal_audit(BATCH)).await?;
            metrics::audit_sealed(sealed);
            if sealed < BATCH || stop.is_cancelled() {
                return answered(self.store.unsealed_audit()).await;
            }
            metrics::audit_unsealed(answered(self.store.unsealed_audit()).await?);
            tokio::time::sleep(REST).await;
        }
    }

    /// For whoever keeps the log elsewhere: an anchor that the chain can be held to.
    async fn tell_head(&mut self) {
        if let Ok(Some(head)) = answered(self.store.audit_head()).await {
            tracing::info!(head = %head.anchor, position = head.position, "the audit is sealed up to here");
        }
        self.anchored = Some(Instant::now());
    }
}
