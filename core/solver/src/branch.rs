//! Exact, on what is left: branch and bound over groups that prices leave undecided. A group's columns are ordered by
//! value and divided in two where the prices are undecided; the part with the greatest bound is looked at first. It is
//! limited by a count of parts, and says how far it came: the greatest bound of what it left.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use crate::bound::bound;
use crate::choice::Choice;
use crate::dual::{Dual, Outcome, Vertex};
use crate::exchange::improve;
use crate::reduced::Reduced;
use crate::repair::repair;

/// Pivots for one part.
const PIVOTS: u32 = 400;
/// Parts between two choices made from prices: most parts are too alike to give another one. One that is a single choice always gives it.
const PARTS_PER_CHOICE: u32 = 16;
/// Pairs looked at to improve a choice made within a part.
const PAIRS: u32 = 2_000;

pub(crate) struct Found {
    pub best: Choice,
    /// No choice is worth more.
    pub bound: i64,
    pub nodes: u32,
}

/// A part of all choices: those without the banned columns.
struct Part {
    bound: i64,
    number: u32,
    vertex: Vertex,
    /// The columns of the undecided group that go to the one side; the rest of the group goes to the other.
    split: (usize, Vec<usize>),
}

impl PartialEq for Part {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Part {}

impl Ord for Part {
    fn cmp(&self, other: &Self) -> Ordering {
        self.bound.cmp(&other.bound).then(other.number.cmp(&self.number))
    }
}

impl PartialOrd for Part {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

struct Search<'a> {
    reduced: &'a Reduced,
    dual: Dual<'a>,
    best: Choice,
    /// What a part must be able to gain over the best to be looked into.
    least_gain: i64,
    open: BinaryHeap<Part>,
    /// The greatest bound of parts that were not looked into.
    left: i64,
    nodes: u32,
}

/// The best choice, starting from `best`, as far as `limit` parts reach. Gains below `least_gain` are not looked for.
pub(crate) fn search<'a>(reduced: &'a Reduced, dual: Dual<'a>, best: Choice, least_gain: i64, limit: u32) -> Found {
    let left = best.value;
    let least_gain = least_gain.max(1);
    let mut search = Search { reduced, dual, best, least_gain, open: BinaryHeap::new(), left, nodes: 0 };
    search.look(i64::MAX);
    while let Some(part) = search.open.pop() {
        if !search.is_worth(part.bound) || search.nodes >= limit {
            search.left = search.left.max(part.bound);
            // The heap's top has the greatest bound: nothing that follows is better.
            break;
        }
        search.divide(&part);
    }
    let bound = search.left.max(search.best.value);
    Found { best: search.best, bound, nodes: search.nodes }
}

impl Search<'_> {
    fn is_worth(&self, bound: i64) -> bool {
        bound >= self.best.value.saturating_add(self.least_gain)
    }

    fn divide(&mut self, part: &Part) {
        let (group, side) = &part.split;
        for one in [true, false] {
            self.dual.resume(&part.vertex);
            for column in self.reduced.group(*group) {
                if side.contains(&column) == one {
                    self.dual.ban(*group, column);
                }
            }
            self.look(part.bound);
        }
    }

    /// Prices for the part the dual is in, a choice from them, and where to divide it.
    fn look(&mut self, above: i64) {
        self.nodes += 1;
        let outcome = self.dual.descend(PIVOTS);
        let bound = bound(self.reduced, &self.dual.prices, |column| !self.dual.is_banned(column)).min(above);
        if !self.is_worth(bound) {
            self.left = self.left.max(bound);
            return;
        }
        if outcome == Outcome::Infeasible {
            // The bound did not prove it: its parts start afresh.
            self.dual.release();
        }
        let mut choice = self.dual.nearest();
        let split = self.split();
        let wanted = split.is_none() || self.nodes % PARTS_PER_CHOICE == 1;
        if wanted && repair(self.reduced, &mut choice, &self.dual.prices) {
            improve(self.reduced, &mut choice, &self.dual.prices, PAIRS);
            if choice.value > self.best.value {
                self.best = choice;
            }
        }
        // A part that cannot be divided is one choice: it was just held against the best, or does not fit. Nothing of it is left.
        if let Some(split) = split {
            self.open.push(Part { bound, number: self.nodes, vertex: self.dual.vertex(), split });
        }
    }

    /// The group that is most undecided, and its columns of lesser value.
    fn split(&mut self) -> Option<(usize, Vec<usize>)> {
        let undecided = self.dual.undecided();
        let reduced = self.reduced;
        let value = |column: usize| reduced.value[column];
        let evenness = |columns: &[(usize, f64)]| {
            let mean: f64 = columns.iter().map(|&(column, share)| share * value(column) as f64).sum();
            columns.iter().map(|&(column, share)| share * (value(column) as f64 - mean).abs()).sum::<f64>()
        };
        let most = undecided.iter().fold(None, |most: Option<(f64, usize)>, (group, columns)| {
            let even = evenness(columns);
            if most.is_none_or(|(best, _)| even > best) { Some((even, *group)) } else { most }
        });
        let group = match most {
            Some((_, group)) => group,
            // Nothing is undecided, yet the bound is not reached: floats stopped early. Any division will do.
            None => (0..self.reduced.groups())
                .find(|&group| self.reduced.group(group).filter(|&column| !self.dual.is_banned(column)).count() > 1)?,
        };
        let shares: Vec<(usize, f64)> =
            undecided.into_iter().find(|(at, _)| *at == group).map(|(_, columns)| columns).unwrap_or_default();
        let mut columns: Vec<usize> =
            self.reduced.group(group).filter(|&column| !self.dual.is_banned(column)).collect();
        columns.sort_by_key(|&column| (value(column), column));
        let share = |column: usize| shares.iter().find(|(at, _)| *at == column).map_or(0.0, |(_, share)| *share);
        // Up to the first column with a share, or further while less than half is on this side.
        let (mut sum, mut end) = (0.0, 0);
        for (at, &column) in columns.iter().enumerate().take(columns.len() - 1) {
            sum += share(column);
            end = at + 1;
            if sum > 1e-6 {
                break;
            }
        }
        columns.truncate(end);
        Some((group, columns))
    }
}
