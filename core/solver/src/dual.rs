//! Prices for rows. At any prices the best column of every group on its own, plus the price of all capacity, bounds
//! what a choice can be worth (Lagrangian relaxation); here are found the prices where that bound is least.
//!
//! The bound is convex and piecewise linear in the prices, and there are few of them. So this is a dual simplex that
//! never looks at groups as constraints: a vertex is held by as many *ties* (a group undecided between two columns) as
//! there are *balanced* rows (used exactly up to capacity); all other rows are *parked* at a price. A pivot takes one
//! row that is over capacity, or one tie whose share is negative, moves prices along the edge that mends it, past all
//! groups that change their mind, and stops where the bound is least (the long step of Fourer 1994; groups as in
//! generalised upper bounding, Dantzig and Van Slyke 1967). Parked prices may be any, so former prices are a start.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use crate::choice::Choice;
use crate::matrix::Factors;
use crate::reduced::{HIGHEST_PRICE, Reduced};

/// Shares and fractions closer to zero are zero.
const TINY: f64 = 1e-7;
/// Changes of slope that are too small to hold a vertex.
const FLAT: f64 = 1e-9;
/// Pivots between two fresh computations of all prices.
const REFRESH: u32 = 40;

#[derive(Clone)]
pub(crate) struct Dual<'a> {
    reduced: &'a Reduced,
    /// Values in floats, apart by so little that no two columns are alike by chance; −∞ where a column is banned.
    value: Vec<f64>,
    /// Quanta per share of each row.
    pub prices: Vec<f64>,
    /// Each group's best column at the prices, with the slack they leave.
    pub keys: Choice,
    balanced: Vec<usize>,
    /// The place of a row among the balanced.
    place: Vec<Option<usize>>,
    ties: Vec<Tie>,
    tied: Vec<u32>,
    factors: Factors,
    /// Each column's reduced value at the prices.
    worth: Vec<f64>,
    /// How fast each column's reduced value falls along the present direction.
    fall: Vec<f64>,
    banned: Vec<u32>,
    pub pivots: u32,
}

/// A vertex without what follows from it: what a search keeps of a part to come back to.
#[derive(Clone)]
pub(crate) struct Vertex {
    prices: Vec<f64>,
    keys: Choice,
    balanced: Vec<usize>,
    ties: Vec<Tie>,
    banned: Vec<u32>,
}

/// A group undecided between its key and this column.
#[derive(Clone, Copy, Debug)]
struct Tie {
    group: usize,
    column: usize,
}

/// What keeps a vertex from being the least.
#[derive(Clone, Copy, Debug)]
enum Fault {
    /// A parked row over capacity, or (downwards) below it at a price.
    Row { row: usize, up: bool },
    /// A tie whose share is negative.
    Tie { at: usize },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    /// The bound cannot be less.
    Least,
    /// The count of pivots ran out, or floats could not go on.
    Stopped,
    /// No choice fits.
    Infeasible,
}

/// Where along a direction something happens.
#[derive(Clone, Copy, PartialEq)]
struct Event {
    at: f64,
    what: What,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    /// A price reaches zero.
    Free { row: usize },
    /// A group's best column becomes another.
    Change { group: usize, to: usize },
}

impl Eq for Event {}

impl Ord for Event {
    /// The earliest is the greatest, as the heap wants it.
    fn cmp(&self, other: &Self) -> Ordering {
        other.at.total_cmp(&self.at).then_with(|| other.what.cmp(&self.what))
    }
}

impl PartialOrd for Event {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<'a> Dual<'a> {
    /// All rows parked at `prices`.
    pub fn new(reduced: &'a Reduced, prices: Vec<f64>) -> Self {
        let mut dual = Self {
            value: values(reduced),
            keys: Choice::new(reduced, reduced.start()),
            balanced: Vec::new(),
            place: vec![None; reduced.rows()],
            ties: Vec::new(),
            tied: vec![0; reduced.groups()],
            factors: Factors::default(),
            worth: vec![0.0; reduced.columns()],
            fall: vec![0.0; reduced.columns()],
            banned: Vec::new(),
            pivots: 0,
            reduced,
            prices,
        };
        dual.weigh();
        for group in 0..reduced.groups() {
            let best = dual.best_of(group);
            if best as u32 != dual.keys.columns[group] {
                dual.keys.set(reduced, group, best);
            }
        }
        dual
    }

    pub fn vertex(&self) -> Vertex {
        Vertex {
            prices: self.prices.clone(),
            keys: self.keys.clone(),
            balanced: self.balanced.clone(),
            ties: self.ties.clone(),
            banned: self.banned.clone(),
        }
    }

    /// Goes back to a vertex, bans included.
    pub fn resume(&mut self, vertex: &Vertex) {
        for column in std::mem::take(&mut self.banned) {
            self.value[column as usize] = value(self.reduced, column as usize);
        }
        for &column in &vertex.banned {
            self.value[column as usize] = f64::NEG_INFINITY;
        }
        self.banned.clone_from(&vertex.banned);
        self.prices.clone_from(&vertex.prices);
        self.keys.clone_from(&vertex.keys);
        self.balanced.clone_from(&vertex.balanced);
        self.ties.clone_from(&vertex.ties);
        self.place.fill(None);
        for (place, &row) in self.balanced.iter().enumerate() {
            self.place[row] = Some(place);
        }
        self.tied.fill(0);
        for tie in &self.ties {
            self.tied[tie.group] += 1;
        }
        self.weigh();
    }

    /// The rows that are used exactly up to capacity.
    pub fn balanced_rows(&self) -> &[usize] {
        &self.balanced
    }

    /// For each tie that is truly undecided, what to multiply the balanced rows (in shares, relative to the keys) with
    /// so that of all tied columns only its own remains.
    pub fn multipliers(&mut self) -> Vec<Vec<(usize, f64)>> {
        if !self.factor() {
            return Vec::new();
        }
        let shares = self.shares();
        let undecided = (0..self.ties.len()).filter(|&at| shares[at] > 1e-4 && shares[at] < 1.0 - 1e-4);
        let of_tie = |at: usize| {
            let mut unit = vec![0.0; self.ties.len()];
            unit[at] = 1.0;
            self.balanced.iter().copied().zip(self.factors.solve(&unit)).collect()
        };
        undecided.map(of_tie).collect()
    }

    pub fn is_banned(&self, column: usize) -> bool {
        self.value[column] == f64::NEG_INFINITY
    }

    /// Pivots until the bound is least or `pivots` are spent.
    pub fn descend(&mut self, pivots: u32) -> Outcome {
        let end = self.pivots + pivots;
        while self.pivots < end {
            if !self.factor() {
                return Outcome::Stopped;
            }
            if self.pivots % REFRESH == REFRESH - 1 {
                self.refresh();
            }
            let shares = self.shares();
            if self.swap_negative_key(&shares) {
                continue;
            }
            let Some(fault) = self.worst_fault(&shares) else {
                self.refresh();
                return Outcome::Least;
            };
            self.pivots += 1;
            if !self.mend(fault, &shares) {
                return Outcome::Infeasible;
            }
        }
        Outcome::Stopped
    }

    /// The groups that are undecided, with the columns they are undecided between and the share of each.
    pub fn undecided(&mut self) -> Vec<(usize, Vec<(usize, f64)>)> {
        if !self.factor() {
            return Vec::new();
        }
        let shares = self.shares();
        let mut found: Vec<(usize, Vec<(usize, f64)>)> = Vec::new();
        for (tie, &share) in self.ties.iter().zip(&shares) {
            let at = found.iter().position(|(group, _)| *group == tie.group).unwrap_or_else(|| {
                found.push((tie.group, vec![(self.keys.columns[tie.group] as usize, 1.0)]));
                found.len() - 1
            });
            found[at].1[0].1 -= share;
            found[at].1.push((tie.column, share));
        }
        found.retain(|(_, columns)| columns.iter().filter(|(_, share)| *share > 1e-6).count() > 1);
        found
    }

    /// Each group's column with the greatest share.
    pub fn nearest(&mut self) -> Choice {
        let mut choice = self.keys.clone();
        if self.factor() {
            let shares = self.shares();
            for (tie, _) in self.ties.iter().zip(&shares).filter(|(_, share)| **share > 0.5) {
                choice.set(self.reduced, tie.group, tie.column);
            }
        }
        choice
    }

    /// Takes a column out of its group, which must keep another. The vertex stays as far as it can: without the
    /// column's tie one balanced row is parked where it is.
    pub fn ban(&mut self, group: usize, column: usize) {
        if self.is_banned(column) {
            return;
        }
        self.banned.push(column as u32);
        self.value[column] = f64::NEG_INFINITY;
        self.worth[column] = f64::NEG_INFINITY;
        if self.keys.columns[group] as usize == column {
            match self.ties.iter_mut().find(|tie| tie.group == group) {
                Some(tie) => {
                    let next = std::mem::replace(&mut tie.column, column);
                    self.keys.set(self.reduced, group, next);
                }
                None => {
                    let next = self.best_of(group);
                    self.keys.set(self.reduced, group, next);
                }
            }
        }
        if let Some(at) = self.ties.iter().position(|tie| tie.column == column) {
            self.drop_tie(at);
        }
    }

    fn drop_tie(&mut self, at: usize) {
        let mut place = 0;
        if self.factor() {
            let mut unit = vec![0.0; self.ties.len()];
            unit[at] = 1.0;
            let weight = self.factors.solve(&unit);
            place = (0..weight.len()).fold(0, |best, i| if weight[i].abs() > weight[best].abs() { i } else { best });
        }
        let tie = self.ties.remove(at);
        self.tied[tie.group] -= 1;
        self.park(self.balanced[place]);
    }

    fn best_of(&self, group: usize) -> usize {
        let range = self.reduced.group(group);
        let first = range.start;
        range.fold(first, |best, column| if self.worth[column] > self.worth[best] { column } else { best })
    }

    fn weigh(&mut self) {
        for column in 0..self.reduced.columns() {
            let cost: f64 = self.reduced.shares(column).map(|(row, share)| self.prices[row] * share).sum();
            self.worth[column] = self.value[column] - cost;
        }
    }

    /// What a tie's column uses more than the key of its group, of every row.
    fn difference(&self, tie: Tie, mut each: impl FnMut(usize, f64)) {
        self.reduced.shares(tie.column).for_each(|(row, share)| each(row, share));
        self.reduced.shares(self.keys.columns[tie.group] as usize).for_each(|(row, share)| each(row, -share));
    }

    /// Factors the system that holds the vertex: a line per tie, a column per balanced row.
    fn factor(&mut self) -> bool {
        let size = self.balanced.len();
        let mut cells = vec![0.0; size * size];
        for (line, &tie) in self.ties.iter().enumerate() {
            self.difference(tie, |row, share| {
                if let Some(place) = self.place[row] {
                    cells[line * size + place] += share;
                }
            });
        }
        self.factors.set(size, &cells)
    }

    /// Prices of the balanced rows afresh from the ties, and all reduced values.
    fn refresh(&mut self) {
        let right: Vec<f64> = self
            .ties
            .iter()
            .map(|&tie| {
                let mut gain = self.value[tie.column] - self.value[self.keys.columns[tie.group] as usize];
                self.difference(tie, |row, share| {
                    if self.place[row].is_none() {
                        gain -= self.prices[row] * share;
                    }
                });
                gain
            })
            .collect();
        for (&row, price) in self.balanced.iter().zip(self.factors.solve(&right)) {
            self.prices[row] = price.clamp(0.0, HIGHEST_PRICE);
        }
        self.weigh();
    }

    fn slack(&self, row: usize) -> f64 {
        self.keys.slack[row] as f64 / self.reduced.scale[row]
    }

    /// The share of each tie's column in its group.
    fn shares(&self) -> Vec<f64> {
        let right: Vec<f64> = self.balanced.iter().map(|&row| self.slack(row)).collect();
        self.factors.solve_transposed(&right)
    }

    /// Where a key's own share is negative, another column of its group becomes the key.
    fn swap_negative_key(&mut self, shares: &[f64]) -> bool {
        let rest = |group: usize| {
            let of_group = self.ties.iter().zip(shares).filter(|(tie, _)| tie.group == group);
            1.0 - of_group.map(|(_, share)| share).sum::<f64>()
        };
        let Some(at) = (0..self.ties.len()).find(|&at| shares[at] > TINY && rest(self.ties[at].group) < -TINY) else {
            return false;
        };
        let Tie { group, column } = self.ties[at];
        self.ties[at].column = self.keys.columns[group] as usize;
        self.keys.set(self.reduced, group, column);
        true
    }

    fn worst_fault(&self, shares: &[f64]) -> Option<Fault> {
        let mut slack: Vec<f64> = (0..self.reduced.rows()).map(|row| self.slack(row)).collect();
        for (&tie, share) in self.ties.iter().zip(shares) {
            self.difference(tie, |row, more| slack[row] -= share * more);
        }
        let mut worst = (TINY, None);
        let mut look = |size: f64, fault: Fault| {
            if size > worst.0 {
                worst = (size, Some(fault));
            }
        };
        for row in (0..slack.len()).filter(|&row| self.place[row].is_none()) {
            look(-slack[row], Fault::Row { row, up: true });
            if self.prices[row] > 0.0 {
                look(slack[row], Fault::Row { row, up: false });
            }
        }
        for (at, share) in shares.iter().enumerate() {
            look(-share, Fault::Tie { at });
        }
        worst.1
    }

    /// Which way all prices move, so that the fault is mended and all other ties stay ties.
    fn direction(&self, fault: Fault) -> Vec<f64> {
        let mut direction = vec![0.0; self.reduced.rows()];
        let mut right = vec![0.0; self.ties.len()];
        match fault {
            Fault::Tie { at } => right[at] = 1.0,
            Fault::Row { row, up } => {
                direction[row] = if up { 1.0 } else { -1.0 };
                for (line, &tie) in self.ties.iter().enumerate() {
                    self.difference(tie, |other, share| {
                        if other == row {
                            right[line] -= direction[row] * share;
                        }
                    });
                }
            }
        }
        for (&row, step) in self.balanced.iter().zip(self.factors.solve(&right)) {
            direction[row] = if step.abs() < 1e-12 { 0.0 } else { step };
        }
        direction
    }

    /// One pivot. `false` where prices may rise for ever: nothing fits.
    fn mend(&mut self, fault: Fault, shares: &[f64]) -> bool {
        let direction = self.direction(fault);
        if let Fault::Tie { at } = fault {
            let tie = self.ties.remove(at);
            self.tied[tie.group] -= 1;
        }
        let mut slope: f64 = match fault {
            Fault::Tie { at } => shares[at],
            Fault::Row { .. } => (0..direction.len()).map(|row| direction[row] * self.slack(row)).sum(),
        };
        let mut events = self.events(&direction);
        let mut reached = 0.0f64;
        let stop = loop {
            let Some(event) = events.pop() else { return false };
            reached = reached.max(event.at);
            let What::Change { group, to } = event.what else { break event };
            let from = self.keys.columns[group] as usize;
            slope += self.fall[from] - self.fall[to];
            if self.tied[group] > 0 || slope >= 0.0 {
                break event;
            }
            self.keys.set(self.reduced, group, to);
            events.extend(self.next_change(group, f64::INFINITY));
        };
        for (price, step) in self.prices.iter_mut().zip(&direction) {
            *price = (*price + reached * step).clamp(0.0, HIGHEST_PRICE);
        }
        for (worth, fall) in self.worth.iter_mut().zip(&self.fall) {
            *worth -= reached * fall;
        }
        if let Fault::Row { row, .. } = fault {
            self.place[row] = Some(self.balanced.len());
            self.balanced.push(row);
        }
        match stop.what {
            What::Free { row } => {
                self.prices[row] = 0.0;
                self.park(row);
            }
            What::Change { group, to } => {
                self.ties.push(Tie { group, column: to });
                self.tied[group] += 1;
            }
        }
        true
    }

    fn park(&mut self, row: usize) {
        if let Some(place) = self.place[row].take() {
            self.balanced.remove(place);
            for (place, &row) in self.balanced.iter().enumerate().skip(place) {
                self.place[row] = Some(place);
            }
        }
    }

    /// What happens first to every price and group along a direction.
    fn events(&mut self, direction: &[f64]) -> BinaryHeap<Event> {
        let mut last = f64::INFINITY;
        let mut events = Vec::new();
        for (row, &step) in direction.iter().enumerate().filter(|(_, step)| **step < -FLAT) {
            let at = self.prices[row] / -step;
            if at < last {
                last = at;
                events.push(Event { at, what: What::Free { row } });
            }
        }
        for group in 0..self.reduced.groups() {
            for column in self.reduced.group(group) {
                self.fall[column] = self.reduced.shares(column).map(|(row, share)| direction[row] * share).sum();
            }
            events.extend(self.next_change(group, last));
        }
        BinaryHeap::from(events)
    }

    /// Where the key of a group stops being its best column, if before `last`.
    fn next_change(&self, group: usize, last: f64) -> Option<Event> {
        let key = self.keys.columns[group] as usize;
        let (worth, fall) = (self.worth[key], self.fall[key]);
        let mut first: Option<(f64, usize)> = None;
        for column in self.reduced.group(group) {
            let slower = fall - self.fall[column];
            if slower <= FLAT || (self.tied[group] > 0 && self.ties.iter().any(|tie| tie.column == column)) {
                continue;
            }
            let behind = (worth - self.worth[column]).max(0.0);
            let before = first.map_or(last, |(at, _)| at);
            // Of columns that tie here, the one that falls slowest is best afterwards.
            if behind < before * slower
                || (behind == before * slower && first.is_some_and(|(_, best)| self.fall[column] < self.fall[best]))
            {
                first = Some((behind / slower, column));
            }
        }
        first.map(|(at, to)| Event { at, what: What::Change { group, to } })
    }
}

/// Values in floats, apart by so little that no two columns are alike by chance.
fn values(reduced: &Reduced) -> Vec<f64> {
    (0..reduced.columns()).map(|column| value(reduced, column)).collect()
}

fn value(reduced: &Reduced, column: usize) -> f64 {
    let apart = (column as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    reduced.value[column] as f64 + reduced.spread * apart as f64
}
