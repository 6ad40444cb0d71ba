//! The live clock: the only place of the scheduler that reads the time of day.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use headway_types::{Seconds, Timestamp};
use tokio_util::sync::CancellationToken;

/// How many seconds of the cluster pass per second of wall time. Other than 1 only where the cluster is emulated.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Speed(f64);

impl Speed {
    pub const REAL: Self = Self(1.0);

    /// `None` unless it is a positive, finite number.
    #[must_use]
    pub fn try_new(factor: f64) -> Option<Self> {
        (factor.is_finite() && factor > 0.0).then_some(Self(factor))
    }

    #[must_use]
    pub fn factor(self) -> f64 {
        self.0
    }
}

/// The time of day when the process began, carried on by the monotonic clock: it neither steps back nor jumps ahead
/// when the machine's clock is corrected, so no lease runs out and no deadline freezes because of a correction. It
/// catches up slowly with a machine's clock that was set forward. Clones are one clock.
#[derive(Clone, Debug)]
pub struct Clock {
    wall: i64,
    began: Instant,
    speed: Speed,
    /// Microseconds added so that no moment comes before one that is stored; less than 0 while the machine's clock is not believed.
    ahead: Arc<AtomicI64>,
    /// Microseconds that the machine's clock was ahead of what is believed; 0: it is believed.
    doubted: Arc<AtomicI64>,
    /// Whether it is believed whatever it says.
    trusted: bool,
}

/// A machine's clock that is ahead by no more is not followed: corrections of the network's time are smaller.
const FOLLOWED_FROM: Seconds = Seconds(5.0);
/// Nor one that is ahead by more: nobody sets a clock forward by so much, except by mistake.
const FOLLOWED_TO: Seconds = Seconds(7.0 * 86_400.0);
/// Seconds that are caught up per second. Leases and limits of jobs are shorter by as much meanwhile, and no more.
const CATCHING_UP: f64 = 0.2;
/// How often the clock is compared with the machine's.
const COMPARED: Duration = Duration::from_secs(1);

/// A machine's clock within this of the cluster's is right again.
const RIGHT: Seconds = Seconds(86_400.0);

impl Default for Clock {
    fn default() -> Self {
        Self::new(Speed::REAL)
    }
}

impl Clock {
    #[must_use]
    pub fn new(speed: Speed) -> Self {
        Self {
            wall: machine_time().0,
            began: Instant::now(),
            speed,
            ahead: Arc::default(),
            doubted: Arc::default(),
            trusted: false,
        }
    }

    #[must_use]
    pub fn now(&self) -> Timestamp {
        let elapsed = self.began.elapsed().as_secs_f64() * self.speed.0 * 1e6;
        Timestamp(self.wall.saturating_add(elapsed as i64).saturating_add(self.ahead.load(Ordering::Relaxed)))
    }

    #[must_use]
    pub fn speed(&self) -> Speed {
        self.speed
    }

    /// How much of the cluster's time passes meanwhile.
    #[must_use]
    pub fn during(&self, wall: Duration) -> Seconds {
        Seconds(wall.as_secs_f64() * self.speed.0)
    }

    /// Wall time until the clock shows this moment.
    #[must_use]
    pub fn until(&self, moment: Timestamp) -> Duration {
        let wait = (moment.since(self.now()).0 / self.speed.0).max(0.0);
        Duration::try_from_secs_f64(wait).unwrap_or(Duration::MAX)
    }

    /// From now on shows no moment before this one: the machine's clock may have been set back since that was stored,
    /// or a faster clock have stored it.
    pub fn advance_to(&self, stored: Timestamp) {
        let behind = stored.0.saturating_sub(self.now().0);
        if behind > 0 {
            self.ahead.fetch_add(behind, Ordering::Relaxed);
        }
    }
}

impl Clock {
    /// Believed whatever it says: an operator has said that it is right.
    #[must_use]
    pub fn trusted(self) -> Self {
        Self { trusted: true, ..self }
    }

    pub(crate) fn is_trusted(&self) -> bool {
        self.trusted
    }

    /// Does not believe the machine's clock: time goes on from here.
    pub fn hold_at(&self, stored: Timestamp) {
        let beyond = self.now().0.saturating_sub(stored.0);
        self.ahead.fetch_sub(beyond, Ordering::Relaxed);
        self.doubted.store(beyond, Ordering::Relaxed);
    }

    /// How far the machine's clock was ahead when it was last not believed; `None` while it is.
    #[must_use]
    pub fn doubted(&self) -> Option<Seconds> {
        let beyond = self.doubted.load(Ordering::Relaxed);
        (beyond > 0).then(|| Seconds(beyond as f64 / 1e6))
    }

    /// Whether the machine's clock, which was not believed, is right again; from now on it is believed.
    #[must_use]
    pub fn is_right_again(&self) -> bool {
        self.is_right(machine_time())
    }

    /// Catches up with the machine's clock until `stop`, where the process started with a wrong one or slept.
    pub async fn follow_machine(self, stop: CancellationToken) {
        let mut catching_up = false;
        let mut looks = tokio::time::interval(COMPARED);
        looks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                _ = looks.tick() => {}
            }
            let behind = self.catch_up(machine_time());
            match behind {
                Some(behind) if !catching_up => {
                    let behind_s = behind.0;
                    tracing::warn!(behind_s, "the machine's clock was set forward; the cluster's clock catches up");
                }
                None if catching_up => tracing::info!("the cluster's clock has caught up with the machine's"),
                _ => {}
            }
            catching_up = behind.is_some();
        }
    }

    /// Catches up with a part of what has passed since the last comparison. Returns how far this clock is behind the
    /// machine's, `None` where it is not or does not follow it.
    fn catch_up(&self, machine: Timestamp) -> Option<Seconds> {
        let follows = self.speed == Speed::REAL && self.doubted().is_none();
        let behind = machine.since(self.now());
        if !follows || behind.0 <= FOLLOWED_FROM.0 || behind.0 > FOLLOWED_TO.0 {
            return None;
        }
        let step = behind.0.min(COMPARED.as_secs_f64() * CATCHING_UP);
        self.ahead.fetch_add((step * 1e6) as i64, Ordering::Relaxed);
        Some(behind)
    }

    fn is_right(&self, wall: Timestamp) -> bool {
        let right = wall.0.abs_diff(self.now().0) as f64 / 1e6 <= RIGHT.0;
        if right {
            self.doubted.store(0, Ordering::Relaxed);
            self.advance_to(wall);
        }
        right
    }
}

fn machine_time() -> Timestamp {
    Timestamp(micros(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros()))
}

fn micros(value: u128) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn time_never_steps_back_and_is_shared_by_clones() {
        let clock = Clock::new(Speed::REAL);
        let first = clock.now();
        let other = clock.clone();
        assert!(other.now() >= first);
        assert!(first > Timestamp(1_700_000_000_000_000), "the time of day, not of the process");
        let stored = first + Seconds(3_600.0);
        clock.advance_to(stored);
        assert!(other.now() >= stored);
        clock.advance_to(first);
        assert!(other.now() >= stored, "an older moment moves nothing");
    }

    #[test]
    fn a_clock_that_is_not_believed_goes_on_from_what_is_stored_until_the_machines_is_back() {
        let clock = Clock::new(Speed::REAL);
        let wall = clock.now();
        let stored = wall - Seconds(400.0 * 86_400.0);
        clock.hold_at(stored);
        let held = clock.now();
        assert!(held >= stored && held < stored + Seconds(60.0), "{held}");
        assert!(clock.doubted().unwrap().0 >= 399.0 * 86_400.0);
        assert!(!clock.is_right(wall) && clock.doubted().is_some());
        let right = stored + Seconds(3_600.0);
        assert!(clock.is_right(right) && clock.doubted().is_none());
        assert!(clock.now() >= right && clock.now() < right + Seconds(60.0));
    }

    #[test]
    fn a_clock_that_started_wrong_catches_up_and_jumps_nowhere() {
        let clock = Clock::new(Speed::REAL);
        let hour = Seconds(3_600.0);
        let started = clock.now();
        let mut behind = clock.catch_up(started + hour).unwrap();
        assert!((behind.0 - hour.0).abs() < 60.0, "{behind:?}");
        assert!(clock.now() < started + Seconds(60.0), "it takes a fifth of what passes");
        for _ in 0..20_000 {
            let Some(rest) = clock.catch_up(started + hour) else { break };
            assert!(rest.0 <= behind.0);
            behind = rest;
        }
        let now = clock.now();
        assert!(now >= started + hour - FOLLOWED_FROM && now < started + hour + Seconds(60.0), "{now}");
    }

    #[test]
    fn small_corrections_mistakes_and_the_past_are_not_followed() {
        let clock = Clock::new(Speed::REAL);
        for ahead in [-3_600.0, 3.0, 400.0 * 86_400.0] {
            assert_eq!(clock.catch_up(clock.now() + Seconds(ahead)), None, "{ahead}");
        }
        clock.hold_at(clock.now() - Seconds(86_400.0));
        assert_eq!(clock.catch_up(clock.now() + Seconds(3_600.0)), None, "one that is doubted is not followed");
        let fast = Clock::new(Speed::try_new(60.0).unwrap());
        assert_eq!(fast.catch_up(fast.now() + Seconds(3_600.0)), None, "emulated time has no machine's");
    }

    #[test]
    fn a_fast_clock_shortens_waits() {
        let clock = Clock::new(Speed::try_new(3_600.0).unwrap());
        let wait = clock.until(clock.now() + Seconds(3_600.0));
        assert!(wait <= Duration::from_secs(1) && wait > Duration::from_millis(900), "{wait:?}");
        assert_eq!(clock.until(Timestamp(0)), Duration::ZERO);
        assert_eq!(clock.during(Duration::from_secs(2)), Seconds(7_200.0));
    }

    #[test]
    fn time_neither_stands_still_nor_runs_backwards() {
        for factor in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert_eq!(Speed::try_new(factor), None, "{factor}");
        }
    }
}
