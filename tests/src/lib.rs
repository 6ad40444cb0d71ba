//! Support for end-to-end and crash tests: a whole cluster of real processes on this machine, and patience with a
//! deadline. Used by `tests/tests/*.rs` alone.

pub mod callers;
pub mod cluster;
pub mod complaint;
pub mod databases;
pub mod history;
pub mod job;
pub mod judge;
pub mod leading;
pub mod link;
pub mod network;
pub mod process;
pub mod submitters;
pub mod verdict;
pub mod wait;
pub mod workers;

pub use cluster::Cluster;
pub use complaint::Expected;
pub use wait::{soon, until};
pub use workers::Worker;
