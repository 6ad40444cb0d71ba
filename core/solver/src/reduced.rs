//! The program without what cannot matter: rows that cannot bind, rows that say the same as another, columns that fit
//! into no feasible choice or that another column beats, groups that have no choice. Every step is exact: the best
//! choice of the reduced program is a best choice of the whole.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::draft::Draft;
use crate::program::{LIMIT, Program};

/// A price per share beyond which no row needs to be priced: one share would cost more than all values together.
pub(crate) const HIGHEST_PRICE: f64 = (2 * LIMIT) as f64;

/// Arrays instead of nested lists. Columns are numbered through all groups; within a group the start comes first and
/// the others follow in their given order, so that the first of equals is the right one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reduced {
    /// Where each group's columns begin, and the end.
    first: Vec<u32>,
    pub value: Vec<i64>,
    /// Where each column's uses begin, and the end.
    use_first: Vec<u32>,
    /// Ordered within a column.
    use_row: Vec<u32>,
    use_amount: Vec<i64>,
    /// The amount over the row's `scale`, for arithmetic with prices.
    use_share: Vec<f64>,
    pub capacity: Vec<i64>,
    /// A typical amount of each row.
    pub scale: Vec<f64>,
    /// Far less than values differ by: what keeps equal columns apart where floats compare them.
    pub spread: f64,
    origin: Origin,
}

/// Where the reduced program's parts come from.
#[derive(Clone, Debug, Default)]
struct Origin {
    groups: Vec<u32>,
    columns: Vec<u32>,
    /// For each row the given rows that it stands for, and what their amounts are divided by. The first one binds.
    rows: Vec<Vec<(u32, i64)>>,
    /// The program's choice, right where a group has only one column left.
    choice: Vec<usize>,
}

impl Reduced {
    pub fn new(program: &Program) -> Self {
        let mut draft = Draft::new(program);
        draft.tighten();
        draft.drop_dominated();
        draft.tighten();
        let mut reduced = Self { first: vec![0], use_first: vec![0], ..Self::default() };
        reduced.origin.choice.clone_from(&program.start);
        let room = reduced.take_groups(&draft);
        let sum: f64 = reduced.value.iter().map(|value| value.unsigned_abs() as f64).sum();
        reduced.spread = sum / reduced.columns().max(1) as f64 * 1e-9 / f64::from(1 << 24);
        reduced.merge_rows(&room);
        reduced
    }

    pub fn groups(&self) -> usize {
        self.first.len() - 1
    }

    pub fn rows(&self) -> usize {
        self.capacity.len()
    }

    pub fn columns(&self) -> usize {
        self.value.len()
    }

    pub fn group(&self, group: usize) -> Range<usize> {
        self.first[group] as usize..self.first[group + 1] as usize
    }

    /// The column of each group that the start names.
    pub fn start(&self) -> Vec<u32> {
        self.first[..self.groups()].to_vec()
    }

    pub fn uses(&self, column: usize) -> impl Iterator<Item = (usize, i64)> {
        let range = self.use_range(column);
        self.use_row[range.clone()].iter().zip(&self.use_amount[range]).map(|(&row, &amount)| (row as usize, amount))
    }

    pub fn shares(&self, column: usize) -> impl Iterator<Item = (usize, f64)> {
        let range = self.use_range(column);
        self.use_row[range.clone()].iter().zip(&self.use_share[range]).map(|(&row, &share)| (row as usize, share))
    }

    /// A column's value less what its uses cost at prices per share.
    pub fn reduced_value(&self, column: usize, prices: &[f64]) -> f64 {
        let cost: f64 = self.shares(column).map(|(row, share)| prices[row] * share).sum();
        self.value[column] as f64 - cost
    }

    /// The choice in the terms of the given program.
    pub fn restore(&self, choice: &[u32]) -> Vec<usize> {
        let mut restored = self.origin.choice.clone();
        for (&group, &column) in self.origin.groups.iter().zip(choice) {
            restored[group as usize] = self.origin.columns[column as usize] as usize;
        }
        restored
    }

    /// Prices per share as prices per unit of the `rows` given rows.
    pub fn restore_prices(&self, prices: &[f64], rows: usize) -> Vec<f64> {
        let mut restored = vec![0.0; rows];
        for (row, origins) in self.origin.rows.iter().enumerate() {
            let (given, divisor) = origins[0];
            restored[given as usize] = prices[row] / self.scale[row] / divisor as f64;
        }
        restored
    }

    /// Prices per unit of the given rows as prices per share. What is no price counts as zero.
    pub fn adopt_prices(&self, given: &[f64]) -> Vec<f64> {
        let price = |row: &(u32, i64)| {
            let price = given[row.0 as usize];
            if price.is_finite() { price.max(0.0) * row.1 as f64 } else { 0.0 }
        };
        let rows = self.origin.rows.iter().zip(&self.scale);
        rows.map(|(origins, scale)| (origins.iter().map(price).sum::<f64>() * scale).min(HIGHEST_PRICE)).collect()
    }

    /// Which rows stand for one of the given rows that are marked.
    pub fn inherit(&self, marked: impl Fn(usize) -> bool) -> Vec<bool> {
        self.origin.rows.iter().map(|rows| rows.iter().any(|(given, _)| marked(*given as usize))).collect()
    }

    /// Prices per share as prices per unit of this program's own rows.
    pub fn per_unit(&self, prices: &[f64]) -> Vec<f64> {
        prices.iter().zip(&self.scale).map(|(price, scale)| price / scale).collect()
    }

    fn use_range(&self, column: usize) -> Range<usize> {
        self.use_first[column] as usize..self.use_first[column + 1] as usize
    }

    /// Takes the groups that have a choice left, with rows still numbered as given, and returns what the others leave
    /// of every row's capacity.
    fn take_groups(&mut self, draft: &Draft) -> Vec<i64> {
        // No sum of amounts is beyond the limit, so neither need a capacity be.
        let mut room: Vec<i64> = draft.capacity.iter().map(|&capacity| capacity.min(2 * LIMIT)).collect();
        for group in 0..draft.groups() {
            let kept = || draft.group(group).filter(|&column| draft.kept[column]);
            let mut columns = kept();
            if let (Some(only), None) = (columns.next(), columns.next()) {
                self.origin.choice[group] = draft.number[only] as usize;
                draft.uses(only).for_each(|(row, amount)| room[row] -= amount);
                continue;
            }
            for column in kept() {
                self.value.push(draft.value[column]);
                self.origin.columns.push(draft.number[column]);
                for (row, amount) in draft.uses(column).filter(|&(row, amount)| draft.live[row] && amount != 0) {
                    self.use_row.push(row as u32);
                    self.use_amount.push(amount);
                }
                self.use_first.push(self.use_row.len() as u32);
            }
            self.origin.groups.push(group as u32);
            self.first.push(self.value.len() as u32);
        }
        room
    }

    /// Numbers the rows that are still used, divided by their greatest common divisor; of rows that say the same the
    /// tightest binds and the others are dropped.
    fn merge_rows(&mut self, room: &[i64]) {
        let by_row = ByRow::new(self, room.len());
        // Rows that say the same have the same print; whether they do is looked at entry by entry.
        let mut alike: BTreeMap<u64, Vec<Alike>> = BTreeMap::new();
        for (row, &capacity) in room.iter().enumerate().filter(|(row, _)| !by_row.entries(*row).is_empty()) {
            let entries = by_row.entries(row);
            let divisor = entries.iter().fold(0, |divisor, part| greatest_common_divisor(divisor, part.1));
            let one = (capacity.div_euclid(divisor), row as u32, divisor);
            let same = |other: &&mut Alike| {
                let (_, first, by) = other[0];
                let others = by_row.entries(first as usize);
                others.len() == entries.len()
                    && others.iter().zip(entries).all(|(a, b)| a.0 == b.0 && a.1 / by == b.1 / divisor)
            };
            let classes = alike.entry(print(entries, divisor)).or_default();
            match classes.iter_mut().find(same) {
                Some(class) => class.push(one),
                None => classes.push(vec![one]),
            }
        }
        let mut merged: Vec<Alike> = alike.into_values().flatten().collect();
        merged.iter_mut().for_each(|rows| rows.sort_unstable());
        merged.sort_unstable_by_key(|rows| rows[0].1);
        let mut number = vec![None; room.len()];
        for rows in merged {
            let (capacity, row, divisor) = rows[0];
            number[row as usize] = Some((self.capacity.len() as u32, divisor));
            self.capacity.push(capacity);
            self.origin.rows.push(rows.into_iter().map(|(_, row, divisor)| (row, divisor)).collect());
        }
        self.renumber_uses(&number);
        self.scale_rows();
    }

    fn renumber_uses(&mut self, number: &[Option<(u32, i64)>]) {
        let mut end = 0;
        for column in 0..self.columns() {
            let range = self.use_range(column);
            self.use_first[column] = end as u32;
            let begin = end;
            for at in range {
                if let Some((row, divisor)) = number[self.use_row[at] as usize] {
                    self.use_row[end] = row;
                    self.use_amount[end] = self.use_amount[at] / divisor;
                    end += 1;
                }
            }
            if !self.use_row[begin..end].is_sorted() {
                let mut uses: Vec<(u32, i64)> =
                    (begin..end).map(|at| (self.use_row[at], self.use_amount[at])).collect();
                uses.sort_unstable();
                for (at, (row, amount)) in (begin..end).zip(uses) {
                    (self.use_row[at], self.use_amount[at]) = (row, amount);
                }
            }
        }
        if let Some(last) = self.use_first.last_mut() {
            *last = end as u32;
        }
        self.use_row.truncate(end);
        self.use_amount.truncate(end);
    }

    fn scale_rows(&mut self) {
        let (mut squares, mut count) = (vec![0.0; self.rows()], vec![0.0; self.rows()]);
        for (&row, &amount) in self.use_row.iter().zip(&self.use_amount) {
            squares[row as usize] += amount as f64 * amount as f64;
            count[row as usize] += 1.0;
        }
        self.scale = squares.iter().zip(&count).map(|(square, count)| libm::sqrt(square / count)).collect();
        let shares = self.use_row.iter().zip(&self.use_amount);
        self.use_share = shares.map(|(&row, &amount)| amount as f64 / self.scale[row as usize]).collect();
    }
}

/// Rows that say the same: capacity after division, row, divisor.
type Alike = Vec<(i64, u32, i64)>;

/// The uses of every row, by column.
struct ByRow {
    first: Vec<usize>,
    entries: Vec<(u32, i64)>,
}

impl ByRow {
    fn new(reduced: &Reduced, rows: usize) -> Self {
        let mut first = vec![0; rows + 1];
        reduced.use_row.iter().for_each(|&row| first[row as usize + 1] += 1);
        (0..rows).for_each(|row| first[row + 1] += first[row]);
        let mut next = first.clone();
        let mut entries = vec![(0, 0); reduced.use_row.len()];
        for column in 0..reduced.columns() {
            for (row, amount) in reduced.uses(column) {
                entries[next[row]] = (column as u32, amount);
                next[row] += 1;
            }
        }
        Self { first, entries }
    }

    fn entries(&self, row: usize) -> &[(u32, i64)] {
        &self.entries[self.first[row]..self.first[row + 1]]
    }
}

fn print(entries: &[(u32, i64)], divisor: i64) -> u64 {
    entries.iter().fold(0u64, |print, &(column, amount)| {
        (print ^ u64::from(column) ^ ((amount / divisor) as u64).rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    })
}

fn greatest_common_divisor(a: i64, b: i64) -> i64 {
    let (mut a, mut b) = (a.abs(), b.abs());
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}
