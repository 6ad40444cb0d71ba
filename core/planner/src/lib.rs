//! The planner: `PlanInput -> Plan`, a pure function.

pub mod input;

pub use input::{Downtime, Freedom, PlanInput, PlanJob, PlanNode, Policy};
