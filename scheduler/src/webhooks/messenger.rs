//! One call of a webhook: to an address that may be reached, signed, with an end.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use headway_api::secret::Secret;
use headway_engine::record::Notice;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::redirect::Policy;
use reqwest::{Client, Url};
use ring::hmac;
use serde_json::json;

use super::address::{Network, may_reach};

/// The verb of what tells of no event.
pub(super) const TEST: &str = "webhook.test";
const TIMEOUT: Duration = Duration::from_secs(10);
/// What is read of a reply, in bytes, to tell why it was no success.
const READ_AT_MOST: usize = 1_024;
/// Characters of it that are told.
const TOLD_AT_MOST: usize = 200;

/// Calls webhooks; cheap to clone.
#[derive(Clone)]
pub struct Messenger {
    /// Made by the first call: it needs the machine's certificate authorities, and a server without webhooks does not.
    client: Arc<OnceLock<Client>>,
    allowed: Arc<[Network]>,
}

/// Why a notice did not arrive; for the job's owner.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    #[error("its address cannot be read")]
    Address,
    /// Calls are tried again, so they succeed once the authorities are there.
    #[error(
        "the server cannot call webhooks: {0}; its operator installs ca-certificates, or names them in SSL_CERT_FILE"
    )]
    NotReady(String),
    /// Whether the name exists in the server's network, and where it leads there, is not the job owner's to know.
    #[error(
        "its name leads to no public address that the server may call (its operator can allow more: --webhook-allow-network)"
    )]
    NoPublicAddress,
    #[error(
        "{0} may not be called: it is no public address, and the server was not told to allow it (--webhook-allow-network)"
    )]
    Forbidden(IpAddr),
    #[error("it answered with status {status}{}", told(.reply))]
    Status { status: u16, reply: String },
    #[error("it did not answer within {} s", TIMEOUT.as_secs())]
    TimedOut,
    #[error("{0}")]
    Unreachable(String),
}

impl Messenger {
    /// `allowed`: what is called though it is not public.
    #[must_use]
    pub fn new(allowed: Vec<Network>) -> Self {
        Self { client: Arc::default(), allowed: allowed.into() }
    }

    /// Returns the client, made anew for as long as that fails.
    fn client(&self) -> Result<&Client, SendError> {
        if let Some(client) = self.client.get() {
            return Ok(client);
        }
        let client = self.build_client().map_err(|error| SendError::NotReady(causes(&error).join(": ")))?;
        Ok(self.client.get_or_init(|| client))
    }

    fn build_client(&self) -> Result<Client, reqwest::Error> {
        Client::builder()
            .user_agent(concat!("headway/", env!("CARGO_PKG_VERSION")))
            .timeout(TIMEOUT)
            // Whoever answers could send the call anywhere.
            .redirect(Policy::none())
            // A proxy resolves names itself, and reaches what may not be reached.
            .no_proxy()
            .dns_resolver(Arc::new(Guarded(self.allowed.clone())))
            .build()
    }

    /// Tells a webhook. `at`: seconds since 1970, by the wall clock, for the signature.
    pub async fn send(&self, notice: &Notice, key: Option<&Secret>, at: i64) -> Result<(), SendError> {
        let url = Url::parse(&notice.webhook).map_err(|_| SendError::Address)?;
        self.check_literal(&url)?;
        let body = body(notice);
        let mut request = self
            .client()?
            .post(url)
            .header("Content-Type", "application/json")
            .header("Headway-Event", &notice.verb)
            .header("Headway-Delivery", notice.id.to_string());
        if let Some(key) = key {
            request = request.header("Headway-Signature", signature(key, at, &body));
        }
        let response = request.body(body).send().await.map_err(unreachable)?;
        if response.status().is_success() {
            return Ok(());
        }
        let status = response.status().as_u16();
        Err(SendError::Status { status, reply: beginning(response).await })
    }

    /// An address in place of a name is asked of no resolver.
    fn check_literal(&self, url: &Url) -> Result<(), SendError> {
        let host = url.host_str().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
        match host.parse::<IpAddr>() {
            Ok(address) if !may_reach(address, &self.allowed) => Err(SendError::Forbidden(address)),
            _ => Ok(()),
        }
    }
}

/// Resolves names to addresses that may be reached, and it is these that are connected to: a name that is another address a moment later
/// wins nothing.
struct Guarded(Arc<[Network]>);

impl Resolve for Guarded {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(look_up(name, self.0.clone()))
    }
}

async fn look_up(name: Name, allowed: Arc<[Network]>) -> Result<Addrs, Box<dyn std::error::Error + Send + Sync>> {
    let found: Vec<SocketAddr> = match tokio::net::lookup_host((name.as_str(), 0)).await {
        Ok(found) => found.collect(),
        Err(error) => {
            tracing::debug!(name = name.as_str(), %error, "the name of a webhook is not resolved");
            return Err(Box::new(NowherePublic));
        }
    };
    // One that may not be reached spoils all: nobody has an honest use for such a name.
    match found.iter().find(|one| !may_reach(one.ip(), &allowed)) {
        Some(inside) => {
            tracing::debug!(name = name.as_str(), address = %inside.ip(), "a webhook may not be called");
            Err(Box::new(NowherePublic))
        }
        None => Ok(Box::new(found.into_iter())),
    }
}

/// A name leads nowhere, or to what may not be reached: whoever made the job is not told which.
#[derive(Debug)]
struct NowherePublic;

impl fmt::Display for NowherePublic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        SendError::NoPublicAddress.fmt(f)
    }
}

impl std::error::Error for NowherePublic {}

/// `text` is what chat services show of a hook.
fn body(notice: &Notice) -> String {
    let at = super::moment(notice.at);
    let mut body = json!({
        "text": notice.text,
        "delivery": notice.id.to_string(),
        "kind": notice.kind,
        "at": at,
        "event": {"seq": notice.id.event, "verb": notice.verb},
        "job": {"id": notice.job.to_string(), "name": notice.name, "project": notice.project, "owner": notice.owner},
    });
    if notice.verb == TEST {
        body["test"] = true.into();
    }
    body.to_string()
}

/// `t=<seconds>,v1=<HMAC-SHA256 of "<seconds>.<body>" in hex>`: whoever checks it also checks that `t` is recent.
fn signature(key: &Secret, at: i64, body: &str) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, key.expose().as_bytes());
    let tag = hmac::sign(&key, format!("{at}.{body}").as_bytes());
    format!("t={at},v1={}", hex::encode(tag))
}

/// Never with the address, which may hold a secret of its own.
fn unreachable(error: reqwest::Error) -> SendError {
    if error.is_timeout() {
        return SendError::TimedOut;
    }
    let error = error.without_url();
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(&error);
    while let Some(one) = cause {
        if one.is::<NowherePublic>() {
            return SendError::NoPublicAddress;
        }
        cause = one.source();
    }
    SendError::Unreachable(causes(&error).join(": "))
}

fn causes(error: &reqwest::Error) -> Vec<String> {
    let mut causes = Vec::new();
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(one) = cause {
        causes.push(one.to_string());
        cause = one.source();
    }
    causes
}

async fn beginning(mut response: reqwest::Response) -> String {
    let mut bytes = Vec::new();
    while bytes.len() < READ_AT_MOST
        && let Ok(Some(chunk)) = response.chunk().await
    {
        bytes.extend_from_slice(&chunk[..chunk.len().min(READ_AT_MOST - bytes.len())]);
    }
    let text = String::from_utf8_lossy(&bytes);
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(TOLD_AT_MOST).collect::<String>().trim().to_owned()
}

fn told(reply: &str) -> String {
    if reply.is_empty() { String::new() } else { format!(": {reply}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_is_what_a_receiver_computes() {
        // printf '1700000000.{}' | openssl dgst -sha256 -hmac key
        assert_eq!(
            signature(&Secret::new("key"), 1_700_000_000, "{}"),
            "t=1700000000,v1=9d713ed406bb7076d4123f0dc2c39d2df5c654ed4b0cd56b52c8b4c940bd63ae"
        );
    }
}
