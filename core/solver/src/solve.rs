//! The order of things: check, reduce, prices and a choice in turns until both are close, then exact where it is small.

use crate::bound::bound;
use crate::choice::Choice;
use crate::dual::Ascent;
use crate::exchange::improve;
use crate::program::{Effort, Program, ProgramError, Solution, Work, relative_gap};
use crate::reduced::Reduced;
use crate::repair::repair;
use crate::search::Core;

/// Dual steps between two choices made from prices.
const STEPS_PER_CHOICE: u32 = 50;
/// Columns beyond which an exact search is hopeless.
const CORE_COLUMNS: usize = 2_000;

/// The best choice that `effort` finds, never worse than the start, and a bound on what any choice is worth.
///
/// # Errors
/// Where the program is malformed or its start does not fit.
pub fn solve(program: &Program, effort: &Effort) -> Result<Solution, ProgramError> {
    solve_from(program, effort, &vec![0.0; program.capacity.len()])
}

/// As [`solve`], from the prices of a former solution: good prices save most of the steps.
///
/// # Errors
/// Where the program is malformed, its start does not fit, or there is not one price per row.
pub fn solve_from(program: &Program, effort: &Effort, prices: &[f64]) -> Result<Solution, ProgramError> {
    program.check()?;
    if prices.len() != program.capacity.len() {
        return Err(ProgramError::PriceCount { given: prices.len(), rows: program.capacity.len() });
    }
    let reduced = Reduced::new(program);
    let mut round = Round::new(&reduced, effort, reduced.adopt_prices(prices));
    round.ascend();
    round.finish();
    let choice = reduced.restore(&round.best.columns);
    let objective = program.value(&choice);
    let fixed = objective - round.best.value;
    Ok(Solution {
        objective,
        bound: round.bound + fixed,
        prices: reduced.restore_prices(&round.ascent.best_prices, program.capacity.len()),
        work: Work { proven: round.bound == round.best.value, ..round.work },
        choice,
    })
}

struct Round<'a> {
    reduced: &'a Reduced,
    effort: &'a Effort,
    ascent: Ascent,
    best: Choice,
    bound: i64,
    work: Work,
}

impl<'a> Round<'a> {
    fn new(reduced: &'a Reduced, effort: &'a Effort, prices: Vec<f64>) -> Self {
        let best = Choice::new(reduced, reduced.start());
        let work = Work { rows: reduced.rows() as u32, columns: reduced.columns() as u32, ..Work::default() };
        let first = bound(reduced, &prices).max(best.value);
        Self { reduced, effort, ascent: Ascent::new(reduced, prices), best, bound: first, work }
    }

    fn is_close(&self) -> bool {
        relative_gap(self.best.value, self.bound) <= self.effort.tolerance.max(0.0)
    }

    /// Prices and choices in turns.
    fn ascend(&mut self) {
        let mut moving = true;
        while moving && self.work.dual_steps < self.effort.dual_steps && !self.is_close() {
            for _ in 0..STEPS_PER_CHOICE.min(self.effort.dual_steps - self.work.dual_steps) {
                moving = self.ascent.step(self.reduced, self.best.value as f64);
                self.work.dual_steps += 1;
                if !moving {
                    break;
                }
            }
            let prices = &self.ascent.best_prices;
            self.bound = self.bound.min(bound(self.reduced, prices)).max(self.best.value);
            for columns in [self.ascent.response.clone(), self.best.columns.clone()] {
                let mut choice = Choice::new(self.reduced, columns);
                if repair(self.reduced, &mut choice, prices) {
                    improve(self.reduced, &mut choice, prices, self.effort.exchanges);
                    if choice.value > self.best.value {
                        self.best = choice;
                    }
                }
            }
        }
    }

    /// Fixes what the bound proves useless and searches the rest.
    fn finish(&mut self) {
        if self.is_close() {
            return;
        }
        let at = bound(self.reduced, &self.ascent.best_prices);
        let (core, rest) = Core::new(self.reduced, &self.ascent.best_prices, at, self.best.value);
        self.work.core_columns = core.columns as u32;
        self.work.fixed_columns = (self.reduced.columns() - core.columns) as u32;
        if core.columns > CORE_COLUMNS {
            return;
        }
        let found = core.search(self.reduced, &rest, at, self.best.value, self.effort.nodes);
        self.work.nodes = found.nodes;
        if let Some(choice) = found.choice {
            self.best = choice;
        }
        if found.complete {
            self.bound = self.best.value;
        }
    }
}
