//! Nodes that a job may use until a moment only: others have reserved them from then on. The rule knows nothing of
//! reservations, so that every other end of a node follows it as well.
//!
//! A job starts on such nodes in three cases only:
//! 1. Its time limit ends it before. Headway enforces a limit. A predicted end is no such promise, however exact the
//!    model is: if it fails, a job that does not save loses all its work, so a prediction alone admits no job.
//! 2. It saves when it is asked to stop, and what it does until then is worth its start: at least
//!    [`LEAST_USEFUL`] of work, and at least as much as starting and leaving take together.
//! 3. The end is further away than [`FAR`]. Such an end closes no node yet: hardly a job runs that long.
//!
//! A job must have left when the end comes. It is asked to leave so much earlier as leaving takes it ([`leaves_at`]),
//! unless its time limit ends it anyway. A job that must not run twice is never asked to leave ([`Departure::never`]): it
//! starts only where its time limit or the third case admits it, and then keeps the node until it ends. The third case
//! holds for such a job too, because a far end closes no node: so a job without a limit may hold a node beyond an end
//! that is still further away than [`FAR`] when it starts.

use headway_types::{Seconds, Timestamp, TokensPerSecond};
use serde::{Deserialize, Serialize};

use crate::input::{PlanInput, PlanJob};
use crate::project::Tree;
use crate::value;

/// An end further away than this closes no node: a week, the longest time limit that clusters commonly allow.
pub(crate) const FAR: Seconds = Seconds(7.0 * 86_400.0);
/// A start must bring at least so much work before the job has to leave again. As long as jobs are left alone after a
/// move by default (`elastic.min_runtime`).
pub(crate) const LEAST_USEFUL: Seconds = Seconds(600.0);
/// Leaving is never counted as longer than this, which is well below [`FAR`].
const LONGEST_LEAVE: f64 = 86_400.0;

/// How a job leaves its GPUs when it is asked to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Departure {
    /// Whether it saves first, so that another start goes on from there.
    pub saves: bool,
    /// Whether it never leaves before its own end, because it must not run twice.
    pub never: bool,
    /// From the moment at which it should leave until its GPUs are free, at most.
    pub takes: Seconds,
}

impl Departure {
    pub(crate) fn is_unknown(&self) -> bool {
        *self == Self::default()
    }

    fn duration(self) -> Seconds {
        Seconds(self.takes.0.clamp(0.0, LONGEST_LEAVE))
    }
}

/// Returns the moment at which a job has to begin to leave nodes that end at `end`; `None` for a job that never leaves.
#[must_use]
pub fn leaves_at(
    departure: Departure,
    time_left: Option<Seconds>,
    now: Timestamp,
    end: Timestamp,
) -> Option<Timestamp> {
    let leaves = if ends_before(time_left, now, end) { end } else { end - departure.duration() };
    (!departure.never).then_some(leaves)
}

/// Returns whether a job that does not save may start now on nodes that end at `end`: its time limit ends it before, or
/// the end is so far away that it closes no node. `start_cost`: from now until it works.
#[must_use]
pub fn may_start_unsaved(time_left: Option<Seconds>, start_cost: Seconds, now: Timestamp, end: Timestamp) -> bool {
    let longest = longest_within(start_cost, now, end);
    let fits = time_left.zip(longest).is_some_and(|(left, longest)| left.0 <= longest.0);
    is_far(now, end) || fits
}

/// Whether a time limit ends a job that runs before `end`.
pub(crate) fn ends_before(time_left: Option<Seconds>, now: Timestamp, end: Timestamp) -> bool {
    time_left.is_some_and(|left| now + left <= end)
}

/// Whether a job that runs on nodes that end at `end` has to leave them now.
pub(crate) fn must_leave(job: &PlanJob, now: Timestamp, end: Timestamp) -> bool {
    leaves_at(job.departure, job.bounds.time_left, now, end).is_some_and(|at| at <= now)
}

/// Whether an end is so far away that it closes no node yet.
pub(crate) fn is_far(now: Timestamp, end: Timestamp) -> bool {
    end.since(now).0 >= FAR.0
}

/// Whether a job may start now on nodes that end at `end`.
pub(crate) fn may_start(job: &PlanJob, now: Timestamp, end: Timestamp) -> bool {
    may_start_unsaved(job.bounds.time_left, job.start_cost(), now, end) || leaves_in_time(job, now, end)
}

/// The longest time limit with which a job would end before `end`; `None` where it could not start any more.
pub(crate) fn longest_limit(job: &PlanJob, now: Timestamp, end: Timestamp) -> Option<Seconds> {
    longest_within(job.start_cost(), now, end)
}

fn longest_within(start_cost: Seconds, now: Timestamp, end: Timestamp) -> Option<Seconds> {
    let left = end.since(now).0 - start_cost.0;
    (left > 0.0).then_some(Seconds(left))
}

/// What share of a job's value is left by a restart that the end asks for later, and how long it trains until then.
/// `None`: the end changes nothing, because the job ends before or never leaves.
pub(crate) fn value_until(
    job: &PlanJob,
    now: Timestamp,
    end: Timestamp,
    cost: Seconds,
    goodput: TokensPerSecond,
) -> Option<(f64, Seconds)> {
    let left = end.since(now).0;
    let ends_before = value::known_life(job, goodput).is_some_and(|life| cost.0 + life.0 <= left);
    if ends_before || job.departure.never || left <= 0.0 {
        return None;
    }
    let leaving = job.departure.duration().0.min(left);
    Some((1.0 - leaving / left, Seconds(left - leaving)))
}

/// The next moment at which a job of the round has to leave nodes before a reservation begins, if any has to.
#[must_use]
pub fn next_departure(input: &PlanInput) -> Option<Timestamp> {
    if input.reservations.is_empty() {
        return None;
    }
    let tree = Tree::new(&input.projects);
    let ends = input.jobs.iter().flat_map(|job| {
        let slices = job.current.iter().flat_map(|current| current.placement.slices());
        let reservations =
            slices.flat_map(|slice| input.reservations.iter().filter(|one| one.nodes.contains(&slice.node)));
        let strangers = reservations.filter(|one| !one.admits(&tree, job)).map(|one| one.from);
        strangers.filter_map(|end| leaves_at(job.departure, job.bounds.time_left, input.now, end)).collect::<Vec<_>>()
    });
    ends.filter(|at| *at > input.now).min()
}

fn leaves_in_time(job: &PlanJob, now: Timestamp, end: Timestamp) -> bool {
    let lost = job.start_cost().0 + job.departure.duration().0;
    let leaves_whole = job.departure.saves && !job.departure.never;
    leaves_whole && end.since(now).0 >= lost + LEAST_USEFUL.0.max(lost)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builder::{NOW, rigid};

    /// Starts in 30 s and leaves in 60 s.
    fn saving() -> PlanJob {
        let departure = Departure { saves: true, never: false, takes: Seconds(60.0) };
        PlanJob { departure, ..rigid(1, 2) }
    }

    fn limited(limit: f64) -> PlanJob {
        let mut job = rigid(1, 2);
        job.bounds.time_left = Some(Seconds(limit));
        job
    }

    fn starts(job: &PlanJob, seconds: f64) -> bool {
        may_start(job, NOW, NOW + Seconds(seconds))
    }

    #[test]
    fn a_job_without_a_limit_that_does_not_save_starts_only_long_before_an_end() {
        assert!(!starts(&rigid(1, 2), FAR.0 - 1.0));
        assert!(starts(&rigid(1, 2), FAR.0));
    }

    #[test]
    fn a_job_that_saves_starts_where_it_can_work_before_it_leaves() {
        assert!(starts(&saving(), 690.0));
        assert!(!starts(&saving(), 689.0));
        // Of a start that takes an hour at least another hour must come.
        let mut slow = saving();
        slow.downtime.restart = Seconds(3_600.0);
        assert!(starts(&slow, 2.0 * 3_660.0));
        assert!(!starts(&slow, 2.0 * 3_660.0 - 1.0));
    }

    #[test]
    fn a_job_starts_where_its_limit_ends_it_in_time_counted_from_when_it_runs() {
        assert!(starts(&limited(570.0), 600.0));
        assert!(!starts(&limited(571.0), 600.0));
        assert_eq!(longest_limit(&limited(1.0), NOW, NOW + Seconds(600.0)), Some(Seconds(570.0)));
        assert_eq!(longest_limit(&limited(1.0), NOW, NOW + Seconds(30.0)), None);
    }

    #[test]
    fn nothing_starts_where_the_end_has_come() {
        assert!(!starts(&saving(), 0.0));
        assert!(!starts(&limited(0.0), 0.0));
    }

    #[test]
    fn a_job_begins_to_leave_so_early_that_it_has_left_at_the_end() {
        let end = NOW + Seconds(1_000.0);
        let at = |job: &PlanJob| leaves_at(job.departure, job.bounds.time_left, NOW, end);
        assert_eq!(at(&saving()), Some(NOW + Seconds(940.0)));
        let ended_by_its_limit = PlanJob { departure: saving().departure, ..limited(900.0) };
        assert_eq!(at(&ended_by_its_limit), Some(end));
        let goes_on = PlanJob { departure: saving().departure, ..limited(1_001.0) };
        assert_eq!(at(&goes_on), Some(NOW + Seconds(940.0)));
        assert!(!must_leave(&saving(), NOW + Seconds(939.0), end) && must_leave(&saving(), NOW + Seconds(940.0), end));
    }

    /// Never leaves, whatever it saves.
    fn only_once(job: PlanJob) -> PlanJob {
        PlanJob { departure: Departure { never: true, ..saving().departure }, ..job }
    }

    #[test]
    fn a_job_that_never_leaves_starts_by_its_limit_alone_and_then_stays() {
        assert!(starts(&saving(), 86_400.0) && !starts(&only_once(rigid(1, 2)), 86_400.0));
        assert!(starts(&only_once(limited(570.0)), 600.0) && !starts(&only_once(limited(571.0)), 600.0));
        assert!(starts(&only_once(rigid(1, 2)), FAR.0), "such an end closes no node yet");
        let job = only_once(rigid(1, 2));
        for seconds in [-1e6, 0.0, 30.0, 1e6] {
            let end = NOW + Seconds(seconds);
            assert_eq!(leaves_at(job.departure, None, NOW, end), None);
            assert!(!must_leave(&job, NOW, end));
            assert_eq!(value_until(&job, NOW, end, Seconds(30.0), TokensPerSecond(1.0)), None);
        }
    }

    #[test]
    fn what_may_start_need_not_leave_at_once() {
        for seconds in [1.0, 100.0, 689.0, 690.0, 1e4, FAR.0, 1e7] {
            for takes in [0.0, 60.0, 3_600.0, 1e9] {
                for job in [saving(), limited(30.0), limited(500.0), rigid(1, 2), only_once(limited(500.0))] {
                    let departure = Departure { takes: Seconds(takes), ..job.departure };
                    let (job, end) = (PlanJob { departure, ..job }, NOW + Seconds(seconds));
                    assert!(!may_start(&job, NOW, end) || !must_leave(&job, NOW, end), "{seconds} {takes} {job:?}");
                }
            }
        }
    }

    #[test]
    fn an_end_takes_from_the_value_what_leaving_costs_and_nothing_from_what_ends_before() {
        let goodput = TokensPerSecond(1.0);
        let of = |job: &PlanJob, seconds: f64| value_until(job, NOW, NOW + Seconds(seconds), Seconds(30.0), goodput);
        assert_eq!(of(&saving(), 600.0), Some((0.9, Seconds(540.0))));
        assert_eq!(of(&limited(570.0), 600.0), None);
        assert!(of(&saving(), 1e7).is_some_and(|(share, _)| share > 0.999));
    }
}
