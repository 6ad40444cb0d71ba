//! The simulated shell: a virtual clock that drives the real engine, planner and node ledgers through faults.
//!
//! It stands where `scheduler` and `agent` stand in life, commits changes before it sends commands as they do, and
//! checks every promise after every event. It never reads a clock and draws all chance from the scenario's seed, so
//! that a seed names a whole history.
//!
//! Read [`scenario`] and [`faults`] (what is simulated), `world` (the loop), `scheduler`, `network`, `node` and `shell`
//! (the parts of a live cluster), `gang` and `training` (workers that follow a linear truth), `hidden` (workers that follow the truth of emulated fleets), `strike`
//! (how faults happen), `check` and `account` (the promises), [`watcher`] (who measures).

mod account;
mod check;
mod client;
mod clock;
pub mod deed;
pub mod faults;
mod gang;
pub mod hidden;
mod item;
mod network;
mod node;
pub mod scenario;
mod scheduler;
mod shell;
mod shrink;
mod store;
mod strike;
pub mod trace;
mod training;
pub mod watcher;
mod world;

pub use account::{Activity, GpuTime};
pub use faults::{Chance, FaultKind, Faults};
pub use hidden::HiddenWorld;
pub use scenario::{NodeShape, Oversight, Scenario, SimJob};
pub use shrink::shrink;
pub use watcher::{Unwatched, Watcher};
pub use world::{Failure, Report, simulate, simulate_watched};
