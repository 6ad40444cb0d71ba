//! Somebody else's solver for the same program, through `good_lp`: an exact backend for whoever wants an answer that
//! rests on none of our cuts, and the peer that tests hold ours against. It shares the program with ours, and the prices,
//! which backends do not tell and which explanations need.
//!
//! A backend computes in floats. What it answers is rounded to a choice and evaluated again in integers, and counts only
//! if it fits. That nothing is better than its choice is its word: [`Solution::bound`] takes it where the search ended, with
//! room for its tolerances, unless our own prices prove less. Work is limited by counts, as everywhere here: by nodes,
//! and by the size of the program, because nobody counts what a backend does at one node. A backend may look at a clock
//! to tell how long it took; nothing it answers depends on that.

#[cfg(feature = "highs")]
mod highs;
mod microlp;

#[cfg(test)]
mod tests;

use std::panic::{AssertUnwindSafe, catch_unwind};

use good_lp::variable::UnsolvedProblem;
use good_lp::{Expression, IntoAffineExpression as _, ProblemVariables, SolverModel, Variable, variable};

use crate::program::{Effort, Program, ProgramError, Solution, Work};
use crate::solve::prove;

/// The largest program that is handed over: beyond it the backend could take minutes. docs/decisions/0006-solver.md has the
/// measurements behind it.
pub const MOST_COLUMNS: usize = 2_000;
pub const MOST_ROWS: usize = 250;

/// What a backend may leave out of account, as a share of the objective: microlp drops what gains less than 10⁻⁹ of it.
const RELATIVE_TOLERANCE: f64 = 2e-9;
/// The same for each group, in quanta: reduced values are looked at to 10⁻⁷ or better.
const GROUP_TOLERANCE: f64 = 1e-6;

/// Who solves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    Microlp,
    #[cfg(feature = "highs")]
    Highs,
}

impl Backend {
    /// What programs are solved with in this build.
    pub const BUILT_IN: Self = {
        #[cfg(feature = "highs")]
        let of = Self::Highs;
        #[cfg(not(feature = "highs"))]
        let of = Self::Microlp;
        of
    };

    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Microlp => "microlp",
            #[cfg(feature = "highs")]
            Self::Highs => "highs",
        }
    }

    /// The release that is built in.
    #[must_use]
    pub fn version(self) -> &'static str {
        match self {
            Self::Microlp => microlp::VERSION,
            #[cfg(feature = "highs")]
            Self::Highs => highs::VERSION,
        }
    }

    fn ask(self, program: &Program, effort: &Effort) -> Result<Answer, String> {
        match self {
            Self::Microlp => microlp::solve(program, effort),
            #[cfg(feature = "highs")]
            Self::Highs => highs::solve(program, effort),
        }
    }
}

/// Why a backend's answer is not taken, or was not asked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MilpError {
    #[error(transparent)]
    Program(#[from] ProgramError),
    #[error(
        "{columns} columns within {rows} rows are more than solver: milp takes ({MOST_COLUMNS} within {MOST_ROWS}); use \
         solver: headway"
    )]
    TooLarge { columns: usize, rows: usize },
    #[error("{backend} has no answer: {reason}")]
    NoAnswer { backend: &'static str, reason: String },
    #[error("{backend} chose nothing for group {group}")]
    Undecided { backend: &'static str, group: usize },
    #[error("{backend}'s choice uses {used} of row {row}, which holds {capacity}")]
    Misfit { backend: &'static str, row: usize, used: i64, capacity: i64 },
    #[error("{backend} says that nothing is worth more than {bound}, and the start is worth {start}")]
    Contradicted { backend: &'static str, bound: i64, start: i64 },
}

/// What a backend says.
struct Answer {
    /// Of every column, group by group: one where it is chosen.
    values: Vec<f64>,
    /// Whether it ended because nothing is better by more than the tolerance, not because its nodes were used up.
    ended: bool,
    nodes: u32,
}

/// As [`solve_from`](crate::solve_from), by a backend. It is the start itself unless another choice is worth more.
///
/// # Errors
/// Where the program is malformed or too large, and where the backend fails or its answer does not hold.
pub fn solve_from(backend: Backend, program: &Program, effort: &Effort, prices: &[f64]) -> Result<Solution, MilpError> {
    let (columns, rows) = size(program);
    if columns > MOST_COLUMNS || rows > MOST_ROWS {
        return Err(MilpError::TooLarge { columns, rows });
    }
    solve_any_size(backend, program, effort, prices)
}

fn size(program: &Program) -> (usize, usize) {
    (program.groups.iter().map(Vec::len).sum(), program.capacity.len())
}

/// The same of a program of any size, for whoever can wait: the backend may take hours over one node.
///
/// # Errors
/// As [`solve_from`], but that nothing is too large.
pub fn solve_any_size(
    backend: Backend,
    program: &Program,
    effort: &Effort,
    prices: &[f64],
) -> Result<Solution, MilpError> {
    let known = prove(program, effort, prices)?;
    let answer = guarded(|| backend.ask(program, effort));
    let answer = answer.map_err(|reason| MilpError::NoAnswer { backend: backend.name(), reason })?;
    accept(backend.name(), program, effort, known, &answer)
}

/// What an answer is worth, in integers, and whether it holds. `known` are prices and the bound that they prove.
fn accept(
    backend: &'static str,
    program: &Program,
    effort: &Effort,
    (prices, proven): (Vec<f64>, i64),
    answer: &Answer,
) -> Result<Solution, MilpError> {
    let mut choice = rounded(program, &answer.values).map_err(|group| MilpError::Undecided { backend, group })?;
    let used = program.used(&choice);
    if let Some(row) = (0..used.len()).find(|&row| used[row] > program.capacity[row]) {
        return Err(MilpError::Misfit { backend, row, used: used[row], capacity: program.capacity[row] });
    }
    let (mut objective, start) = (program.value(&choice), program.value(&program.start));
    let mut bound = proven;
    if answer.ended {
        bound = bound.min(objective + allowance(program, effort, objective));
        if start > bound {
            return Err(MilpError::Contradicted { backend, bound, start });
        }
    }
    if objective <= start {
        (choice, objective) = (program.start.clone(), start);
    }
    let bound = bound.max(objective);
    let (columns, rows) = size(program);
    let work = Work {
        rows: rows as u32,
        columns: columns as u32,
        nodes: answer.nodes,
        proven: bound == objective,
        ..Work::default()
    };
    Ok(Solution { choice, objective, bound, prices, work })
}

/// By how much a choice may exceed one with which the backend has ended.
fn allowance(program: &Program, effort: &Effort, objective: i64) -> i64 {
    let share = effort.tolerance.max(0.0) + RELATIVE_TOLERANCE;
    (share * objective.unsigned_abs() as f64 + GROUP_TOLERANCE * program.groups.len() as f64) as i64
}

/// The column of each group that is chosen, or the first group of which none is.
fn rounded(program: &Program, values: &[f64]) -> Result<Vec<usize>, usize> {
    let mut rest = values;
    let mut choice = Vec::with_capacity(program.groups.len());
    for (group, columns) in program.groups.iter().enumerate() {
        let (of, others) = rest.split_at_checked(columns.len()).ok_or(group)?;
        choice.push(of.iter().position(|value| *value > 0.5).ok_or(group)?);
        rest = others;
    }
    Ok(choice)
}

/// A backend asserts what it believes of its numbers. One that is wrong about them has no answer; it does not end us.
fn guarded<T>(ask: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(ask)).unwrap_or_else(|_| Err("it panicked".into()))
}

/// The program as `good_lp` states it: a variable per column, each 0 or 1, one of each group.
fn stated<M: SolverModel>(program: &Program, using: impl FnOnce(UnsolvedProblem) -> M) -> (M, Vec<Vec<Variable>>) {
    let mut variables = ProblemVariables::new();
    let columns: Vec<Vec<Variable>> = program
        .groups
        .iter()
        .map(|columns| columns.iter().map(|_| variables.add(variable().binary())).collect())
        .collect();
    let mut worth = Expression::default();
    let mut rows = vec![Expression::default(); program.capacity.len()];
    for (of, variables) in program.groups.iter().zip(&columns) {
        for (column, &variable) in of.iter().zip(variables) {
            worth.add_mul(column.value as f64, variable);
            for part in column.uses.iter().filter(|part| part.amount != 0) {
                rows[part.row as usize].add_mul(part.amount as f64, variable);
            }
        }
    }
    let mut model = using(variables.maximise(worth));
    for variables in &columns {
        model.add_constraint(variables.iter().sum::<Expression>().eq(1));
    }
    // The start fits, so a row that nobody uses holds at least nothing and says nothing.
    for (row, &capacity) in
        rows.into_iter().zip(&program.capacity).filter(|(row, _)| row.linear_coefficients().next().is_some())
    {
        model.add_constraint(row.leq(capacity as f64));
    }
    (model, columns)
}
