//! What the bound leaves undecided, as a program of its own: a column that loses more against its group's best than
//! the gap is wide is part of no better choice (reduced-cost fixing), and a group with one column left is decided.

use crate::program::{Column, Program, Use};
use crate::reduced::Reduced;

pub(crate) struct Core {
    pub program: Program,
    /// For each group of the core, the group and the columns of the reduced program.
    origin: Vec<(usize, Vec<u32>)>,
    /// What the decided groups have.
    decided: Vec<u32>,
    /// What the decided groups are worth.
    pub value: i64,
    pub columns: usize,
}

impl Core {
    /// The columns that lose less than `room` at `prices`, and those of `best`, a feasible choice.
    pub fn new(reduced: &Reduced, prices: &[f64], room: f64, best: &[u32]) -> Self {
        let mut core = Self {
            program: Program { groups: Vec::new(), capacity: reduced.capacity.clone(), start: Vec::new() },
            origin: Vec::new(),
            decided: best.to_vec(),
            value: 0,
            columns: 0,
        };
        for group in 0..reduced.groups() {
            let range = reduced.group(group);
            let worth: Vec<f64> = range.clone().map(|column| reduced.reduced_value(column, prices)).collect();
            let most = worth.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let own = best[group];
            let useful = range.zip(&worth).filter(|&(column, worth)| most - worth <= room || column as u32 == own);
            let useful: Vec<u32> = useful.map(|(column, _)| column as u32).collect();
            if useful.len() == 1 {
                core.decide(reduced, useful[0] as usize);
            } else {
                core.program.start.push(useful.iter().position(|column| *column == own).expect("its own was kept"));
                core.program.groups.push(useful.iter().map(|&column| given(reduced, column as usize)).collect());
                core.columns += useful.len();
                core.origin.push((group, useful));
            }
        }
        core
    }

    /// The core's choice as one of the reduced program.
    pub fn restore(&self, choice: &[usize]) -> Vec<u32> {
        let mut restored = self.decided.clone();
        for ((group, columns), &column) in self.origin.iter().zip(choice) {
            restored[*group] = columns[column];
        }
        restored
    }

    fn decide(&mut self, reduced: &Reduced, column: usize) {
        self.value += reduced.value[column];
        for (row, amount) in reduced.uses(column) {
            self.program.capacity[row] -= amount;
        }
    }
}

fn given(reduced: &Reduced, column: usize) -> Column {
    let uses = reduced.uses(column).map(|(row, amount)| Use { row: row as u32, amount }).collect();
    Column { value: reduced.value[column], uses }
}
