//! What the bound leaves undecided, as a program of its own: a column that loses more against its group's best than
//! the gap is wide is part of no better choice (reduced-cost fixing), and a group with one column left is decided.

use crate::cut::Cut;
use crate::program::{Column, LIMIT, Program, Use};
use crate::reduced::Reduced;

pub(crate) struct Core {
    pub program: Program,
    /// For each group of the core, the group and the columns of the reduced program.
    origin: Vec<(usize, Vec<u32>)>,
    /// What became of each column of the reduced program.
    place: Vec<Place>,
    /// What the decided groups have.
    decided: Vec<u32>,
    pub columns: usize,
}

#[derive(Clone, Copy)]
enum Place {
    Out,
    Decided,
    In { group: usize, column: usize },
}

impl Core {
    /// The columns that lose no more than `room` at `prices`, and those of `best`, a feasible choice.
    pub fn new(reduced: &Reduced, prices: &[f64], room: f64, best: &[u32]) -> Self {
        let mut core = Self {
            program: Program { groups: Vec::new(), capacity: reduced.capacity.clone(), start: Vec::new() },
            origin: Vec::new(),
            place: vec![Place::Out; reduced.columns()],
            decided: best.to_vec(),
            columns: 0,
        };
        let mut worth = Vec::new();
        for (group, &own) in best.iter().enumerate() {
            let range = reduced.group(group);
            worth.clear();
            worth.extend(range.clone().map(|column| reduced.reduced_value(column, prices)));
            let most = worth.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let useful = range.zip(&worth).filter(|&(column, worth)| most - worth <= room || column as u32 == own);
            let useful: Vec<u32> = useful.map(|(column, _)| column as u32).collect();
            if useful.len() == 1 {
                core.decide(reduced, own as usize);
            } else {
                core.admit(reduced, group, useful, own);
            }
        }
        core
    }

    /// Without a row that every choice keeps anyway.
    pub fn forget(&mut self, row: usize) {
        self.program.capacity[row] = 2 * LIMIT;
    }

    /// With a row that every choice keeps.
    pub fn add(&mut self, cut: Cut) {
        let row = self.program.capacity.len() as u32;
        let mut room = cut.capacity;
        for (column, amount) in cut.uses {
            match self.place[column as usize] {
                Place::Out => {}
                Place::Decided => room -= amount,
                Place::In { group, column } => self.program.groups[group][column].uses.push(Use { row, amount }),
            }
        }
        self.program.capacity.push(room);
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
        self.place[column] = Place::Decided;
        for (row, amount) in reduced.uses(column) {
            self.program.capacity[row] -= amount;
        }
    }

    fn admit(&mut self, reduced: &Reduced, group: usize, columns: Vec<u32>, own: u32) {
        for (at, &column) in columns.iter().enumerate() {
            self.place[column as usize] = Place::In { group: self.origin.len(), column: at };
        }
        self.program.start.push(columns.iter().position(|column| *column == own).expect("its own is among them"));
        self.program.groups.push(columns.iter().map(|&column| given(reduced, column as usize)).collect());
        self.columns += columns.len();
        self.origin.push((group, columns));
    }
}

fn given(reduced: &Reduced, column: usize) -> Column {
    let uses = reduced.uses(column).map(|(row, amount)| Use { row: row as u32, amount }).collect();
    Column { value: reduced.value[column], uses }
}
