//! The order of things: check, reduce, prices, a choice from them, and as much proof as was asked for.

use crate::bound::bound;
use crate::choice::Choice;
use crate::core::Core;
use crate::dual::Dual;
use crate::exchange::improve;
use crate::program::{Effort, Program, ProgramError, Solution, Work};
use crate::prove::Proof;
use crate::reduced::Reduced;
use crate::repair::repair;

/// How many columns the small cores have that are searched for better choices.
const NEAR: [usize; 2] = [150, 800];
/// The share of the parts that the search of a small core may look at.
const NEAR_PARTS: u32 = 30;

/// The best choice that `effort` finds, and a bound on what any choice is worth. It is the start itself unless another
/// choice is worth more. A start within the tolerance is still improved where that takes little: a tolerance must not
/// keep a small group waiting.
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
    check(program, prices)?;
    let reduced = Reduced::new(program);
    let decided = program.value(&program.start) - Choice::new(&reduced, reduced.start()).value;
    let mut round = Round::new(&reduced, effort, reduced.adopt_prices(prices), decided);
    round.ascend();
    round.finish();
    let choice = reduced.restore(&round.best.columns);
    let objective = program.value(&choice);
    Ok(Solution {
        objective,
        bound: round.bound + decided,
        prices: reduced.restore_prices(&round.dual.prices, program.capacity.len()),
        work: Work { proven: round.bound == round.best.value, ..round.work },
        choice,
    })
}

/// Prices where the bound is least, and that bound: what is known of a program before anybody searches.
///
/// # Errors
/// As [`solve_from`].
#[cfg(feature = "milp")]
pub(crate) fn prove(program: &Program, effort: &Effort, prices: &[f64]) -> Result<(Vec<f64>, i64), ProgramError> {
    check(program, prices)?;
    let reduced = Reduced::new(program);
    let start = Choice::new(&reduced, reduced.start());
    let mut round =
        Round::new(&reduced, effort, reduced.adopt_prices(prices), program.value(&program.start) - start.value);
    round.dual.descend(effort.dual_steps);
    let proven = round.bound.min(bound(&reduced, &round.dual.prices, |_| true)).max(start.value);
    Ok((reduced.restore_prices(&round.dual.prices, program.capacity.len()), proven + round.decided))
}

fn check(program: &Program, prices: &[f64]) -> Result<(), ProgramError> {
    program.check()?;
    if prices.len() != program.capacity.len() {
        return Err(ProgramError::PriceCount { given: prices.len(), rows: program.capacity.len() });
    }
    Ok(())
}

struct Round<'a> {
    reduced: &'a Reduced,
    effort: &'a Effort,
    dual: Dual<'a>,
    best: Choice,
    bound: i64,
    /// What the groups without a choice are worth.
    decided: i64,
    work: Work,
}

impl<'a> Round<'a> {
    fn new(reduced: &'a Reduced, effort: &'a Effort, prices: Vec<f64>, decided: i64) -> Self {
        let best = Choice::new(reduced, reduced.start());
        let work = Work { rows: reduced.rows() as u32, columns: reduced.columns() as u32, ..Work::default() };
        let first = bound(reduced, &prices, |_| true).max(best.value);
        Self { reduced, effort, dual: Dual::new(reduced, prices), best, bound: first, decided, work }
    }

    /// What is within the tolerance of a choice that is no better than the present one, in quanta.
    fn least_gain(&self) -> i64 {
        let (worth, bound) = (self.best.value + self.decided, self.bound + self.decided);
        (self.effort.tolerance.max(0.0) * worth.unsigned_abs().min(bound.unsigned_abs()) as f64) as i64
    }

    fn is_close(&self) -> bool {
        self.bound - self.best.value <= self.least_gain()
    }

    /// Prices, and a choice from them.
    fn ascend(&mut self) {
        self.dual.descend(self.effort.dual_steps);
        self.work.dual_steps = self.dual.pivots;
        let prices = &self.dual.prices;
        self.bound = self.bound.min(bound(self.reduced, prices, |_| true)).max(self.best.value);
        for mut choice in [self.dual.nearest(), self.best.clone()] {
            let prices = &self.dual.prices;
            if repair(self.reduced, &mut choice, prices) {
                improve(self.reduced, &mut choice, prices, self.effort.exchanges);
                if choice.value > self.best.value {
                    self.best = choice;
                }
                return;
            }
        }
    }

    /// Searches what prices leave undecided: first the columns closest to their group's best, where better choices
    /// are, then all that the bound cannot exclude, which proves.
    fn finish(&mut self) {
        let mut proof = Proof {
            least_gain: self.least_gain(),
            effort: self.effort,
            nodes: self.effort.nodes / NEAR_PARTS,
            is_exact: false,
            work: self.work,
        };
        for columns in NEAR {
            if !self.is_close() {
                let room = losses(self.reduced, &self.dual.prices, columns);
                if room < (self.bound - self.best.value) as f64 {
                    let core = Core::new(self.reduced, &self.dual.prices, room, &self.best.columns);
                    proof.explore(self.reduced, &core, &self.dual.prices, &mut self.best);
                }
            }
        }
        if !self.is_close() {
            proof.nodes = self.effort.nodes;
            proof.is_exact = true;
            let hard = vec![true; self.reduced.rows()];
            let (best, bound) = proof.tighten(self.reduced, &mut self.dual, self.best.clone(), self.bound, &hard, 0);
            (self.best, self.bound) = (best, bound);
        }
        self.work = proof.work;
    }
}

/// What the column loses that is the `count`th closest to its group's best.
fn losses(reduced: &Reduced, prices: &[f64], count: usize) -> f64 {
    let mut losses = Vec::with_capacity(reduced.columns());
    for group in 0..reduced.groups() {
        let begin = losses.len();
        losses.extend(reduced.group(group).map(|column| -reduced.reduced_value(column, prices)));
        let least = losses[begin..].iter().copied().fold(f64::INFINITY, f64::min);
        let best = begin + losses[begin..].iter().position(|loss| *loss == least).unwrap_or(0);
        losses.swap_remove(best);
        losses[begin..].iter_mut().for_each(|loss| *loss -= least);
    }
    if count >= losses.len() {
        return f64::INFINITY;
    }
    *losses.select_nth_unstable_by(count, f64::total_cmp).1
}
