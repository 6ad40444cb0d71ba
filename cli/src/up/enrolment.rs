//! The certificates of `up`'s own nodes: whichever has none that opens the scheduler joins before its agent starts.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use headway_agent::{Joiner, Joining, has_joined};
use headway_api::client::Client;
use headway_api::v1::JoinTokenRequest;

use super::directory::DataDirectory;
use crate::command::agent::identity_file;

/// A join token is used at once.
const TOKEN_LIFE: f64 = 120.0;
/// Its name is the beginning of its nodes' names.
const FLEET: &str = "fleet";

/// What the scheduler knows of certificates when its nodes are to start.
pub struct Enrolment {
    /// What signs, PEM.
    authority: String,
    /// Names whose certificates open something.
    valid: BTreeSet<String>,
    server: String,
}

impl Enrolment {
    pub async fn look(client: &Client, agents: SocketAddr) -> anyhow::Result<Self> {
        let authorities = client.node_authorities().await.context("asking for the authority of nodes")?.items;
        let Some(signs) = authorities.into_iter().find(|one| one.signs) else {
            bail!("the scheduler has no authority to sign nodes' certificates with");
        };
        let known = client.node_certificates().await.context("asking for nodes' certificates")?;
        let valid = known.into_iter().filter(|one| one.revoked_at.is_none()).map(|one| one.name).collect();
        Ok(Self { authority: signs.certificate, valid, server: format!("https://{agents}") })
    }

    pub async fn node(&self, client: &Client, directory: &DataDirectory, name: &str) -> anyhow::Result<()> {
        let data_dir = directory.root().join(name);
        let file = identity_file(&data_dir);
        self.join(client, name, &file, Joiner::Node { data_dir }).await
    }

    /// Where its key and certificate are.
    pub async fn fleet(&self, client: &Client, directory: &DataDirectory) -> anyhow::Result<PathBuf> {
        let file = directory.root().join("secrets/fleet.identity.json");
        self.join(client, FLEET, &file, Joiner::Fleet).await?;
        Ok(file)
    }

    async fn join(&self, client: &Client, name: &str, file: &Path, who: Joiner) -> anyhow::Result<()> {
        if has_joined(file, &self.authority) && self.valid.contains(name) {
            return Ok(());
        }
        let fleet = matches!(who, Joiner::Fleet);
        let request = JoinTokenRequest { node: Some(name.to_owned()), fleet, uses: Some(1), ttl_s: Some(TOKEN_LIFE) };
        let made =
            client.create_join_token(&request).await.with_context(|| format!("making a join token for {name}"))?;
        let token = made.secret.parse()?;
        let joining =
            Joining { token, servers: vec![self.server.clone()], name: name.to_owned(), who, file: file.to_owned() };
        headway_agent::join(joining).await.with_context(|| format!("giving {name} its certificate"))?;
        Ok(())
    }
}
