//! The facts the engine keeps: jobs, nodes, allocations, checkpoints, plans, projects, reservations,
//! events. Each is stored as a row and
//! shared by `Arc`, so that readers see a consistent snapshot without a copy.

mod allocation;
mod history;
mod job;
mod node;
mod plan;
mod project;
mod reservation;

pub(crate) use allocation::Shape;
pub use allocation::{Allocation, AllocationPhase, Checkpoint, Displacer, Release, ReleaseProof};
pub use history::{Entered, EventRecord, IdempotencyRecord, Transition};
pub use job::{Displacement, Job, JobState, LastChange, LastFailure, Pin, StopCause, Turn, Wish};
pub(crate) use job::{RESIZE_WINDOW, SUSPICION};
pub use node::{Availability, AvailabilityEvent, Node, NodeHealth, NodePolicy, Standing};
pub use plan::{PlanEvent, PlanRecord, PlanState, PlanSummary, PolicyMode, PolicySettings};
pub use project::{Project, ProjectRules, lineage};
pub use reservation::Reservation;
