//! A program on its way to being reduced: which rows may bind, which columns may matter. It only ever marks; what is
//! left is taken by `reduced`.

use std::ops::Range;

use crate::program::Program;

/// Rounds of dropping rows and columns by turns.
const ROUNDS: u32 = 4;

pub(crate) struct Draft<'a> {
    pub capacity: &'a [i64],
    first: Vec<u32>,
    /// Each column's place among those given for its group. The start comes first.
    pub number: Vec<u32>,
    pub value: Vec<i64>,
    use_first: Vec<u32>,
    uses: Vec<(u32, i64)>,
    pub kept: Vec<bool>,
    /// The rows that may bind.
    pub live: Vec<bool>,
}

impl<'a> Draft<'a> {
    pub fn new(program: &'a Program) -> Self {
        let mut draft = Self {
            capacity: &program.capacity,
            first: vec![0],
            number: Vec::new(),
            value: Vec::new(),
            use_first: vec![0],
            uses: Vec::new(),
            kept: Vec::new(),
            live: vec![true; program.capacity.len()],
        };
        for (columns, &start) in program.groups.iter().zip(&program.start) {
            for number in std::iter::once(start).chain((0..columns.len()).filter(|&number| number != start)) {
                let column = &columns[number];
                draft.number.push(number as u32);
                draft.value.push(column.value);
                let begin = draft.uses.len();
                draft.uses.extend(column.uses.iter().map(|part| (part.row, part.amount)));
                draft.uses[begin..].sort_unstable();
                draft.use_first.push(draft.uses.len() as u32);
            }
            draft.first.push(draft.value.len() as u32);
        }
        draft.kept = vec![true; draft.value.len()];
        draft
    }

    pub fn groups(&self) -> usize {
        self.first.len() - 1
    }

    pub fn group(&self, group: usize) -> Range<usize> {
        self.first[group] as usize..self.first[group + 1] as usize
    }

    pub fn uses(&self, column: usize) -> impl Iterator<Item = (usize, i64)> {
        self.parts(column).iter().map(|&(row, amount)| (row as usize, amount))
    }

    /// Drops rows that cannot bind and columns that no feasible choice contains, until neither helps the other.
    pub fn tighten(&mut self) {
        let rows = self.live.len();
        let mut span = Span::new(rows);
        for _ in 0..ROUNDS {
            let mut least = vec![0i64; rows];
            let mut most = vec![0i64; rows];
            let mut swing = vec![0i64; rows];
            for group in 0..self.groups() {
                self.span(group, &self.live, &mut span);
                for &row in &span.touched {
                    least[row] += span.least[row];
                    most[row] += span.most[row];
                    swing[row] = swing[row].max(span.most[row] - span.least[row]);
                }
            }
            let mut critical = vec![false; rows];
            for row in 0..rows {
                self.live[row] &= most[row] > self.capacity[row];
                // Otherwise every column fits when all other groups use their least.
                critical[row] = self.live[row] && least[row] + swing[row] > self.capacity[row];
            }
            if !critical.contains(&true) || !self.drop_impossible(&least, &critical, &mut span) {
                return;
            }
        }
    }

    fn drop_impossible(&mut self, least: &[i64], critical: &[bool], span: &mut Span) -> bool {
        let mut dropped = false;
        for group in 0..self.groups() {
            self.span(group, critical, span);
            if span.touched.is_empty() {
                continue;
            }
            for column in self.group(group).filter(|&column| self.kept[column]).collect::<Vec<_>>() {
                let parts = self.parts(column);
                // A row that a column does not use may still be one that it must give to.
                let possible = span.touched.iter().all(|&row| {
                    let at = parts.binary_search_by_key(&(row as u32), |part| part.0);
                    let amount = at.map_or(0, |at| parts[at].1);
                    least[row] - span.least[row] + amount <= self.capacity[row]
                });
                self.kept[column] = possible;
                dropped |= !possible;
            }
        }
        dropped
    }

    /// Drops columns that another one of the group with the same rows beats in value at no greater use. The start
    /// always stays: it is what is answered at worst.
    pub fn drop_dominated(&mut self) {
        let mut columns = Vec::new();
        let mut prints = Vec::new();
        for group in 0..self.groups() {
            let start = self.first[group] as usize;
            columns.clear();
            columns.extend(self.group(group).filter(|&column| self.kept[column]));
            prints.clear();
            prints.extend(columns.iter().map(|&column| self.print(column)));
            for (at, &column) in columns.iter().enumerate().filter(|(_, column)| **column != start) {
                let alike = (0..columns.len()).filter(|&other| prints[other] == prints[at] && other != at);
                let beaten = alike.map(|other| columns[other]).any(|other| self.is_beaten(column, other));
                self.kept[column] = !beaten;
            }
        }
    }

    /// Whether a column with the same rows makes `column` superfluous. Of equals the first stays.
    fn is_beaten(&self, column: usize, other: usize) -> bool {
        let (value, rival) = (self.value[column], self.value[other]);
        if rival < value || (rival == value && !self.kept[other]) {
            return false;
        }
        let (mut less, mut uses, mut needs) = (rival > value, self.binding(column), self.binding(other));
        loop {
            match (uses.next(), needs.next()) {
                (None, None) => return less || other < column,
                (Some((row, has)), Some((same, need))) if row == same && need <= has => less |= need < has,
                _ => return false,
            }
        }
    }

    fn binding(&self, column: usize) -> impl Iterator<Item = (usize, i64)> {
        self.uses(column).filter(|&(row, amount)| self.live[row] && amount != 0)
    }

    fn print(&self, column: usize) -> u64 {
        self.binding(column)
            .fold(0, |print, (row, _)| (print ^ row as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(7))
    }

    fn parts(&self, column: usize) -> &[(u32, i64)] {
        &self.uses[self.use_first[column] as usize..self.use_first[column + 1] as usize]
    }

    /// The least and the greatest use of each row of `rows` that the group allows; rows it does not touch are left out.
    fn span(&self, group: usize, rows: &[bool], span: &mut Span) {
        span.clear();
        let mut columns = 0;
        for column in self.group(group).filter(|&column| self.kept[column]) {
            columns += 1;
            self.uses(column).filter(|part| rows[part.0]).for_each(|(row, amount)| span.add(row, amount));
        }
        span.finish(columns);
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
