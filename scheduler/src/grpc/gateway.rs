//! The `AgentGateway` service: authenticates, registers, forwards.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures::Stream;
use headway_api::agent::{AgentToScheduler, SchedulerToAgent, WireError, wire};
use headway_engine::{Event, SessionId};
use headway_goodput::catalog::Catalog;
use headway_types::{NodeId, NodeReport, Seconds, TokenScope};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status, Streaming};
use tracing::Instrument as _;
use wire::agent_gateway_server::{AgentGateway, AgentGatewayServer};

use super::sessions::{Outgoing, Sessions};
use crate::clock::Clock;
use crate::driver::Input;
use crate::spans;
use crate::store::{Store, TokenHash};

/// From the opening of a stream to its first message.
const REGISTER_DEADLINE: Duration = Duration::from_secs(10);
/// A node with thousands of ledger entries stays far below this.
const MAX_MESSAGE: usize = 4 << 20;
/// Heartbeats per lease: some may be lost before a node counts as silent.
const HEARTBEATS_PER_LEASE: f64 = 5.0;

/// What the service needs of the process.
#[derive(Clone)]
pub struct Gateway {
    inbox: mpsc::Sender<Input>,
    sessions: Sessions,
    store: Store,
    clock: Clock,
    lease: Seconds,
    site: Arc<Catalog>,
}

impl Gateway {
    /// `site`: GPU types that are not built in, or not as built in.
    #[must_use]
    pub fn new(
        inbox: mpsc::Sender<Input>,
        sessions: Sessions,
        store: Store,
        clock: Clock,
        lease: Seconds,
        site: Catalog,
    ) -> Self {
        Self { inbox, sessions, store, clock, lease, site: Arc::new(site) }
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

    async fn authenticate<T>(&self, request: &Request<T>) -> Result<(), Status> {
        let refused = || Status::unauthenticated("a bearer token of scope agent is needed");
        let header = request.metadata().get("authorization").ok_or_else(refused)?;
        let secret = header.to_str().ok().and_then(|value| value.strip_prefix("Bearer ")).ok_or_else(refused)?;
        let token = self.store.find_token(&TokenHash::of(secret), self.clock.now()).await.map_err(|error| {
            tracing::error!(error = &error as &dyn std::error::Error, "token lookup failed");
            Status::unavailable("the scheduler cannot check tokens now")
        })?;
        match token.ok_or_else(refused)?.scope {
            TokenScope::Agent | TokenScope::Admin => Ok(()),
            TokenScope::Viewer | TokenScope::User | TokenScope::Operator => {
                Err(Status::permission_denied("this token does not speak for nodes"))
            }
        }
    }
}

#[tonic::async_trait]
impl AgentGateway for Gateway {
    type SessionStream = Pin<Box<dyn Stream<Item = Outgoing> + Send>>;

    async fn session(
        &self,
        request: Request<Streaming<wire::AgentMessage>>,
    ) -> Result<Response<Self::SessionStream>, Status> {
        self.authenticate(&request).await?;
        let mut incoming = request.into_inner();
        let first = tokio::time::timeout(REGISTER_DEADLINE, incoming.message())
            .await
            .map_err(|_| Status::deadline_exceeded("no registration came"))??;
        let registered = first.map(AgentToScheduler::try_from).transpose().map_err(bad)?;
        let Some(AgentToScheduler::Report(NodeReport::Registered { inventory, groups })) = registered else {
            return Err(Status::failed_precondition("the first message of a session must be Registered"));
        };
        let node = inventory.node;
        let Some(opened) = self.sessions.open(node) else {
            return Err(Status::unavailable("the scheduler does not lead now"));
        };
        let session = opened.session;
        let heartbeat = Seconds(self.lease.0 / HEARTBEATS_PER_LEASE);
        let (term, lease) = (opened.term, self.lease);
        let speed = self.clock.speed().factor();
        self.sessions.send(node, &SchedulerToAgent::Welcome { term, lease, heartbeat, speed });
        tracing::info!(node_id = %node, name = %inventory.name, session = session.0, "agent connected");
        let report = NodeReport::Registered { inventory, groups };
        let span = spans::agent_session(node, session);
        tokio::spawn(self.clone().listen(node, session, report, incoming, opened.closed).instrument(span));
        Ok(Response::new(Box::pin(ReceiverStream::new(opened.outgoing))))
    }
}

impl Gateway {
    /// Forwards reports until the stream ends or the session is closed, then says so.
    async fn listen(
        self,
        node: NodeId,
        session: SessionId,
        registered: NodeReport,
        mut incoming: Streaming<wire::AgentMessage>,
        closed: CancellationToken,
    ) {
        let mut report = Some(registered);
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
                message = incoming.message() => message,
            };
            match message.map(|message| message.map(AgentToScheduler::try_from)) {
                Ok(Some(Ok(AgentToScheduler::Report(next)))) => report = Some(next),
                Ok(Some(Ok(AgentToScheduler::Log(chunk)))) => self.sessions.answered(chunk),
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
    Status::invalid_argument(error.to_string())
}
