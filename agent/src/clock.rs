//! The time of this node, as the ledger and the reports count it.

use std::time::{Duration, SystemTime};

use headway_types::Timestamp;

pub(crate) fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Timestamp(since.as_micros() as i64)
}

/// Never returns without a time.
pub(crate) async fn sleep_until(at: Option<Timestamp>) {
    match at {
        Some(at) => tokio::time::sleep(Duration::from_secs_f64(at.since(now()).0)).await,
        None => std::future::pending().await,
    }
}
