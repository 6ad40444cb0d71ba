//! Where this server is reached, for whoever has come to another one.

use std::net::SocketAddr;

use uuid::Uuid;

use super::{Bound, ServerError};
use crate::config::ServerConfig;
use crate::store::Server;

/// This process as it tells of itself: what the installation says, else where it listens.
pub(super) fn server(config: &ServerConfig, bound: Bound) -> Result<Server, ServerError> {
    let random = || getrandom::u64().map_err(ServerError::Entropy);
    let told = |told: &Option<String>, scheme: &str, bound| {
        told.clone().unwrap_or_else(|| format!("{scheme}://{}", reached(bound)))
    };
    let people = if config.tls.is_some() { "https" } else { "http" };
    let agents = if config.tls.is_some() || config.can_sign() { "https" } else { "http" };
    Ok(Server {
        id: Uuid::from_u64_pair(random()?, random()?),
        url: told(&config.advertised.url, people, bound.http),
        agents: told(&config.advertised.agents, agents, bound.agents),
        version: format!("{} ({})", env!("CARGO_PKG_VERSION"), config.build),
    })
}

/// Whoever listens everywhere is reached by the machine's name.
fn reached(bound: SocketAddr) -> String {
    if !bound.ip().is_unspecified() {
        return bound.to_string();
    }
    let name = nix::unistd::gethostname().ok().and_then(|name| name.into_string().ok());
    format!("{}:{}", name.unwrap_or_else(|| "localhost".into()), bound.port())
}
