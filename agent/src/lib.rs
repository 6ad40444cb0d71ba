//! The node shell: dials the scheduler, launches and watches worker groups, talks to workers, ships their logs.
//!
//! It decides nothing: `headway-node` says what may run, this crate stores that ledger durably, then acts, then
//! reports. It never imports the scheduler, and its end or loss of contact never stops a worker: a restarted agent
//! adopts them. Also here: the emulated worker, a process that keeps the time of a device of stated speed, and the
//! emulated fleet, many nodes in one process whose workers are no processes at all.

mod activity;
mod carried;
mod cause;
mod certificate;
mod cgroup;
mod checkpoints;
mod clock;
mod closed_roots;
mod config;
mod connections;
mod departure;
mod descriptors;
mod emulated;
mod environment;
mod exec;
mod files;
mod fleet;
mod foreign;
mod gpu;
mod hooks;
mod housekeeping;
mod identity;
mod inventory;
mod join;
mod journal;
mod launcher;
mod logs;
mod manifest;
mod node;
mod observer;
mod orphans;
mod outbox;
mod prepare;
mod pressure;
mod printed;
mod process;
mod readings;
mod reaper;
mod recovery;
mod secret_file;
mod servers;
mod session;
mod site;
mod user;
mod user_program;
mod view;
mod warm;
mod worker_socket;

pub use cgroup::{CgroupRoot, hand_back_cgroups};
pub use config::{Access, AgentConfig, DeclaredGpus, GpuOffer};
pub use emulated::emulated_worker_main;
pub use fleet::{FleetConfig, FleetGroup, GroupForm, WrittenGroup, run_fleet};
pub use join::{Joined, Joiner, Joining, has_joined, join, joined_name};
pub use logs::OutputLimits;
pub use user::{LEAST_UID, RunAs};
pub use warm::WarmLimits;

use std::sync::Arc;

use files::Files;
use identity::Identity;
use inventory::Inventory;
use launcher::Launcher;
use node::Node;
use observer::Observer;
use outbox::Outbox;
use servers::Servers;
use session::Session;
use site::Site;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use user::Users;

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
    #[error("the ledger {path} cannot be put into its written form")]
    Ledger {
        path: std::path::PathBuf,
        #[source]
        source: serde_json::Error,
    },
    #[error("{path} is too long for a unix socket ({length} bytes, at most {limit})")]
    SocketPath { path: std::path::PathBuf, length: usize, limit: usize },
    #[error("workers cannot run as asked: {message}")]
    RunAs { message: String },
    #[error("the GPUs cannot be offered: {message}")]
    Gpus { message: String },
    #[error("the certificate of this node: {message}")]
    Certificate { message: String },
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

/// How an agent is told to end.
#[derive(Clone, Debug, Default)]
pub struct Ending {
    /// First announces to the scheduler that the node goes away, and waits for the jobs to leave (`--leave-on-term`).
    pub leave: CancellationToken,
    /// Ends at once.
    pub stop: CancellationToken,
}

/// Runs an agent until it is told to end. Workers it started go on; the next run on the same data directory adopts
/// them.
pub async fn run(config: AgentConfig, ending: Ending) -> Result<(), AgentError> {
    let shutdown = ending.stop;
    descriptors::close_on_exec().map_err(AgentError::io("closing inherited descriptors to jobs"))?;
    let users = Users::new(config.run_as.clone(), config.allow_others, config.least_uid)?;
    let (files, _lock) = Files::open(&config.data_dir, users.are_others())?;
    let servers = Servers::open(&config.server_urls, &config.access)?;
    if let Some(held) = servers.certificate().map(certificate::Certificate::held)
        && held.name != config.name
    {
        let message = format!("it is of {}, and this is {}; give --name, or join again", held.name, config.name);
        return Err(AgentError::Certificate { message });
    }
    let identity = Identity::load(&files, servers.certificate().map(certificate::Certificate::node))?;
    let (mut source, waker) = gpu::open(&config.gpus, identity.node)?;
    let devices = source.look();
    let own = devices.iter().map(|device| (device.gpu.uuid.clone(), device.own.clone())).collect();
    let inventory = Inventory::new(config.inventory(identity.node, identity.boot, devices)?);
    let outbox = Arc::new(Outbox::default());
    let observer = Observer::new(config.report_every, Arc::clone(&outbox));
    let uses = activity::Uses::default();
    let readings = readings::Readings::default();
    let seen = (uses.clone(), readings.clone());
    let gpus = gpu::monitor(source, waker, inventory.clone(), observer.clone(), seen, files.faults())?;
    let (inputs, receiver) = mpsc::channel(INPUTS);

    let connections = connections::Connections::default();
    let site = Arc::new(Site::new(&config, files.clone(), inventory, gpus, users)?);
    site.isolate(own).await;
    if site.users.are_others() {
        site.closed_roots.check();
    }
    let socket = worker_socket::listen(Arc::clone(&site), observer.clone(), inputs.clone(), connections.clone())?;
    let launcher = Launcher::new(Arc::clone(&site), inputs.clone(), connections, observer.clone());
    let node = Node::load(Arc::clone(&site), launcher.clone(), observer.clone(), Arc::clone(&outbox), inputs.clone())?;
    let unknown = orphans::end(node.ledger(), &site).await;
    let execs = exec::Execs::new(Arc::clone(&site), inputs.clone());
    let session = Session {
        servers,
        files,
        inputs,
        outbox: Arc::clone(&outbox),
        execs,
        readings,
        closed_roots: site.users.are_others().then(|| site.closed_roots.clone()),
        shutdown: shutdown.clone(),
    };
    let offer = site.inventory.now();
    tracing::info!(node_id = %offer.node, name = %offer.name, gpus = offer.gpus.len(), unknown, "agent started");

    // The session says good-bye first, which takes a moment.
    let told_to_end = async {
        shutdown.cancelled().await;
        tracing::info!("the agent was told to end; workers go on, and the next agent adopts them");
        tokio::time::sleep(session::FAREWELL + session::FAREWELL).await;
    };
    // Whichever ends first ends the others: the futures are dropped, worker processes are not.
    tokio::select! {
        () = told_to_end => Ok(()),
        never = departure::run(&site, &ending.leave, &shutdown) => match never {},
        result = node.run(receiver) => result,
        () = session.run() => Ok(()),
        () = session.servers.keep_certificate() => Ok(()),
        () = socket => Ok(()),
        () = observer.run() => Ok(()),
        () = activity::run(Arc::clone(&site), uses, outbox) => Ok(()),
        () = housekeeping::run(Arc::clone(&site)) => Ok(()),
        () = launcher.keep_warm() => Ok(()),
        () = reaper::run() => Ok(()),
    }
}
