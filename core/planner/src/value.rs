//! What a candidate is worth to the cluster: `w · u(s · (1 − d/W))`, as `docs/planner.md` states it. It knows no GPUs and no nodes.

use headway_types::{GpuSeconds, Seconds, Timestamp, TokensPerSecond};

use crate::input::PlanJob;
use crate::policy::Policy;

/// Objective units per quantum: coefficients enter the solver as whole numbers, so that comparisons are exact.
const QUANTA_PER_UNIT: f64 = 1e6;
/// No coefficient is larger, so that differences of sums of many never overflow.
const MOST_QUANTA: f64 = (1_i64 << 43) as f64;
/// Whatever a restart costs, a job that starts keeps this share of its value: starting beats waiting.
const LEAST_USEFUL_SHARE: f64 = 0.02;
const DAY: f64 = 86_400.0;
/// Nothing can be said of a job from less of its life.
const LEAST_LIFE: Seconds = Seconds(600.0);
/// Attained service is weighed in units of this many GPU-seconds (`docs/planner.md`, objective).
const SERVICE_UNIT: f64 = 600.0;

/// An objective coefficient in whole quanta.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Quanta(pub i64);

impl Quanta {
    pub fn of(value: f64) -> Self {
        Self(libm::round(value * QUANTA_PER_UNIT).clamp(-MOST_QUANTA, MOST_QUANTA) as i64)
    }

    pub fn units(self) -> f64 {
        self.0 as f64 / QUANTA_PER_UNIT
    }
}

/// Weight of a job: doubles every 25 points of priority, grows by half over the first day since its submission, goes
/// with its project's fair share, and falls with attained service where the policy says so. Age counts whether the
/// job waits or runs: a weight that fell at the start would invite its undoing.
pub(crate) fn weight(policy: &Policy, job: &PlanJob, share_factor: f64, now: Timestamp) -> f64 {
    let age = (now.since(job.submitted_at).0 / DAY).clamp(0.0, 1.0);
    let priority = libm::exp2((f64::from(job.priority.0) - 50.0) / 25.0);
    priority * (1.0 + 0.5 * age) * share_factor * service_factor(policy, job.claim.attained)
}

/// (1 + GPU-seconds/600)^−x.
fn service_factor(policy: &Policy, attained: GpuSeconds) -> f64 {
    if policy.service_exponent == 0.0 {
        return 1.0;
    }
    libm::pow(1.0 + attained.0.max(0.0) / SERVICE_UNIT, -policy.service_exponent)
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

/// The gain a move needs, as a share of the job's value: it is high right after a move and decays, so that a job does
/// not swing between two sizes that are nearly as good, nor freezes for good at one that no longer is.
pub(crate) fn hysteresis(policy: &Policy, since_move: Option<Seconds>) -> f64 {
    let Some(since) = since_move else { return policy.min_gain };
    let left = libm::exp(-since.0.max(0.0) / policy.settling.0.max(1e-9));
    policy.min_gain + (policy.fresh_gain - policy.min_gain).max(0.0) * left
}

/// Share of the window W in which a job trains after standing still for `downtime`. Where the job's end is known and near,
/// the product with its goodput is its mean goodput until then, so that a move is worth more than staying exactly when the
/// job ends sooner by it. `until`: how long it may stay where it goes, if that is limited.
pub(crate) fn useful_share(
    policy: &Policy,
    job: &PlanJob,
    now: Timestamp,
    downtime: Seconds,
    goodput: TokensPerSecond,
    until: Option<Seconds>,
) -> f64 {
    if downtime.0 <= 0.0 {
        return 1.0;
    }
    let (mut window, _) = window(policy, job, now, downtime, goodput);
    window.0 = until.map_or(window.0, |until| window.0.min(until.0));
    if window.0 <= 0.0 { 1.0 } else { (1.0 - downtime.0 / window.0).max(LEAST_USEFUL_SHARE) }
}

/// What ends the time over which a move has to pay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Until {
    Horizon,
    /// The job's end.
    End,
    /// The job's next move, if that goes on as it did.
    NextMove,
}

/// W, the time over which standing still for `downtime` has to pay: the horizon at most, and until the job ends; a move also
/// until the job is likely to be moved again. A start costs the same whenever it comes.
pub(crate) fn window(
    policy: &Policy,
    job: &PlanJob,
    now: Timestamp,
    downtime: Seconds,
    goodput: TokensPerSecond,
) -> (Seconds, Until) {
    let ends = known_life(job, goodput).map(|left| (Seconds(downtime.0 + left.0), Until::End));
    let moves = job.current.is_some().then(|| (between_moves(job, now), Until::NextMove));
    let shorter = |one: (Seconds, Until), other: (Seconds, Until)| if other.0.0 < one.0.0 { other } else { one };
    ends.into_iter().chain(moves).fold((policy.horizon, Until::Horizon), shorter)
}

/// How long a job goes on at such a goodput. Lives are heavy-tailed: where nobody knows its end it goes on for as long as it
/// has run.
pub(crate) fn life_left(job: &PlanJob, now: Timestamp, goodput: TokensPerSecond) -> Seconds {
    known_life(job, goodput).unwrap_or_else(|| has_run(job, now))
}

/// Until its target or its time limit, where it has one.
pub(crate) fn known_life(job: &PlanJob, goodput: TokensPerSecond) -> Option<Seconds> {
    let work = job.to_do().filter(|_| goodput.0 > 0.0).map(|tokens| (tokens / goodput).0.max(0.0));
    let limit = job.bounds.time_left.map(|left| left.0.max(0.0));
    work.into_iter().chain(limit).reduce(f64::min).map(Seconds)
}

/// How long a job keeps what a move gives it, by how often it was moved in the time T that it has run. To first order a move
/// then costs the (n+1)·d/T of Sia's r and of Pollux's factor for restarts.
fn between_moves(job: &PlanJob, now: Timestamp) -> Seconds {
    Seconds(has_run(job, now).0 / (f64::from(job.claim.restarts) + 1.0))
}

/// How long a job has run in its life: since its submission but for its last wait. Nobody is taken for younger than `LEAST_LIFE`.
pub(crate) fn has_run(job: &PlanJob, now: Timestamp) -> Seconds {
    let age = now.since(job.submitted_at).0;
    Seconds((age - job.claim.waited.0).max(job.claim.ran.0).max(LEAST_LIFE.0))
}

/// Whether a job that goes on like this reaches its target in time; `None` where there is no telling or no deadline.
pub(crate) fn in_time(job: &PlanJob, now: Timestamp, downtime: Seconds, goodput: TokensPerSecond) -> Option<bool> {
    let (deadline, remaining) = (job.bounds.deadline?, job.remaining?);
    let left = deadline.0.saturating_sub(now.0) as f64 / 1e6 - downtime.0;
    Some(goodput.0 > 0.0 && remaining.0 <= left * goodput.0)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use headway_types::Tokens;
    use headway_types::spec::Priority;

    use super::*;
    use crate::builder;

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
        let job = PlanJob { remaining: Some(Tokens(1_000.0)), ..builder::job(1, 1, 2) };
        // Staying takes 1000 s. Twice the speed after 400 s takes 900 s; after 600 s it takes 1100 s.
        let mean =
            |downtime| 2.0 * useful_share(&policy, &job, builder::NOW, Seconds(downtime), TokensPerSecond(2.0), None);
        assert!(mean(400.0) > 1.0);
        assert!(mean(600.0) < 1.0);
    }

    #[test]
    fn a_move_has_to_pay_before_the_next_one() {
        let policy = Policy::default();
        let mut job = builder::job(1, 1, 2);
        (job.submitted_at, job.claim.waited) = (builder::NOW - Seconds(3_000.0), Seconds(1_500.0));
        let of = |job: &PlanJob| window(&policy, job, builder::NOW, Seconds(100.0), TokensPerSecond(1.0));
        assert_eq!(of(&job), (policy.horizon, Until::Horizon), "it waits: a start is no move");
        let plan = crate::plan(
            &builder::round(vec![builder::node(1, "alpha", 2)], vec![job.clone()]),
            &mut crate::curves::CurveCache::new(),
        );
        job.current = plan.unwrap().assignments.get(&job.job).cloned();
        assert_eq!(of(&job), (Seconds(1_500.0), Until::NextMove));
        job.claim.restarts = 2;
        assert_eq!(of(&job), (Seconds(500.0), Until::NextMove));
        job.remaining = Some(Tokens(100.0));
        assert_eq!(of(&job), (Seconds(200.0), Until::End));
    }

    #[test]
    fn weight_doubles_every_25_points() {
        let (policy, job) = (Policy::default(), builder::job(1, 1, 2));
        let of = |points| weight(&policy, &PlanJob { priority: Priority(points), ..job.clone() }, 1.0, builder::NOW);
        assert!((of(75) - 2.0).abs() < 1e-12);
        assert!((of(25) - 0.5).abs() < 1e-12);
    }

    #[test]
    fn a_fresh_move_is_harder_to_undo_than_an_old_one() {
        let policy = Policy { min_gain: 0.1, fresh_gain: 0.5, ..Policy::default() };
        let after = |seconds| hysteresis(&policy, Some(Seconds(seconds)));
        assert!((after(0.0) - policy.fresh_gain).abs() < 1e-12);
        assert!(after(900.0) < after(60.0) && after(1e6) - policy.min_gain < 1e-9);
        assert_eq!(hysteresis(&policy, None), policy.min_gain);
    }

    #[test]
    fn a_deadline_is_met_when_what_is_left_fits_before_it() {
        let mut job = builder::job(1, 1, 2);
        job.remaining = Some(Tokens(100.0));
        job.bounds.deadline = Some(builder::NOW + Seconds(60.0));
        let meets = |goodput| in_time(&job, builder::NOW, Seconds(10.0), TokensPerSecond(goodput));
        assert_eq!(meets(2.0), Some(true));
        assert_eq!(meets(1.9), Some(false));
        job.remaining = None;
        assert_eq!(in_time(&job, builder::NOW, Seconds(10.0), TokensPerSecond(9.0)), None);
    }
}
