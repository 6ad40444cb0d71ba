//! One node's line to the scheduler; many share a connection.

use std::sync::{Arc, Mutex, PoisonError};

use headway_api::agent::{AgentToScheduler, ExecPiece, ExecRequest, GpuReading, LogRequest, Secrets};
use headway_node::NodeEvent;
use headway_types::{NodeReport, Term};
use tokio::sync::{mpsc, oneshot, watch};
use tonic::transport::Channel;

use super::node::Node;
use crate::AgentError;
use crate::outbox::Outbox;
use crate::servers::{Servers, Turns};
use crate::session::{Dialer, Opened, Outgoing, Renewals, SessionError, Side, chain, handshake};

/// What reaches the emulation from its sessions.
pub(super) enum Input {
    /// A session needs its first message.
    Register {
        node: usize,
        reply: oneshot::Sender<(NodeReport, Term)>,
    },
    /// A session was welcomed; answered with whether its term is acceptable.
    Opened {
        node: usize,
        term: Term,
        speed: f64,
        reply: oneshot::Sender<bool>,
    },
    Event {
        node: usize,
        event: NodeEvent,
    },
    Log {
        node: usize,
        request: LogRequest,
        outgoing: Outgoing,
    },
}

/// To one server.
#[derive(Clone)]
pub(super) struct Way {
    servers: Arc<Servers>,
    at: usize,
    /// With what certificate it was opened, of the newest of which another is opened.
    line: Arc<Mutex<(Renewals, Channel)>>,
}

impl Way {
    pub(super) fn to(servers: &Arc<Servers>, at: usize) -> Result<Self, AgentError> {
        let dialer = servers.dialer(at);
        let renewals = dialer.renewals();
        let channel = dialer.connect_lazily().map_err(|error| AgentError::Certificate { message: chain(&error) })?;
        Ok(Self { servers: Arc::clone(servers), at, line: Arc::new(Mutex::new((renewals, channel))) })
    }

    fn dialer(&self) -> Arc<Dialer> {
        self.servers.dialer(self.at)
    }

    /// The connection by the certificate that there is now.
    fn channel(&self) -> Result<(Renewals, Channel), SessionError> {
        let mut line = self.line.lock().unwrap_or_else(PoisonError::into_inner);
        if line.0.has_come() {
            let renewals = self.dialer().renewals();
            *line = (renewals, self.dialer().connect_lazily()?);
        }
        Ok(line.clone())
    }
}

pub(super) struct Line {
    node: usize,
    ways: Vec<Way>,
    turns: Turns,
    inputs: mpsc::Sender<Input>,
    outbox: Arc<Outbox>,
    /// Whether the node is up.
    up: watch::Receiver<bool>,
}

impl Line {
    /// `ways`: to each server, one at least.
    pub(super) fn new(number: usize, node: &Node, ways: Vec<Way>, inputs: mpsc::Sender<Input>) -> Self {
        let (outbox, up, turns) = (node.outbox(), node.watch(), Turns::of(ways.len()));
        Self { node: number, ways, turns, inputs, outbox, up }
    }

    async fn tell(&self, input: Input) -> Result<(), SessionError> {
        self.inputs.send(input).await.map_err(|_| SessionError::GoingDown)
    }

    async fn until(&self, up: bool) {
        let mut changes = self.up.clone();
        // The emulation is gone if it fails; then this task ends too.
        let _emulation_gone = changes.wait_for(|now| *now == up).await;
    }
}

impl Side for Line {
    fn outbox(&self) -> &Outbox {
        &self.outbox
    }

    fn turns(&self) -> &Turns {
        &self.turns
    }

    async fn dial(&self) -> Result<Opened, SessionError> {
        self.until(true).await;
        let node = self.node;
        let (reply, answer) = oneshot::channel();
        self.tell(Input::Register { node, reply }).await?;
        let registered = answer.await.map_err(|_| SessionError::GoingDown)?;
        let way = &self.ways[self.turns.current()];
        let (renewals, channel) = way.channel()?;
        let opened = handshake(&way.dialer(), (renewals, channel), registered).await?;
        let (reply, answer) = oneshot::channel();
        self.tell(Input::Opened { node, term: opened.term, speed: opened.speed, reply }).await?;
        match answer.await {
            Ok(true) => Ok(opened),
            Ok(false) => Err(SessionError::OldTerm),
            Err(_) => Err(SessionError::GoingDown),
        }
    }

    /// Nobody's script is there to be given a secret.
    async fn command(&self, event: NodeEvent, _secrets: Secrets) -> Result<(), SessionError> {
        self.tell(Input::Event { node: self.node, event }).await
    }

    async fn log(&self, request: LogRequest, outgoing: &Outgoing) -> Result<(), SessionError> {
        self.tell(Input::Log { node: self.node, request, outgoing: outgoing.clone() }).await
    }

    async fn exec(&self, request: ExecRequest, outgoing: &Outgoing) -> Result<(), SessionError> {
        let error = Some("nothing runs on an emulated node that a command could run beside".to_owned());
        let piece = AgentToScheduler::Exec(ExecPiece { request_id: request.request_id, error, ..ExecPiece::default() });
        // Whoever asked through a full stream asks again.
        let _full = outgoing.try_send((&piece).into());
        Ok(())
    }

    fn readings(&self) -> Vec<GpuReading> {
        Vec::new()
    }

    fn renew(&self) {
        self.ways.iter().take(1).for_each(|way| way.servers.renew());
    }

    /// The sessions of a fleet end with its process.
    async fn leaving(&self) {
        std::future::pending().await
    }

    async fn gone(&self) {
        // A node that is still booting is waited for in `dial`.
        self.until(true).await;
        self.until(false).await;
    }
}
