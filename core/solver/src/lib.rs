//! The integer program behind every plan: one column per group, within every row's capacity, for the greatest sum of
//! values. It knows columns and rows, nothing of jobs or GPUs.
//!
//! Read in this order: [`program`] (what is asked and answered), `reduced` (the same without what cannot matter),
//! `dual` (prices and a bound), `bound` (that bound in integers), `choice` (one column per group, and what it uses),
//! `repair` and `exchange` (a feasible choice and its improvement), `core` and `branch` (exact, on what is left), `solve`.
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
