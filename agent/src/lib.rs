//! The node shell: dials the scheduler, launches and watches worker groups, talks to workers, ships their logs.
//!
//! It decides nothing: `headway-node` says what may run, this crate stores that ledger durably, then acts, then
//! reports. It never imports the scheduler, and its end or loss of contact never stops a worker: a restarted agent
//! adopts them. Also here: the emulated worker, a process that keeps the time of a device of stated speed, and the
//! emulated fleet, many nodes in one process whose workers are no processes at all.

mod config;
mod connections;
mod emulated;
mod environment;
mod files;
mod fleet;
mod identity;
mod launcher;
mod logs;
mod node;
mod outbox;
mod prepare;
mod process;
mod session;
mod worker_socket;

pub use config::{AgentConfig, DeclaredGpus};
pub use emulated::emulated_worker_main;
pub use fleet::{FleetConfig, FleetGroup, FleetGroupError, run_fleet};

use std::sync::Arc;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// Why an agent cannot start or go on. Workers are not touched by any of these.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    #[error("another agent uses {0}")]
    Locked(std::path::PathBuf),
    #[error("{doing}")]
    Io {
        doing: String,
        #[source]
        source: std::io::Error,
    },
    #[error("the ledger {path} cannot be read")]
    Ledger {
        path: std::path::PathBuf,
        #[source]
        source: serde_json::Error,
    },
    #[error("{path} is too long for a unix socket ({length} bytes, at most {limit})")]
    SocketPath { path: std::path::PathBuf, length: usize, limit: usize },
    #[error("server address {url} is not usable: {message}")]
    Server { url: String, message: String },
}

impl AgentError {
    pub(crate) fn io(doing: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let doing = doing.into();
        move |source| Self::Io { doing, source }
    }
}

/// Inputs of the node's loop that may wait; beyond this, sources wait instead.
const INPUTS: usize = 1024;

/// Runs an agent until `shutdown`. Workers it started go on; the next run on the same data directory adopts them.
pub async fn run(config: AgentConfig, shutdown: CancellationToken) -> Result<(), AgentError> {
    let (files, _lock) = files::Files::open(&config.data_dir)?;
    let identity = identity::Identity::load(&files)?;
    let inventory = Arc::new(config.inventory(identity.node, identity.boot.clone()));
    let dialer = session::Dialer::new(&config)?;
    let (inputs, receiver) = mpsc::channel(INPUTS);
    let outbox = Arc::new(outbox::Outbox::default());

    let connections = connections::Connections::default();
    let socket = worker_socket::listen(&files, inputs.clone(), connections.clone())?;
    let launcher = launcher::Launcher::new(&config, files.clone(), Arc::clone(&inventory), inputs.clone(), connections);
    let node = node::Node::load(files.clone(), Arc::clone(&inventory), launcher, Arc::clone(&outbox), inputs.clone())?;
    let session = session::Session { dialer, files, inputs, outbox };
    tracing::info!(node_id = %inventory.node, name = %inventory.name, gpus = inventory.gpus.len(), "agent started");

    // Whichever ends first ends the others: the futures are dropped, worker processes are not.
    tokio::select! {
        () = shutdown.cancelled() => Ok(()),
        result = node.run(receiver) => result,
        () = session.run() => Ok(()),
        () = socket => Ok(()),
    }
}
