//! The engine: `(&mut State, now, events) -> Outcome`, a pure state machine.
//!
//! It decides admission, job, node, allocation and plan states, leases, rounds and reconcile. It never performs
//! anything: the live shell (`scheduler`) and the simulated one (`sim`) commit its changes and send its commands.

pub mod event;
pub mod outcome;
pub mod record;
pub mod view;

pub use event::{Actor, Event, IdempotencyKey, Request, RequestId, SessionId};
pub use outcome::{Change, Observation, Outcome, Refusal, Reply};
pub use view::{JobView, LiveNumbers, NodeView, View};
