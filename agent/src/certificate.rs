//! Who this node is to the scheduler: a key that was made here and never leaves, and a certificate of it, in one file.
//!
//! The certificate is renewed over a connection that it opens itself when two thirds of its life are over, or when the scheduler asks. Sessions that
//! the former has opened are ended and begun anew at once; nothing else of the node notices.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use headway_api::agent::wire;
use headway_api::agent::wire::node_registrar_client::NodeRegistrarClient;
use headway_types::NodeId;
use rand::RngExt;
use rcgen::{CertificateParams, KeyPair};
use serde::{Deserialize, Serialize};
use tokio::sync::{Notify, watch};
use tonic::Status;
use tonic::transport::{Certificate as Pem, ClientTlsConfig, Identity};
use uuid::Uuid;

use crate::AgentError;
use crate::files::write_durably;
use crate::servers::Servers;

/// How long a whole call for a certificate may take.
const PATIENCE: Duration = Duration::from_secs(15);
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// A machine that slept has slept through the moment: the clock is looked at so often.
const LOOK: Duration = Duration::from_secs(600);
/// Attempts in a row that fail before a person hears of it: one may meet a takeover.
const FAILURES_TOLD: u32 = 5;

/// What the file holds.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Held {
    /// The node's id; of a fleet one of its own.
    pub id: Uuid,
    pub name: String,
    pub fleet: bool,
    /// Where the scheduler takes agents.
    pub servers: Vec<String>,
    /// PEM, as all that follow.
    key: String,
    certificate: String,
    /// Whom to believe that it is the scheduler, the newest first.
    authorities: Vec<String>,
    /// What the newest calls the scheduler.
    server_name: String,
    renew_at_ms: u64,
    expires_at_ms: u64,
}

impl std::fmt::Debug for Held {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Held").field("id", &self.id).field("name", &self.name).finish_non_exhaustive()
    }
}

/// A key that was made here, before anybody has signed it.
pub(crate) struct NewKey {
    key: KeyPair,
    /// PKCS #10, DER.
    pub request: Vec<u8>,
}

/// The certificate as it is used.
#[derive(Debug)]
pub(crate) struct Certificate {
    file: PathBuf,
    held: watch::Sender<Arc<Held>>,
    /// The scheduler wants it renewed.
    asked: Notify,
}

impl NewKey {
    pub(crate) fn make() -> Result<Self, AgentError> {
        let failed = |error: rcgen::Error| AgentError::Certificate { message: format!("making a key: {error}") };
        let key = KeyPair::generate().map_err(failed)?;
        let request = CertificateParams::default().serialize_request(&key).map_err(failed)?.der().to_vec();
        Ok(Self { key, request })
    }
}

impl Held {
    pub(crate) fn of(
        (id, name, fleet): (Uuid, String, bool),
        servers: Vec<String>,
        key: &NewKey,
        issued: wire::IssuedCertificate,
    ) -> Self {
        let now = now_ms();
        let from_now = |seconds: f64| now.saturating_add((seconds.max(0.0) * 1e3) as u64);
        Self {
            id,
            name,
            fleet,
            servers,
            key: key.key.serialize_pem(),
            certificate: issued.certificate,
            authorities: issued.authorities,
            server_name: issued.server_name,
            renew_at_ms: from_now(issued.renew_after_seconds),
            expires_at_ms: from_now(issued.expires_after_seconds),
        }
    }

    /// `None` where there is no file.
    pub(crate) fn read(file: &Path) -> Result<Option<Self>, AgentError> {
        match std::fs::read(file) {
            Ok(text) => serde_json::from_slice(&text).map(Some).map_err(|error| AgentError::Certificate {
                message: format!("{} cannot be read ({error}); join again", file.display()),
            }),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(AgentError::io(format!("reading {}", file.display()))(error)),
        }
    }

    pub(crate) fn write(&self, file: &Path) -> Result<(), AgentError> {
        let text = serde_json::to_vec_pretty(self).expect("what is held has string keys only");
        write_durably(file, &text).map_err(AgentError::io(format!("writing {}", file.display())))
    }

    /// Before a token is used up: whether what it brings can be kept.
    pub(crate) fn try_to_write(file: &Path) -> Result<(), AgentError> {
        let trial = file.with_extension("trial");
        let tried = write_durably(&trial, b"").and_then(|()| std::fs::remove_file(&trial));
        tried.map_err(AgentError::io(format!("writing beside {}", file.display())))
    }

    /// What is shown, and who is believed.
    pub(crate) fn tls(&self) -> ClientTlsConfig {
        ClientTlsConfig::new()
            .ca_certificates(self.authorities.iter().map(Pem::from_pem))
            .identity(Identity::from_pem(&self.certificate, &self.key))
            .domain_name(&self.server_name)
    }

    pub(crate) fn has_expired(&self) -> bool {
        self.expires_at_ms <= now_ms()
    }

    pub(crate) fn believes(&self, authority: &str) -> bool {
        self.authorities.iter().any(|one| one.trim() == authority.trim())
    }

    fn until_renewal(&self) -> Duration {
        Duration::from_millis(self.renew_at_ms.saturating_sub(now_ms()))
    }
}

impl Certificate {
    /// Reads the file, which `headway node join` has written.
    pub(crate) fn load(file: &Path) -> Result<Self, AgentError> {
        let held = Held::read(file)?.ok_or_else(|| AgentError::Certificate {
            message: format!(
                "there is no {}: this node has not joined. Make a token (headway node token create) and join with it (headway node join)",
                file.display()
            ),
        })?;
        if held.has_expired() {
            return Err(AgentError::Certificate {
                message: format!(
                    "the certificate of {name} has expired: make a token (headway node token create --node {name}) and join again (headway node join)",
                    name = held.name
                ),
            });
        }
        Ok(Self { file: file.to_owned(), held: watch::Sender::new(Arc::new(held)), asked: Notify::new() })
    }

    pub(crate) fn held(&self) -> Arc<Held> {
        Arc::clone(&self.held.borrow())
    }

    pub(crate) fn node(&self) -> NodeId {
        NodeId(self.held().id)
    }

    /// Where the servers are kept that this node has learned of.
    pub(crate) fn learned_servers(&self) -> PathBuf {
        learned_servers(&self.file)
    }

    /// Sees the certificate that it is, and every later one.
    pub(crate) fn watch(&self) -> watch::Receiver<Arc<Held>> {
        self.held.subscribe()
    }

    /// The scheduler wants it renewed.
    pub(crate) fn ask(&self) {
        self.asked.notify_one();
    }

    /// Renews it in time, and when asked. Never ends.
    pub(crate) async fn keep(&self, servers: &Servers) {
        loop {
            let wait = self.held().until_renewal();
            tokio::select! {
                () = self.asked.notified() => {}
                () = tokio::time::sleep(wait.min(LOOK)) => if wait > LOOK { continue },
            }
            let (mut pause, mut failures) = (FIRST_PAUSE, 0);
            while let Err(error) = self.renew(servers).await {
                failures += 1;
                let expired = self.held().has_expired();
                if failures == FAILURES_TOLD || (expired && failures % FAILURES_TOLD == 0) {
                    tracing::warn!(error = error.message(), expired, "the certificate of this node is not renewed");
                } else {
                    tracing::debug!(error = error.message(), "the certificate is not renewed yet");
                }
                let jittered = pause.mul_f64(rand::rng().random_range(0.5..1.0));
                tokio::time::sleep(jittered).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        }
    }

    /// Asks each server once.
    async fn renew(&self, servers: &Servers) -> Result<(), Status> {
        let key = NewKey::make().map_err(|error| Status::internal(error.to_string()))?;
        let mut last = Status::unavailable("there is no server");
        for dialer in servers.beginning_with_current() {
            let asked = async {
                let channel =
                    dialer.connect().await.map_err(|error| Status::unavailable(crate::session::chain(&error)))?;
                let request = wire::RenewRequest { signing_request: key.request.clone() };
                NodeRegistrarClient::new(channel).renew(request).await
            };
            match tokio::time::timeout(PATIENCE, asked).await {
                Ok(Ok(issued)) => return self.take(&key, issued.into_inner()),
                Ok(Err(status)) => last = status,
                Err(_) => last = Status::deadline_exceeded("the scheduler did not answer in time"),
            }
        }
        Err(last)
    }

    /// On disk first: a key that nobody has is no key.
    fn take(&self, key: &NewKey, issued: wire::IssuedCertificate) -> Result<(), Status> {
        let held = self.held();
        let new = Held::of((held.id, held.name.clone(), held.fleet), held.servers.clone(), key, issued);
        new.write(&self.file).map_err(|error| Status::internal(crate::session::chain(&error)))?;
        tracing::info!(name = new.name, "the certificate is renewed");
        self.held.send_replace(Arc::new(new));
        Ok(())
    }
}

/// Beside an identity: servers of its cluster beyond those that the node joined by.
pub(crate) fn learned_servers(identity: &Path) -> PathBuf {
    let mut name = identity.as_os_str().to_owned();
    name.push(".servers");
    name.into()
}

fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

#[cfg(test)]
pub(crate) mod tests {
    #![allow(clippy::unwrap_used)]
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn issued(renew: f64, expires: f64) -> wire::IssuedCertificate {
        wire::IssuedCertificate {
            certificate: "c".into(),
            authorities: vec!["a".into()],
            server_name: "s".into(),
            renew_after_seconds: renew,
            expires_after_seconds: expires,
        }
    }

    pub(crate) fn held(renew: f64, expires: f64) -> Held {
        let key = NewKey::make().unwrap();
        Held::of((Uuid::from_u128(7), "gpu-7".into(), false), vec!["https://s:1".into()], &key, issued(renew, expires))
    }

    #[test]
    fn the_file_is_its_owners_alone_and_the_key_is_shown_nowhere_else() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("identity.json");
        let held = held(60.0, 90.0);
        held.write(&file).unwrap();
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        let read = Held::read(&file).unwrap().unwrap();
        assert_eq!((read.id, &read.key), (held.id, &held.key));
        assert!(held.key.contains("PRIVATE KEY") && !format!("{held:?}").contains("PRIVATE"));
        assert_eq!(Certificate::load(&file).unwrap().node(), NodeId(held.id));
    }

    #[test]
    fn who_has_not_joined_or_too_long_ago_is_told_what_to_do() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("identity.json");
        let told = |file: &Path| Certificate::load(file).unwrap_err().to_string();
        assert!(told(&file).contains("headway node join"));
        held(0.0, 0.0).write(&file).unwrap();
        assert!(told(&file).contains("has expired"));
        std::fs::write(&file, "{").unwrap();
        assert!(told(&file).contains("join again"));
    }

    #[test]
    fn it_is_renewed_when_the_scheduler_said() {
        let left = held(60.0, 90.0).until_renewal();
        assert!(left <= Duration::from_secs(60) && left > Duration::from_secs(50), "{left:?}");
        assert_eq!(held(-5.0, 90.0).until_renewal(), Duration::ZERO);
    }
}
