//! What a candidate is worth to the cluster: `w · u(s · (1 − d/W))` (DESIGN §5). It knows no GPUs and no nodes.

use headway_types::spec::Priority;
use headway_types::{Seconds, Timestamp, Tokens, TokensPerSecond};

use crate::input::PlanJob;
use crate::policy::Policy;

/// Objective units per quantum: coefficients enter the solver as whole numbers, so that comparisons are exact.
const QUANTA_PER_UNIT: f64 = 1e6;
/// Whatever a restart costs, a job that starts keeps this share of its value: starting beats waiting.
const LEAST_USEFUL_SHARE: f64 = 0.02;
const DAY: f64 = 86_400.0;

/// An objective coefficient in whole quanta.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Quanta(pub i64);

impl Quanta {
    pub fn of(value: f64) -> Self {
        Self(libm::round(value * QUANTA_PER_UNIT) as i64)
    }

    pub fn units(self) -> f64 {
        self.0 as f64 / QUANTA_PER_UNIT
    }
}

/// Weight of a job: doubles every 25 points of priority, and grows by half over the first day since its submission.
/// Age counts whether the job waits or runs: a weight that fell at the start would invite its undoing.
pub(crate) fn weight(priority: Priority, submitted_at: Timestamp, now: Timestamp) -> f64 {
    let age = (now.since(submitted_at).0 / DAY).min(1.0);
    libm::exp2((f64::from(priority.0) - 50.0) / 25.0) * (1.0 + 0.5 * age)
}

/// u(s) = ((s+ε)^p − ε^p)/p; ln((s+ε)/ε) at p = 0. Zero at s = 0, so nothing is worth nothing.
pub(crate) fn utility(policy: &Policy, speed_up: f64) -> f64 {
    let (s, p, epsilon) = (speed_up.max(0.0), policy.power, policy.epsilon);
    if p.abs() < 1e-9 {
        libm::log((s + epsilon) / epsilon)
    } else {
        (libm::pow(s + epsilon, p) - libm::pow(epsilon, p)) / p
    }
}

/// Share of the window W in which a job trains after standing still for `downtime`. W ends at the horizon or when the
/// job does; in the second case the product with its goodput is its mean goodput until it ends, so that a move is
/// worth more than staying exactly when the job ends sooner by it.
pub(crate) fn useful_share(
    policy: &Policy,
    downtime: Seconds,
    remaining: Option<Tokens>,
    goodput: TokensPerSecond,
) -> f64 {
    let own = match remaining {
        Some(tokens) if goodput.0 > 0.0 => downtime.0 + (tokens / goodput).0.max(0.0),
        _ => f64::INFINITY,
    };
    let window = own.min(policy.horizon.0);
    if downtime.0 <= 0.0 || window <= 0.0 { 1.0 } else { (1.0 - downtime.0 / window).max(LEAST_USEFUL_SHARE) }
}

/// `w · u(s · share)` of one job at one speed-up.
pub(crate) fn value(policy: &Policy, job: &PlanJob, now: Timestamp, speed_up: f64, share: f64) -> f64 {
    weight(job.priority, job.submitted_at, now) * utility(policy, speed_up * share)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_worth_nothing_and_more_is_worth_more() {
        for power in [-1.0, -0.5, 0.0, 0.5, 1.0] {
            let policy = Policy { power, ..Policy::default() };
            assert!(utility(&policy, 0.0).abs() < 1e-12);
            assert!(utility(&policy, 2.0) > utility(&policy, 1.0));
        }
    }

    #[test]
    fn a_move_is_worth_more_than_staying_exactly_when_the_job_ends_sooner() {
        let policy = Policy { horizon: Seconds(1e9), ..Policy::default() };
        let left = Some(Tokens(1_000.0));
        // Staying takes 1000 s. Twice the speed after 400 s takes 900 s; after 600 s it takes 1100 s.
        let mean = |downtime| 2.0 * useful_share(&policy, Seconds(downtime), left, TokensPerSecond(2.0));
        assert!(mean(400.0) > 1.0);
        assert!(mean(600.0) < 1.0);
    }

    #[test]
    fn weight_doubles_every_25_points() {
        let at = Timestamp(0);
        assert!((weight(Priority(75), at, at) - 2.0).abs() < 1e-12);
        assert!((weight(Priority(25), at, at) - 0.5).abs() < 1e-12);
    }
}
