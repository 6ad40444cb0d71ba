//! What following the gradient noise can gain at most, and what rivals that know everything make of it.
//!
//! A noise-free step costs T(B)·(1 + φ/B) seconds in batch B. Where T(B) = a + βB, the batch √(aφ/β) is best, at (√a + √(βφ))². One batch for
//! the whole run costs (√a + √(β⟨φ⟩))² at its best, a batch that follows φ costs a + β⟨φ⟩ + 2√(aβ)·⟨√φ⟩. With x² = a/(β⟨φ⟩) the share of
//! the time that following saves is 2x/(1 + x)² · (1 − ⟨√φ⟩/√⟨φ⟩): at most half of the bracket, where a = β⟨φ⟩. Where layouts may change as
//! well, the least T(B)·(1 + φ/B) over everything that fits, part by part, is what no policy is below.

use super::course::{Course, Moments};
use super::options::{Options, Times, Way};

/// COPUS' critical batch over the noise scale.
pub const COPUS_CRITICAL: f64 = 2.0;
/// The constants of which a follower of the critical batch may have the best in hindsight.
const CRITICAL: [f64; 9] = [0.0625, 0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0];

/// Seconds of a step as a line over its batch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Line {
    pub fixed: f64,
    pub per_sequence: f64,
}

impl Line {
    /// Seconds that a noise-free step costs.
    #[must_use]
    pub fn cost(self, batch: f64, phi: f64) -> f64 {
        (self.fixed + self.per_sequence * batch) * (1.0 + phi / batch)
    }

    /// In the best batch for a whole run.
    #[must_use]
    pub fn fixed(self, moments: Moments) -> f64 {
        (self.fixed.sqrt() + (self.per_sequence * moments.mean).sqrt()).powi(2)
    }

    /// In a batch that follows.
    #[must_use]
    pub fn followed(self, moments: Moments) -> f64 {
        let cross = (self.fixed * self.per_sequence).sqrt() * moments.mean_root;
        self.fixed + self.per_sequence * moments.mean + 2.0 * cross
    }
}

/// Most that following saves on any line, as a share of the time of the best fixed batch.
#[must_use]
pub fn most_saved(moments: Moments) -> f64 {
    0.5 * (1.0 - moments.mean_root / moments.mean.sqrt())
}

/// How much longer something takes that `saved` saves this share of, in percent.
#[must_use]
pub fn gain_of(saved: f64) -> f64 {
    100.0 * saved / (1.0 - saved)
}

/// A rule of changing to what is better by a threshold, of one who knows φ and all step times.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Switching {
    /// Share of goodput that a change must gain.
    pub threshold: f64,
    /// Seconds that a change of the layout takes; one of the batch takes nothing.
    pub layout_change: f64,
    /// The batch at which it begins, in the layout that is fastest for it.
    pub begins: u64,
}

impl Switching {
    /// Seconds for so many noise-free steps.
    #[must_use]
    pub fn run(&self, options: &Options, course: &Course, steps: f64) -> f64 {
        let fastest = options.fastest();
        let cost = |batch: u64, time: f64, phi: f64| time * (1.0 + phi / batch as f64);
        let all = || fastest.iter().map(|(batch, (time, way))| (*batch, *time, way.layout));
        let Some(mut now) = all().find(|(batch, ..)| *batch >= self.begins) else { return f64::INFINITY };
        let mut seconds = 0.0;
        for (length, phi) in course.weights() {
            let best = all().min_by(|one, other| cost(one.0, one.1, phi).total_cmp(&cost(other.0, other.1, phi)));
            let best = best.unwrap_or(now);
            if cost(now.0, now.1, phi) >= (1.0 + self.threshold) * cost(best.0, best.1, phi) {
                seconds += if best.2 == now.2 { 0.0 } else { self.layout_change };
                now = best;
            }
            seconds += length * steps * cost(now.0, now.1, phi);
        }
        seconds
    }
}

/// Seconds per noise-free step of a whole run, in the best batch there is for φ.
fn least(times: &Times, phi: f64) -> f64 {
    times.iter().map(|(batch, time)| time * (1.0 + phi / *batch as f64)).fold(f64::INFINITY, f64::min)
}

fn followed(times: &Times, course: &Course) -> f64 {
    course.weights().map(|(length, phi)| length * least(times, phi)).sum()
}

/// Joint choice of batch and layout by one who knows φ, at no cost of changes: no policy needs less.
#[must_use]
pub fn joint(options: &Options, course: &Course) -> f64 {
    followed(&options.times(), course)
}

/// The same for the batch alone, in the layout that is best for it.
#[must_use]
pub fn batch_alone(options: &Options, course: &Course) -> f64 {
    options.by_layout().values().map(|times| followed(times, course)).fold(f64::INFINITY, f64::min)
}

/// Each fixed batch of a grid in the layout that is fastest for it: sequences, seconds per noise-free step, layout.
#[must_use]
pub fn fixed<'o>(options: &'o Options, course: &Course, grid: &[u64]) -> Vec<(u64, f64, &'o Way)> {
    let (fastest, mean) = (options.fastest(), course.moments().mean);
    let of = |batch: &u64| {
        let (time, way) = fastest.get(batch)?;
        Some((*batch, time * (1.0 + mean / *batch as f64), *way))
    };
    grid.iter().filter_map(of).collect()
}

/// A batch at `critical`·φ, as near as the way comes to it, at no cost of changes.
#[must_use]
pub fn critical(way: &Way, course: &Course, critical: f64) -> f64 {
    let near = |wanted: f64| {
        let off = |batch: u64| (batch as f64 / wanted).ln().abs();
        way.times.iter().min_by(|one, other| off(one.0).total_cmp(&off(other.0)))
    };
    let cost =
        |phi: f64| near(critical * phi).map_or(f64::INFINITY, |(batch, time)| time * (1.0 + phi / *batch as f64));
    course.weights().map(|(length, phi)| length * cost(phi)).sum()
}

/// The same with the constant that turns out best.
#[must_use]
pub fn kindest_critical(way: &Way, course: &Course) -> f64 {
    CRITICAL.iter().map(|constant| critical(way, course, *constant)).fold(f64::INFINITY, f64::min)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;
    use crate::single::course::courses;

    /// Parts of any course: lengths that sum to 1, φ over five decades; and a batch in each.
    fn parts() -> impl Strategy<Value = Vec<(f64, f64, f64)>> {
        let part = (0.01..1.0_f64, -1.0..4.0_f64, -1.0..5.0_f64);
        proptest::collection::vec(part, 1..40).prop_map(|parts| {
            let whole: f64 = parts.iter().map(|(length, ..)| length).sum();
            let ten = |power: f64| 10_f64.powf(power);
            parts.into_iter().map(|(length, phi, batch)| (length / whole, ten(phi), ten(batch))).collect()
        })
    }

    fn line() -> impl Strategy<Value = Line> {
        let powers = (-3.0..2.0_f64, -4.0..1.0_f64);
        powers.prop_map(|(a, b)| Line { fixed: 10_f64.powf(a), per_sequence: 10_f64.powf(b) })
    }

    proptest! {
        #[test]
        fn no_policy_takes_less_than_following_and_none_saves_more_than_the_bound(line in line(), parts in parts()) {
            let moments = Moments::of(parts.iter().map(|(length, phi, _)| (*length, *phi)));
            let policy: f64 = parts.iter().map(|(length, phi, batch)| length * line.cost(*batch, *phi)).sum();
            let (fixed, followed) = (line.fixed(moments), line.followed(moments));
            prop_assert!(policy >= followed * (1.0 - 1e-12), "{policy} {followed}");
            prop_assert!(1.0 - policy / fixed <= most_saved(moments) + 1e-12, "{policy} {fixed}");
            // Whoever stays in one batch is no better than the best of them.
            let (.., batch) = parts[0];
            let stays: f64 = parts.iter().map(|(length, phi, _)| length * line.cost(batch, *phi)).sum();
            prop_assert!(stays >= fixed * (1.0 - 1e-12));
        }

        #[test]
        fn the_bound_is_reached_where_a_step_costs_as_much_by_itself_as_by_its_noise(
            per_sequence in 1e-4..10.0_f64, parts in parts(),
        ) {
            let moments = Moments::of(parts.iter().map(|(length, phi, _)| (*length, *phi)));
            let line = Line { fixed: per_sequence * moments.mean, per_sequence };
            let saved = 1.0 - line.followed(moments) / line.fixed(moments);
            prop_assert!((saved - most_saved(moments)).abs() < 1e-9, "{saved}");
        }
    }

    #[test]
    fn the_closed_forms_are_what_a_search_over_batches_finds() {
        let line = Line { fixed: 0.8, per_sequence: 0.004 };
        let times: Times = (1..=20_000).map(|batch| (batch, 0.8 + 0.004 * batch as f64)).collect();
        for course in courses() {
            let moments = course.moments();
            let searched = (least(&times, moments.mean), super::followed(&times, &course));
            assert!((searched.0 / line.fixed(moments) - 1.0).abs() < 1e-4, "{}", course.name);
            assert!((searched.1 / line.followed(moments) - 1.0).abs() < 1e-4, "{}", course.name);
        }
    }

    #[test]
    fn measured_noise_leaves_more_to_gain_than_noise_that_soon_saturates() {
        let bound = |name: &str| 100.0 * most_saved(Course::named(name).unwrap().moments());
        assert!((bound("exponential") - 10.1).abs() < 0.1, "{}", bound("exponential"));
        assert!((11.0..16.0).contains(&bound("cifar10-1024")), "{}", bound("cifar10-1024"));
        assert!((24.0..32.0).contains(&bound("deepspeech2-160")), "{}", bound("deepspeech2-160"));
    }
}
