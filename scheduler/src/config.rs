//! What an installation sets before the server starts.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use headway_engine::EngineConfig;
use headway_goodput::catalog::Catalog;
use headway_types::{Seconds, TokenScope};

use crate::clock::Speed;
use crate::oidc::OidcSettings;
use crate::webhooks::Network;

/// Everything `serve` needs to know.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// `postgres://…`; the database must exist, its schema is brought up to date at start.
    pub database_url: String,
    /// For people: REST, the event stream, the web UI, metrics. Port 0 takes a free one.
    pub listen: SocketAddr,
    /// For agents. Port 0 takes a free one.
    pub agent_listen: SocketAddr,
    /// Wait while another server leads, instead of refusing to start.
    pub standby: bool,
    /// Where this server is reached, for whoever has come to another.
    pub advertised: Advertised,
    /// Needed on the port for people as soon as it is reachable from other machines.
    pub tls: Option<TlsPaths>,
    /// How nodes are known.
    pub node_certificates: NodeCertificates,
    /// For how long browsers that have come over TLS are to come over nothing else; 0 tells them nothing.
    pub hsts: Duration,
    /// Lease, checkpoint root, deadlines, priors.
    pub engine: EngineConfig,
    /// Tokens that exist from the start, for the first administrator and the agents.
    pub tokens: Vec<InitialToken>,
    /// Where the keys that seal secrets come from; without them none can be set.
    pub secrets_key: Option<SecretsKey>,
    /// Through whom people log in.
    pub oidc: Option<OidcSettings>,
    /// What webhooks may be called though it is no public address.
    pub webhook_networks: Vec<Network>,
    /// How long what may be forgotten is kept.
    pub retention: Retention,
    /// GPU types of the site's own, which go before the built-in ones.
    pub site: Catalog,
    /// Other than real only for emulated clusters, whose agents follow the scheduler's clock.
    pub speed: Speed,
    /// Believe the machine's clock however far it is ahead of what is stored.
    pub trust_clock: bool,
    /// What the binary was built from, for `/version`.
    pub build: &'static str,
    /// Serve `/metrics`; one server per process can.
    pub metrics: bool,
}

/// How long things are kept that nothing depends on, by the cluster's clock.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Retention {
    /// What plans were made from.
    pub plan_inputs: Seconds,
    /// Plans that have been decided, with what each said of every job.
    pub plans: Seconds,
    /// What was in which state when, the cluster's figures minute by minute, and what webhooks were told.
    pub history: Seconds,
    /// Jobs that have ended, with what they held, saved and taught: usage is reported from them.
    pub jobs: Seconds,
    /// The event log.
    pub events: Seconds,
    /// The audit. Lines are kept for a year at least, whatever this says.
    pub audit: Seconds,
    /// Tokens that expired or were revoked.
    pub tokens: Seconds,
}

impl Retention {
    /// Returns how long jobs are kept at least after their end: as long as plans, events or the past may name them. The
    /// row of a job says who may see what names it.
    #[must_use]
    pub fn least_for_jobs(&self) -> Seconds {
        [self.plans, self.history, self.events].into_iter().fold(self.jobs, |most, one| Seconds(most.0.max(one.0)))
    }
}

impl Default for Retention {
    fn default() -> Self {
        let days = |days: f64| Seconds(days * 86_400.0);
        Self {
            plan_inputs: days(7.0),
            plans: days(90.0),
            history: days(90.0),
            jobs: days(400.0),
            events: days(400.0),
            audit: days(3_650.0),
            tokens: days(90.0),
        }
    }
}

/// Who nodes are.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeCertificates {
    /// Of a certificate.
    pub life: Seconds,
    /// Take agents' tokens as well, though whoever has one may pass for any node that has no certificate.
    pub tokens_too: bool,
}

impl Default for NodeCertificates {
    fn default() -> Self {
        Self { life: Seconds(90.0 * 86_400.0), tokens_too: false }
    }
}

/// URLs at which others reach a server; by default where it listens.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Advertised {
    /// For people.
    pub url: Option<String>,
    /// For agents.
    pub agents: Option<String>,
}

/// PEM files.
#[derive(Clone, Debug)]
pub struct TlsPaths {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

/// What is read once, when the server starts.
#[derive(Clone, Debug)]
pub enum SecretsKey {
    /// A file that is readable to its owner alone.
    File(PathBuf),
    /// The words of a program that prints what such a file holds.
    Command(Vec<String>),
}

/// A token whose secret the installation has chosen.
#[derive(Clone)]
pub struct InitialToken {
    pub name: String,
    pub scope: TokenScope,
    pub secret: String,
}

impl std::fmt::Debug for InitialToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("InitialToken").field("name", &self.name).field("scope", &self.scope).finish_non_exhaustive()
    }
}

/// Why a configuration is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    #[error("refusing to listen on {0} without TLS: tokens would cross the network in the clear")]
    PlainBeyondLoopback(SocketAddr),
    #[error(
        "nodes cannot be given certificates: give --secrets-key-file (`openssl rand -hex 32`, readable to its owner alone; the key that signs \
         them is sealed with it), or take agents' tokens instead (--agent-tokens)"
    )]
    NoAuthority,
    #[error(
        "refusing to listen for agents on {0}: without certificates of nodes and without TLS tokens would cross the network in the clear"
    )]
    PlainAgentsBeyondLoopback(SocketAddr),
    #[error(
        "{0} is no URL at which a server is reached: it begins with http:// or https:// and ends with a host and a port"
    )]
    Advertised(String),
}

impl ServerConfig {
    /// Refuses what would be unsafe to run.
    pub fn check(&self) -> Result<(), ConfigError> {
        let told = [&self.advertised.url, &self.advertised.agents].into_iter().flatten();
        for url in told {
            let read = reqwest::Url::parse(url).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
            if read.is_none_or(|url| url.path() != "/" || url.query().is_some() || !url.username().is_empty()) {
                return Err(ConfigError::Advertised(url.clone()));
            }
        }
        if !self.listen.ip().is_loopback() && self.tls.is_none() {
            return Err(ConfigError::PlainBeyondLoopback(self.listen));
        }
        match self.can_sign() {
            true => Ok(()),
            false if !self.takes_agent_tokens() => Err(ConfigError::NoAuthority),
            false if !self.agent_listen.ip().is_loopback() && self.tls.is_none() => {
                Err(ConfigError::PlainAgentsBeyondLoopback(self.agent_listen))
            }
            false => Ok(()),
        }
    }

    /// Whether nodes can be given certificates.
    #[must_use]
    pub fn can_sign(&self) -> bool {
        self.secrets_key.is_some()
    }

    /// Whoever brings a token for agents with the configuration wants it taken.
    #[must_use]
    pub fn takes_agent_tokens(&self) -> bool {
        self.node_certificates.tokens_too || self.tokens.iter().any(|token| token.scope == TokenScope::Agent)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn config(listen: &str) -> ServerConfig {
        ServerConfig {
            database_url: "postgres:///headway".into(),
            listen: listen.parse().unwrap(),
            agent_listen: "127.0.0.1:0".parse().unwrap(),
            standby: false,
            advertised: Advertised::default(),
            tls: None,
            node_certificates: NodeCertificates::default(),
            hsts: Duration::ZERO,
            engine: EngineConfig::default(),
            tokens: vec![InitialToken { name: "admin".into(), scope: TokenScope::Admin, secret: "hush".into() }],
            secrets_key: Some(SecretsKey::File("/keys".into())),
            oidc: None,
            webhook_networks: Vec::new(),
            retention: Retention::default(),
            site: Catalog::default(),
            speed: Speed::REAL,
            trust_clock: false,
            build: "unknown commit",
            metrics: false,
        }
    }

    #[test]
    fn other_machines_are_served_over_tls_only() {
        assert_eq!(config("127.0.0.1:7070").check(), Ok(()));
        assert_eq!(config("[::1]:7070").check(), Ok(()));
        let open = config("0.0.0.0:7070");
        assert_eq!(open.check(), Err(ConfigError::PlainBeyondLoopback("0.0.0.0:7070".parse().unwrap())));
        let tls = TlsPaths { certificate: "cert.pem".into(), key: "key.pem".into() };
        assert_eq!(ServerConfig { tls: Some(tls), ..open }.check(), Ok(()));
    }

    #[test]
    fn agents_are_known_by_certificate_or_by_an_explicit_choice() {
        let keyless = ServerConfig { secrets_key: None, ..config("127.0.0.1:7070") };
        assert_eq!(keyless.check(), Err(ConfigError::NoAuthority));
        let token = InitialToken { name: "agent".into(), scope: TokenScope::Agent, secret: "hush".into() };
        let upgraded = ServerConfig { tokens: vec![token], ..keyless };
        assert!(upgraded.check() == Ok(()) && upgraded.takes_agent_tokens() && !upgraded.can_sign());
        let beyond = "0.0.0.0:7601".parse().unwrap();
        let open = ServerConfig { agent_listen: beyond, ..upgraded };
        assert_eq!(open.check(), Err(ConfigError::PlainAgentsBeyondLoopback(beyond)));
        let signing = ServerConfig { agent_listen: beyond, ..config("127.0.0.1:7070") };
        assert!(signing.check() == Ok(()) && !signing.takes_agent_tokens());
    }

    #[test]
    fn what_others_are_told_is_a_url() {
        let told = |url: &str| {
            let advertised = Advertised { url: Some(url.into()), agents: None };
            ServerConfig { advertised, ..config("127.0.0.1:0") }.check()
        };
        assert_eq!(told("https://a.example:7600"), Ok(()));
        for wrong in ["a.example:7600", "ftp://a.example", "https://a.example/x", "https://me@a.example", "", "a b"] {
            assert_eq!(told(wrong), Err(ConfigError::Advertised(wrong.into())), "{wrong}");
        }
    }

    #[test]
    fn a_secret_is_never_printed() {
        assert!(!format!("{:?}", config("127.0.0.1:0")).contains("hush"));
    }
}
