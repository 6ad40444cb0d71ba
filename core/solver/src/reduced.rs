//! The program without what cannot matter: rows that cannot bind, rows that say the same as another, columns that fit
//! into no feasible choice or that another column beats, groups that have no choice. Every step is exact: the best
//! choice of the reduced program is a best choice of the whole.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::program::{Column, LIMIT, Program};

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
        draft.build()
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
}

/// The program on its way to being reduced.
struct Draft<'a> {
    program: &'a Program,
    /// The columns that are left of each group.
    kept: Vec<Vec<u32>>,
    /// The rows that may bind.
    live: Vec<bool>,
}

impl<'a> Draft<'a> {
    fn new(program: &'a Program) -> Self {
        let in_order = |(columns, &start): (&Vec<Column>, &usize)| {
            std::iter::once(start)
                .chain((0..columns.len()).filter(|&column| column != start))
                .map(|column| column as u32)
                .collect()
        };
        let kept = program.groups.iter().zip(&program.start).map(in_order).collect();
        Self { program, kept, live: vec![true; program.capacity.len()] }
    }

    fn column(&self, group: usize, column: u32) -> &'a Column {
        &self.program.groups[group][column as usize]
    }

    /// The least and the greatest use of each live row that the group allows; rows it does not touch are left out.
    fn span(&self, group: usize, span: &mut Span) {
        span.clear();
        for &column in &self.kept[group] {
            for part in &self.column(group, column).uses {
                if self.live[part.row as usize] {
                    span.add(part.row as usize, part.amount);
                }
            }
        }
        span.finish(self.kept[group].len());
    }

    /// Drops rows that cannot bind and columns that no feasible choice contains, until neither helps the other.
    fn tighten(&mut self) {
        let rows = self.live.len();
        let mut span = Span::new(rows);
        for _ in 0..4 {
            let (mut least, mut most) = (vec![0i64; rows], vec![0i64; rows]);
            for group in 0..self.kept.len() {
                self.span(group, &mut span);
                for &row in &span.touched {
                    least[row] += span.least[row];
                    most[row] += span.most[row];
                }
            }
            for ((live, most), capacity) in self.live.iter_mut().zip(&most).zip(&self.program.capacity) {
                *live &= most > capacity;
            }
            if !self.drop_impossible(&least, &mut span) {
                return;
            }
        }
    }

    fn drop_impossible(&mut self, least: &[i64], span: &mut Span) -> bool {
        let mut dropped = false;
        for group in 0..self.kept.len() {
            self.span(group, span);
            let fits = |row: usize, amount: i64| {
                !self.live[row] || least[row] - span.least[row] + amount <= self.program.capacity[row]
            };
            let columns = &self.program.groups[group];
            // A row that a column does not use may still be one that it must give to.
            let possible = |&column: &u32| {
                let uses = &columns[column as usize].uses;
                uses.iter().all(|part| fits(part.row as usize, part.amount))
                    && span
                        .touched
                        .iter()
                        .filter(|&&row| span.least[row] < 0)
                        .all(|&row| uses.iter().any(|part| part.row as usize == row) || fits(row, 0))
            };
            let before = self.kept[group].len();
            let left: Vec<u32> = self.kept[group].iter().copied().filter(possible).collect();
            dropped |= left.len() < before;
            self.kept[group] = left;
        }
        dropped
    }

    /// Drops columns that another one of the group with the same rows beats in value at no greater use. The start
    /// always stays: it is what is answered at worst.
    fn drop_dominated(&mut self) {
        for group in 0..self.kept.len() {
            let mut alike: BTreeMap<Vec<u32>, Vec<usize>> = BTreeMap::new();
            let columns: Vec<(i64, Vec<(u32, i64)>)> = self.kept[group]
                .iter()
                .map(|&column| {
                    let column = self.column(group, column);
                    let live = column.uses.iter().filter(|part| self.live[part.row as usize] && part.amount != 0);
                    let mut uses: Vec<_> = live.map(|part| (part.row, part.amount)).collect();
                    uses.sort_unstable();
                    (column.value, uses)
                })
                .collect();
            for (at, (_, uses)) in columns.iter().enumerate() {
                alike.entry(uses.iter().map(|(row, _)| *row).collect()).or_default().push(at);
            }
            let beaten = |&at: &usize, others: &[usize]| {
                others.iter().any(|&other| {
                    let ((value, uses), (rival, need)) = (&columns[at], &columns[other]);
                    let no_worse = rival >= value && need.iter().zip(uses).all(|(need, has)| need.1 <= has.1);
                    other != at && no_worse && (rival > value || need != uses || other < at)
                })
            };
            let mut left: Vec<usize> = alike
                .values()
                .flat_map(|others| others.iter().copied().filter(|at| *at == 0 || !beaten(at, others)))
                .collect();
            left.sort_unstable();
            self.kept[group] = left.into_iter().map(|at| self.kept[group][at]).collect();
        }
    }

    fn build(self) -> Reduced {
        let mut reduced = Reduced { first: vec![0], use_first: vec![0], ..Reduced::default() };
        reduced.origin.choice.clone_from(&self.program.start);
        // No sum of amounts is beyond the limit, so neither need a capacity be.
        let mut room: Vec<i64> = self.program.capacity.iter().map(|&capacity| capacity.min(2 * LIMIT)).collect();
        for (group, kept) in self.kept.iter().enumerate() {
            if let [only] = kept[..] {
                reduced.origin.choice[group] = only as usize;
                for part in &self.column(group, only).uses {
                    room[part.row as usize] -= part.amount;
                }
                continue;
            }
            for &column in kept {
                let given = self.column(group, column);
                reduced.value.push(given.value);
                reduced.origin.columns.push(column);
                for part in given.uses.iter().filter(|part| self.live[part.row as usize] && part.amount != 0) {
                    reduced.use_row.push(part.row);
                    reduced.use_amount.push(part.amount);
                }
                reduced.use_first.push(reduced.use_row.len() as u32);
            }
            reduced.origin.groups.push(group as u32);
            reduced.first.push(reduced.value.len() as u32);
        }
        let sum: f64 = reduced.value.iter().map(|value| value.unsigned_abs() as f64).sum();
        reduced.spread = sum / reduced.columns().max(1) as f64 * 1e-9 / f64::from(1 << 24);
        reduced.merge_rows(&room);
        reduced
    }
}

/// The least and the greatest amount of each row within one group.
struct Span {
    least: Vec<i64>,
    most: Vec<i64>,
    count: Vec<usize>,
    touched: Vec<usize>,
}

impl Span {
    fn new(rows: usize) -> Self {
        Self { least: vec![0; rows], most: vec![0; rows], count: vec![0; rows], touched: Vec::new() }
    }

    fn clear(&mut self) {
        for row in self.touched.drain(..) {
            (self.least[row], self.most[row], self.count[row]) = (0, 0, 0);
        }
    }

    fn add(&mut self, row: usize, amount: i64) {
        if self.count[row] == 0 {
            self.touched.push(row);
            (self.least[row], self.most[row]) = (amount, amount);
        }
        self.least[row] = self.least[row].min(amount);
        self.most[row] = self.most[row].max(amount);
        self.count[row] += 1;
    }

    /// Columns that do not name a row use nothing of it.
    fn finish(&mut self, columns: usize) {
        for &row in &self.touched {
            if self.count[row] < columns {
                self.least[row] = self.least[row].min(0);
                self.most[row] = self.most[row].max(0);
            }
        }
    }
}

impl Reduced {
    /// Numbers the rows that are still used, divided by their greatest common divisor; of rows that say the same the
    /// tightest binds and the others are dropped.
    fn merge_rows(&mut self, room: &[i64]) {
        let mut by_row: BTreeMap<u32, Vec<(u32, i64)>> = BTreeMap::new();
        for column in 0..self.columns() {
            for at in self.use_range(column) {
                by_row.entry(self.use_row[at]).or_default().push((column as u32, self.use_amount[at]));
            }
        }
        let mut alike = BTreeMap::new();
        for (row, mut uses) in by_row {
            let divisor = uses.iter().fold(0, |divisor, part| greatest_common_divisor(divisor, part.1));
            uses.iter_mut().for_each(|part| part.1 /= divisor);
            let rows: &mut Vec<(i64, u32, i64)> = alike.entry(uses).or_default();
            rows.push((room[row as usize].div_euclid(divisor), row, divisor));
        }
        let mut merged: Vec<_> = alike.into_values().collect();
        merged.iter_mut().for_each(|rows| rows.sort_unstable());
        merged.sort_unstable_by_key(|rows| rows[0].1);
        let mut number = BTreeMap::new();
        for rows in merged {
            let (capacity, row, divisor) = rows[0];
            number.insert(row, (self.capacity.len() as u32, divisor));
            self.capacity.push(capacity);
            self.origin.rows.push(rows.into_iter().map(|(_, row, divisor)| (row, divisor)).collect());
        }
        self.renumber_uses(&number);
        self.scale_rows();
    }

    fn renumber_uses(&mut self, number: &BTreeMap<u32, (u32, i64)>) {
        let (mut rows, mut amounts, mut first) = (Vec::new(), Vec::new(), vec![0]);
        let mut uses = Vec::new();
        for column in 0..self.columns() {
            uses.clear();
            for at in self.use_range(column) {
                if let Some(&(row, divisor)) = number.get(&self.use_row[at]) {
                    uses.push((row, self.use_amount[at] / divisor));
                }
            }
            uses.sort_unstable();
            rows.extend(uses.iter().map(|part| part.0));
            amounts.extend(uses.iter().map(|part| part.1));
            first.push(rows.len() as u32);
        }
        (self.use_row, self.use_amount, self.use_first) = (rows, amounts, first);
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

fn greatest_common_divisor(a: i64, b: i64) -> i64 {
    let (mut a, mut b) = (a.abs(), b.abs());
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}
