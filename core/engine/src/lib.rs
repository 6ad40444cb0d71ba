//! The engine: `(&mut State, now, events) -> Outcome`, a pure state machine.
//!
//! It decides admission, job, node, allocation and plan states, leases, rounds and reconcile. It never performs
//! anything: the live shell (`scheduler`) and the simulated one (`sim`) commit its changes and send its commands.

pub mod account;
pub mod event;
pub mod job;
pub mod outcome;
pub mod record;
pub mod view;

mod adjust;
mod admission;
mod blame;
mod claim;
mod config;
mod draft;
mod edit;
mod entry;
mod finish;
mod gang;
mod grant;
mod health;
mod input;
mod invariants;
mod inventory;
mod keys;
mod lease;
mod leave;
mod node;
mod operate;
mod pace;
mod present;
mod projects;
mod reconcile;
mod reports;
mod reservations;
mod rounds;
mod snapshot;
mod state;
mod steps;
mod still;
mod usage;

pub use account::{Activity, GpuTime};
pub use config::EngineConfig;
pub use event::{Actor, Ends, Event, IdempotencyKey, JobChange, Request, RequestId, ReservationWish, SessionId};
pub use invariants::InvariantViolation;
pub use job::{IllegalTransition, JobEvent};
pub use outcome::{Change, Observation, Outcome, Refusal, Reply};
pub use snapshot::Snapshot;
pub use state::Engine;
pub use view::{Holding, JobView, LiveNumbers, NodeView, View};
