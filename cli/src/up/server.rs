//! The scheduler as a child of `headway up`: started, waited for, and open to the token of the data directory.

use std::time::Duration;

use anyhow::{Context as _, bail};
use headway_api::client::{Client, ClientError};
use tokio::time::Instant;

use super::Up;
use super::child::Child;
use super::directory::{DataDirectory, Token};

/// Starts the scheduler and waits for it. Whoever revoked the token of ours shut its holders out, not us: it gets a new secret, which the
/// scheduler reads when it starts once more.
pub async fn start(
    url: &str,
    up: &Up,
    directory: &DataDirectory,
    database: &str,
    children: &mut Vec<Child>,
) -> anyhow::Result<Token> {
    let mut renewed = false;
    loop {
        let token = directory.token("admin")?;
        // Among the children first, so that it is stopped whatever comes of it.
        children.insert(0, Child::start("server", directory, server_arguments(up, directory, database)?)?);
        wait_until_ready(&Client::new(url, &token.secret)?, &mut children[0]).await?;
        if opens(url, &token).await.context("trying the admin token")? {
            return Ok(token);
        }
        aside!("headway: its admin token was revoked; a new one is in {}", token.file.display());
        directory.make_token("admin")?;
        if std::mem::replace(&mut renewed, true) {
            bail!("the scheduler refuses a token made a moment ago; its log is {}", children[0].log().display());
        }
        children.remove(0).stop().await?;
    }
}

/// Whether the scheduler knows the token.
async fn opens(url: &str, token: &Token) -> Result<bool, ClientError> {
    match Client::new(url, &token.secret)?.whoami().await {
        Err(ClientError::Problem(problem)) if problem.status == 401 => Ok(false),
        answer => answer.map(|_| true),
    }
}

fn server_arguments(up: &Up, directory: &DataDirectory, database: &str) -> anyhow::Result<Vec<String>> {
    let path = |name: &str| directory.root().join(name).display().to_string();
    let mut arguments = vec![
        "server".into(),
        "--database-url".into(),
        database.to_owned(),
        "--listen".into(),
        up.listen.to_string(),
        "--agent-listen".into(),
        up.agent_listen.to_string(),
        "--admin-token-file".into(),
        path("secrets/admin.token"),
        "--checkpoint-root".into(),
        path("checkpoints"),
        "--secrets-key-file".into(),
        directory.secrets_key()?.display().to_string(),
    ];
    arguments.extend(up.catalogs.iter().flat_map(|file| ["--catalog".into(), file.display().to_string()]));
    let networks = up.webhook_allow_network.iter();
    arguments.extend(networks.flat_map(|one| ["--webhook-allow-network".into(), one.to_string()]));
    arguments.extend(up.oidc.iter().flat_map(|file| ["--oidc".into(), file.display().to_string()]));
    arguments.extend(up.spans.otlp_endpoint.iter().flat_map(|url| ["--otlp-endpoint".into(), url.clone()]));
    if let Some(speed) = up.speed {
        arguments.extend(["--speed".into(), speed.to_string()]);
    }
    Ok(arguments)
}

async fn wait_until_ready(client: &Client, server: &mut Child) -> anyhow::Result<()> {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        if client.ready().await.unwrap_or(false) {
            return Ok(());
        }
        if let Some(status) = server.exited()? {
            bail!("the scheduler ended at start ({status}); its log is {}", server.log().display());
        }
        if Instant::now() >= deadline {
            bail!("the scheduler was not ready within a minute; its log is {}", server.log().display());
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
