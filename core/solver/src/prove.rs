//! From prices to proof: what the bound excludes is left out, rows that cut off the prices' mixture are added, prices
//! follow, and so on while that closes the gap; what is open then is searched. Each turn works on the core of the one
//! before, so that every turn is smaller.

use crate::bound::bound;
use crate::branch::search;
use crate::choice::Choice;
use crate::core::Core;
use crate::cut::cuts;
use crate::dive::dive;
use crate::dual::Dual;
use crate::exchange::improve;
use crate::program::{Effort, Work};
use crate::reduced::Reduced;
use crate::repair::repair;

/// Turns before the search.
const TURNS: u32 = 60;
/// The share of the gap that a turn must close to be followed by another.
const PROGRESS: f64 = 0.005;

pub(crate) struct Proof<'a> {
    /// Gaps below this are closed.
    pub least_gain: i64,
    pub effort: &'a Effort,
    /// Parts that one search may look at.
    pub nodes: u32,
    /// Whether what is worked on holds all that the bound cannot exclude.
    pub is_exact: bool,
    pub work: Work,
}

impl Proof<'_> {
    /// Looks for something better than `best` in a core that need not hold the best of all.
    pub fn explore(&mut self, reduced: &Reduced, core: &Core, prices: &[f64], best: &mut Choice) {
        let inner = Reduced::new(&core.program);
        let mut dual = Dual::new(&inner, inner.adopt_prices(&reduced.per_unit(prices)));
        dual.descend(self.effort.dual_steps);
        let root = dual.vertex();
        let mut found = Choice::new(&inner, inner.start());
        if let Some(mut choice) = dive(&inner, &mut dual, self.effort.dual_steps) {
            improve(&inner, &mut choice, &dual.prices, self.effort.exchanges);
            if choice.value > found.value {
                found = choice;
            }
        }
        dual.resume(&root);
        let above = bound(&inner, &dual.prices, |_| true).max(found.value);
        if above - found.value > self.least_gain {
            let hard = vec![true; inner.rows()];
            (found, _) = self.tighten(&inner, &mut dual, found, above, &hard, 0);
        }
        let choice = Choice::new(reduced, core.restore(&inner.restore(&found.columns)));
        if choice.value > best.value {
            *best = choice;
        }
    }

    /// A choice no worse than `best` and a bound no greater than `above`.
    pub fn tighten(
        &mut self,
        reduced: &Reduced,
        dual: &mut Dual,
        best: Choice,
        above: i64,
        hard: &[bool],
        turn: u32,
    ) -> (Choice, i64) {
        let cuts = if turn < TURNS { cuts(reduced, dual) } else { Vec::new() };
        if cuts.is_empty() {
            let root = dual.vertex();
            let mut best = best;
            if let Some(mut choice) = dive(reduced, dual, self.effort.dual_steps) {
                improve(reduced, &mut choice, &dual.prices, self.effort.exchanges / 10);
                if choice.value > best.value {
                    best = choice;
                }
            }
            dual.resume(&root);
            let found = search(reduced, dual.clone(), best, self.least_gain, self.nodes);
            self.work.nodes += found.nodes;
            return (found.best, found.bound.min(above));
        }
        // What is excluded rests on the bound at these very prices, which need not be the least known; beyond it a
        // quantum and what floats may have rounded away.
        let at = bound(reduced, &dual.prices, |_| true);
        let room = (at - best.value) as f64 + 1.0 + reduced.total * 1e-12;
        let mut core = Core::new(reduced, &dual.prices, room, &best.columns);
        (0..reduced.rows()).filter(|&row| !hard[row] && dual.prices[row] <= 0.0).for_each(|row| core.forget(row));
        let given = reduced.rows();
        self.work.cuts += cuts.len() as u32;
        cuts.into_iter().for_each(|cut| core.add(cut));
        if self.is_exact {
            self.work.core_columns = core.columns as u32;
            self.work.fixed_columns = self.work.columns - self.work.core_columns;
        }

        let inner = Reduced::new(&core.program);
        let mut start = Choice::new(&inner, inner.start());
        let decided = best.value - start.value;
        let mut prices = reduced.per_unit(&dual.prices);
        prices.resize(core.program.capacity.len(), 0.0);
        let mut follow = Dual::new(&inner, inner.adopt_prices(&prices));
        follow.descend(self.effort.dual_steps);
        self.work.dual_steps += follow.pivots;
        let bound = (bound(&inner, &follow.prices, |_| true) + decided).min(above);
        let mut choice = follow.nearest();
        if repair(&inner, &mut choice, &follow.prices) {
            improve(&inner, &mut choice, &follow.prices, self.effort.exchanges / 10);
            if choice.value > start.value {
                start = choice;
            }
        }
        let closed = (above - bound) as f64 >= PROGRESS * (above - best.value) as f64;
        let gap = bound - decided - start.value;
        let (found, bound) = if gap <= self.least_gain {
            (start, bound - decided)
        } else {
            let hard = inner.inherit(|row| row < given && hard[row]);
            let turn = if closed { turn + 1 } else { TURNS };
            self.tighten(&inner, &mut follow, start, bound - decided, &hard, turn)
        };
        let found = if found.value + decided > best.value {
            Choice::new(reduced, core.restore(&inner.restore(&found.columns)))
        } else {
            best
        };
        let bound = (bound + decided).max(found.value);
        (found, bound)
    }
}
