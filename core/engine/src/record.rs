//! The facts the engine keeps: jobs, nodes, allocations, checkpoints, plans, projects, reservations,
//! events. Each is stored as a row and
//! shared by `Arc`, so that readers see a consistent snapshot without a copy.

mod allocation;
mod array;
mod consent;
mod deed;
mod dependency;
mod fallback;
mod history;
mod job;
mod job_state;
mod node;
mod notice;
mod outcome;
mod pin;
mod plan;
mod project;
mod quota;
mod realised;
mod reservation;
mod turn;

pub(crate) use allocation::Shape;
pub use allocation::{Allocation, AllocationPhase, Checkpoint, Displacer, Made, Noticed, Release, ReleaseProof};
pub use array::{Array, Element, Tally};
pub(crate) use consent::closed_until;
pub use consent::{AutoApprove, MoveWindow, NoWindow};
pub use deed::{Deed, Origin, Row};
pub use dependency::{Awaited, Dependency, DependencyStanding};
pub use fallback::Fallback;
pub use history::{Entered, EventRecord, IdempotencyRecord, Transition};
pub use job::{Displacement, Job, LastChange, LastFailure, NotFiniteLoss};
pub(crate) use job::{RESIZE_WINDOW, SUSPICION};
pub use job_state::{JobState, StopCause, Wish};
pub(crate) use node::class_of;
pub use node::{Accusation, Availability, AvailabilityEvent, Node, NodeHealth, NodePolicy, Standing};
pub use notice::{Notice, NoticeId};
pub use outcome::{Around, MoveOutcome, MoveState};
pub use pin::{Pin, Resize};
pub use plan::{Adoption, PlanEvent, PlanRecord, PlanState, PlanSummary, PolicyMode, PolicySettings};
pub(crate) use project::line;
pub use project::{Openness, Project, ProjectAccess, ProjectRules, lineage};
pub use quota::{OverQuota, OwnQuota, QuotaKind, UserLoad, UserQuota, weight};
pub use realised::{Expectation, ModelFamily, Realised};
pub use reservation::Reservation;
pub use turn::Turn;
