//! Which node is connected, under which session, and what waits to be sent to it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use headway_api::agent::{ExecPiece, ExecRequest, GpuReading, LogChunk, LogRequest, SchedulerToAgent, Secrets, wire};
use headway_engine::SessionId;
use headway_types::{AgentCommand, NodeId, Serial, Term, Timestamp};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;
use tonic::Status;
use tracing::Instrument as _;

use crate::spans;

/// Messages a slow agent may leave unread before it is disconnected. Those that ask for logs leave half of it to all others.
const QUEUE: usize = 512;
/// Pieces of logs that a node is asked for at a time, whoever reads them.
const LOGS_AT_ONCE: usize = 64;
/// Longest wait for a piece of a log or of a command's output.
const ASK_DEADLINE: Duration = Duration::from_secs(10);

pub(super) type Outgoing = Result<wire::SchedulerMessage, Status>;

/// The open sessions; cheap to clone.
#[derive(Clone, Default)]
pub struct Sessions {
    registry: Arc<Mutex<Registry>>,
    /// Counts changes of what tokens open.
    tokens: Arc<watch::Sender<u64>>,
}

#[derive(Default)]
struct Registry {
    /// The term commands are sent under; `None` while nobody leads, and then no session is open.
    term: Option<Term>,
    open: BTreeMap<NodeId, Open>,
    /// Nodes that have been told of this term: no other can have heard of it, unless from another history.
    welcomed: BTreeSet<NodeId>,
    last_session: u64,
    /// Never set back: a term that comes again to this process goes on counting.
    last_command: u64,
    last_request: u64,
    /// Requests without an answer yet. A node answers what it was asked itself.
    logs: Asked<LogChunk>,
    execs: Asked<ExecPiece>,
}

type Asked<T> = BTreeMap<(NodeId, u64), oneshot::Sender<T>>;

/// Whoever waits for an answer. Who goes away waits no more.
struct Asking<'a, T> {
    sessions: &'a Sessions,
    key: (NodeId, u64),
    asked: fn(&mut Registry) -> &mut Asked<T>,
}

impl<T> Drop for Asking<'_, T> {
    fn drop(&mut self) {
        (self.asked)(&mut self.sessions.lock()).remove(&self.key);
    }
}

struct Open {
    session: SessionId,
    queue: mpsc::Sender<Outgoing>,
    closed: CancellationToken,
    /// Why it was refused, once it is.
    refused: Arc<OnceLock<String>>,
    /// What its GPUs said last, and when.
    measured: Option<Measured>,
}

/// What GPUs of a node measured of themselves.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    pub at: Timestamp,
    pub gpus: Arc<[GpuReading]>,
}

/// Why a node could not be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SessionError {
    #[error("node {0} is not connected")]
    NotConnected(NodeId),
    #[error("node {0} did not answer in time")]
    TimedOut(NodeId),
    /// It is asked for more logs already than it may be at a time.
    #[error("node {0} is asked for many logs just now")]
    Busy(NodeId),
}

/// Why no session was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NotOpened {
    /// Nobody leads.
    NoLeader,
    /// The node follows a newer term than this one, or one of the same number that it did not hear of here.
    Ahead { term: Term },
}

/// One newly opened session.
pub(super) struct Opened {
    pub session: SessionId,
    pub term: Term,
    pub outgoing: mpsc::Receiver<Outgoing>,
    /// Cancelled when a newer session replaces this one, its queue overflows, or the term ends.
    pub closed: CancellationToken,
    /// Why it was refused, once it is.
    pub refused: Arc<OnceLock<String>>,
}

impl Sessions {
    /// Accepts sessions and sends commands under this term from now on.
    pub fn begin(&self, term: Term) {
        let mut registry = self.lock();
        registry.welcomed.clear();
        registry.term = Some(term);
    }

    /// Closes every session; agents come back and register anew.
    pub fn close_all(&self) {
        let mut registry = self.lock();
        registry.term = None;
        std::mem::take(&mut registry.open).into_values().for_each(|open| open.closed.cancel());
        registry.logs.clear();
        registry.execs.clear();
    }

    /// Tokens or certificates were revoked, or open something else: every session's is looked up again.
    pub fn tokens_changed(&self) {
        self.tokens.send_modify(|changes| *changes += 1);
    }

    /// Every node renews its certificate now.
    pub fn renew_all(&self) {
        let mut registry = self.lock();
        let nodes: Vec<NodeId> = registry.open.keys().copied().collect();
        for node in nodes {
            registry.send(node, &SchedulerToAgent::Renew);
        }
    }

    /// How often that has happened, from now on.
    pub(super) fn token_changes(&self) -> watch::Receiver<u64> {
        self.tokens.subscribe()
    }

    /// Opens a session; an older one of the same node ends. `followed`: the highest term that the node has heard of.
    pub(super) fn open(&self, node: NodeId, followed: Term) -> Result<Opened, NotOpened> {
        let mut registry = self.lock();
        let term = registry.term.ok_or(NotOpened::NoLeader)?;
        if followed > term || (followed == term && !registry.welcomed.contains(&node)) {
            return Err(NotOpened::Ahead { term });
        }
        registry.welcomed.insert(node);
        registry.last_session += 1;
        let session = SessionId(registry.last_session);
        let (queue, outgoing) = mpsc::channel(QUEUE);
        let closed = CancellationToken::new();
        let refused = Arc::<OnceLock<String>>::default();
        let open = Open { session, queue, closed: closed.clone(), refused: Arc::clone(&refused), measured: None };
        if let Some(older) = registry.open.insert(node, open) {
            tracing::info!(node_id = %node, "newer session replaces an open one");
            older.closed.cancel();
        }
        Ok(Opened { session, term, outgoing, closed, refused })
    }

    /// Forgets a session that has ended, unless a newer one has taken its place.
    pub(super) fn close(&self, node: NodeId, session: SessionId) {
        let mut registry = self.lock();
        if registry.open.get(&node).is_some_and(|open| open.session == session) {
            registry.open.remove(&node);
        }
    }

    /// Queues a command of this term, unless it is over. A node that is not connected misses it: the engine repeats commands until it sees their
    /// effect. `secrets`: of a launch, for its workers' environment alone.
    pub fn command(&self, term: Term, node: NodeId, command: AgentCommand, secrets: Secrets) {
        let mut registry = self.lock();
        if registry.term == Some(term) {
            registry.last_command += 1;
            let serial = Some(Serial(registry.last_command));
            registry.send(node, &SchedulerToAgent::Command { term, serial, command, secrets });
        }
    }

    /// Ends a session and tells its agent why. A newer session of the node stays.
    pub fn refuse(&self, node: NodeId, session: SessionId, reason: String) {
        let mut registry = self.lock();
        if registry.open.get(&node).is_none_or(|open| open.session != session) {
            return;
        }
        tracing::warn!(node_id = %node, session = session.0, %reason, "agent refused");
        if let Some(open) = registry.open.get(&node) {
            // A session is refused once.
            let _ = open.refused.set(reason.clone());
        }
        if registry.send(node, &SchedulerToAgent::Refused { reason, term: None })
            && let Some(open) = registry.open.remove(&node)
        {
            // What is queued still leaves: the stream ends after its last message.
            open.closed.cancel();
        }
    }

    /// Queues any message; false if the node is not connected or does not read.
    pub(super) fn send(&self, node: NodeId, message: &SchedulerToAgent) -> bool {
        self.lock().send(node, message)
    }

    /// A number for the next request to a node.
    #[must_use]
    pub fn next_request(&self) -> u64 {
        let mut registry = self.lock();
        registry.last_request += 1;
        registry.last_request
    }

    /// Asks a node for a piece of a log and waits for the answer.
    pub async fn ask(&self, node: NodeId, request: LogRequest) -> Result<LogChunk, SessionError> {
        let id = request.request_id;
        if self.lock().is_busy(node) {
            return Err(SessionError::Busy(node));
        }
        self.wait(node, id, &SchedulerToAgent::Log(request), |registry| &mut registry.logs).await
    }

    /// Has a node start a command, or asks what one has written, and waits for the answer.
    pub async fn exec(&self, node: NodeId, request: ExecRequest) -> Result<ExecPiece, SessionError> {
        let id = request.request_id;
        self.wait(node, id, &SchedulerToAgent::Exec(request), |registry| &mut registry.execs).await
    }

    async fn wait<T>(
        &self,
        node: NodeId,
        id: u64,
        message: &SchedulerToAgent,
        asked: fn(&mut Registry) -> &mut Asked<T>,
    ) -> Result<T, SessionError> {
        let (answer, piece) = oneshot::channel();
        let asking = Asking { sessions: self, key: (node, id), asked };
        {
            let mut registry = self.lock();
            if !registry.send(node, message) {
                return Err(SessionError::NotConnected(node));
            }
            asked(&mut registry).insert(asking.key, answer);
        }
        match tokio::time::timeout(ASK_DEADLINE, piece).instrument(spans::agent_asked(node)).await {
            Ok(Ok(piece)) => Ok(piece),
            Ok(Err(_)) => Err(SessionError::NotConnected(node)),
            Err(_) => Err(SessionError::TimedOut(node)),
        }
    }

    /// Keeps what GPUs measure until the next time, or the end of the session.
    pub(super) fn measured(&self, node: NodeId, session: SessionId, at: Timestamp, gpus: Vec<GpuReading>) {
        let mut registry = self.lock();
        if let Some(open) = registry.open.get_mut(&node).filter(|open| open.session == session) {
            open.measured = Some(Measured { at, gpus: gpus.into() });
        }
    }

    /// What the GPUs of a connected node said last.
    #[must_use]
    pub fn last_measured(&self, node: NodeId) -> Option<Measured> {
        self.lock().open.get(&node)?.measured.clone()
    }

    /// Hands a piece of a log to whoever asked this node for it; late ones are dropped.
    pub(super) fn log_came(&self, node: NodeId, chunk: LogChunk) {
        if let Some(asker) = self.lock().logs.remove(&(node, chunk.request_id)) {
            // The asker may have given up meanwhile.
            let _ = asker.send(chunk);
        }
    }

    /// Likewise what a command has written.
    pub(super) fn exec_came(&self, node: NodeId, piece: ExecPiece) {
        if let Some(asker) = self.lock().execs.remove(&(node, piece.request_id)) {
            let _ = asker.send(piece);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Registry> {
        self.registry.lock().expect("nothing panics while it holds the registry")
    }
}

impl Registry {
    /// Whether one more that reads a log there would be in the way of what the node is told.
    fn is_busy(&self, node: NodeId) -> bool {
        let asked = self.logs.range((node, 0)..=(node, u64::MAX)).count();
        asked >= LOGS_AT_ONCE || self.open.get(&node).is_some_and(|open| open.queue.capacity() < QUEUE / 2)
    }

    fn send(&mut self, node: NodeId, message: &SchedulerToAgent) -> bool {
        let Some(open) = self.open.get(&node) else { return false };
        match open.queue.try_send(Ok(message.into())) {
            Ok(()) => return true,
            Err(TrySendError::Full(_)) => {
                tracing::warn!(node_id = %node, "agent does not read its commands, disconnecting it");
            }
            // Its stream has ended, and whoever serves it has yet to say so.
            Err(TrySendError::Closed(_)) => {}
        }
        open.closed.cancel();
        self.open.remove(&node);
        false
    }
}

#[cfg(test)]
mod tests;
