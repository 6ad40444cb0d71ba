//! Which cluster a command speaks to: flags, then environment, then what `headway up` wrote last.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::Args;
use headway_api::client::Client;
use serde::{Deserialize, Serialize};

use crate::command::simulate;
use crate::failure::{Failure, Kind};

#[derive(Args, Clone, Debug)]
pub struct Connection {
    /// URL of the scheduler.
    #[arg(long, global = true, env = "HEADWAY_URL")]
    pub url: Option<String>,
    /// File that holds the access token (HEADWAY_TOKEN holds the token itself).
    #[arg(long, global = true, env = "HEADWAY_TOKEN_FILE")]
    pub token_file: Option<PathBuf>,
    /// Say what would happen, and change nothing.
    #[arg(long, global = true)]
    pub dry_run: bool,
}

/// What `up` leaves for other terminals of the same user.
#[derive(Debug, Serialize, Deserialize)]
pub struct Context {
    pub url: String,
    pub token_file: PathBuf,
}

impl Context {
    fn path() -> Option<PathBuf> {
        let base = std::env::var_os("XDG_CONFIG_HOME")
            .map(PathBuf::from)
            .or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".config")))?;
        Some(base.join("headway/context.json"))
    }

    /// Makes this the cluster that commands speak to by default.
    pub fn save(&self) -> anyhow::Result<()> {
        let path = Context::path().context("neither XDG_CONFIG_HOME nor HOME is set")?;
        let dir = path.parent().context("the context file has a directory")?;
        std::fs::create_dir_all(dir).with_context(|| format!("creating {}", dir.display()))?;
        std::fs::write(&path, serde_json::to_vec_pretty(self)?).with_context(|| format!("writing {}", path.display()))
    }

    fn load() -> Option<Self> {
        serde_json::from_slice(&std::fs::read(Context::path()?).ok()?).ok()
    }
}

impl Connection {
    /// A client for the chosen cluster.
    pub fn client(&self) -> Result<Client, Failure> {
        let context = Context::load();
        let url = self.url.clone().or_else(|| context.as_ref().map(|c| c.url.clone())).ok_or_else(|| {
            Failure::new(Kind::Usage, "no cluster to speak to")
                .hint("start one with `headway up`, or give --url or HEADWAY_URL")
        })?;
        let token = match std::env::var("HEADWAY_TOKEN") {
            Ok(token) => token,
            Err(_) => {
                let file = self.token_file.clone().or_else(|| context.map(|c| c.token_file)).ok_or_else(|| {
                    Failure::new(Kind::Usage, "no access token").hint("set HEADWAY_TOKEN or give --token-file")
                })?;
                read_token(&file)?
            }
        };
        let client = Client::new(&url, &token)?;
        Ok(if self.dry_run { client.dry_run(simulate::tell_foreseen) } else { client })
    }
}

/// A token from its file, without the line break.
pub fn read_token(file: &std::path::Path) -> Result<String, Failure> {
    std::fs::read_to_string(file)
        .map(|text| text.trim().to_owned())
        .map_err(|error| Failure::new(Kind::Denied, format!("reading the token from {}: {error}", file.display())))
}
