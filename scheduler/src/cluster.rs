//! The handle to the live loop that HTTP and gRPC hold.
//!
//! It carries requests in and snapshots out. It never decides and never touches the engine: a request is answered
//! only once its changes are committed.

use std::sync::Arc;
use std::time::Duration;

use headway_engine::record::EventRecord;
use headway_engine::{Actor, Reply, Request, View};
use headway_types::{Generation, JobId, NodeId, PlanId, Timestamp};
use tokio::sync::{broadcast, mpsc, oneshot, watch};

use crate::clock::Clock;
use crate::driver::Input;
use crate::grpc::Sessions;
use crate::store::{SeriesPoint, Store};

/// Longest wait for the answer to a request; its outcome is unknown to the caller after that.
const REQUEST_DEADLINE: Duration = Duration::from_secs(20);

/// The handle to the loop; cheap to clone.
#[derive(Clone)]
pub struct Cluster {
    inbox: mpsc::Sender<Input>,
    view: watch::Receiver<Arc<View>>,
    feed: broadcast::Sender<Arc<Feed>>,
    ready: watch::Receiver<bool>,
    store: Store,
    sessions: Sessions,
    clock: Clock,
}

/// What a live page wants to hear of, published after the commit.
#[derive(Clone, Debug, PartialEq)]
pub enum Feed {
    Event(EventRecord),
    Job(JobId),
    Node(NodeId),
    Plan(PlanId),
    Steps { job: JobId, point: SeriesPoint },
}

/// Why a request got no answer from the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// The loop's inbox is full; try again shortly. Nothing was done.
    #[error("the scheduler is busy")]
    Busy,
    /// The loop is loading, lost its term or stops. Whether the request was done is unknown if it was under way.
    #[error("the scheduler is unavailable")]
    Unavailable,
    /// No answer in time; whether the request was done is unknown.
    #[error("the scheduler did not answer in time")]
    TimedOut,
}

/// Which part of a job's log to read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogQuery {
    /// Newest generation if absent.
    pub generation: Option<Generation>,
    pub rank: u32,
    /// First byte wanted; ignored when `tail_lines` is given.
    pub offset: u64,
    /// Most bytes wanted; the agent may send fewer.
    pub limit: u32,
    /// Only the last lines.
    pub tail_lines: Option<u32>,
}

/// A piece of a log, as the agent sent it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogPage {
    pub generation: Generation,
    pub rank: u32,
    /// Position of the first byte of `data`.
    pub offset: u64,
    /// Where the next read begins.
    pub next_offset: u64,
    pub data: Vec<u8>,
    /// Nothing more to read at present.
    pub at_end: bool,
}

/// Why a log could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LogError {
    #[error("the job has not run yet")]
    NotStarted,
    #[error("generation {generation} has no rank {rank}")]
    NoSuchRank { generation: Generation, rank: u32 },
    #[error("node {0} is not connected")]
    NotConnected(NodeId),
    #[error("node {0} did not answer in time")]
    TimedOut(NodeId),
    #[error("the agent refused: {0}")]
    Refused(String),
    #[error("reading the job's allocations")]
    Store,
}

impl Cluster {
    /// Hands a request to the engine and waits until its changes are committed.
    pub async fn request(&self, actor: Actor, body: Request) -> Result<Reply, RequestError> {
        todo!()
    }

    /// The newest committed snapshot.
    #[must_use]
    pub fn view(&self) -> Arc<View> {
        self.view.borrow().clone()
    }

    /// Everything published from now on; a slow reader loses the oldest (`RecvError::Lagged`).
    #[must_use]
    pub fn subscribe(&self) -> broadcast::Receiver<Arc<Feed>> {
        self.feed.subscribe()
    }

    #[must_use]
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Reads a piece of a job's log from the agent that runs the rank.
    pub async fn logs(&self, job: JobId, query: LogQuery) -> Result<LogPage, LogError> {
        todo!()
    }

    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Whether the loop leads and answers requests.
    #[must_use]
    pub fn ready(&self) -> bool {
        *self.ready.borrow()
    }
}
