//! One step from vertex to vertex: what keeps the bound from being least, which way prices mend it, and how far.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use super::{Dual, TINY, Tie};
use crate::reduced::HIGHEST_PRICE;

/// Changes of slope that are too small to hold a vertex.
const FLAT: f64 = 1e-9;

/// What keeps a vertex from being the least.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fault {
    /// A parked row over capacity, or (downwards) below it at a price.
    Row { row: usize, up: bool },
    /// A tie whose share is negative.
    Tie { at: usize },
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

impl Dual<'_> {
    pub(super) fn worst_fault(&self, shares: &[f64]) -> Option<Fault> {
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

    /// One pivot. `false` where prices may rise for ever: nothing fits.
    pub(super) fn mend(&mut self, fault: Fault, shares: &[f64]) -> bool {
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
            let Some(event) = events.pop() else {
                // Far enough for the bound to show that nothing fits: it is what proves, not this direction.
                let far = 4.0 * self.reduced.total / slope.abs().max(TINY);
                self.step(&direction, far);
                return false;
            };
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
        self.step(&direction, reached);
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

    fn step(&mut self, direction: &[f64], length: f64) {
        for (price, step) in self.prices.iter_mut().zip(direction) {
            *price = (*price + length * step).clamp(0.0, HIGHEST_PRICE);
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
