//! The agent's stream to the scheduler: dials, registers, carries commands in and reports out, and dials again for
//! ever. Its loss changes nothing on the node.

use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use headway_api::agent::wire::agent_gateway_client::AgentGatewayClient;
use headway_api::agent::{
    AgentToScheduler, ExecRequest, GpuReading, LogRequest, SERVERS_METADATA, SchedulerToAgent, Secrets, WireError,
    registration, wire,
};
use headway_node::NodeEvent;
use headway_types::{NodeReport, Term};
use rand::RngExt;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt};
use tokio_util::sync::CancellationToken;
use tonic::codegen::http::Uri;
use tonic::codegen::http::uri::Scheme;
use tonic::metadata::{Ascii, MetadataMap, MetadataValue};
use tonic::transport::{Certificate as Pem, Channel, ClientTlsConfig, Endpoint};
use tonic::{Code, Request, Status, Streaming};

use crate::AgentError;
use crate::certificate::{Certificate, Held};
use crate::closed_roots::ClosedRoots;
use crate::exec::Execs;
use crate::files::Files;
use crate::logs;
use crate::node::{Input, ask};
use crate::outbox::Outbox;
use crate::readings::Readings;
use crate::servers::{Servers, Turns};

/// Messages that may wait for the stream; beyond this they wait in the outbox, where old step reports give way.
const IN_FLIGHT: usize = 64;
/// Likewise of pieces of logs and of commands' output, in a lane of their own: however much people read, reports go out beside it.
const PIECES_IN_FLIGHT: usize = 8;
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
const PATIENCE: Duration = Duration::from_secs(10);
/// How often people hear what GPUs measure.
const READINGS_EVERY: Duration = Duration::from_secs(10);
/// Where there are other servers: from the end of a session on, for as long as a takeover takes, none is waited for longer than this.
/// An agent that has no session for longer warns of it.
const TAKEOVER: Duration = Duration::from_secs(30);
const TAKEOVER_PAUSE: Duration = Duration::from_secs(1);
/// And none that does not answer.
const CONNECT_PATIENCE: Duration = Duration::from_secs(1);
const SHORT_PATIENCE: Duration = Duration::from_secs(3);
/// A server that is stopped keeps its connections: whether it lives is asked so often, and waited for so long.
const PULSE: Duration = Duration::from_secs(1);
const PULSE_PATIENCE: Duration = Duration::from_secs(2);
/// How long the end of a session may take when the agent is told to end.
pub(crate) const FAREWELL: Duration = Duration::from_secs(1);
/// The first may come of a moment (a node that was deleted, GPUs that have changed hands): the second in a row is told.
const REFUSALS_TOLD: u32 = 2;

const IN_THE_CLEAR: &str = "beyond loopback only https keeps the agent's token secret; write https:// and give the certificate \
                            authority of the server with --tls-ca";

const CERTIFICATE_IN_THE_CLEAR: &str = "a certificate is shown over https alone; write https://";

/// How to reach the scheduler.
pub(crate) struct Dialer {
    endpoint: Endpoint,
    credential: Credential,
    /// How long a welcome is waited for.
    patience: Duration,
}

/// What is shown there.
enum Credential {
    Token(MetadataValue<Ascii>),
    /// As it is when somebody dials.
    Certificate(Arc<Certificate>),
}

/// Whether there is another certificate than the one that a connection was opened with.
#[derive(Clone)]
pub(crate) struct Renewals(Option<watch::Receiver<Arc<Held>>>);

impl Renewals {
    /// The scheduler has been gone from for another reason if it fails.
    pub(crate) fn has_come(&self) -> bool {
        self.0.as_ref().is_some_and(|held| held.has_changed().unwrap_or(false))
    }

    async fn come(&mut self) {
        match &mut self.0 {
            // Whoever renews lives as long as there are sessions.
            Some(held) => drop(held.changed().await),
            None => std::future::pending().await,
        }
    }
}

/// That a certificate is not shown in the clear.
pub(crate) fn https_only(url: &Uri) -> Result<(), String> {
    if url.scheme() == Some(&Scheme::HTTPS) { Ok(()) } else { Err(CERTIFICATE_IN_THE_CLEAR.to_owned()) }
}

impl Dialer {
    pub(crate) fn to(url: &str, token: &str, tls_ca: Option<&Path>) -> Result<Self, AgentError> {
        let unusable = |message: String| AgentError::Server { url: url.to_owned(), message };
        let mut endpoint = Endpoint::from_shared(url.to_owned()).map_err(|error| unusable(error.to_string()))?;
        if endpoint.uri().scheme() != Some(&Scheme::HTTPS) && !is_loopback(endpoint.uri()) {
            return Err(unusable(IN_THE_CLEAR.to_owned()));
        }
        endpoint = kept_alive(endpoint);
        if let Some(path) = tls_ca {
            let pem = std::fs::read(path).map_err(AgentError::io(format!("reading {}", path.display())))?;
            let tls = ClientTlsConfig::new().ca_certificate(Pem::from_pem(pem));
            endpoint = endpoint.tls_config(tls).map_err(|error| unusable(error.to_string()))?;
        } else if endpoint.uri().scheme() == Some(&Scheme::HTTPS) {
            return Err(unusable("https needs the certificate authority to trust".to_owned()));
        }
        let authorization = format!("Bearer {token}")
            .parse()
            .map_err(|_| unusable("the token holds characters that cannot be sent".to_owned()))?;
        Ok(Self { endpoint, credential: Credential::Token(authorization), patience: PATIENCE })
    }

    pub(crate) fn certified(url: &str, certificate: Arc<Certificate>) -> Result<Self, AgentError> {
        let unusable = |message: String| AgentError::Server { url: url.to_owned(), message };
        let endpoint = Endpoint::from_shared(url.to_owned()).map_err(|error| unusable(error.to_string()))?;
        https_only(endpoint.uri()).map_err(unusable)?;
        let (endpoint, credential) = (kept_alive(endpoint), Credential::Certificate(certificate));
        Ok(Self { endpoint, credential, patience: PATIENCE })
    }

    /// By the certificate that there is now.
    fn endpoint(&self) -> Result<Endpoint, SessionError> {
        match &self.credential {
            Credential::Token(_) => Ok(self.endpoint.clone()),
            Credential::Certificate(certificate) => {
                self.endpoint.clone().tls_config(certificate.held().tls()).map_err(SessionError::Connect)
            }
        }
    }

    pub(crate) async fn connect(&self) -> Result<Channel, SessionError> {
        self.endpoint()?.connect().await.map_err(SessionError::Connect)
    }

    pub(crate) fn connect_lazily(&self) -> Result<Channel, SessionError> {
        Ok(self.endpoint()?.connect_lazy())
    }

    /// From now on.
    pub(crate) fn renewals(&self) -> Renewals {
        Renewals(match &self.credential {
            Credential::Token(_) => None,
            Credential::Certificate(certificate) => Some(certificate.watch()),
        })
    }

    /// One that has others beside it.
    pub(crate) fn hurried(self) -> Self {
        let endpoint = self.endpoint.connect_timeout(CONNECT_PATIENCE);
        let endpoint = endpoint.http2_keep_alive_interval(PULSE).keep_alive_timeout(PULSE_PATIENCE);
        Self { endpoint, patience: SHORT_PATIENCE, ..self }
    }
}

fn kept_alive(endpoint: Endpoint) -> Endpoint {
    endpoint
        .connect_timeout(PATIENCE)
        .tcp_nodelay(true)
        .http2_keep_alive_interval(PATIENCE)
        .keep_alive_timeout(PATIENCE)
        .keep_alive_while_idle(true)
}

/// Names other than `localhost` may mean any machine.
fn is_loopback(url: &Uri) -> bool {
    let host = url.host().unwrap_or_default();
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    bare == "localhost" || bare.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Why a session ended. All of them are followed by another attempt.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SessionError {
    #[error("connecting")]
    Connect(#[source] tonic::transport::Error),
    #[error("the stream broke")]
    Stream(#[source] Box<tonic::Status>),
    #[error("the scheduler ended the stream")]
    Ended,
    #[error("the scheduler did not answer in time")]
    Silent,
    #[error("the scheduler refused: {0}")]
    Refused(String),
    #[error("the scheduler's message cannot be read")]
    Wire(#[source] WireError),
    /// It stands by. `servers`: where it says that the cluster has others.
    #[error("the server takes no agents: {message}")]
    NotLeading { message: String, servers: Vec<String> },
    /// The next begins at once.
    #[error("the certificate was renewed")]
    Renewed,
    #[error("the scheduler has been replaced by a newer one")]
    OldTerm,
    /// Its database was restored from an older backup, or this node is of another cluster.
    #[error(
        "the scheduler leads term {term}, this node follows {followed}: its database is older than what this node has lived through. Workers \
         go on; nothing else is obeyed until an operator readmits the node (`headway admin readmit`), or the agent has a server of its own \
         cluster again"
    )]
    Behind { term: Term, followed: Term },
    #[error("the agent is going down")]
    GoingDown,
    /// It was told to end.
    #[error("the agent was told to end")]
    Leaving,
}

pub(crate) struct Session {
    pub(crate) servers: Servers,
    pub(crate) files: Files,
    pub(crate) inputs: mpsc::Sender<Input>,
    pub(crate) outbox: Arc<Outbox>,
    pub(crate) execs: Execs,
    pub(crate) readings: Readings,
    /// Where jobs run as their owners.
    pub(crate) closed_roots: Option<ClosedRoots>,
    /// The agent is told to end.
    pub(crate) shutdown: CancellationToken,
}

/// A node's side of its sessions: who dials, and who takes what the scheduler says.
pub(crate) trait Side: Sync {
    fn outbox(&self) -> &Outbox;
    /// Whom `dial` dials.
    fn turns(&self) -> &Turns;
    /// Dials and registers.
    fn dial(&self) -> impl Future<Output = Result<Opened, SessionError>> + Send;
    /// `secrets`: of a launch, for the workers' environment alone.
    fn command(&self, event: NodeEvent, secrets: Secrets) -> impl Future<Output = Result<(), SessionError>> + Send;
    /// Answers a log request in its own time.
    fn log(&self, request: LogRequest, outgoing: &Outgoing) -> impl Future<Output = Result<(), SessionError>> + Send;
    /// Likewise a question for a command beside a rank.
    fn exec(&self, request: ExecRequest, outgoing: &Outgoing) -> impl Future<Output = Result<(), SessionError>> + Send;
    /// The scheduler wants the certificate renewed.
    fn renew(&self);
    /// What its GPUs have measured since the last call; empty where they say nothing.
    fn readings(&self) -> Vec<GpuReading>;
    /// Returns when the agent is told to end: sessions are closed in order, and no other begins.
    fn leaving(&self) -> impl Future<Output = ()> + Send;
    /// Returns when the node itself is no longer there.
    fn gone(&self) -> impl Future<Output = ()> + Send;
}

impl Side for Session {
    fn outbox(&self) -> &Outbox {
        &self.outbox
    }

    fn turns(&self) -> &Turns {
        &self.servers.turns
    }

    async fn dial(&self) -> Result<Opened, SessionError> {
        let dialer = self.servers.current();
        let renewals = dialer.renewals();
        let channel = dialer.connect().await?;
        let registered = self.ask(Input::Register).await?;
        let opened = match handshake(&dialer, (renewals, channel), registered).await {
            Ok(opened) => opened,
            Err(error) => {
                if let SessionError::NotLeading { servers, .. } = &error {
                    self.servers.learn(servers);
                }
                return Err(error);
            }
        };
        if self.ask(|reply| Input::Opened(opened.term, reply)).await? {
            self.servers.learn_all(&opened.servers);
            if let (Some(roots), Some(root)) = (&self.closed_roots, &opened.checkpoint_root) {
                roots.report_cluster_root(root);
            }
            tracing::info!("session opened");
            Ok(opened)
        } else {
            self.servers.learn(&opened.servers);
            Err(SessionError::OldTerm)
        }
    }

    async fn command(&self, event: NodeEvent, secrets: Secrets) -> Result<(), SessionError> {
        self.inputs.send(Input::Command { event, secrets }).await.map_err(|_| SessionError::GoingDown)
    }

    async fn log(&self, request: LogRequest, outgoing: &Outgoing) -> Result<(), SessionError> {
        tokio::spawn(answer_log(self.files.clone(), self.inputs.clone(), request, outgoing.clone()));
        Ok(())
    }

    async fn exec(&self, request: ExecRequest, outgoing: &Outgoing) -> Result<(), SessionError> {
        let (execs, outgoing) = (self.execs.clone(), outgoing.clone());
        tokio::spawn(async move {
            let piece = AgentToScheduler::Exec(execs.answer(request).await);
            let _broken = outgoing.send((&piece).into()).await;
        });
        Ok(())
    }

    fn renew(&self) {
        self.servers.renew();
    }

    fn readings(&self) -> Vec<GpuReading> {
        self.readings.take()
    }

    async fn leaving(&self) {
        self.shutdown.cancelled().await;
    }

    async fn gone(&self) {
        std::future::pending().await
    }
}

impl Session {
    /// Ends when the agent is told to end, once the server has seen the end of the session.
    pub(crate) async fn run(&self) {
        keep_session(self).await;
    }

    async fn ask<T>(&self, question: impl FnOnce(oneshot::Sender<T>) -> Input) -> Result<T, SessionError> {
        ask(&self.inputs, question).await.ok_or(SessionError::GoingDown)
    }
}

pub(crate) type Outgoing = mpsc::Sender<wire::AgentMessage>;

/// A session whose registration was welcomed.
pub(crate) struct Opened {
    pub(crate) term: Term,
    /// Seconds of the scheduler's clock per second of wall time.
    pub(crate) speed: f64,
    /// In wall time.
    heartbeat: Duration,
    /// Of the cluster, as the server names them.
    servers: Vec<String>,
    /// Where jobs save that name no directory of their own, if the server says it.
    checkpoint_root: Option<String>,
    inbound: Streaming<wire::SchedulerMessage>,
    lanes: Lanes,
    renewals: Renewals,
}

/// What goes out, by its lanes, of which each has its turn. What fills one holds back no other.
struct Lanes {
    reports: Outgoing,
    /// A sign of life that waits is as good as another.
    beats: Outgoing,
    pieces: Outgoing,
}

impl Lanes {
    fn new() -> (Self, impl Stream<Item = wire::AgentMessage> + use<>) {
        let (reports, of_reports) = mpsc::channel(IN_FLIGHT);
        let (beats, of_beats) = mpsc::channel(1);
        let (pieces, of_pieces) = mpsc::channel(PIECES_IN_FLIGHT);
        let [of_reports, of_beats, of_pieces] = [of_reports, of_beats, of_pieces].map(ReceiverStream::new);
        (Self { reports, beats, pieces }, of_reports.merge(of_beats).merge(of_pieces))
    }
}

/// Has one session after another, with growing pauses while none is welcomed. Returns when the agent is told to end.
pub(crate) async fn keep_session(side: &impl Side) {
    let (mut pause, mut longest) = (FIRST_PAUSE, LONGEST_PAUSE);
    let mut behind = None;
    let mut refusals = 0_u32;
    let mut ended_at = Instant::now();
    let mut told = false;
    loop {
        let (mut welcomed, began) = (None, Instant::now());
        let ended = tokio::select! {
            ended = attempt(side, &mut welcomed) => ended,
            () = side.gone() => SessionError::GoingDown,
        };
        side.outbox().close();
        if matches!(ended, SessionError::Leaving) {
            return;
        }
        if let Some(heartbeat) = welcomed {
            // A scheduler that comes back should hear of this node before its lease is over.
            (pause, longest) = (FIRST_PAUSE, (heartbeat * 2).clamp(FIRST_PAUSE, LONGEST_PAUSE));
            ended_at = Instant::now();
            told = false;
            side.turns().begin_anew();
            if let SessionError::Renewed = &ended {
                refusals = 0;
                tracing::info!("the session goes on by the renewed certificate");
                continue;
            }
        }
        refusals = match &ended {
            // A session that stood for a while may be ended to be begun anew.
            SessionError::Refused(_) if began.elapsed() < PATIENCE => refusals + 1,
            _ => 0,
        };
        if refusals >= REFUSALS_TOLD {
            // For a person to mend, so there is no hurry.
            (pause, longest) = (LONGEST_PAUSE, LONGEST_PAUSE);
        }
        // Whoever refuses this node, or is behind it, leads.
        if !matches!(ended, SessionError::Refused(_) | SessionError::Behind { .. }) {
            if side.turns().go_on(ended.passes_over()) {
                tracing::debug!(error = %chain(&ended), "the next server is dialled");
                continue;
            }
            if side.turns().are_several() && ended_at.elapsed() < TAKEOVER {
                pause = pause.min(TAKEOVER_PAUSE);
            }
        }
        let jittered = pause.mul_f64(rand::rng().random_range(0.5..1.0));
        // Told once: an agent that waits for its scheduler all night has nothing new to say.
        let before = behind.take();
        if let SessionError::Behind { term, .. } = ended {
            behind = Some(term);
        }
        if behind.is_some() && behind != before {
            tracing::error!(error = %chain(&ended), "the scheduler is behind this node");
        } else if refusals == REFUSALS_TOLD {
            tracing::error!(error = %chain(&ended), "this node is not taken, dialling goes on");
        } else if pause == FIRST_PAUSE {
            tracing::info!(error = %chain(&ended), "no session, dialling goes on");
        } else if !told && ended_at.elapsed() >= TAKEOVER {
            told = true;
            tracing::warn!(error = %chain(&ended), "no session for a while, dialling goes on");
        } else {
            tracing::debug!(error = %chain(&ended), retry_in_s = jittered.as_secs_f64(), "no session");
        }
        tokio::select! {
            () = tokio::time::sleep(jittered) => {}
            () = side.leaving() => return,
        }
        pause = (pause * 2).min(longest);
    }
}

/// One session, from dialling to its end.
async fn attempt(side: &impl Side, welcomed: &mut Option<Duration>) -> SessionError {
    let dialled = tokio::select! {
        dialled = side.dial() => dialled,
        () = side.leaving() => Err(SessionError::Leaving),
    };
    match dialled {
        Ok(opened) => {
            *welcomed = Some(opened.heartbeat);
            serve(side, opened).await
        }
        Err(error) => error,
    }
}

/// Registers on a stream of its own and waits for the welcome.
pub(crate) async fn handshake(
    dialer: &Dialer,
    (renewals, channel): (Renewals, Channel),
    (registered, followed): (NodeReport, Term),
) -> Result<Opened, SessionError> {
    let (lanes, messages) = Lanes::new();
    lanes.reports.send(registration(&registered, followed)).await.map_err(|_| SessionError::Ended)?;
    let mut request = Request::new(messages);
    if let Credential::Token(authorization) = &dialer.credential {
        request.metadata_mut().insert("authorization", authorization.clone());
    }
    let mut client = AgentGatewayClient::new(channel);
    let welcome = async {
        let broke = |status: Status| match status.code() {
            // What this node says of itself cannot be taken, or what it shows opens nothing.
            Code::InvalidArgument | Code::PermissionDenied => SessionError::Refused(status.message().to_owned()),
            Code::FailedPrecondition => {
                let (message, servers) = (status.message().to_owned(), named_servers(status.metadata()));
                SessionError::NotLeading { message, servers }
            }
            _ => SessionError::Stream(Box::new(status)),
        };
        let response = client.session(request).await.map_err(broke)?;
        let servers = named_servers(response.metadata());
        let mut inbound = response.into_inner();
        let first = inbound.message().await.map_err(broke)?.ok_or(SessionError::Ended)?;
        Ok((SchedulerToAgent::try_from(first).map_err(SessionError::Wire)?, inbound, servers))
    };
    let (first, inbound, servers) =
        tokio::time::timeout(dialer.patience, welcome).await.map_err(|_| SessionError::Silent)??;
    match first {
        SchedulerToAgent::Welcome { term, heartbeat, speed, checkpoint_root, .. } => {
            let heartbeat = Duration::from_secs_f64((heartbeat.0 / speed).clamp(0.05, 60.0));
            Ok(Opened { term, speed, heartbeat, servers, checkpoint_root, inbound, lanes, renewals })
        }
        SchedulerToAgent::Refused { term: Some(term), .. } => Err(SessionError::Behind { term, followed }),
        SchedulerToAgent::Refused { reason, term: None } => Err(SessionError::Refused(reason)),
        other => Err(SessionError::Refused(format!("it began with {other:?}"))),
    }
}

/// The servers that an answer names.
fn named_servers(metadata: &MetadataMap) -> Vec<String> {
    let named = metadata.get(SERVERS_METADATA).and_then(|value| value.to_str().ok()).unwrap_or_default();
    named.split(',').filter(|url| !url.is_empty()).map(str::to_owned).collect()
}

/// Carries reports out and messages in until the session ends.
async fn serve(side: &impl Side, opened: Opened) -> SessionError {
    let Opened { heartbeat, mut inbound, lanes, mut renewals, .. } = opened;
    let mut beats = tokio::time::interval(heartbeat);
    let mut readings = tokio::time::interval(READINGS_EVERY);
    for ticks in [&mut beats, &mut readings] {
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    }
    loop {
        tokio::select! {
            message = inbound.message() => {
                let result = match message {
                    Ok(Some(message)) => receive(side, message, &lanes.pieces).await,
                    Ok(None) => Err(SessionError::Ended),
                    Err(status) => Err(SessionError::Stream(Box::new(status))),
                };
                if let Err(error) = result {
                    return error;
                }
            }
            // A place in the stream is taken before a report leaves the outbox, so that none is lost between.
            sent = async {
                let place = lanes.reports.reserve().await.map_err(|_| SessionError::Ended)?;
                place.send((&side.outbox().next().await).into());
                Ok(())
            } => {
                if let Err(error) = sent {
                    return error;
                }
            }
            // A full stream needs none.
            _ = readings.tick() => {
                let readings = side.readings();
                if !readings.is_empty() {
                    drop(lanes.reports.try_send((&AgentToScheduler::Readings(readings)).into()));
                }
            }
            () = renewals.come() => return SessionError::Renewed,
            () = side.leaving() => {
                close(lanes, inbound).await;
                return SessionError::Leaving;
            }
            _ = beats.tick() => drop(lanes.beats.try_send((&NodeReport::Heartbeat).into())),
        }
    }
}

/// Ends the stream as the protocol has it and waits for the server's end of it, so that the server sees no broken connection.
async fn close(lanes: Lanes, mut inbound: Streaming<wire::SchedulerMessage>) {
    drop(lanes);
    let ended = async { while let Ok(Some(_)) = inbound.message().await {} };
    let _server_hangs = tokio::time::timeout(FAREWELL, ended).await;
}

async fn receive(side: &impl Side, message: wire::SchedulerMessage, outgoing: &Outgoing) -> Result<(), SessionError> {
    match SchedulerToAgent::try_from(message) {
        Ok(SchedulerToAgent::Command { term, serial, command, secrets }) => {
            side.command(NodeEvent::Command { term, serial, command }, secrets).await
        }
        Ok(SchedulerToAgent::Log(request)) => side.log(request, outgoing).await,
        Ok(SchedulerToAgent::Exec(request)) => side.exec(request, outgoing).await,
        Ok(SchedulerToAgent::Refused { reason, .. }) => Err(SessionError::Refused(reason)),
        Ok(SchedulerToAgent::Renew) => {
            side.renew();
            Ok(())
        }
        Ok(SchedulerToAgent::Welcome { .. }) => Ok(()),
        Err(error) => {
            tracing::warn!(%error, "skipped a message of the scheduler");
            Ok(())
        }
    }
}

async fn answer_log(files: Files, inputs: mpsc::Sender<Input>, request: LogRequest, outgoing: Outgoing) {
    let generation = logs::newest_generation(&files, &request);
    let over = match generation {
        Some(generation) => ask(&inputs, |reply| Input::IsOver { job: request.job, generation, reply }).await,
        None => Some(true),
    };
    let Some(over) = over else { return };
    // Read only once it can leave: however many ask, no more pieces are in memory than leave soon.
    let Ok(place) = outgoing.reserve().await else { return };
    let chunk = tokio::task::spawn_blocking(move || logs::read(&files, &request, generation, over)).await;
    match chunk {
        Ok(chunk) => place.send((&AgentToScheduler::Log(chunk)).into()),
        Err(error) => tracing::warn!(%error, "reading a log broke off"),
    }
}

/// An error with all its causes, for the log.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}

#[cfg(test)]
pub(crate) mod tests;
