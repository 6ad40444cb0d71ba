//! The simulated shell: a virtual clock that drives the real engine, planner and node ledgers through faults.
//!
//! It stands where `scheduler` and `agent` stand in life, commits changes before it sends commands as they do, and
//! checks every promise after every event. It never reads a clock and draws all chance from the scenario's seed, so
//! that a seed names a whole history.

mod check;
mod clock;
mod gang;
mod node;
pub mod scenario;
mod scheduler;
mod store;
mod world;

pub use scenario::{Faults, Scenario, SimJob};
pub use world::{Failure, Report, simulate};
