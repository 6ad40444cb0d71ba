//! `headway server`: the scheduler.

use std::fs::{self, Permissions};
use std::net::SocketAddr;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use headway_engine::EngineConfig;
use headway_goodput::physics::Parameters;
use headway_scheduler::{
    Advertised, InitialToken, Network, NodeCertificates, OidcSettings, PrivatePostgres, Retention, SecretsKey,
    ServerConfig, Speed, TlsPaths,
};
use headway_types::{Seconds, TokenScope};
use nix::unistd::geteuid;

use super::shutdown_token;
use crate::context::read_token;
use crate::failure::Failure;
use crate::logging::SpansTo;
use crate::up::DataDirectory;

#[derive(Args, Clone, Debug)]
pub struct Server {
    /// Postgres to keep all state in. Without it the server runs a private one below the data directory.
    #[arg(long, env = "DATABASE_URL", hide_env_values = true, requires = "checkpoint_root")]
    pub database_url: Option<String>,
    /// Where the private Postgres, the tokens and the checkpoints are kept when no database URL is given
    /// [default: /var/lib/headway for root, else ~/.local/share/headway].
    #[arg(long, env = "HEADWAY_DATA_DIR")]
    pub data_dir: Option<PathBuf>,
    /// Port for people: REST, stream, web page, metrics.
    #[arg(long, default_value = "127.0.0.1:7600")]
    pub listen: SocketAddr,
    /// Port for agents: gRPC.
    #[arg(long, default_value = "127.0.0.1:7601")]
    pub agent_listen: SocketAddr,
    /// Wait while another server leads on this database, and take over when it falls silent.
    #[arg(long, env = "HEADWAY_STANDBY", requires = "database_url")]
    pub standby: bool,
    /// URL at which people reach this server, for whoever has come to another [default: the address of --listen].
    #[arg(long, value_name = "URL")]
    pub advertise_url: Option<String>,
    /// URL at which agents reach this server [default: the address of --agent-listen].
    #[arg(long, value_name = "URL")]
    pub advertise_agents: Option<String>,
    /// PEM certificate chain; required where --listen is beyond loopback. Nodes are shown one of their own authority.
    #[arg(long, requires = "tls_key")]
    pub tls_certificate: Option<PathBuf>,
    /// PEM private key.
    #[arg(long, requires = "tls_certificate")]
    pub tls_key: Option<PathBuf>,
    /// Seconds for which browsers that have come over TLS come to this host over nothing else (HSTS), whatever port they ask for; 0 tells them nothing.
    #[arg(long, value_name = "SECONDS", default_value_t = 2_592_000)]
    pub hsts_seconds: u64,
    /// Token to accept as administrator.
    #[arg(long)]
    pub admin_token_file: Option<PathBuf>,
    /// Token to accept from agents, as --agent-tokens does.
    #[arg(long)]
    pub agent_token_file: Option<PathBuf>,
    /// Take agents that bring a token of the scope agent instead of a certificate, though whoever has one may pass for any node that has
    /// no certificate. For clusters that are older than certificates, until their nodes have joined.
    #[arg(long, env = "HEADWAY_AGENT_TOKENS")]
    pub agent_tokens: bool,
    /// Days that a node's certificate holds; it is renewed when two thirds are over.
    #[arg(long, default_value_t = 90.0, value_parser = certificate_days)]
    pub node_certificate_days: f64,
    /// The keys that seal secrets, and the key that signs nodes' certificates: 64 hexadecimal digits a line, readable to its owner alone; the first seals, all open
    /// [default: made in the data directory; none with a database URL].
    #[arg(long, env = "HEADWAY_SECRETS_KEY_FILE")]
    pub secrets_key_file: Option<PathBuf>,
    /// A program that prints these keys instead, with its arguments: run once at the start, by no shell, for 30 s at most. Nothing it says is logged.
    #[arg(long, value_name = "COMMAND", env = "HEADWAY_SECRETS_KEY_COMMAND", conflicts_with = "secrets_key_file")]
    pub secrets_key_command: Option<String>,
    /// File that says through which identity provider people log in, and what their groups give (TOML; docs/people.md).
    #[arg(long, env = "HEADWAY_OIDC", value_name = "FILE")]
    pub oidc: Option<PathBuf>,
    /// What jobs' webhooks may call though it is no public address: 10.1.0.0/16, or one address; several with commas.
    #[arg(long, value_name = "NETWORK", value_delimiter = ',')]
    pub webhook_allow_network: Vec<Network>,
    /// Where jobs without a checkpoint directory of their own save, seen by every node
    /// [default: below the data directory].
    #[arg(long)]
    pub checkpoint_root: Option<PathBuf>,
    /// Files with GPU types of your own, in the form of the built-in hardware catalog; a later entry of the same name holds.
    #[arg(long = "catalog", value_name = "FILE")]
    pub catalogs: Vec<PathBuf>,
    /// Seconds of silence after which a node counts as unreachable.
    #[arg(long, default_value_t = 30.0)]
    pub lease_seconds: f64,
    /// Days for which the inputs of plans are kept, so that they can be decided again.
    #[arg(long, default_value_t = 7.0, value_parser = days)]
    pub plan_input_days: f64,
    /// Days for which plans that have been decided are kept. Those that running jobs follow stay as long as these do.
    #[arg(long, default_value_t = 90.0, value_parser = days)]
    pub plan_days: f64,
    /// Days for which the past can be asked for: what was in which state.
    #[arg(long, default_value_t = 90.0, value_parser = days)]
    pub history_days: f64,
    /// Days that jobs are kept after their end, with their allocations and checkpoint records; never shorter than events,
    /// plans and the past, which name them. Usage reports need them.
    #[arg(long, default_value_t = 400.0, value_parser = days)]
    pub job_days: f64,
    /// Days that the event log is kept.
    #[arg(long, default_value_t = 400.0, value_parser = days)]
    pub event_days: f64,
    /// Days that lines of the audit are kept: a year at least. What is older is pruned, a line of the audit tells of
    /// it, and the rest can be verified as before.
    #[arg(long, default_value_t = 3_650.0, value_parser = audit_days)]
    pub audit_days: f64,
    /// Days that tokens are kept after they expired or were revoked. A token that a server was started with stays.
    #[arg(long, default_value_t = 90.0, value_parser = days)]
    pub token_days: f64,
    /// Seconds of the cluster's clock per second of wall time. For emulated clusters only: real nodes cannot hurry.
    #[arg(long, default_value = "1", value_parser = speed)]
    pub speed: Speed,
    /// Believe this machine's clock though it is more than a week ahead of all that is stored while jobs ran. Else time goes on from
    /// what is stored until the clock is set right.
    #[arg(long, env = "HEADWAY_TRUST_CLOCK")]
    pub trust_clock: bool,
    #[command(flatten)]
    pub spans: SpansTo,
    /// Ends when this process does.
    #[arg(long, hide = true)]
    pub die_with_parent: Option<i32>,
}

fn speed(text: &str) -> Result<Speed, String> {
    let factor = text.parse().map_err(|_| "not a number".to_owned())?;
    Speed::try_new(factor).ok_or_else(|| "must be a positive number".to_owned())
}

fn days(text: &str) -> Result<f64, String> {
    let days: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    (0.0..=36_500.0).contains(&days).then_some(days).ok_or_else(|| "must be 0 to 36500".to_owned())
}

fn audit_days(text: &str) -> Result<f64, String> {
    let days: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    (365.0..=36_500.0).contains(&days).then_some(days).ok_or_else(|| "must be 365 to 36500".to_owned())
}

fn certificate_days(text: &str) -> Result<f64, String> {
    let days: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    (0.001..=3_650.0).contains(&days).then_some(days).ok_or_else(|| "must be 0.001 to 3650".to_owned())
}

/// Mode of a directory that the data directory was made with.
const AS_MADE: u32 = 0o755;

pub async fn run(mut server: Server) -> Result<(), Failure> {
    let shutdown = shutdown_token(server.die_with_parent)?;
    if let Some(url) = server.database_url.take() {
        let config = server.config(url)?;
        return headway_scheduler::serve(config, shutdown).await.map_err(|error| anyhow::Error::new(error).into());
    }
    let directory = DataDirectory::open(server.data_dir.take())?;
    server.live_in(&directory)?;
    let mut postgres = PrivatePostgres::start(&directory.root().join("postgres")).await.context("starting Postgres")?;
    let served = match server.config(postgres.url()) {
        Ok(config) => tokio::select! {
            served = headway_scheduler::serve(config, shutdown) => served.map_err(|error| anyhow::Error::new(error).into()),
            never = postgres.keep() => match never {},
        },
        Err(failure) => Err(failure),
    };
    // Last: nothing is left that would write.
    postgres.stop().await.context("stopping Postgres")?;
    served
}

/// Lets every owner of jobs make a directory in the checkpoint root that this server has made, and rename no other: agents of root save as
/// the jobs' owners. A root whose permissions somebody has changed stays as it is.
fn open_to_owners(root: &Path) -> std::io::Result<()> {
    if fs::metadata(root)?.permissions().mode() & 0o7777 == AS_MADE {
        fs::set_permissions(root, Permissions::from_mode(0o1777))?;
    }
    Ok(())
}

/// Warns at the start of what fails each job of a node that runs jobs as their owners. The user of this server does not
/// matter: agents save, and the server does not.
fn warn_of_closed_root(root: &Path) {
    let Ok(found) = fs::metadata(root) else { return };
    let mode = found.permissions().mode() & 0o7777;
    if is_closed_to_owners(found.uid(), mode) {
        tracing::warn!(
            root = %root.display(), mode = format!("{mode:04o}"),
            "only root can save in the checkpoint root: nodes with --run-as owner need mode 1777 there"
        );
    }
}

/// Whether nobody but root may make a directory in a directory of this user and mode. Members of a group may where the
/// group may write.
fn is_closed_to_owners(uid: u32, mode: u32) -> bool {
    uid == 0 && mode & 0o022 == 0
}

impl Server {
    /// What was not chosen lies in the data directory.
    fn live_in(&mut self, directory: &DataDirectory) -> Result<(), Failure> {
        if self.admin_token_file.is_none() {
            self.admin_token_file = Some(directory.token("admin")?.file);
        }
        if self.agent_token_file.is_none() {
            // Of a release that knew no certificates: its agents go on until their nodes have joined.
            self.agent_token_file = directory.known_token_file("agent");
        }
        if self.secrets_key_file.is_none() && self.secrets_key_command.is_none() {
            self.secrets_key_file = Some(directory.secrets_key()?);
        }
        if self.checkpoint_root.is_none() {
            let root = directory.root().join("checkpoints");
            if geteuid().is_root() {
                open_to_owners(&root).with_context(|| format!("opening {} to the owners of jobs", root.display()))?;
            }
            self.checkpoint_root = Some(root);
        }
        Ok(())
    }

    /// What it would be started with.
    pub fn config(self, database_url: String) -> Result<ServerConfig, Failure> {
        let mut tokens = Vec::new();
        for (name, scope, file) in
            [("admin", TokenScope::Admin, &self.admin_token_file), ("agent", TokenScope::Agent, &self.agent_token_file)]
        {
            if let Some(file) = file {
                tokens.push(InitialToken { name: name.into(), scope, secret: read_token(file)? });
            }
        }
        let secrets_key = match &self.secrets_key_command {
            Some(command) => Some(SecretsKey::Command(key_command(command)?)),
            None => self.secrets_key_file.map(SecretsKey::File),
        };
        let oidc = self.oidc.as_deref().map(OidcSettings::read).transpose().map_err(anyhow::Error::new)?;
        let site = super::catalog::read(&self.catalogs, Parameters::built_in())?;
        let tls = self.tls_certificate.zip(self.tls_key).map(|(certificate, key)| TlsPaths { certificate, key });
        let checkpoint_root = self.checkpoint_root.context("a database URL needs --checkpoint-root as well")?;
        // The agents of `headway up`, which this server ends with, run all jobs as their own user.
        if self.die_with_parent.is_none() {
            warn_of_closed_root(&checkpoint_root);
        }
        let engine = EngineConfig {
            lease: Seconds(self.lease_seconds),
            checkpoint_root: checkpoint_root.display().to_string(),
            ..EngineConfig::default()
        };
        Ok(ServerConfig {
            database_url,
            listen: self.listen,
            agent_listen: self.agent_listen,
            standby: self.standby,
            advertised: Advertised { url: self.advertise_url, agents: self.advertise_agents },
            tls,
            node_certificates: NodeCertificates {
                life: Seconds(self.node_certificate_days * 86_400.0),
                tokens_too: self.agent_tokens,
            },
            hsts: Duration::from_secs(self.hsts_seconds),
            engine,
            secrets_key,
            oidc,
            webhook_networks: self.webhook_allow_network,
            retention: Retention {
                plan_inputs: Seconds(self.plan_input_days * 86_400.0),
                plans: Seconds(self.plan_days * 86_400.0),
                history: Seconds(self.history_days * 86_400.0),
                jobs: Seconds(self.job_days * 86_400.0),
                events: Seconds(self.event_days * 86_400.0),
                audit: Seconds(self.audit_days * 86_400.0),
                tokens: Seconds(self.token_days * 86_400.0),
            },
            tokens,
            site,
            speed: self.speed,
            trust_clock: self.trust_clock,
            build: env!("HEADWAY_BUILD"),
            metrics: true,
        })
    }
}

/// The words of a command line; what a shell would do beyond that is not done.
fn key_command(line: &str) -> Result<Vec<String>, Failure> {
    let words = shlex::split(line).filter(|words| !words.is_empty());
    Ok(words.context("--secrets-key-command is no program with arguments: look at its quotes")?)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn the_checkpoint_root_that_a_server_made_is_open_to_owners_and_any_other_stays_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        for (before, after) in [(0o755, 0o1777), (0o1777, 0o1777), (0o700, 0o700), (0o2775, 0o2775)] {
            fs::set_permissions(dir.path(), Permissions::from_mode(before)).unwrap();
            open_to_owners(dir.path()).unwrap();
            assert_eq!(fs::metadata(dir.path()).unwrap().permissions().mode() & 0o7777, after, "{before:o}");
        }
    }

    #[test]
    fn a_checkpoint_root_is_closed_where_root_alone_may_write() {
        for (uid, mode, closed) in [
            (0, 0o755, true),
            (0, 0o700, true),
            (0, 0o1755, true),
            (0, 0o1777, false),
            (0, 0o2775, false),
            (1_000, 0o755, false),
        ] {
            assert_eq!(is_closed_to_owners(uid, mode), closed, "{uid} {mode:o}");
        }
    }

    #[test]
    fn a_clock_that_stands_still_or_runs_backwards_is_refused() {
        assert_eq!(speed("60"), Ok(Speed::try_new(60.0).expect("a positive number")));
        for wrong in ["0", "-1", "inf", "NaN", "fast"] {
            assert!(speed(wrong).is_err(), "{wrong}");
        }
    }
}
