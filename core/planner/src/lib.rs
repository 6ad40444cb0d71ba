//! The planner: `PlanInput -> Plan`, a pure function without memory between rounds.
//!
//! Read in this order: [`input`] (all a round may look at), `submitted` (what a job is before anything is seen of it), `check` (what it must
//! promise), `sound` (whom it leaves out), `reservation` with `ending` (nodes that are reserved, and who may use them until then), `ahead` (curves made before the round), `cluster` (nodes by class), `curves` (goodput per shape),
//! `candidate` and `maker` (what each job could get), `value` (what that is worth), `urgency` (how much hangs on it), `rows` (what is shared
//! out), `site` (rows that an administrator states), `guarantee` (what is owed), `due` with `backfill` (what long waits give), `decide` (solve and
//! place until both agree), `idle` (what a decision leaves), `place` (which GPUs), `policies` (other ways to decide), `explain` and `moves` (why), [`verify`](verify()) (the check that
//! shares no code with the rest). Asked by people only: [`counterfactual`] (what if), [`funnel`] (where a job's
//! possibilities are lost), `sizes` (what each size would bring), `room` (what a plan leaves), `quota`, `named` (which GPU type is meant), and `never` with
//! `closest` (what no submission is admitted for, and what comes nearest to it). The planner never reads a clock and never
//! fails for lack of a good answer: the present assignment is always one.

mod ahead;
mod backfill;
mod candidate;
mod check;
mod claim;
mod closest;
mod cluster;
pub mod counterfactual;
mod curves;
mod decide;
mod due;
mod ending;
mod explain;
mod force;
mod free;
pub mod funnel;
mod guarantee;
mod idle;
pub mod input;
mod live;
mod make_room;
mod maker;
mod mixes;
mod moves;
mod named;
mod never;
mod obstacle;
mod place;
mod policies;
mod policy;
mod project;
mod promise;
mod quota;
mod reservation;
mod room;
mod round;
mod rows;
mod site;
mod sizes;
mod sound;
mod submitted;
mod table;
mod urgency;
mod value;
mod verify;
mod witness;

#[cfg(any(test, feature = "examples"))]
pub mod builder;
#[cfg(test)]
mod laws;

pub use ahead::Part;
pub use check::{PlanError, WrongField, check_rows, check_settings};
pub use claim::{Bounds, Claim, Needs, Spread};
pub use curves::CurveCache;
pub use due::makes_due;
pub use ending::{Departure, leaves_at, may_start_unsaved, next_departure};
pub use force::Force;
pub use input::{Downtime, Freedom, PlanInput, PlanJob, PlanNode, PlanWork};
pub use named::{Misnamed, name_gpu_type, name_gpu_types};
pub use never::{Never, never_while};
pub use policy::{Policy, PowerCap};
pub use project::{PlanProject, Tree};
pub use quota::{QuotaRoom, QuotaVerdict, quota};
pub use reservation::Reservation;
pub use room::{Room, room};
pub use round::plan;
pub use site::{Amount, Label, SiteRow};
pub use sizes::{SizeGain, SizePoint, Sizes, sizes, sizes_while};
pub use submitted::Premises;
pub use table::{GoodputTable, TableRow};
pub use verify::{Verified, Violation, verify, verify_rest};
