//! The sampler: keeps the cluster's figures once a minute of the cluster's clock, while this server leads.
//!
//! A minute in which it could not has no row: a gap is told as one. It decides nothing.

use std::time::Duration;

use headway_types::Timestamp;
use tokio_util::sync::CancellationToken;

use crate::cluster::Cluster;
use crate::metrics;

/// Microseconds between rows.
const EVERY: i64 = 60_000_000;
/// However fast the cluster's clock runs, rows take a second of wall time.
const LEAST_WAIT: Duration = Duration::from_secs(1);

/// Samples until shutdown.
pub async fn run(cluster: Cluster, stop: CancellationToken) {
    loop {
        let wait = cluster.until(next_minute(cluster.now())).max(LEAST_WAIT);
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(wait) => {}
        }
        if cluster.ready() {
            metrics::cluster_sampled(sample(&cluster).await);
        }
    }
}

/// Whether the minute is kept.
async fn sample(cluster: &Cluster) -> bool {
    let view = cluster.view();
    let pulse = tokio::task::spawn_blocking(move || view.pulse()).await;
    let Ok(pulse) = pulse.inspect_err(|error| {
        tracing::error!(error = error as &dyn std::error::Error, "counting the cluster's figures broke down");
    }) else {
        return false;
    };
    let stored = cluster.store().add_pulse(minute_of(cluster.now()), &pulse).await.inspect_err(|error| {
        tracing::warn!(error = error as &dyn std::error::Error, "the cluster's figures of a minute are lost");
    });
    stored.is_ok()
}

fn minute_of(at: Timestamp) -> Timestamp {
    Timestamp(at.0 - at.0.rem_euclid(EVERY))
}

fn next_minute(at: Timestamp) -> Timestamp {
    Timestamp(minute_of(at).0 + EVERY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_of_a_whole_minute_and_the_next_is_never_now() {
        let at = Timestamp(7 * EVERY + 1);
        assert_eq!((minute_of(at), next_minute(at)), (Timestamp(7 * EVERY), Timestamp(8 * EVERY)));
        assert_eq!(next_minute(Timestamp(7 * EVERY)), Timestamp(8 * EVERY));
    }
}
