//! `headway admin config …`: what a server would be started with, and whether it could be. All of its settings are flags and their environment, read at its start.

use std::path::Path;

use chrono::Utc;
use clap::{ArgMatches, Args as _, CommandFactory as _, Subcommand};
use headway_scheduler::postgres::database_options;
use headway_scheduler::store::Checkup;
use headway_scheduler::{Certificates, Keyring, OidcSettings, TlsPaths};
use serde::Serialize;

use super::doctor::report;
use crate::Cli;
use crate::bundle::redacted;
use crate::command::server::Server;
use crate::doctor::{Finding, database};
use crate::failure::Failure;
use crate::output::{Printer, moment};
use crate::table::Column;

#[derive(Subcommand, Clone, Debug)]
pub enum Config {
    /// Print what `headway server` would go by with these flags and this environment, and where each setting comes from.
    Show(Box<Server>),
    /// Check flags, files and the database of `headway server` without starting it; exit code 1 where something is wrong.
    Validate(Box<Server>),
}

/// One setting of the server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Setting {
    name: String,
    /// Absent where nothing is set and there is no default.
    value: Option<String>,
    /// `flag`, `environment`, `default` or `unset`.
    source: &'static str,
}

const COLUMNS: [Column; 3] = [Column::new("SETTING"), Column::new("VALUE"), Column::new("FROM")];

pub async fn run(print: &Printer, config: Config) -> Result<(), Failure> {
    match config {
        Config::Show(_) => show(print),
        Config::Validate(server) => report(print, validate(*server).await),
    }
}

fn show(print: &Printer) -> Result<(), Failure> {
    // As they were parsed, which says where each value comes from.
    let matches = Cli::command().get_matches();
    let of_show = ["admin", "config", "show"].iter().try_fold(&matches, |at, name| at.subcommand_matches(name));
    let settings = of_show.map(settings).unwrap_or_default();
    let row =
        |one: &Setting| vec![one.name.clone(), one.value.clone().unwrap_or_else(|| "-".into()), one.source.into()];
    print.list(&settings, &COLUMNS, row, |one| one.name.clone())
}

fn settings(matches: &ArgMatches) -> Vec<Setting> {
    let command = Server::augment_args(clap::Command::new("server"));
    let shown = command.get_arguments().filter(|one| !one.is_hide_set());
    let setting = |one: &clap::Arg| {
        let values = matches.get_raw(one.get_id().as_str());
        let value = values.map(|values| values.map(|value| value.to_string_lossy()).collect::<Vec<_>>().join(","));
        Setting {
            name: one.get_long().unwrap_or_default().to_owned(),
            value: value.map(|value| redacted(&value)),
            source: match matches.value_source(one.get_id().as_str()) {
                Some(clap::parser::ValueSource::CommandLine) => "flag",
                Some(clap::parser::ValueSource::EnvVariable) => "environment",
                Some(_) => "default",
                None => "unset",
            },
        }
    };
    shown.map(setting).collect()
}

async fn validate(mut server: Server) -> Vec<Finding> {
    let mut findings = Vec::new();
    let url = server.database_url.take();
    let (key, command) = (server.secrets_key_file.clone(), server.secrets_key_command.clone());
    let oidc = server.oidc.clone();
    if url.is_none() {
        // The server makes both below the data directory.
        server.checkpoint_root.get_or_insert_with(|| "checkpoints".into());
        if server.secrets_key_command.is_none() {
            server.secrets_key_file.get_or_insert_with(|| "secrets/secrets.key".into());
        }
    }
    match server.config(url.clone().unwrap_or_default()) {
        Ok(config) => {
            findings.push(Finding::ok("settings", "flags, catalogs and token files can be read"));
            findings.push(match config.check() {
                Ok(()) => Finding::ok(
                    "addresses",
                    format!("{} for people, {} for agents", config.listen, config.agent_listen),
                ),
                Err(error) => {
                    let advice =
                        "give --tls-certificate and --tls-key, or listen on loopback behind something that has them";
                    Finding::fail("addresses", error.to_string(), advice)
                }
            });
            findings.extend(config.tls.as_ref().map(tls));
        }
        Err(failure) => {
            let advice = failure.hint.unwrap_or_else(|| "`headway server --help` says what it takes".into());
            findings.push(Finding::fail("settings", failure.message, advice));
        }
    }
    findings.extend(key.as_deref().map(secrets_key));
    findings.extend(command.map(|command| {
        Finding::skipped("secrets' key", format!("{command:?} prints it: it runs when the server starts, and not here"))
    }));
    if let Some(file) = oidc {
        findings.push(provider(&file).await);
    }
    findings.extend(match &url {
        Some(url) => reachable(url).await,
        None => vec![Finding::skipped("database", "a private one below the data directory")],
    });
    findings
}

fn secrets_key(file: &Path) -> Finding {
    match Keyring::read(file) {
        Ok(_) => Finding::ok("secrets' key", format!("{} can be read", file.display())),
        Err(error) => {
            Finding::fail("secrets' key", format!("{:#}", anyhow::Error::new(error)), "docs/operations.md, \"Secrets\"")
        }
    }
}

async fn provider(file: &Path) -> Finding {
    let asked = async { headway_scheduler::probe_oidc(OidcSettings::read(file)?).await };
    match asked.await {
        Ok(found) => Finding::ok("identity provider", found),
        Err(error) => Finding::fail(
            "identity provider",
            format!("{:#}", anyhow::Error::new(error)),
            "docs/people.md, \"The site's identity provider\"; the server starts without it, and nobody can log in by it",
        ),
    }
}

async fn reachable(url: &str) -> Vec<Finding> {
    let Ok(options) = database_options(url) else {
        return vec![Finding::fail("database", "the database URL cannot be read", "postgres://USER@HOST/DATABASE")];
    };
    match Checkup::of(&options).await {
        // Nobody need lead it yet, and an empty one is brought up to date at the start.
        Ok(found) => database(&found).into_iter().filter(|one| one.check != "leader").collect(),
        Err(error) => {
            let told = format!("{:#}", anyhow::Error::new(error));
            vec![Finding::fail("database", told, "look whether Postgres runs, and whether the URL is right")]
        }
    }
}

/// Whether certificate and key are a pair, and for how long.
fn tls(paths: &TlsPaths) -> Finding {
    let renew = "renew both files; a running server reads them within a minute";
    match Certificates::read(paths) {
        Ok(read) => match (read.ends_at() - Utc::now()).num_days() {
            days if days < 0 => {
                Finding::fail("TLS", format!("the certificate ended at {}", moment(read.ends_at())), renew)
            }
            days if days < 14 => Finding::warn("TLS", format!("the certificate ends in {days} days"), renew),
            days => Finding::ok("TLS", format!("certificate and key are a pair, for {days} days")),
        },
        Err(error) => {
            Finding::fail("TLS", format!("{:#}", anyhow::Error::new(error)), "both are PEM files, of one pair")
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use clap::Parser as _;

    use super::*;
    use crate::doctor::Level;

    fn server(arguments: &[&str]) -> Server {
        let all = ["headway", "server"].iter().chain(arguments);
        match Cli::try_parse_from(all).unwrap().command {
            crate::Command::Server(server) => server,
            _ => unreachable!("it was asked for a server"),
        }
    }

    #[test]
    fn settings_are_shown_with_where_they_come_from_and_without_what_opens_anything() {
        let command = Cli::command();
        let arguments = ["headway", "admin", "config", "show", "--lease-seconds", "5", "--checkpoint-root", "/ckpt"];
        let url = ["--database-url", "postgres://ada:hush@db.example/headway"];
        let matches = command.try_get_matches_from(arguments.iter().chain(&url)).unwrap();
        let of = ["admin", "config", "show"].iter().try_fold(&matches, |at, name| at.subcommand_matches(name)).unwrap();
        let settings = settings(of);
        let find = |name: &str| settings.iter().find(|one| one.name == name).unwrap();
        assert_eq!((find("lease-seconds").value.as_deref(), find("lease-seconds").source), (Some("5"), "flag"));
        assert_eq!((find("listen").value.as_deref(), find("listen").source), (Some("127.0.0.1:7600"), "default"));
        assert_eq!(find("tls-key").source, "unset");
        assert!(!format!("{settings:?}").contains("hush"));
        assert!(settings.iter().all(|one| !one.name.is_empty() && one.name != "die-with-parent"));
    }

    #[tokio::test]
    async fn what_is_wrong_is_found_without_a_start() {
        let dir = tempfile::tempdir().unwrap();
        let none = dir.path().join("none").display().to_string();
        let levels = |findings: &[Finding]| findings.iter().map(|one| (one.check, one.level)).collect::<Vec<_>>();
        let well = validate(server(&[])).await;
        assert!(well.iter().all(|one| one.level <= Level::Skipped), "{well:?}");
        let exposed = validate(server(&["--listen", "0.0.0.0:7600"])).await;
        assert!(levels(&exposed).contains(&("addresses", Level::Fail)), "{exposed:?}");
        let lacking = validate(server(&["--admin-token-file", &none, "--secrets-key-file", &none])).await;
        assert!(levels(&lacking).contains(&("settings", Level::Fail)), "{lacking:?}");
        assert!(levels(&lacking).contains(&("secrets' key", Level::Fail)), "{lacking:?}");
        let tls = validate(server(&["--tls-certificate", &none, "--tls-key", &none])).await;
        assert!(levels(&tls).contains(&("TLS", Level::Fail)), "{tls:?}");
        let provider = dir.path().join("oidc.toml");
        std::fs::write(&provider, "issuer = \"http://127.0.0.1:1\"\nclient_id = \"headway\"\n").unwrap();
        for file in [&none, &provider.display().to_string()] {
            let away = validate(server(&["--oidc", file])).await;
            assert!(levels(&away).contains(&("identity provider", Level::Fail)), "{away:?}");
        }
        let nobody = "postgres://127.0.0.1:1/x";
        let away = validate(server(&["--database-url", nobody, "--checkpoint-root", "/ckpt"])).await;
        assert!(levels(&away).contains(&("database", Level::Fail)), "{away:?}");
    }
}
