//! How rounds have gone since this process began: how long the last ones took, and which gave no plan.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use headway_types::Seconds;
use headway_types::quantile::quantile;

/// Rounds whose durations are remembered.
const REMEMBERED: usize = 256;

/// What is remembered of rounds.
#[derive(Debug, Default)]
pub struct Rounds(Mutex<Memory>);

#[derive(Debug, Default)]
struct Memory {
    under_way: Option<Instant>,
    took: VecDeque<Duration>,
    without_plan: u64,
    last_without: Option<(Instant, String)>,
    deferred: usize,
}

/// How rounds have gone, in wall time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Health {
    /// How long the round under way has taken so far.
    pub under_way: Option<Duration>,
    /// How many rounds the two following are of, the newest at most so many.
    pub rounds: usize,
    pub median: Option<Seconds>,
    pub p99: Option<Seconds>,
    /// Rounds that took too long or broke down.
    pub without_plan: u64,
    /// How long ago the last of them ended, and what was said of it.
    pub last_without: Option<(Duration, String)>,
    /// Jobs that the newest round left as they are, since their curves were not ready.
    pub deferred: usize,
}

impl Rounds {
    pub fn begun(&self, at: Instant) {
        self.memory().under_way = Some(at);
    }

    /// The round under way has ended, or is waited for no longer.
    pub fn ended(&self, took: Duration, deferred: usize) {
        let mut memory = self.memory();
        memory.under_way = None;
        memory.deferred = deferred;
        if memory.took.len() == REMEMBERED {
            memory.took.pop_front();
        }
        memory.took.push_back(took);
    }

    /// A round gave no plan.
    pub fn gave_none(&self, why: &str) {
        let mut memory = self.memory();
        memory.without_plan += 1;
        memory.last_without = Some((Instant::now(), why.to_owned()));
    }

    pub fn health(&self) -> Health {
        let memory = self.memory();
        let mut took: Vec<f64> = memory.took.iter().map(Duration::as_secs_f64).collect();
        took.sort_by(f64::total_cmp);
        Health {
            under_way: memory.under_way.map(|began| began.elapsed()),
            rounds: took.len(),
            median: quantile(&took, 0.5).map(Seconds),
            p99: quantile(&took, 0.99).map(Seconds),
            without_plan: memory.without_plan,
            last_without: memory.last_without.as_ref().map(|(at, why)| (at.elapsed(), why.clone())),
            deferred: memory.deferred,
        }
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_rounds_count_and_all_that_gave_no_plan() {
        let rounds = Rounds::default();
        rounds.gave_none("first");
        (0..REMEMBERED).for_each(|_| rounds.ended(Duration::from_secs(30), 7));
        (0..REMEMBERED).for_each(|_| rounds.ended(Duration::from_secs(2), 0));
        rounds.gave_none("second");
        rounds.begun(Instant::now());
        let health = rounds.health();
        assert_eq!((health.rounds, health.median, health.p99), (REMEMBERED, Some(Seconds(2.0)), Some(Seconds(2.0))));
        assert_eq!((health.without_plan, health.deferred), (2, 0));
        assert!(health.under_way.is_some());
        assert_eq!(health.last_without.map(|(_, why)| why).as_deref(), Some("second"));
    }
}
