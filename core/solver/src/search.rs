//! Exact, on what is left: depth first over groups, each group's columns in order of what they lose against its best
//! at the prices. A branch ends where the bound less its losses is not above the best known value, or where the groups
//! still open cannot make it fit. Limited by a count of nodes.

use crate::choice::Choice;
use crate::reduced::Reduced;

pub(crate) struct Core {
    /// The groups with more than one useful column, hardest first, and their columns with what each loses.
    groups: Vec<(usize, Vec<(f64, usize)>)>,
    /// The least that the groups from here on use of each row.
    least: Vec<Vec<i64>>,
    pub columns: usize,
}

pub(crate) struct Found {
    pub choice: Option<Choice>,
    pub nodes: u32,
    /// Nothing better exists.
    pub complete: bool,
}

impl Core {
    /// What may be part of a choice worth more than `known`, given `bound` at `prices`. `rest` becomes the best of all
    /// others, which is the only column that is left to them. `None`: nothing is worth more.
    pub fn new(reduced: &Reduced, prices: &[f64], bound: i64, known: i64) -> (Self, Vec<u32>) {
        let room = (bound - known) as f64;
        let mut rest = Vec::with_capacity(reduced.groups());
        let mut groups = Vec::new();
        for group in 0..reduced.groups() {
            let worth: Vec<(f64, usize)> =
                reduced.group(group).map(|column| (reduced.reduced_value(column, prices), column)).collect();
            let best = worth.iter().fold((f64::NEG_INFINITY, 0), |best, one| if one.0 > best.0 { *one } else { best });
            rest.push(best.1 as u32);
            // One quantum of slack for what floats round away.
            let mut useful: Vec<(f64, usize)> = worth
                .into_iter()
                .map(|(worth, column)| (best.0 - worth, column))
                .filter(|(loss, _)| *loss < room + 1.0)
                .collect();
            if useful.len() > 1 {
                useful.sort_by(|a, b| a.0.total_cmp(&b.0));
                groups.push((group, useful));
            }
        }
        groups.sort_by(|a, b| b.1[1].0.total_cmp(&a.1[1].0));
        let mut least = vec![vec![0; reduced.rows()]; groups.len() + 1];
        for (at, (_, useful)) in groups.iter().enumerate().rev() {
            let mut row_least = vec![i64::MAX; reduced.rows()];
            let mut count = vec![0; reduced.rows()];
            for &(_, column) in useful {
                for (row, amount) in reduced.uses(column) {
                    row_least[row] = row_least[row].min(amount);
                    count[row] += 1;
                }
            }
            for row in 0..reduced.rows() {
                let missing = if count[row] < useful.len() { 0 } else { i64::MAX };
                least[at][row] = least[at + 1][row] + row_least[row].min(missing);
            }
        }
        let columns = groups.iter().map(|(_, useful)| useful.len()).sum();
        (Self { groups, least, columns }, rest)
    }

    /// The best choice above `known`, as far as `nodes` reach.
    pub fn search(&self, reduced: &Reduced, rest: &[u32], bound: i64, known: i64, nodes: u32) -> Found {
        let mut choice = Choice::new(reduced, rest.to_vec());
        // The open groups are out of the choice until a branch decides them.
        for (group, _) in &self.groups {
            for (row, amount) in reduced.uses(choice.columns[*group] as usize) {
                choice.slack[row] += amount;
            }
            choice.value -= reduced.value[choice.columns[*group] as usize];
        }
        let found = Found { choice: None, nodes: 0, complete: true };
        let mut branch = Branch { core: self, reduced, choice, bound: bound as f64, known, limit: nodes, found };
        branch.descend(0, 0.0);
        branch.found
    }
}

struct Branch<'a> {
    core: &'a Core,
    reduced: &'a Reduced,
    choice: Choice,
    bound: f64,
    known: i64,
    limit: u32,
    found: Found,
}

impl Branch<'_> {
    fn descend(&mut self, depth: usize, lost: f64) {
        if self.choice.slack.iter().zip(&self.core.least[depth]).any(|(slack, least)| slack < least) {
            return;
        }
        let Some((group, useful)) = self.core.groups.get(depth) else {
            if self.choice.value > self.known {
                self.known = self.choice.value;
                self.found.choice = Some(self.choice.clone());
            }
            return;
        };
        for &(loss, column) in useful {
            if self.bound - lost - loss <= self.known as f64 - 1.0 {
                return;
            }
            if self.found.nodes >= self.limit {
                self.found.complete = false;
                return;
            }
            self.found.nodes += 1;
            self.put(*group, column, 1);
            self.descend(depth + 1, lost + loss);
            self.put(*group, column, -1);
        }
    }

    fn put(&mut self, group: usize, column: usize, times: i64) {
        for (row, amount) in self.reduced.uses(column) {
            self.choice.slack[row] -= times * amount;
        }
        self.choice.value += times * self.reduced.value[column];
        self.choice.columns[group] = column as u32;
    }
}
