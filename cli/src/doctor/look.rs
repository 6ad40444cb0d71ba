//! Looks at the server over REST, and at what is on this machine: the database, the data directory, the checkpoint root. Nothing is changed.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use chrono::Utc;
use headway_api::client::{Client, ClientError, QueueFilter};
use headway_api::v1::Node;
use headway_scheduler::postgres::database_options;
use headway_scheduler::store::Checkup;
use headway_scheduler::{Keyring, PrivatePostgres};

use super::reservations::judge_reservations;
use super::{Finding, judge};
use crate::failure::Failure;

/// What there may be on this machine; what is not named is not looked at.
#[derive(Clone, Debug, Default)]
pub struct Places {
    pub database_url: Option<String>,
    /// That is there.
    pub data_dir: Option<PathBuf>,
    pub checkpoint_root: Option<PathBuf>,
    pub secrets_key: Option<PathBuf>,
}

pub async fn look(client: Result<Client, Failure>, places: &Places, build: &str) -> Vec<Finding> {
    let mut findings = match client {
        Ok(client) => server(&client, build).await,
        Err(failure) => {
            let advice = failure.hint.unwrap_or_else(|| "give --url and --token-file".into());
            vec![Finding::fail("server", failure.message, advice)]
        }
    };
    findings.extend(database(places).await);
    findings.extend(here(places));
    findings
}

async fn server(client: &Client, build: &str) -> Vec<Finding> {
    let before = Utc::now();
    let clock = match client.clock().await {
        Ok(clock) => clock,
        Err(error) => {
            let told = Failure::from(error);
            let advice = "look whether it runs (its log, its unit) and whether the address is right";
            return vec![Finding::fail("server", told.message, advice)];
        }
    };
    let after = Utc::now();
    let mut findings = vec![Finding::ok("server", format!("answers at {}", client.address()))];
    findings.extend(clock.map(|there| judge::skew("server's clock", before, there, after)));
    findings.push(match client.readiness().await {
        Ok(said) => judge::readiness(&said),
        Err(ClientError::Problem(problem)) => {
            Finding::fail("ready", problem.detail, "its log says whether Postgres is away or another server leads")
        }
        Err(error) => unanswered("ready", error),
    });
    findings.push(match client.version().await {
        Ok(there) => judge::versions(env!("CARGO_PKG_VERSION"), build, &there.version, &there.build),
        Err(error) => unanswered("version", error),
    });
    match client.login_provider().await {
        Ok(provider) => findings.extend(judge::provider(&provider)),
        // A server before it knows none.
        Err(ClientError::Problem(problem)) if problem.status == 404 => {}
        Err(error) => findings.push(unanswered("identity provider", error)),
    }
    match client.overview().await {
        Ok(overview) => findings.extend(judge::attention(&overview.attention)),
        Err(error) => findings.push(unanswered("attention", error)),
    }
    match client.nodes().await {
        Ok(nodes) => {
            findings.extend(judge::nodes(&nodes));
            findings.extend(reservations(client, &nodes).await);
        }
        Err(error) => findings.push(unanswered("nodes", error)),
    }
    findings.push(match client.metrics().await {
        Ok(metrics) => judge::counters(&metrics),
        Err(error) => unanswered("counters", error),
    });
    findings
}

async fn reservations(client: &Client, nodes: &[Node]) -> Vec<Finding> {
    let totals_alone = QueueFilter { limit: Some(1), ..QueueFilter::default() };
    let asked = async { Ok::<_, ClientError>((client.reservations().await?, client.queue(&totals_alone).await?)) };
    match asked.await {
        Ok((all, queue)) => judge_reservations(&all, nodes, &queue),
        Err(error) => vec![unanswered("reservations", error)],
    }
}

/// A token may open less than this wants to see.
fn unanswered(check: &'static str, error: ClientError) -> Finding {
    let failure = Failure::from(error);
    let advice = failure.hint.unwrap_or_else(|| "the server's log says more".into());
    Finding::warn(check, format!("could not be asked: {}", failure.message), advice)
}

async fn database(places: &Places) -> Vec<Finding> {
    let url = match (&places.database_url, &places.data_dir) {
        (Some(url), _) => Some(url.clone()),
        (None, Some(directory)) => PrivatePostgres::running(&directory.join("postgres")).await,
        (None, None) => {
            return vec![Finding::skipped("database", "not known on this machine: give --database-url or --data-dir")];
        }
    };
    let Some(url) = url else {
        let advice = "start `headway up` or `headway server`; postgres/postgres.log says why it ended";
        return vec![Finding::fail("database", "the private Postgres does not run", advice)];
    };
    let Ok(options) = database_options(&url) else {
        return vec![Finding::fail("database", "the database URL cannot be read", "postgres://USER@HOST/DATABASE")];
    };
    let before = Utc::now();
    match Checkup::of(&options).await {
        Ok(found) => {
            let mut findings = judge::database(&found);
            findings.push(judge::skew("database's clock", before, found.at, Utc::now()));
            findings
        }
        Err(error) => {
            let told = format!("{:#}", anyhow::Error::new(error));
            vec![Finding::fail("database", told, "look whether Postgres runs, and whether the URL is right")]
        }
    }
}

fn here(places: &Places) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Some(directory) = &places.data_dir {
        findings.extend(disk("disk of the data directory", directory));
    }
    if let Some(root) = &places.checkpoint_root {
        findings.push(checkpoints(root));
        findings.extend(disk("disk of checkpoints", root));
    }
    findings.extend(places.secrets_key.as_deref().map(key));
    if let Some(limit) = rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum {
        findings.push(judge::open_files(limit));
    }
    findings
}

fn disk(check: &'static str, path: &Path) -> Option<Finding> {
    let stat = rustix::fs::statvfs(path).ok()?;
    let bytes = |blocks: u64| blocks.saturating_mul(stat.f_frsize);
    Some(judge::disk(check, &path.display().to_string(), bytes(stat.f_bavail), bytes(stat.f_blocks)))
}

fn checkpoints(root: &Path) -> Finding {
    let told = root.display();
    match std::fs::metadata(root) {
        Ok(found) if found.is_dir() => Finding::ok("checkpoint root", format!("{told} is visible here")),
        Ok(_) => {
            Finding::fail("checkpoint root", format!("{told} is no directory"), "give jobs a directory to save in")
        }
        Err(error) => Finding::fail(
            "checkpoint root",
            format!("{told}: {error}"),
            "mount it: every node must see it under this path, or jobs cannot resume",
        ),
    }
}

fn key(file: &Path) -> Finding {
    let told = file.display();
    match Keyring::read(file) {
        Ok(_) => match std::fs::metadata(file).map(|found| found.mode() & 0o077) {
            Ok(0) => Finding::ok("secrets' key", format!("{told} can be read, by its owner alone")),
            _ => Finding::fail("secrets' key", format!("{told} can be read by others"), "chmod 600"),
        },
        Err(error) => Finding::fail(
            "secrets' key",
            format!("{:#}", anyhow::Error::new(error)),
            "put the file back from where it is kept: without it what is sealed is lost",
        ),
    }
}
