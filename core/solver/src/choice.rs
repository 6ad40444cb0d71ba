//! One column per group with what it uses and is worth. It knows what fits, not what is good.

use crate::reduced::Reduced;

#[derive(Clone, Debug)]
pub(crate) struct Choice {
    pub columns: Vec<u32>,
    /// Capacity less use of every row; negative where the choice does not fit.
    pub slack: Vec<i64>,
    pub value: i64,
}

impl Choice {
    pub fn new(reduced: &Reduced, columns: Vec<u32>) -> Self {
        let mut choice = Self { columns: Vec::new(), slack: reduced.capacity.clone(), value: 0 };
        for &column in &columns {
            choice.add(reduced, column as usize, 1);
        }
        choice.columns = columns;
        choice
    }

    pub fn fits(&self) -> bool {
        self.slack.iter().all(|&slack| slack >= 0)
    }

    pub fn set(&mut self, reduced: &Reduced, group: usize, column: usize) {
        self.add(reduced, self.columns[group] as usize, -1);
        self.add(reduced, column, 1);
        self.columns[group] = column as u32;
    }

    fn add(&mut self, reduced: &Reduced, column: usize, times: i64) {
        for (row, amount) in reduced.uses(column) {
            self.slack[row] -= times * amount;
        }
        self.value += times * reduced.value[column];
    }

    /// Whether the difference of `change` still fits. Rows it does not touch may be over capacity.
    pub fn has_room(&self, change: &[(usize, i64)]) -> bool {
        change.iter().all(|&(row, more)| more <= self.slack[row])
    }
}

/// What a group uses more, or less, of each row with the column `to` instead of `from`. Uses are ordered by row.
pub(crate) fn change(reduced: &Reduced, from: usize, to: usize, into: &mut Vec<(usize, i64)>) {
    into.clear();
    let (mut old, mut new) = (reduced.uses(from).peekable(), reduced.uses(to).peekable());
    loop {
        let part = match (old.peek(), new.peek()) {
            (Some(&(row, amount)), Some(&(other, wanted))) if row == other => {
                old.next();
                new.next();
                (row, wanted - amount)
            }
            (Some(&(row, amount)), Some(&(other, _))) if row < other => {
                old.next();
                (row, -amount)
            }
            (Some(&(row, amount)), None) => {
                old.next();
                (row, -amount)
            }
            (_, Some(&part)) => {
                new.next();
                part
            }
            (None, None) => return,
        };
        if part.1 != 0 {
            into.push(part);
        }
    }
}
