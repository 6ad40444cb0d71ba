//! The time of this node, as the ledger and the reports count it.

use std::sync::LazyLock;
use std::time::{Duration, Instant, SystemTime};

use headway_types::Timestamp;

/// The time of day when it was first asked for, carried on by the monotonic clock: a correction of the machine's clock
/// neither delays nor hastens a deadline.
static START: LazyLock<(Timestamp, Instant)> = LazyLock::new(|| {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    (Timestamp(micros(since)), Instant::now())
});

pub(crate) fn now() -> Timestamp {
    let (start, began) = *START;
    Timestamp(start.0.saturating_add(micros(began.elapsed())))
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

/// Never returns without a time.
pub(crate) async fn sleep_until(at: Option<Timestamp>) {
    match at {
        Some(at) => tokio::time::sleep(Duration::from_secs_f64(at.since(now()).0)).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_begins_with_the_time_of_day_and_never_steps_back() {
        let first = now();
        assert!(first > Timestamp(1_700_000_000_000_000), "the time of day, not of the process");
        assert!(now() >= first);
    }
}
