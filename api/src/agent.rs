//! The agent protocol: what travels between the scheduler and a node, and its translation to the vocabulary.
//!
//! `wire` is generated from `proto/headway/agent/v1/agent.proto`. Nothing past the two shells sees it: a message is
//! translated at the border, and what is missing or out of range is an error that names the field, never a default.

mod exec;
mod from_wire;
mod join;
mod readings;
mod secrets;
mod to_wire;

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use headway_types::{AgentCommand, Generation, JobId, NodeReport, Seconds, Serial, Term};

use crate::secret::Secret;
pub use exec::{ExecEnded, ExecPiece, ExecRequest, ExecStart};
pub use from_wire::followed;
pub use join::{FIRST_CONTACT, JoinToken, JoinTokenForm, server_name};
pub use readings::GpuReading;
pub use to_wire::registration;

/// Metadata of answers to agents: where the servers of the cluster take agents, with commas. Agents that show a certificate may dial them.
pub const SERVERS_METADATA: &str = "headway-servers";
/// What a server answers at once on one connection that a certificate was shown on; the session of a node is one.
pub const REQUESTS_OF_NODES: u32 = 64;
/// And on one that none was shown on: who joins, or has a session by a token.
pub const REQUESTS_OF_STRANGERS: u32 = 2;

/// The generated messages, client and server.
pub mod wire {
    #![allow(clippy::all, missing_docs)]
    tonic::include_proto!("headway.agent.v1");
}

/// Values of secrets by the variable that they are set to.
pub type Secrets = BTreeMap<String, Secret>;

/// What a node says.
#[derive(Clone, Debug, PartialEq)]
pub enum AgentToScheduler {
    /// For the engine.
    Report(NodeReport),
    /// The answer to a log request; it never reaches the engine.
    Log(LogChunk),
    /// The answer to an exec request; it never reaches the engine.
    Exec(ExecPiece),
    /// What its GPUs measure, for people; it never reaches the engine.
    Readings(Vec<GpuReading>),
}

/// What the scheduler says.
#[derive(Clone, Debug, PartialEq)]
pub enum SchedulerToAgent {
    /// The session is accepted.
    /// `speed`: seconds of the scheduler's clock per second of wall time; all durations are on that clock.
    /// `checkpoint_root`: where jobs save that name no directory of their own; `None` from a scheduler that does not say it.
    Welcome { term: Term, lease: Seconds, heartbeat: Seconds, speed: f64, checkpoint_root: Option<String> },
    /// For the ledger, fenced by the term.
    /// `serial`: none from a scheduler that does not count its commands. `secrets`: of a launch, the values of those that its order
    /// names, by variable; they bypass the ledger, which is kept on disk.
    Command { term: Term, serial: Option<Serial>, command: AgentCommand, secrets: Secrets },
    /// Answered with one chunk; it never reaches the ledger.
    Log(LogRequest),
    /// Likewise.
    Exec(ExecRequest),
    /// The node's certificate is to be renewed now.
    Renew,
    /// The session is not accepted; the stream ends. `term`: the scheduler's, where the node follows a newer one.
    Refused { reason: String, term: Option<Term> },
}

/// Most lines before the end that one request can name: an agent looks for their beginning through the whole output.
pub const TAIL_LINES_AT_MOST: u32 = 100_000;

/// Asks for a piece of a worker's output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogRequest {
    pub request_id: u64,
    pub job: JobId,
    /// Generation 0: the newest on the node.
    pub generation: Generation,
    /// Node-local or global rank; `None`: the first rank of the node.
    pub rank: Option<u32>,
    pub offset: u64,
    pub limit_bytes: u64,
    /// Start this many lines before the end instead of at `offset`; more than `TAIL_LINES_AT_MOST` count as so many.
    pub tail_lines: Option<u32>,
    /// Milliseconds since 1970: leave out what is known to have been written before.
    pub since_ms: Option<i64>,
}

/// How long a log was at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogMark {
    pub offset: u64,
    /// Milliseconds since 1970.
    pub at_ms: i64,
}

/// A piece of a worker's output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogChunk {
    pub request_id: u64,
    pub bytes: Vec<u8>,
    /// Where the next request should read on.
    pub next_offset: u64,
    /// Nothing more will come: the group has ended and everything was read.
    pub eof: bool,
    pub error: Option<String>,
    /// How long the log was when, as far as these bytes go; ascending, and empty where nobody noted it.
    pub marks: Vec<LogMark>,
    /// The clock that the marks are of, as it was when the node answered: milliseconds since 1970.
    pub clock_ms: Option<i64>,
}

/// Why a message cannot be understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// Also the body of a message this version does not know; such a message is to be skipped.
    #[error("agent message lacks {field}")]
    Missing { field: &'static str },
    #[error("agent message has a bad {field}: {message}")]
    Bad { field: &'static str, message: String },
}
