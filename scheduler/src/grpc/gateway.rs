//! The `AgentGateway` service: registers and forwards whom `credentials` lets in.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures::Stream;
use headway_api::agent::{AgentToScheduler, SchedulerToAgent, WireError, followed, wire};
use headway_engine::{Event, SessionId};
use headway_goodput::catalog::Catalog;
use headway_types::{NodeId, NodeInventory, NodeReport, Seconds, Term};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status, Streaming};
use tracing::Instrument as _;
use wire::agent_gateway_server::{AgentGateway, AgentGatewayServer};

use super::credentials::Credentials;
use super::sessions::{NotOpened, Outgoing, Sessions};
use crate::clock::Clock;
use crate::driver::{Input, Standing};
use crate::server::Visitor;
use crate::store::Store;
use crate::{metrics, spans};

/// Each start of a scheduler is a term. One beyond this is of no scheduler, and could not be followed by another.
const FURTHEST_TERM: u64 = 1 << 48;
/// From the opening of a stream to its first message.
const REGISTER_DEADLINE: Duration = Duration::from_secs(10);
/// A node with thousands of ledger entries stays far below this.
const MAX_MESSAGE: usize = 4 << 20;
const REVOKED: &str =
    "the agent's token was revoked or has expired; give it another (`headway token create --scope agent`)";
/// Heartbeats per lease: some may be lost before a node counts as silent.
const HEARTBEATS_PER_LEASE: f64 = 5.0;

/// What the service needs of the process.
#[derive(Clone)]
pub struct Gateway {
    inbox: mpsc::Sender<Input>,
    sessions: Sessions,
    credentials: Credentials,
    clock: Clock,
    lease: Seconds,
    site: Arc<Catalog>,
    standing: Standing,
}

impl Gateway {
    /// `site`: GPU types that are not built in, or not as built in. `standing`: whether another server leads.
    #[must_use]
    pub fn new(
        inbox: mpsc::Sender<Input>,
        sessions: Sessions,
        store: Store,
        clock: Clock,
        lease: Seconds,
        site: Catalog,
        standing: Standing,
    ) -> Self {
        let credentials = Credentials::new(store, clock.clone());
        Self { inbox, sessions, credentials, clock, lease, site: Arc::new(site), standing }
    }

    /// What an agent does not say of its GPUs, the site's catalog may. From here on it is the node's own fact, which plans carry.
    fn told(&self, mut report: NodeReport) -> NodeReport {
        if let NodeReport::Registered { inventory, .. } | NodeReport::Inventory { inventory } = &mut report
            && inventory.emulated.is_none()
            && inventory.stated.is_none()
        {
            inventory.stated = self.site.stated(&inventory.gpu_type.0).cloned();
        }
        report
    }

    /// The service to mount on a server.
    #[must_use]
    pub fn into_service(self) -> AgentGatewayServer<Self> {
        AgentGatewayServer::new(self).max_decoding_message_size(MAX_MESSAGE).max_encoding_message_size(MAX_MESSAGE)
    }
}

#[tonic::async_trait]
impl AgentGateway for Gateway {
    type SessionStream = Pin<Box<dyn Stream<Item = Outgoing> + Send>>;

    async fn session(
        &self,
        request: Request<Streaming<wire::AgentMessage>>,
    ) -> Result<Response<Self::SessionStream>, Status> {
        if let Some(told) = self.not_leading() {
            return Err(Status::failed_precondition(told));
        }
        let changes = self.sessions.token_changes();
        let (hash, token) = self.credentials.admit(&request).await?;
        let from = (token.id, request.extensions().get::<Visitor>().map(Visitor::address));
        let mut incoming = request.into_inner();
        let first = tokio::time::timeout(REGISTER_DEADLINE, incoming.message())
            .await
            .map_err(|_| Status::deadline_exceeded("no registration came"))??;
        let followed = first.as_ref().map(followed).unwrap_or_default();
        let registered = first.map(AgentToScheduler::try_from).transpose().map_err(bad)?;
        let Some(AgentToScheduler::Report(NodeReport::Registered { inventory, groups })) = registered else {
            return Err(Status::failed_precondition("the first message of a session must be Registered"));
        };
        let node = inventory.node;
        if followed.0 > FURTHEST_TERM {
            return Err(Status::invalid_argument(
                "no scheduler has led such a term: the ledger of the node is damaged",
            ));
        }
        let opened = match self.sessions.open(node, followed) {
            Ok(opened) => opened,
            Err(NotOpened::NoLeader) => return Err(Status::unavailable("the scheduler does not lead now")),
            Err(NotOpened::Ahead { term }) => return Ok(self.tell_ahead(&inventory, followed, term).await),
        };
        let session = opened.session;
        let heartbeat = Seconds(self.lease.0 / HEARTBEATS_PER_LEASE);
        let (term, lease) = (opened.term, self.lease);
        let speed = self.clock.speed().factor();
        self.sessions.send(node, &SchedulerToAgent::Welcome { term, lease, heartbeat, speed });
        tracing::info!(node_id = %node, name = %inventory.name, session = session.0, "agent connected");
        let report = NodeReport::Registered { inventory, groups };
        let credentials = self.credentials.clone();
        let over = async move { credentials.over(hash, token, changes).await };
        let span = spans::agent_session(node, session);
        let listening = self.clone().listen(node, session, report, incoming, opened.closed, over);
        let (credentials, refused) = (self.credentials.clone(), opened.refused);
        let listening = async move {
            listening.await;
            if let Some(reason) = refused.get() {
                credentials.note_refused(node, from.0, from.1, reason);
            }
        };
        tokio::spawn(listening.instrument(span));
        Ok(Response::new(Box::pin(ReceiverStream::new(opened.outgoing))))
    }
}

impl Gateway {
    /// For agents that have come to a server that stands by. Nobody is asked who they are: they are told no more than where to go.
    fn not_leading(&self) -> Option<String> {
        let standing = self.standing.borrow().clone()?;
        Some(match &standing.leader {
            Some(leader) => format!("not leading; the leader is at {}", leader.server.agents),
            None => "not leading; nobody says that he leads".into(),
        })
    }

    /// Tells the node that it is ahead, and the engine, which has a person hear of it.
    async fn tell_ahead(
        &self,
        inventory: &NodeInventory,
        followed: Term,
        term: Term,
    ) -> Response<<Self as AgentGateway>::SessionStream> {
        let node = inventory.node;
        // What offers more than any machine has is no name to show.
        let name = inventory.check().map_or_else(|_| node.to_string(), |()| inventory.name.clone());
        tracing::error!(node_id = %node, %name, %followed, %term, "an agent follows a newer term; was the database restored from a backup?");
        let reason = format!("this scheduler leads term {term}, the node follows {followed}");
        // The loop has ended if this fails; then the node asks whoever comes next.
        let _ = self.inbox.send(Input::event(Event::AgentAhead { node, name, term: followed })).await;
        let refused = SchedulerToAgent::Refused { reason, term: Some(term) };
        Response::new(Box::pin(tokio_stream::once(Ok((&refused).into()))))
    }

    /// Forwards reports until the stream ends or the session is closed, then says so.
    async fn listen(
        self,
        node: NodeId,
        session: SessionId,
        registered: NodeReport,
        mut incoming: Streaming<wire::AgentMessage>,
        closed: CancellationToken,
        over: impl Future<Output = ()> + Send,
    ) {
        let mut report = Some(registered);
        tokio::pin!(over);
        loop {
            if let Some(report) = report.take().map(|report| self.told(report)) {
                let span = spans::agent_report(node, session, &report);
                let taken = self.inbox.send(Input::event(Event::Agent { node, session, report })).instrument(span);
                if taken.await.is_err() {
                    break;
                }
            }
            let message = tokio::select! {
                () = closed.cancelled() => break,
                () = &mut over => {
                    self.sessions.refuse(node, session, REVOKED.into());
                    break;
                }
                message = incoming.message() => message,
            };
            match message.map(|message| message.map(AgentToScheduler::try_from)) {
                Ok(Some(Ok(AgentToScheduler::Report(next)))) => report = Some(next),
                Ok(Some(Ok(AgentToScheduler::Log(chunk)))) => self.sessions.log_came(node, chunk),
                Ok(Some(Ok(AgentToScheduler::Readings(gpus)))) => {
                    self.sessions.measured(node, session, self.clock.now(), gpus);
                }
                Ok(Some(Ok(AgentToScheduler::Exec(piece)))) => self.sessions.exec_came(node, piece),
                // An agent may be newer than the scheduler: what it says beyond this version is skipped.
                Ok(Some(Err(WireError::Missing { field: "body" }))) => {}
                Ok(Some(Err(error))) => {
                    tracing::warn!(node_id = %node, error = &error as &dyn std::error::Error, "report dropped");
                }
                Ok(None) => break,
                Err(status) => {
                    tracing::info!(node_id = %node, %status, "agent stream broke");
                    break;
                }
            }
        }
        self.sessions.close(node, session);
        tracing::info!(node_id = %node, session = session.0, "agent disconnected");
        // The loop has ended if this fails; then nobody needs to know.
        let _ = self.inbox.send(Input::event(Event::AgentDisconnected { node, session })).await;
    }
}

fn bad(error: WireError) -> Status {
    metrics::agent_refused();
    Status::invalid_argument(error.to_string())
}
