//! The engine: `(&mut State, now, events) -> Outcome`, a pure state machine.
//!
//! It decides admission, job, node, allocation and plan states, leases, rounds and reconcile. It never performs
//! anything: the live shell (`scheduler`) and the simulated one (`sim`) commit its changes and send its commands.

pub mod account;
mod activity;
mod arrays;
pub mod attention;
pub mod dependencies;
pub mod efficiency;
pub mod event;
pub mod job;
pub mod outcome;
mod peers;
pub mod record;
pub mod view;

mod batch;
mod blame;
mod config;
mod doubt;
mod draft;
mod engine;
mod expectations;
mod facts;
mod finish;
mod generation;
mod health;
mod impostors;
mod invariants;
mod keys;
mod lease;
mod notices;
mod present;
mod pulse;
mod reconcile;
mod reports;
mod requests;
mod reserved;
mod returning;
mod rounds;
mod seen;
mod show;
mod situation;
mod snapshot;
mod takeover;
mod terms;
mod unsure;
mod verdicts;

pub use account::{Activity, GpuTime, Taker, Tenure, Use};
pub use config::EngineConfig;
pub use doubt::{Doubt, doubt};
pub use engine::Engine;
pub use event::{
    Actor, ArrayDeed, ElasticChange, Ends, Event, IdempotencyKey, JobChange, Known, Request, RequestId,
    ReservationRequest, SessionId,
};
pub use invariants::InvariantViolation;
pub use job::{IllegalTransition, JobEvent};
pub use outcome::{ArrayDone, Change, NodeDeleted, Observation, Outcome, Readmission, Refusal, Reply};
pub use pulse::{ProjectPulse, Pulse};
pub use reserved::{DepartingJob, DepartureKind, ReservationCost};
pub use returning::Returning;
pub use rounds::{Aside, RoundRequest, Trouble};
pub use seen::LiveNumbers;
pub use snapshot::Snapshot;
pub use takeover::{Cause, TookOver};
pub use terms::Ahead;

pub use verdicts::Verdicts;
pub use view::{ArrayView, Holding, JobView, NodeView, StepSilence, UnreachableNodes, View};
