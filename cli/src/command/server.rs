//! `headway server`: the scheduler.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use headway_engine::EngineConfig;
use headway_scheduler::store::Scope;
use headway_scheduler::{InitialToken, ServerConfig, TlsPaths};
use headway_types::Seconds;

use super::shutdown_token;
use crate::context::read_token;
use crate::failure::Failure;

#[derive(Args, Clone, Debug)]
pub struct Server {
    /// Postgres to keep all state in.
    #[arg(long, env = "DATABASE_URL", hide_env_values = true)]
    pub database_url: String,
    /// Port for people: REST, stream, web page, metrics.
    #[arg(long, default_value = "127.0.0.1:7600")]
    pub listen: SocketAddr,
    /// Port for agents: gRPC.
    #[arg(long, default_value = "127.0.0.1:7601")]
    pub agent_listen: SocketAddr,
    /// PEM certificate chain; required beyond loopback.
    #[arg(long, requires = "tls_key")]
    pub tls_certificate: Option<PathBuf>,
    /// PEM private key.
    #[arg(long, requires = "tls_certificate")]
    pub tls_key: Option<PathBuf>,
    /// Token to accept as administrator.
    #[arg(long)]
    pub admin_token_file: Option<PathBuf>,
    /// Token to accept from agents.
    #[arg(long)]
    pub agent_token_file: Option<PathBuf>,
    /// Where jobs without a checkpoint directory of their own save, seen by every node.
    #[arg(long)]
    pub checkpoint_root: PathBuf,
    /// Seconds of silence after which a node counts as unreachable.
    #[arg(long, default_value_t = 30.0)]
    pub lease_seconds: f64,
    /// Ends when this process does.
    #[arg(long, hide = true)]
    pub die_with_parent: Option<i32>,
}

pub async fn run(server: Server) -> Result<(), Failure> {
    let shutdown = shutdown_token(server.die_with_parent)?;
    let mut tokens = Vec::new();
    for (name, scope, file) in
        [("admin", Scope::Admin, &server.admin_token_file), ("agent", Scope::Agent, &server.agent_token_file)]
    {
        if let Some(file) = file {
            tokens.push(InitialToken { name: name.into(), scope, secret: read_token(file)? });
        }
    }
    let tls = server.tls_certificate.zip(server.tls_key).map(|(certificate, key)| TlsPaths { certificate, key });
    let engine = EngineConfig {
        lease: Seconds(server.lease_seconds),
        checkpoint_root: server.checkpoint_root.display().to_string(),
        ..EngineConfig::default()
    };
    let config = ServerConfig {
        database_url: server.database_url,
        listen: server.listen,
        agent_listen: server.agent_listen,
        tls,
        engine,
        tokens,
        metrics: true,
    };
    headway_scheduler::serve(config, shutdown).await.map_err(|error| Failure::from(anyhow::Error::new(error)))
}
