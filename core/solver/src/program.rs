//! What is asked of the solver and what it answers. A program that reaches the algorithms has been checked here: no
//! sum of its amounts or values can overflow, and its start is feasible.

/// Sums of values, and of amounts within a row, stay below this: so floats hold them exactly and integers never
/// overflow. Choose units accordingly (mebibytes, not bytes).
pub const LIMIT: i64 = 1 << 53;

/// What a column takes of a row; a negative amount gives to it. A floor Σ a·x ≥ F is the row Σ −a·x ≤ −F.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Use {
    pub row: u32,
    pub amount: i64,
}

/// One of the ways to serve a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// In quanta; may be negative.
    pub value: i64,
    /// Each row at most once.
    pub uses: Vec<Use>,
}

/// Choose one column per group, within every row's capacity, for the greatest sum of values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    pub groups: Vec<Vec<Column>>,
    pub capacity: Vec<i64>,
    /// A feasible choice: what is answered at worst, and what wins ties.
    pub start: Vec<usize>,
}

/// How much work a solution is worth. Counts only: the same program and effort give the same bytes on every machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Effort {
    /// The relative gap at which to stop; 0 asks for proof.
    pub tolerance: f64,
    /// Pivots of the prices, each time they are looked for.
    pub dual_steps: u32,
    /// Pairs of changes looked at, each time a choice is improved.
    pub exchanges: u32,
    /// Parts that the exact search may look at.
    pub nodes: u32,
}

impl Default for Effort {
    fn default() -> Self {
        Self { tolerance: 1e-3, dual_steps: 600, exchanges: 10_000, nodes: 6_000 }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Solution {
    /// A column for every group.
    pub choice: Vec<usize>,
    pub objective: i64,
    /// No choice is worth more.
    pub bound: i64,
    /// Quanta per unit of each row, never negative.
    pub prices: Vec<f64>,
    pub work: Work,
}

impl Solution {
    /// How far the objective may be from the best, as a share of the bound.
    #[must_use]
    pub fn gap(&self) -> f64 {
        (self.bound - self.objective) as f64 / (self.bound.unsigned_abs().max(1)) as f64
    }
}

/// What was done, in counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Rows and columns that mattered.
    pub rows: u32,
    pub columns: u32,
    pub dual_steps: u32,
    /// Columns that the bound proved useless.
    pub fixed_columns: u32,
    /// Columns left to the exact search.
    pub core_columns: u32,
    /// Rows that were added because prices broke them.
    pub cuts: u32,
    pub nodes: u32,
    /// The objective equals the bound.
    pub proven: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProgramError {
    #[error("group {group} has no column")]
    EmptyGroup { group: usize },
    #[error("column {column} of group {group} uses row {row}, of which there are {rows}")]
    UnknownRow { group: usize, column: usize, row: u32, rows: usize },
    #[error("column {column} of group {group} uses row {row} twice")]
    RepeatedRow { group: usize, column: usize, row: u32 },
    #[error("values may add up to {sum}, beyond {LIMIT}")]
    ValuesTooLarge { sum: u128 },
    #[error("amounts of row {row} may add up to {sum}, beyond {LIMIT}")]
    AmountsTooLarge { row: usize, sum: u128 },
    #[error("the start names {given} columns for {groups} groups")]
    StartLength { given: usize, groups: usize },
    #[error("the start names column {column} of group {group}, which has {columns}")]
    StartColumn { group: usize, column: usize, columns: usize },
    #[error("the start uses {used} of row {row}, which holds {capacity}")]
    StartInfeasible { row: usize, used: i64, capacity: i64 },
    #[error("{given} prices for {rows} rows")]
    PriceCount { given: usize, rows: usize },
}

impl Program {
    /// Whether the algorithms may be let loose on it.
    ///
    /// # Errors
    /// The first thing that is wrong, in the order of the groups.
    pub fn check(&self) -> Result<(), ProgramError> {
        self.check_columns()?;
        self.check_sums()?;
        self.check_start()
    }

    /// What `choice` is worth. The choice must name a column of every group.
    #[must_use]
    pub fn value(&self, choice: &[usize]) -> i64 {
        self.groups.iter().zip(choice).map(|(columns, &column)| columns[column].value).sum()
    }

    /// What `choice` uses of every row.
    #[must_use]
    pub fn used(&self, choice: &[usize]) -> Vec<i64> {
        let mut used = vec![0; self.capacity.len()];
        for (columns, &column) in self.groups.iter().zip(choice) {
            for part in &columns[column].uses {
                used[part.row as usize] += part.amount;
            }
        }
        used
    }

    /// Whether `choice` is within every row's capacity.
    #[must_use]
    pub fn fits(&self, choice: &[usize]) -> bool {
        self.used(choice).iter().zip(&self.capacity).all(|(used, capacity)| used <= capacity)
    }

    fn check_columns(&self) -> Result<(), ProgramError> {
        let rows = self.capacity.len();
        let mut seen_in = vec![0usize; rows];
        let mut number = 0;
        for (group, columns) in self.groups.iter().enumerate() {
            if columns.is_empty() {
                return Err(ProgramError::EmptyGroup { group });
            }
            for (column, Column { uses, .. }) in columns.iter().enumerate() {
                number += 1;
                for &Use { row, .. } in uses {
                    let Some(seen) = seen_in.get_mut(row as usize) else {
                        return Err(ProgramError::UnknownRow { group, column, row, rows });
                    };
                    if *seen == number {
                        return Err(ProgramError::RepeatedRow { group, column, row });
                    }
                    *seen = number;
                }
            }
        }
        Ok(())
    }

    fn check_sums(&self) -> Result<(), ProgramError> {
        let mut values = 0u128;
        let mut amounts = vec![0u128; self.capacity.len()];
        let mut largest = vec![0u64; self.capacity.len()];
        for columns in &self.groups {
            values += columns.iter().map(|column| u128::from(column.value.unsigned_abs())).max().unwrap_or(0);
            let uses = || columns.iter().flat_map(|column| &column.uses);
            for part in uses() {
                let most = &mut largest[part.row as usize];
                *most = (*most).max(part.amount.unsigned_abs());
            }
            for part in uses() {
                amounts[part.row as usize] += u128::from(std::mem::take(&mut largest[part.row as usize]));
            }
        }
        let limit = LIMIT.unsigned_abs().into();
        if values > limit {
            return Err(ProgramError::ValuesTooLarge { sum: values });
        }
        match amounts.iter().position(|&sum| sum > limit) {
            Some(row) => Err(ProgramError::AmountsTooLarge { row, sum: amounts[row] }),
            None => Ok(()),
        }
    }

    fn check_start(&self) -> Result<(), ProgramError> {
        if self.start.len() != self.groups.len() {
            return Err(ProgramError::StartLength { given: self.start.len(), groups: self.groups.len() });
        }
        for (group, (columns, &column)) in self.groups.iter().zip(&self.start).enumerate() {
            if column >= columns.len() {
                return Err(ProgramError::StartColumn { group, column, columns: columns.len() });
            }
        }
        let used = self.used(&self.start);
        match used.iter().zip(&self.capacity).position(|(used, capacity)| used > capacity) {
            Some(row) => Err(ProgramError::StartInfeasible { row, used: used[row], capacity: self.capacity[row] }),
            None => Ok(()),
        }
    }
}
