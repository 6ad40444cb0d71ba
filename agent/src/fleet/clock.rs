//! The fleet's time: it runs as many times faster than the wall clock as the scheduler's own.

use std::time::{Duration, SystemTime};

use headway_types::{Seconds, Timestamp};
use tokio::time::Instant;

#[derive(Clone, Debug)]
pub(super) struct Clock {
    /// Where the present speed began, on both clocks.
    wall: Instant,
    at: Timestamp,
    speed: f64,
}

impl Clock {
    /// Begins at the time of day, at the pace of the wall clock.
    pub(super) fn start() -> Self {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Self { wall: Instant::now(), at: Timestamp(since.as_micros() as i64), speed: 1.0 }
    }

    pub(super) fn now(&self) -> Timestamp {
        self.at + Seconds(self.wall.elapsed().as_secs_f64() * self.speed)
    }

    pub(super) fn speed(&self) -> f64 {
        self.speed
    }

    /// Goes on from now at another pace; neither clock jumps.
    pub(super) fn set_speed(&mut self, speed: f64) {
        self.at = self.now();
        self.wall = Instant::now();
        self.speed = speed;
    }

    /// When the wall clock will have reached a moment.
    pub(super) fn instant(&self, moment: Timestamp) -> Instant {
        let ahead = moment.since(self.at).0 / self.speed;
        self.wall + Duration::from_secs_f64(ahead.min(86_400.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_new_speed_counts_from_the_moment_it_is_told() {
        let mut clock = Clock::start();
        let begin = clock.now();
        tokio::time::advance(Duration::from_secs(10)).await;
        clock.set_speed(60.0);
        tokio::time::advance(Duration::from_secs(2)).await;
        assert!((clock.now().since(begin).0 - 130.0).abs() < 1e-3);
        let wait = clock.instant(clock.now() + Seconds(60.0)) - Instant::now();
        assert!((wait.as_secs_f64() - 1.0).abs() < 1e-3);
    }
}
