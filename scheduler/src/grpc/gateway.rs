//! The `AgentGateway` service: registers and forwards whom `credentials` lets in.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures::Stream;
use headway_api::agent::{AgentToScheduler, SERVERS_METADATA, SchedulerToAgent, WireError, followed, wire};
use headway_engine::{EngineConfig, Event, SessionId};
use headway_goodput::catalog::Catalog;
use headway_types::{NodeId, NodeInventory, NodeReport, Seconds, Term};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::metadata::MetadataMap;
use tonic::{Code, Request, Response, Status, Streaming};
use tracing::Instrument as _;
use uuid::Uuid;
use wire::agent_gateway_server::{AgentGateway, AgentGatewayServer};

use super::credentials::{Credentials, not_looked_up};
use super::sessions::{NotOpened, Outgoing, Sessions};
use super::turns::RegistrarTurns;
use super::{Peer, Registrar};
use crate::authority::{Authorities, Shown};
use crate::clock::Clock;
use crate::driver::{Arrival, Input, RegistrationSender, Standing};
use crate::store::{Store, within};
use crate::{metrics, spans};

/// Each start of a scheduler is a term. One beyond this is of no scheduler, and could not be followed by another.
const FURTHEST_TERM: u64 = 1 << 48;
/// From the opening of a stream to its first message.
const REGISTER_DEADLINE: Duration = Duration::from_secs(10);
/// A node with thousands of ledger entries stays far below this.
const MAX_MESSAGE: usize = 4 << 20;
/// Of one node so often, however often it dials: it is told each time, people once.
const TELL_AGAIN: Duration = Duration::from_secs(600);
/// Nodes of which it is kept when they were told of last.
const MOST_TOLD: usize = 1_000;
/// For so long agents are told of the servers that were there.
const SERVERS_LAST: Duration = Duration::from_secs(5);
/// How long an agent waits for their names, which it can do without.
const SERVERS_TIME: Duration = Duration::from_secs(1);
/// Heartbeats per lease: some may be lost before a node counts as silent.
const HEARTBEATS_PER_LEASE: f64 = 5.0;

/// What opens sessions.
#[derive(Clone)]
pub struct Admission {
    authorities: Option<Authorities>,
    tokens: bool,
}

impl Admission {
    /// Certificates of these; also tokens of agents where the installation says so.
    #[must_use]
    pub fn by_certificate(authorities: Authorities, tokens_too: bool) -> Self {
        Self { authorities: Some(authorities), tokens: tokens_too }
    }

    #[cfg(test)]
    pub fn by_token() -> Self {
        Self { authorities: None, tokens: true }
    }

    pub(super) fn tokens(&self) -> bool {
        self.tokens
    }

    pub(super) fn believes(&self, shown: &Shown) -> bool {
        self.authorities.as_ref().is_some_and(|authorities| authorities.believe(shown))
    }
}

/// Which nodes were refused when, as people were told.
type Told = Arc<Mutex<BTreeMap<(NodeId, String), Instant>>>;

/// Addresses of the cluster's servers, and when they were read.
type ServerList = (Instant, Arc<Vec<String>>);

/// What the service needs of the process.
#[derive(Clone)]
pub struct Gateway {
    store: Store,
    told: Told,
    inbox: mpsc::Sender<Input>,
    registrations: RegistrationSender,
    sessions: Sessions,
    credentials: Credentials,
    clock: Clock,
    lease: Seconds,
    checkpoint_root: Arc<str>,
    site: Arc<Catalog>,
    standing: Standing,
    servers: Arc<tokio::sync::Mutex<Option<ServerList>>>,
}

impl Gateway {
    /// `engine`: what agents are told of its configuration. `site`: GPU types that are not built in, or not as built in. `standing`: whether another server leads. `admission`: what opens
    /// sessions.
    #[must_use]
    pub fn new(
        (inbox, registrations): (mpsc::Sender<Input>, RegistrationSender),
        sessions: Sessions,
        store: Store,
        clock: Clock,
        engine: &EngineConfig,
        site: Catalog,
        (standing, admission): (Standing, Admission),
    ) -> Self {
        let credentials = Credentials::new(store.clone(), clock.clone(), admission);
        let (told, site) = (Told::default(), Arc::new(site));
        let servers = Arc::default();
        let (lease, checkpoint_root) = (engine.lease, engine.checkpoint_root.as_str().into());
        Self {
            store,
            told,
            inbox,
            registrations,
            sessions,
            credentials,
            clock,
            lease,
            checkpoint_root,
            site,
            standing,
            servers,
        }
    }

    /// What gives nodes their certificates, beside this.
    #[must_use]
    pub fn registrar(&self, authorities: Authorities) -> Registrar {
        Registrar {
            store: self.store.clone(),
            clock: self.clock.clone(),
            sessions: self.sessions.clone(),
            credentials: self.credentials.clone(),
            turns: RegistrarTurns::new(),
            authorities,
            refusals: self.credentials.refusals().clone(),
            standing: self.standing.clone(),
        }
    }

    /// What an agent does not say of its GPUs, the site's catalog may. From here on it is the node's own fact, which plans carry.
    fn completed(&self, mut report: NodeReport) -> NodeReport {
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
        if let Some(refusal) = not_leading(&self.standing) {
            return Err(refusal);
        }
        let changes = self.sessions.token_changes();
        let peer = request.extensions().get::<Peer>().cloned();
        let admitted = match self.credentials.admit(&request).await {
            Ok(admitted) => admitted,
            Err(status) => {
                if let Some(shown) = peer.as_ref().and_then(|peer| peer.shown.as_ref())
                    && status.code() == Code::PermissionDenied
                {
                    let (node, name) = (NodeId(shown.named.id), shown.named.name.clone());
                    let address = peer.as_ref().map(|peer| peer.visitor.address());
                    self.tell_refused((node, name), status.message(), (None, address)).await;
                }
                return Err(status);
            }
        };
        let from = (admitted.token(), peer.as_ref().map(|peer| peer.visitor.address()));
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
        let may = self.credentials.may_register(&admitted, &inventory).await.map_err(not_looked_up)?;
        let arrival = match may {
            Ok(arrival) => arrival,
            Err(why) => {
                let name = inventory.check().map_or_else(|_| node.to_string(), |()| inventory.name.clone());
                self.tell_refused((node, name), &why, from).await;
                let refused = SchedulerToAgent::Refused { reason: why, term: None };
                return Ok(Response::new(Box::pin(tokio_stream::once(Ok((&refused).into())))));
            }
        };
        let opened = match self.sessions.open(node, followed) {
            Ok(opened) => opened,
            Err(NotOpened::NoLeader) => return Err(Status::unavailable("the scheduler does not lead now")),
            Err(NotOpened::Ahead { term }) => return Ok(self.tell_ahead(&inventory, followed, term).await),
        };
        let session = opened.session;
        let heartbeat = Seconds(self.lease.0 / HEARTBEATS_PER_LEASE);
        let (term, lease) = (opened.term, self.lease);
        let speed = self.clock.speed().factor();
        let checkpoint_root = Some(self.checkpoint_root.to_string());
        self.sessions.send(node, &SchedulerToAgent::Welcome { term, lease, heartbeat, speed, checkpoint_root });
        tracing::info!(node_id = %node, name = %inventory.name, session = session.0, "agent connected");
        let report = NodeReport::Registered { inventory, groups };
        let credentials = self.credentials.clone();
        let over = async move { credentials.over(admitted, changes).await };
        let span = spans::agent_session(node, session);
        let listening = self.clone().listen((node, session), (arrival, report), incoming, opened.closed, over);
        let (credentials, refused) = (self.credentials.clone(), opened.refused);
        let listening = async move {
            listening.await;
            if let Some(reason) = refused.get() {
                credentials.note_refused(node, from.0, from.1, reason);
            }
        };
        tokio::spawn(listening.instrument(span));
        let mut response: Response<Self::SessionStream> = Response::new(Box::pin(ReceiverStream::new(opened.outgoing)));
        let servers = self.known_servers().await;
        name_servers(response.metadata_mut(), servers.iter().map(String::as_str));
        Ok(response)
    }
}

impl Gateway {
    /// Where the servers of the cluster take agents. Read from the store at most once in a while: at a takeover all agents come at once.
    async fn known_servers(&self) -> Arc<Vec<String>> {
        let mut known = self.servers.lock().await;
        if let Some((read_at, servers)) = &*known
            && read_at.elapsed() < SERVERS_LAST
        {
            return Arc::clone(servers);
        }
        let servers = match within(SERVERS_TIME, self.store.leadership()).await {
            Ok(leadership) => {
                let all = leadership.leader.into_iter().chain(leadership.others);
                let all: Vec<String> = all.map(|known| known.server.agents).collect();
                // One that is alone is known to whoever has come to it, perhaps by another name.
                Arc::new(if all.len() > 1 { all } else { Vec::new() })
            }
            Err(error) => {
                tracing::debug!(error = &error as &dyn std::error::Error, "agents are not told of other servers");
                Arc::default()
            }
        };
        *known = Some((Instant::now(), Arc::clone(&servers)));
        servers
    }

    /// Tells people of a node that is not who it says, or has been shut out, and the audit.
    async fn tell_refused(
        &self,
        (node, name): (NodeId, String),
        why: &str,
        (token, address): (Option<Uuid>, Option<IpAddr>),
    ) {
        metrics::agent_refused();
        self.credentials.note_refused(node, token, address, why);
        let now = Instant::now();
        {
            let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
            told.retain(|_, at| now.duration_since(*at) < TELL_AGAIN);
            if told.len() >= MOST_TOLD || told.contains_key(&(node, name.clone())) {
                return;
            }
            told.insert((node, name.clone()), now);
        }
        tracing::warn!(node_id = %node, %name, %why, "an agent is not who it says, or has been shut out");
        let event = Event::AgentRefused { node, name, why: why.to_owned() };
        // The loop has ended if this fails; the audit has it.
        let _ = self.inbox.send(Input::event(event)).await;
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
        (node, session): (NodeId, SessionId),
        (arrival, registered): (Arrival, NodeReport),
        incoming: Streaming<wire::AgentMessage>,
        closed: CancellationToken,
        over: impl Future<Output = String> + Send,
    ) {
        let span = spans::agent_report(node, session, &registered);
        let event = Event::Agent { node, session, report: self.completed(registered) };
        tokio::pin!(over);
        let is_registered = tokio::select! {
            biased;
            () = closed.cancelled() => false,
            why = &mut over => {
                metrics::agent_refused();
                self.sessions.refuse(node, session, why);
                false
            }
            // The loop has ended if this fails, or the term has: then so has the session.
            taken = self.registrations.register(arrival, event).instrument(span) => taken.is_ok(),
        };
        if is_registered {
            self.forward((node, session), incoming, closed, over).await;
        }
        self.sessions.close(node, session);
        tracing::info!(node_id = %node, session = session.0, "agent disconnected");
        // The loop has ended if this fails; then nobody needs to know.
        let _ = self.inbox.send(Input::event(Event::AgentDisconnected { node, session })).await;
    }

    /// Forwards reports of a session that has registered until the stream ends or the session is closed.
    async fn forward(
        &self,
        (node, session): (NodeId, SessionId),
        mut incoming: Streaming<wire::AgentMessage>,
        closed: CancellationToken,
        mut over: Pin<&mut (impl Future<Output = String> + Send)>,
    ) {
        let mut report = None;
        let mut told = Instant::now();
        let every = Duration::from_secs_f64(self.lease.0 / HEARTBEATS_PER_LEASE / self.clock.speed().factor());
        loop {
            if let Some(report) = report.take().map(|report| self.completed(report)) {
                told = Instant::now();
                let span = spans::agent_report(node, session, &report);
                let taken = self.inbox.send(Input::event(Event::Agent { node, session, report })).instrument(span);
                if taken.await.is_err() {
                    break;
                }
            }
            let message = tokio::select! {
                () = closed.cancelled() => break,
                why = &mut over => {
                    metrics::agent_refused();
                    self.sessions.refuse(node, session, why);
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
            // Whatever it says, it lives: heartbeats may come late behind what people read there.
            if report.is_none() && told.elapsed() >= every {
                report = Some(NodeReport::Heartbeat);
            }
        }
    }
}

/// For agents that have come to a server that stands by. Nobody is asked who they are: they are told no more than where to go.
pub(super) fn not_leading(standing: &Standing) -> Option<Status> {
    let standing = standing.borrow().clone()?;
    Some(match &standing.leader {
        Some(leader) => {
            let agents = leader.server.agents.as_str();
            let mut refusal = Status::failed_precondition(format!("not leading; the leader is at {agents}"));
            name_servers(refusal.metadata_mut(), [agents].into_iter());
            refusal
        }
        None => Status::failed_precondition("not leading; nobody says that he leads"),
    })
}

/// An address that no header can carry is left out.
fn name_servers<'a>(metadata: &mut MetadataMap, servers: impl Iterator<Item = &'a str>) {
    let named: Vec<&str> = servers.filter(|url| !url.is_empty() && !url.contains(',')).collect();
    if let Ok(value) = named.join(",").parse()
        && !named.is_empty()
    {
        metadata.insert(SERVERS_METADATA, value);
    }
}

fn bad(error: WireError) -> Status {
    metrics::agent_refused();
    Status::invalid_argument(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agents_are_told_of_all_servers_in_one_word() {
        let told = |servers: &[&str]| {
            let mut metadata = MetadataMap::new();
            name_servers(&mut metadata, servers.iter().copied());
            metadata.get(SERVERS_METADATA).and_then(|value| value.to_str().ok()).map(str::to_owned)
        };
        assert_eq!(told(&["https://a:1", "", "https://b:1"]).as_deref(), Some("https://a:1,https://b:1"));
        assert_eq!(told(&["https://a:1,b"]), None, "what cannot be told apart is left out");
        assert_eq!(told(&[]), None);
    }
}
