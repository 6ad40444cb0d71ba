//! What may run on a node: the ledger, a pure state machine that turns commands of the scheduler and facts of
//! the node into actions and reports.
//!
//! It never reads a clock, starts a process or writes a file: the agent and the simulator are its shells. A shell
//! must store the ledger durably when `NodeOutcome::persist` says so, *before* it acts or reports. It stands
//! between the session (commands in, reports out) and the launcher (actions out, exits in).

pub mod event;
pub mod group;
mod ledger;
mod observation;
pub mod outcome;

pub use event::{Exit, NodeEvent, Process, WorkerMessage};
pub use group::{Group, Phase, Share};
pub use ledger::{Ledger, LedgerChange};
pub use observation::Observations;
pub use outcome::{NodeAction, NodeOutcome, Refusal, Signal, WorkerOrder};

#[cfg(test)]
mod tests;
