//! The integer program behind every plan: one column per group, within every row's capacity, for the greatest sum of
//! values. It knows columns and rows, nothing of jobs or GPUs.
//!
//! Read in this order: [`program`] (what is asked and answered), `draft` and `reduced` (the same without what cannot
//! matter), `dual` (prices and where they are least), `bound` (what they prove, in integers), `choice`, `repair` and
//! `exchange` (a feasible choice and its improvement), `dive` (a choice that follows the prices), `core` (what the bound
//! leaves undecided), `cut` (rows that prices break and choices keep), `branch` (the rest, part by part), `prove` and
//! `solve` (the order of all this). [`milp`] asks somebody else's solver instead. docs/decisions/0006-solver.md says why
//! it is built so.
//!
//! It must never read a clock or draw at random: work is limited by counts, ties go to the start and then to the
//! lowest index, and floats are added in one fixed order, so the same program has the same solution everywhere.

mod bound;
mod branch;
mod choice;
mod core;
mod cut;
mod dive;
mod draft;
mod dual;
mod exchange;
mod matrix;
#[cfg(feature = "milp")]
pub mod milp;
pub mod oracle;
pub mod program;
mod prove;
mod reduced;
mod repair;
mod solve;

#[cfg(test)]
mod laws;

pub use program::{Column, Effort, Program, ProgramError, Solution, Use, Work};
pub use solve::{solve, solve_from};

/// The release of this solver.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
