//! Global batches that are worth trying. It knows neither time nor memory.

use headway_types::spec::BatchRange;
use headway_types::{Layout, Schedule, Sequences};

/// Steps of the batch grid: two per doubling. Goodput is flat at its optimum, and few distinct batches mean few changes.
pub(crate) const GRID: f64 = core::f64::consts::SQRT_2;

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
