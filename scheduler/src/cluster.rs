//! The handle to the live loop that HTTP and gRPC hold.
//!
//! It carries requests in and snapshots out. It never decides and never touches the engine: a request is answered
//! only once its changes are committed.

use std::sync::Arc;
use std::time::Duration;

use headway_api::agent::{ExecPiece, ExecRequest, LogMark, LogRequest};
use headway_engine::record::{Allocation, EventRecord};
use headway_engine::{Actor, Reply, Request, View};
use headway_types::{Generation, JobId, NodeId, PlanId, Seconds, Timestamp};
use tokio::sync::{broadcast, mpsc, oneshot, watch};

use crate::audit;
use crate::clock::{Clock, Speed};
use crate::config::Retention;
use crate::driver::{Asker, Input, Standing, StandsBy};
use crate::grpc::{Measured, SessionError, Sessions};
use crate::leader::Lease;
use crate::planning::{Health, LastRound, Rounds};
use crate::shown::{Show, Shown};
use crate::store::Store;
use crate::troubles::Troubles;

/// What answers and `/readyz` say while Postgres has no room.
pub(crate) const DISK_FULL: &str =
    "the disk of Postgres is full: nothing is stored until there is room; training goes on";

/// Longest wait for the answer to a request; its outcome is unknown to the caller after that.
const REQUEST_DEADLINE: Duration = Duration::from_secs(20);

/// The handle to the loop; cheap to clone.
#[derive(Clone)]
pub struct Cluster {
    inbox: mpsc::Sender<Input>,
    outlook: Outlook,
    store: Store,
    sessions: Sessions,
    clock: Clock,
    retention: Retention,
    troubles: Troubles,
}

/// What the loop publishes after each commit; the loop holds the other ends.
#[derive(Clone)]
pub(crate) struct Outlook {
    pub view: watch::Receiver<Arc<View>>,
    pub feed: broadcast::Sender<Arc<Feed>>,
    pub ready: watch::Receiver<bool>,
    pub lease: Lease,
    pub standing: Standing,
    pub round: LastRound,
    pub rounds: Arc<Rounds>,
}

/// What a live page wants to hear of, published after the commit.
#[derive(Clone, Debug, PartialEq)]
pub enum Feed {
    Event(EventRecord),
    /// Its row, or what it reports.
    Job(JobId),
    Node(NodeId),
    Plan(PlanId),
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
    /// Nothing can be stored until there is room. Whether the request was done is unknown if it was under way.
    #[error("{}", DISK_FULL)]
    DiskFull,
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
    /// Only what was written since, in milliseconds since 1970; all where nobody knows.
    pub since_ms: Option<i64>,
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
    /// How long the log was when, as far as this piece goes.
    pub marks: Vec<LogMark>,
}

/// Why a log could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LogError {
    #[error("the job has not run yet")]
    NotStarted,
    #[error("generation {generation} has no rank {rank}")]
    NoSuchRank { generation: Generation, rank: u32 },
    #[error("node {0}, which has the output, is not connected; try again once it is back")]
    NotConnected(String),
    /// The cluster does not know the node any more.
    #[error("node {0}, which had the output, is gone: it was deleted")]
    Gone(String),
    #[error("node {0} did not answer in time")]
    TimedOut(String),
    #[error("node {0} is asked for many logs just now")]
    Busy(String),
    #[error("the agent refused: {0}")]
    Refused(String),
    #[error("reading the job's allocations")]
    Store,
}

/// Returns how far a node's clock is ahead of ours, in milliseconds: nothing where the time that the answer took explains the
/// difference. `asked_ms` and `answered_ms` are by our clock, `clock_ms` is what the node's showed between them.
fn clock_ahead(asked_ms: i64, answered_ms: i64, clock_ms: i64) -> i64 {
    let is_between = (asked_ms..=answered_ms).contains(&clock_ms);
    if is_between { 0 } else { clock_ms.saturating_sub(asked_ms + (answered_ms - asked_ms) / 2) }
}

impl Cluster {
    pub(crate) fn new(
        inbox: mpsc::Sender<Input>,
        outlook: Outlook,
        store: Store,
        sessions: Sessions,
        clock: Clock,
        retention: Retention,
    ) -> Self {
        Self { inbox, outlook, store, sessions, clock, retention, troubles: Troubles::default() }
    }

    /// Hands a request to the engine and waits until its changes are committed.
    pub async fn request(&self, actor: Actor, body: Request) -> Result<Reply, RequestError> {
        Ok(self.put(actor, body, None).await?.0)
    }

    /// Likewise of a request with a key, whose reply is kept with its changes as it is shown here.
    pub(crate) async fn request_once(
        &self,
        actor: Actor,
        body: Request,
        show: Show,
    ) -> Result<(Reply, Option<Shown>), RequestError> {
        self.put(actor, body, Some(show)).await
    }

    async fn put(
        &self,
        actor: Actor,
        body: Request,
        show: Option<Show>,
    ) -> Result<(Reply, Option<Shown>), RequestError> {
        if !self.ready() {
            return Err(self.unavailable());
        }
        let (reply, answer) = oneshot::channel();
        self.inbox.try_send(Input::request(actor, body, Asker::new(reply, show, audit::origin()))).map_err(
            |error| match error {
                mpsc::error::TrySendError::Full(_) => RequestError::Busy,
                mpsc::error::TrySendError::Closed(_) => self.unavailable(),
            },
        )?;
        match tokio::time::timeout(REQUEST_DEADLINE, answer).await {
            Err(_) => Err(RequestError::TimedOut),
            Ok(Err(_)) => Err(self.unavailable()),
            Ok(Ok(reply)) => Ok(reply),
        }
    }

    fn unavailable(&self) -> RequestError {
        if self.store.disk().is_full() { RequestError::DiskFull } else { RequestError::Unavailable }
    }

    /// Says why this server does not lead, as far as its operator can do something about it.
    pub(crate) fn why_not_leading(&self) -> &'static str {
        if self.store.disk().is_full() { DISK_FULL } else { "the scheduler does not lead at the moment" }
    }

    /// The newest committed snapshot.
    #[must_use]
    pub fn view(&self) -> Arc<View> {
        self.outlook.view.borrow().clone()
    }

    /// The newest round that was planned, with its plan.
    pub(crate) fn last_round(&self) -> LastRound {
        self.outlook.round.clone()
    }

    /// How rounds go.
    pub(crate) fn rounds(&self) -> Health {
        self.outlook.rounds.health()
    }

    /// When something was, by the cluster's clock, that was so much wall time ago.
    pub(crate) fn ago(&self, elapsed: Duration) -> Timestamp {
        self.now() - Seconds(elapsed.as_secs_f64() * self.clock.speed().factor())
    }

    /// How fast the cluster's time runs.
    pub(crate) fn clock_speed(&self) -> Speed {
        self.clock.speed()
    }

    /// Since the newest plan was made, adopted or not.
    pub(crate) fn plan_age(&self) -> Option<Seconds> {
        self.outlook.round.borrow().as_ref().map(|round| self.now().since(round.plan.made_at))
    }

    /// Everything published from now on; a slow reader loses the oldest (`RecvError::Lagged`).
    #[must_use]
    pub fn subscribe(&self) -> broadcast::Receiver<Arc<Feed>> {
        self.outlook.feed.subscribe()
    }

    /// Sessions of agents whose token opens none any more end.
    pub fn tokens_changed(&self) {
        self.sessions.tokens_changed();
    }

    /// Every node that is connected renews its certificate.
    pub fn renew_certificates(&self) {
        self.sessions.renew_all();
    }

    /// What is the matter with this process.
    pub(crate) fn troubles(&self) -> &Troubles {
        &self.troubles
    }

    #[must_use]
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Reads a piece of a job's log from the agent that runs (or ran) the rank.
    pub async fn logs(&self, job: JobId, query: LogQuery) -> Result<LogPage, LogError> {
        let attempt = self.attempt(job, query.generation).await?;
        self.logs_of(&attempt, query).await
    }

    /// The same of an attempt that is known, whose generation counts.
    pub async fn logs_of(&self, attempt: &Allocation, query: LogQuery) -> Result<LogPage, LogError> {
        let generation = attempt.generation;
        let node = attempt.placement.ranks().nth(query.rank as usize).map(|(node, _)| node);
        let node = node.ok_or(LogError::NoSuchRank { generation, rank: query.rank })?;
        let request = LogRequest {
            request_id: self.sessions.next_request(),
            job: attempt.job,
            generation,
            rank: Some(query.rank),
            offset: query.offset,
            limit_bytes: u64::from(query.limit),
            tail_lines: query.tail_lines,
            since_ms: query.since_ms,
        };
        let asked_ms = chrono::Utc::now().timestamp_millis();
        let chunk = match self.sessions.ask(node, request).await {
            Ok(chunk) => chunk,
            Err(error) => return Err(self.log_error(error).await),
        };
        let answered_ms = chrono::Utc::now().timestamp_millis();
        let ahead_ms = chunk.clock_ms.map_or(0, |clock_ms| clock_ahead(asked_ms, answered_ms, clock_ms));
        if let Some(refusal) = chunk.error {
            return Err(LogError::Refused(refusal));
        }
        Ok(LogPage {
            generation,
            rank: query.rank,
            offset: chunk.next_offset.saturating_sub(chunk.bytes.len() as u64),
            next_offset: chunk.next_offset,
            at_end: chunk.eof || chunk.bytes.is_empty(),
            data: chunk.bytes,
            marks: chunk
                .marks
                .iter()
                .map(|mark| LogMark { at_ms: mark.at_ms.saturating_sub(ahead_ms), ..*mark })
                .collect(),
        })
    }

    /// Names the node that a session error is about.
    pub(crate) async fn log_error(&self, error: SessionError) -> LogError {
        let (SessionError::NotConnected(node) | SessionError::TimedOut(node) | SessionError::Busy(node)) = error;
        let known = self.view().nodes.get(&node).map(|seen| seen.node.inventory.name.clone());
        let Some(name) = known else {
            let former = self.store.former_names(&[node]).await.unwrap_or_default();
            let name = former.into_iter().find_map(|(id, name)| (id == node).then_some(name));
            return LogError::Gone(name.unwrap_or_else(|| node.to_string()));
        };
        match error {
            SessionError::NotConnected(_) => LogError::NotConnected(name),
            SessionError::TimedOut(_) => LogError::TimedOut(name),
            SessionError::Busy(_) => LogError::Busy(name),
        }
    }

    /// Has a node start a command beside a rank, or asks what one has written; the request is numbered here.
    pub async fn exec(&self, node: NodeId, request: ExecRequest) -> Result<ExecPiece, SessionError> {
        let request_id = self.sessions.next_request();
        self.sessions.exec(node, ExecRequest { request_id, ..request }).await
    }

    /// What the GPUs of a connected node said of themselves last.
    #[must_use]
    pub fn last_measured(&self, node: NodeId) -> Option<Measured> {
        self.sessions.last_measured(node)
    }

    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Wall time until the cluster's clock shows a moment.
    pub(crate) fn until(&self, moment: Timestamp) -> Duration {
        self.clock.until(moment)
    }

    /// The clock that everything here goes by.
    pub(crate) fn clock(&self) -> &Clock {
        &self.clock
    }

    /// How long what may be forgotten is kept.
    #[must_use]
    pub fn retention(&self) -> Retention {
        self.retention
    }

    /// Whether the loop leads and answers requests.
    #[must_use]
    pub fn ready(&self) -> bool {
        *self.outlook.ready.borrow() && self.outlook.lease.stands()
    }

    /// Whether nobody else can lead now.
    pub(crate) fn holds_the_lead(&self) -> bool {
        self.outlook.lease.stands()
    }

    /// Returns since when another server may lead, and how long ago that was in wall time. The snapshot is as of then.
    pub(crate) fn lead_ended(&self) -> (Timestamp, Duration) {
        let ago = self.outlook.lease.over_for();
        (self.ago(ago), ago)
    }

    /// Who leads, and how old what is shown here is, while that is another server.
    pub(crate) fn stands_by(&self) -> Option<Arc<StandsBy>> {
        self.outlook.standing.borrow().clone()
    }

    /// Changes of `stands_by`.
    pub(crate) fn standing(&self) -> Standing {
        self.outlook.standing.clone()
    }

    /// Changes of `ready`.
    pub(crate) fn readiness(&self) -> watch::Receiver<bool> {
        self.outlook.ready.clone()
    }

    /// An attempt of a job, the newest if none is named; it may be over.
    pub async fn attempt(&self, job: JobId, generation: Option<Generation>) -> Result<Arc<Allocation>, LogError> {
        let live = self.view().jobs.get(&job).and_then(|view| view.allocation.clone());
        match live {
            Some(live) if generation.is_none_or(|wanted| wanted == live.generation) => Ok(live),
            _ => {
                let stored = self.store.allocations(job).await.map_err(|error| {
                    tracing::error!(job_id = %job, error = &error as &dyn std::error::Error, "allocations unreadable");
                    LogError::Store
                })?;
                let found = stored.into_iter().rfind(|one| generation.is_none_or(|wanted| wanted == one.generation));
                found.map(Arc::new).ok_or(LogError::NotStarted)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_is_off_by_what_the_time_of_the_answer_does_not_explain() {
        for (asked, answered, clock, ahead) in [
            (10_000, 10_400, 10_000, 0),
            (10_000, 10_400, 10_399, 0),
            (10_000, 10_400, 40_200, 30_000),
            (10_000, 10_400, -80_000, -90_200),
        ] {
            assert_eq!(clock_ahead(asked, answered, clock), ahead, "{clock}");
        }
    }
}
