//! An emulated fleet: many nodes in one process, each with a real ledger and a real session, whose workers are no
//! processes but follow the hidden truth of `headway-emulation`.
//!
//! To the scheduler it is a rack of agents. All nodes share one loop (`emulation`), one clock and one queue of moments; a
//! node costs a ledger and a stream, a gang a few numbers. Ledgers are kept in memory only: when the process ends, all
//! its workers have ended with it, and the next one says so by new boots of the same nodes. Nothing is written to
//! checkpoint directories; a checkpoint is what the scheduler has committed of it.

mod clock;
mod emulation;
mod gang;
mod mishaps;
mod node;
mod offer;
mod queue;
mod session;
mod workers;
mod workload;

#[cfg(test)]
mod tests;

pub use offer::{FleetGroup, GroupForm, WrittenGroup};

use std::collections::BTreeMap;
use std::sync::Arc;

use headway_api::agent::{REQUESTS_OF_NODES, REQUESTS_OF_STRANGERS};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::AgentError;
use crate::config::Access;
use crate::servers::Servers;
use emulation::Emulation;
use session::{Line, Way};

/// One in so many of the requests that a server answers at once on a connection is a node's: a session that broke may be there for a while.
const REQUESTS_PER_NODE: u32 = 2;
/// Inputs of the emulation that may wait; beyond this, sessions wait instead.
const INPUTS: usize = 4096;

/// What a fleet is told at start.
#[derive(Clone, Debug)]
pub struct FleetConfig {
    /// `https://host:port` of the scheduler's agent port (with a token `http://…` on loopback as well); of each of its servers, where there are
    /// several. None: those that the fleet has joined.
    pub server_urls: Vec<String>,
    pub access: Access,
    /// Node ids, GPU ids and the hidden truth follow from it.
    pub name: String,
    pub groups: Vec<FleetGroup>,
    /// Nodes of one domain talk at full bandwidth.
    pub fabric: String,
    /// What jobs may choose these nodes by, unless an operator says otherwise.
    pub labels: BTreeMap<String, String>,
    /// Times the published failure rates; 0: nothing ever breaks.
    pub failures: f64,
}

/// Runs a fleet until `shutdown`. Its workers end with it.
pub async fn run_fleet(config: FleetConfig, shutdown: CancellationToken) -> Result<(), AgentError> {
    let servers = Servers::open(&config.server_urls, &config.access)?;
    if let Some(held) = servers.certificate().map(|certificate| certificate.held())
        && held.name != config.name
    {
        let message =
            format!("it is of the fleet {}, and this is {}; give --name, or join again", held.name, config.name);
        return Err(AgentError::Certificate { message });
    }
    let servers = Arc::new(servers);
    let (inputs, receiver) = mpsc::channel(INPUTS);
    let emulation = Emulation::new(&config);
    let mut sessions = JoinSet::new();
    let mut channels = Vec::new();
    let at_once = if servers.certificate().is_some() { REQUESTS_OF_NODES } else { REQUESTS_OF_STRANGERS };
    let nodes_per_connection = (at_once / REQUESTS_PER_NODE) as usize;
    for (number, node) in emulation.nodes().iter().enumerate() {
        if number % nodes_per_connection == 0 {
            channels = (0..servers.count()).map(|at| Way::to(&servers, at)).collect::<Result<_, _>>()?;
        }
        let line = Line::new(number, node, channels.clone(), inputs.clone());
        sessions.spawn(async move { crate::session::keep_session(&line).await });
    }
    tracing::info!(name = %config.name, nodes = emulation.nodes().len(), failures = config.failures, "fleet started");
    // The sessions end with the set, the emulation with its future.
    tokio::select! {
        () = shutdown.cancelled() => {}
        () = emulation.run(receiver) => {}
        () = servers.keep_certificate() => {}
    }
    Ok(())
}
