//! The live clock: the only place of the scheduler that reads the time of day.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use headway_types::Timestamp;

/// The time of day when the process began, carried on by the monotonic clock: it neither steps back nor jumps ahead
/// when the machine's clock is corrected, so no lease runs out and no deadline freezes because of a correction.
#[derive(Clone, Debug)]
pub struct Clock {
    wall: i64,
    began: Instant,
}

impl Default for Clock {
    fn default() -> Self {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { wall: micros(since_epoch.as_micros()), began: Instant::now() }
    }
}

impl Clock {
    #[must_use]
    pub fn now(&self) -> Timestamp {
        Timestamp(self.wall.saturating_add(micros(self.began.elapsed().as_micros())))
    }
}

fn micros(value: u128) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_never_steps_back_and_is_shared_by_clones() {
        let clock = Clock::default();
        let first = clock.now();
        let second = clock.clone().now();
        assert!(second >= first);
        assert!(first > Timestamp(1_700_000_000_000_000), "the time of day, not of the process");
    }
}
