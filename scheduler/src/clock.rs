//! The live clock: the only place of the scheduler that reads the time of day.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use headway_types::Timestamp;

/// Wall time that never steps back within a process: a lease must not shrink because NTP corrected the clock.
#[derive(Clone, Debug, Default)]
pub struct Clock {
    latest: Arc<AtomicI64>,
}

impl Clock {
    #[must_use]
    pub fn now(&self) -> Timestamp {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now = i64::try_from(since_epoch.as_micros()).unwrap_or(i64::MAX);
        Timestamp(self.latest.fetch_max(now, Ordering::Relaxed).max(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_never_steps_back() {
        let clock = Clock::default();
        clock.latest.store(i64::MAX - 1, Ordering::Relaxed);
        assert_eq!(clock.now(), Timestamp(i64::MAX - 1));
    }
}
