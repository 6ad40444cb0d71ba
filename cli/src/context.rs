//! Which cluster a command speaks to: flags, then environment, then the context that is in use.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::Context as _;
use clap::Args;
use headway_api::client::Client;
use serde::{Deserialize, Serialize};

use crate::command::simulate;
use crate::failure::{Failure, Kind};

#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "For every command")]
pub struct Connection {
    /// URL of the scheduler; several servers of one cluster are separated by commas.
    #[arg(long, global = true, env = "HEADWAY_URL")]
    pub url: Option<String>,
    /// Cluster to speak to, by the name of its context (see `headway context list`); with `up`, the name it gets.
    #[arg(long, global = true, env = "HEADWAY_CONTEXT")]
    pub context: Option<String>,
    /// File that holds the access token (HEADWAY_TOKEN holds the token itself).
    #[arg(long, global = true, env = "HEADWAY_TOKEN_FILE")]
    pub token_file: Option<PathBuf>,
    /// Say what would happen, and change nothing.
    #[arg(long, global = true)]
    pub dry_run: bool,
}

/// How to reach one cluster: what `up` leaves for other terminals of the same user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Context {
    /// Of one server, or of several that are separated by commas.
    pub url: String,
    pub token_file: PathBuf,
    /// PEM file of the authority that signs the scheduler's certificate, where it is none of the system's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authority: Option<PathBuf>,
}

impl Context {
    /// A client of this cluster.
    pub fn client(&self, token: &str) -> Result<Client, Failure> {
        connect(&self.url, token, self.authority.as_deref())
    }
}

/// A client that trusts the system's authorities, or the one of a file.
fn connect(url: &str, token: &str, authority: Option<&std::path::Path>) -> Result<Client, Failure> {
    let Some(file) = authority else { return Ok(Client::new(url, token)?) };
    let pem = std::fs::read(file)
        .map_err(|error| Failure::new(Kind::Usage, format!("reading the authority in {}: {error}", file.display())))?;
    Ok(Client::with_authority(url, token, &pem)?)
}

/// The clusters a user knows by name, and which of them commands speak to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contexts {
    pub current: Option<String>,
    pub contexts: BTreeMap<String, Context>,
}

impl Contexts {
    fn path() -> Option<PathBuf> {
        let base = std::env::var_os("XDG_CONFIG_HOME")
            .map(PathBuf::from)
            .or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".config")))?;
        Some(base.join("headway/contexts.json"))
    }

    /// Where what belongs to contexts lies.
    pub fn directory() -> anyhow::Result<PathBuf> {
        let path = Self::path().context("neither XDG_CONFIG_HOME nor HOME is set")?;
        Ok(path.parent().context("the file of contexts has a directory")?.to_owned())
    }

    /// None where nothing was ever saved. What cannot be read is an error: saving would lose it.
    pub fn load() -> anyhow::Result<Self> {
        let Some(path) = Self::path() else { return Ok(Self::default()) };
        match std::fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).with_context(|| format!("reading {}", path.display())),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(error).with_context(|| format!("reading {}", path.display())),
        }
    }

    /// Replaces the file as a whole.
    pub fn save(&self) -> anyhow::Result<()> {
        let path = Self::path().context("neither XDG_CONFIG_HOME nor HOME is set")?;
        let dir = &Self::directory()?;
        std::fs::create_dir_all(dir).with_context(|| format!("creating {}", dir.display()))?;
        let fresh = path.with_extension(format!("{}.tmp", std::process::id()));
        std::fs::write(&fresh, serde_json::to_vec_pretty(self)?)
            .and_then(|()| std::fs::rename(&fresh, &path))
            .with_context(|| format!("writing {}", path.display()))
    }

    /// The context of this name, else the current one.
    pub fn chosen(&self, name: Option<&str>) -> Result<Option<&Context>, Failure> {
        let Some(name) = name else { return Ok(self.current.as_ref().and_then(|name| self.contexts.get(name))) };
        let known = || match self.contexts.is_empty() {
            true => "start a cluster with `headway up`, or give --url".to_owned(),
            false => format!("there are: {}", self.contexts.keys().cloned().collect::<Vec<_>>().join(", ")),
        };
        let missing = || Failure::new(Kind::NotFound, format!("no context is called {name}")).hint(known());
        self.contexts.get(name).map(Some).ok_or_else(missing)
    }

    /// Puts a cluster under a name: the one it has already, the one that is asked for, or the first of `local`, `local-2`, … that is free.
    /// It becomes what commands speak to where nothing else is, or `current_answers` says that nobody is there any more.
    pub fn add(&mut self, context: Context, asked: Option<&str>, current_answers: bool) -> Result<String, Failure> {
        let known = self.contexts.iter().find(|(_, one)| one.token_file == context.token_file);
        let name = match (asked, known) {
            (Some(asked), _) => {
                let other = self.contexts.get(asked).is_some_and(|one| one.token_file != context.token_file);
                if other {
                    let taken = format!("the context {asked} is another cluster's");
                    return Err(Failure::new(Kind::Conflict, taken).hint("choose another name with --context"));
                }
                asked.to_owned()
            }
            (None, Some((name, _))) => name.clone(),
            (None, None) => {
                let names = std::iter::once("local".to_owned()).chain((2..).map(|number| format!("local-{number}")));
                names.into_iter().find(|name| !self.contexts.contains_key(name)).unwrap_or_default()
            }
        };
        self.contexts.insert(name.clone(), context);
        let current = self.current.as_ref().filter(|one| self.contexts.contains_key(*one));
        if current.is_none() || !current_answers {
            self.current = Some(name.clone());
        }
        Ok(name)
    }
}

impl Connection {
    /// A client for the chosen cluster.
    pub fn client(&self) -> Result<Client, Failure> {
        let contexts = Contexts::load()?;
        let context = contexts.chosen(self.context.as_deref())?;
        let url = self.url.clone().or_else(|| context.map(|c| c.url.clone())).ok_or_else(|| {
            Failure::new(Kind::Usage, "no cluster to speak to")
                .hint("start one with `headway up`, or give --url or HEADWAY_URL")
        })?;
        let token = match std::env::var("HEADWAY_TOKEN") {
            Ok(token) if token.trim().is_empty() => {
                return Err(Failure::new(Kind::Denied, "HEADWAY_TOKEN is empty")
                    .hint("unset it, so that the token of the context in use is taken, or put one into it"));
            }
            Ok(token) => token,
            Err(_) => {
                let file =
                    self.token_file.clone().or_else(|| context.map(|c| c.token_file.clone())).ok_or_else(|| {
                        Failure::new(Kind::Usage, "no access token").hint("set HEADWAY_TOKEN or give --token-file")
                    })?;
                read_token(&file)?
            }
        };
        // The authority of a context is for its own servers.
        let authority = context.filter(|context| context.url == url).and_then(|context| context.authority.as_deref());
        let client = connect(&url, &token, authority)?.on_standby(report_standby);
        Ok(if self.dry_run { client.dry_run(simulate::tell_foreseen) } else { client })
    }
}

/// Says once on standard error that what a command shows is a standby's.
fn report_standby(age: std::time::Duration) {
    static REPORTED: std::sync::Once = std::sync::Once::new();
    let age = age.as_secs_f64();
    REPORTED.call_once(|| aside!("headway: as of {age:.1} s ago, by a standby: no server leads at the moment"));
}

/// A token from its file, without the line break.
pub fn read_token(file: &std::path::Path) -> Result<String, Failure> {
    std::fs::read_to_string(file).map(|text| text.trim().to_owned()).map_err(|error| {
        let failure = Failure::new(Kind::Denied, format!("reading the token from {}: {error}", file.display()));
        let of_login =
            file.parent().is_some_and(|dir| Contexts::directory().is_ok_and(|own| dir == own.join("tokens")));
        if of_login { failure.hint("log in again: headway login") } else { failure }
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn cluster(port: u16, data: &str) -> Context {
        Context {
            url: format!("http://127.0.0.1:{port}"),
            token_file: format!("{data}/admin.token").into(),
            authority: None,
        }
    }

    #[test]
    fn a_second_cluster_does_not_take_the_place_of_one_that_answers() {
        let mut known = Contexts::default();
        assert_eq!(known.add(cluster(7600, "/a"), None, false).unwrap(), "local");
        assert_eq!(known.add(cluster(7700, "/b"), None, true).unwrap(), "local-2");
        assert_eq!(known.chosen(None).unwrap(), Some(&cluster(7600, "/a")));
        assert_eq!(known.chosen(Some("local-2")).unwrap(), Some(&cluster(7700, "/b")));
    }

    #[test]
    fn a_cluster_keeps_its_name_when_it_starts_again_elsewhere() {
        let mut known = Contexts::default();
        known.add(cluster(7600, "/a"), Some("lab"), false).unwrap();
        assert_eq!(known.add(cluster(7800, "/a"), None, false).unwrap(), "lab");
        assert_eq!(known.chosen(None).unwrap(), Some(&cluster(7800, "/a")));
    }

    #[test]
    fn one_that_does_not_answer_gives_way() {
        let mut known = Contexts::default();
        known.add(cluster(7600, "/a"), None, false).unwrap();
        known.add(cluster(7700, "/b"), None, false).unwrap();
        assert_eq!(known.current.as_deref(), Some("local-2"));
    }

    #[test]
    fn a_name_that_is_taken_or_unknown_is_refused_with_what_there_is() {
        let mut known = Contexts::default();
        known.add(cluster(7600, "/a"), Some("lab"), false).unwrap();
        assert_eq!(known.add(cluster(7700, "/b"), Some("lab"), true).unwrap_err().kind, Kind::Conflict);
        let unknown = known.chosen(Some("lap")).unwrap_err();
        assert_eq!((unknown.kind, unknown.hint.as_deref()), (Kind::NotFound, Some("there are: lab")));
    }
}
