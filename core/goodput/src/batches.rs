//! Which global batches a layout may take: multiples of what its replicas take at a time, near a geometric grid, and what the norm test
//! wants of them.

use headway_types::spec::{BatchRange, NormTestEta};
use headway_types::{Layout, Schedule, Sequences};

/// Steps of the batch grid: two per doubling. Goodput is flat at its optimum, and few distinct batches mean few changes.
pub(crate) const GRID: f64 = core::f64::consts::SQRT_2;
/// What rounding does to a number of steps.
const SLACK: f64 = 1e-9;
/// Falling short of what is wanted is worse than any excess.
const SHORT: u32 = 1 << 16;

/// The batch that the norm test wants of a job (Lau et al., arXiv 2412.21124), in sequences and not yet a multiple of anything: the least
/// at which the gradient's variance tr Σ/B is at most η²|G|², which is φ/η². It lies on a grid from the reference batch, where a job
/// begins, and never shrinks: it keeps the step of the grid that the job has reached (`held`).
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub(crate) struct Wanted {
    batch: f64,
    /// What is near enough: at the end of the range a step less, or the layout that divides it best would win.
    least: f64,
}

impl Wanted {
    /// `noise_scale`: φ in sequences, once it is known.
    pub fn by_norm_test(
        eta: NormTestEta,
        noise_scale: Option<f64>,
        reference: Sequences,
        held: Sequences,
        range: BatchRange,
    ) -> Self {
        let (eta, reference) = (f64::from(eta), reference.0.max(1) as f64);
        let at = |steps: f64| reference * libm::exp2(steps / 2.0);
        let asked = noise_scale.map_or(0.0, |phi| at((steps_between(reference, phi / (eta * eta)) - SLACK).ceil()));
        let held = at((steps_between(reference, held.0 as f64) + SLACK).floor());
        Self::within(reference.max(asked).max(held).max(range.min.0 as f64), range)
    }

    /// As long as the layout stays, to the sequence.
    pub fn at_least(self, held: Sequences, range: BatchRange) -> Self {
        let held = held.min(range.max).0 as f64;
        Self { batch: self.batch.max(held), least: self.least.max(held) }
    }

    fn within(batch: f64, range: BatchRange) -> Self {
        let end = range.max.0 as f64;
        if batch < end { Self { batch, least: batch } } else { Self { batch: end, least: end / GRID } }
    }

    /// Whether a batch is smaller than that.
    pub fn exceeds(self, batch: Sequences) -> bool {
        self.steps_off(batch) >= SHORT
    }

    /// How far a batch is from it, in steps of the grid: 0 for one that reaches it, by less than a step. Of those that fall short, in
    /// thousandths: there the nearest is wanted.
    pub fn steps_off(self, batch: Sequences) -> u32 {
        let steps = steps_between(self.batch, batch.0 as f64);
        if steps < 0.0 && batch.0 as f64 >= self.least * (1.0 - SLACK) {
            0
        } else if steps < 0.0 {
            SHORT + (-1e3 * steps).min(1e6).ceil() as u32
        } else {
            (steps + SLACK).floor() as u32
        }
    }

    /// The bounds of batches that are 0 steps off.
    pub fn bounds(self, range: BatchRange) -> (f64, f64) {
        (self.least.max(range.min.0 as f64), (self.batch * GRID).min(range.max.0 as f64))
    }

    /// Batches to try at a quantum, ascending. The last is the least that reaches what is wanted and has two small batches; those before it
    /// are for want of memory.
    pub fn grid(self, range: BatchRange, quantum: u64, micro_batch: Sequences) -> Vec<Sequences> {
        let mut grid = batch_grid(range, quantum);
        let Some(&largest) = grid.last() else { return grid };
        let least = if range.min == range.max { self.batch } else { self.batch.max(2.0 * micro_batch.0 as f64) };
        let multiple = (least / quantum as f64 * (1.0 - SLACK)).ceil() as u64 * quantum;
        let reached = Sequences(multiple).clamp(grid[0], largest);
        grid.retain(|batch| *batch < reached);
        grid.push(reached);
        grid
    }
}

fn steps_between(from: f64, to: f64) -> f64 {
    2.0 * libm::log2(to / from)
}

/// Of how many micro-batches a step of interleaved stages must have a multiple (Narayanan et al. 2021).
pub(crate) fn interleaved(layout: Layout) -> u64 {
    let execution = layout.execution;
    let bound = execution.vpp > 1 && execution.schedule == Schedule::OneForwardOneBackward;
    if bound { u64::from(layout.pp) } else { 1 }
}

/// The neighbours of a peak on an ascending grid, and its ends.
pub(crate) fn near(grid: &[Sequences], peak: f64) -> Vec<Sequences> {
    let above = grid.iter().position(|batch| batch.0 as f64 >= peak).unwrap_or(grid.len());
    let near = [above.saturating_sub(1), above, 0, grid.len().saturating_sub(1)];
    let mut likely: Vec<Sequences> = near.iter().filter_map(|index| grid.get(*index).copied()).collect();
    likely.sort();
    likely.dedup();
    likely
}

/// Global batches to consider, ascending: multiples of `quantum` in the range, near a geometric grid, and the outermost.
pub(crate) fn batch_grid(range: BatchRange, quantum: u64) -> Vec<Sequences> {
    if quantum == 0 {
        return Vec::new();
    }
    let (lowest, highest) = (range.min.0.max(1).div_ceil(quantum) * quantum, range.max.0 / quantum * quantum);
    if lowest > highest {
        return Vec::new();
    }
    let mut grid = vec![lowest];
    let mut target = range.min.0.max(1) as f64;
    while target < highest as f64 {
        let multiple = (target / quantum as f64).round() as u64 * quantum;
        grid.push(multiple.clamp(lowest, highest));
        target *= GRID;
    }
    grid.push(highest);
    grid.sort_unstable();
    grid.dedup();
    grid.into_iter().map(Sequences).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    const RANGE: BatchRange = BatchRange { min: Sequences(8), max: Sequences(4096) };

    fn wanted(eta: f64, phi: impl Into<Option<f64>>, held: u64) -> Wanted {
        Wanted::by_norm_test(eta.try_into().unwrap(), phi.into(), Sequences(16), Sequences(held), RANGE)
    }

    fn at(batch: f64) -> Wanted {
        Wanted::within(batch, RANGE)
    }

    #[test]
    fn the_grid_has_both_bounds_and_only_multiples() {
        let range = BatchRange { min: Sequences(10), max: Sequences(100) };
        let grid: Vec<u64> = batch_grid(range, 8).into_iter().map(|batch| batch.0).collect();
        assert_eq!(grid, [16, 24, 32, 40, 56, 80, 96]);
        assert!(batch_grid(range, 128).is_empty());
    }

    #[test]
    fn the_norm_test_begins_at_the_reference_batch_and_wants_the_noise_scale_over_eta_squared() {
        assert_eq!(wanted(0.5, None, 0), at(16.0));
        assert_eq!(wanted(0.5, 1.0, 0), at(16.0), "4 sequences would do; the recipe's batch is the least");
        assert_eq!(wanted(0.5, 16.0, 0), at(64.0));
        assert!((wanted(0.5, 16.1, 0).batch - 64.0 * GRID).abs() < 1e-9, "the next step of the grid");
        assert_eq!(wanted(0.05, 1e6, 0), at(4096.0), "what the recipe allows");
        assert_eq!(wanted(0.5, 1.0, 128), at(128.0), "it has come to 128 and stays there");
    }

    #[test]
    fn a_batch_that_is_no_multiple_is_rounded_up_and_down_only_at_the_end_of_the_range() {
        let last = |wanted: Wanted, quantum, micro| wanted.grid(RANGE, quantum, Sequences(micro)).pop();
        assert_eq!(last(at(64.0), 24, 8), Some(Sequences(72)));
        assert_eq!(last(at(64.0), 16, 16), Some(Sequences(64)));
        assert_eq!(last(at(16.0), 16, 16), Some(Sequences(32)), "one gradient tells nothing of the noise");
        assert_eq!(last(at(4096.0), 3000, 1), Some(Sequences(3000)));
        assert_eq!(last(at(64.0), 5000, 1), None);
    }

    #[test]
    fn at_the_end_of_the_range_a_step_less_is_near_enough() {
        let off = |wanted: Wanted, batch| wanted.steps_off(Sequences(batch));
        assert_eq!([off(at(4096.0), 4096), off(at(4096.0), 4080), off(at(4096.0), 2900)], [0; 3]);
        assert!(off(at(4096.0).at_least(Sequences(4080), RANGE), 4079) > 0, "a layout that stays never falls");
        assert!(off(at(4096.0), 2896) > 0 && off(at(64.0), 63) > 0, "elsewhere it must be reached");
        assert!(at(4096.0).bounds(RANGE).0 < 2900.0 && at(64.0).bounds(RANGE).0 == 64.0);
    }

    proptest! {
        #[test]
        fn what_the_norm_test_wants_rises_with_the_noise_stays_in_range_and_never_falls(
            eta in 0.05..1.0f64, phi in 0.01..1e7f64, more in 1.0..100.0f64, held in 0u64..8192,
        ) {
            let low = wanted(eta, phi, held);
            prop_assert!(low <= wanted(eta, phi * more, held));
            prop_assert!(wanted(eta, None, held) <= low);
            prop_assert!(low.batch >= 16.0 && low.batch <= 4096.0);
            prop_assert!(low.batch >= (phi / (eta * eta)).min(4096.0) * (1.0 - 1e-6), "the test is met");
            prop_assert!(low.batch * GRID >= held.min(4096) as f64, "{low:?}");
            prop_assert!(low.at_least(Sequences(held), RANGE).batch >= held.min(4096) as f64);
        }

        #[test]
        fn moving_between_layouts_does_not_drive_the_batch_up(
            eta in 0.05..1.0f64, phi in 0.01..1e4f64, quanta in prop::collection::vec(1u64..6, 1..30),
        ) {
            let (first, mut held) = (wanted(eta, phi, 0), 0);
            for quantum in quanta {
                let now = wanted(eta, phi, held);
                prop_assert_eq!(now, first);
                held = now.grid(RANGE, quantum, Sequences(1)).last().unwrap().0;
                prop_assert!(held % quantum == 0);
            }
        }
    }
}
