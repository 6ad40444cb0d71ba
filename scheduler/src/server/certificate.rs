//! The certificate that a port shows: read from its files at the start, and again whenever they change, so that a renewed one is shown from the next
//! connection on. What cannot be used is not: the port goes on with what it had, and says so.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, SystemTime};
use std::{fs, io};

use chrono::{DateTime, Utc};
use headway_engine::Event;
use headway_engine::attention::Kind;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio::signal::unix::Signal;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::cluster::Cluster;
use crate::config::TlsPaths;
use crate::driver::Input;
use crate::metrics;
use crate::troubles::Trouble;

/// Between looks at the files. SIGHUP has them looked at at once.
const EVERY: Duration = Duration::from_secs(60);
/// Whoever renews writes two files: what does not fit is looked at once more before it is refused.
const AGAIN: Duration = Duration::from_secs(5);
/// A certificate that ends within so many days is a matter for people.
const ENDS_SOON_DAYS: f64 = 14.0;

/// Why files hold nothing to show.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    #[error("reading {path}")]
    Read {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("{path} holds no PEM {what}")]
    NoPem {
        path: PathBuf,
        what: &'static str,
        #[source]
        source: rustls::pki_types::pem::Error,
    },
    #[error("{0} holds no certificate")]
    Empty(PathBuf),
    #[error("{certificate} and {key} are no pair that can be used")]
    NoPair {
        certificate: PathBuf,
        key: PathBuf,
        #[source]
        source: rustls::Error,
    },
    #[error("the certificate in {path} cannot be read: {message}")]
    Unreadable { path: PathBuf, message: String },
    #[error("the certificate in {path} ended at {ended_at}")]
    Ended { path: PathBuf, ended_at: DateTime<Utc> },
}

/// Files with a certificate, and what of them is shown. One resolves for any number of ports.
pub struct Certificates {
    paths: TlsPaths,
    shown: RwLock<Arc<Shown>>,
}

struct Shown {
    /// As they were read: certificate and key.
    files: (Vec<u8>, Vec<u8>),
    key: Arc<CertifiedKey>,
    ends_at: DateTime<Utc>,
}

impl std::fmt::Debug for Certificates {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Certificates").field("paths", &self.paths).finish_non_exhaustive()
    }
}

impl Certificates {
    /// What is there now, though it may have ended.
    pub fn read(paths: &TlsPaths) -> Result<Arc<Self>, CertificateError> {
        let shown = Shown::of(read(paths)?, paths)?;
        Ok(Arc::new(Self { paths: paths.clone(), shown: RwLock::new(Arc::new(shown)) }))
    }

    /// For a port for people. `protocols`: of ALPN, the preferred first.
    pub fn config(self: &Arc<Self>, protocols: &[&str]) -> Arc<rustls::ServerConfig> {
        let resolver: Arc<dyn ResolvesServerCert> = self.clone();
        let mut config = rustls::ServerConfig::builder().with_no_client_auth().with_cert_resolver(resolver);
        config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        Arc::new(config)
    }

    pub fn ends_at(&self) -> DateTime<Utc> {
        self.shown().ends_at
    }

    /// Reads the files again. Whether something else is shown from now on; what cannot be used changes nothing.
    pub fn look(&self, now: DateTime<Utc>) -> Result<bool, CertificateError> {
        let files = read(&self.paths)?;
        if files == self.shown().files {
            return Ok(false);
        }
        let fresh = Shown::of(files, &self.paths)?;
        if fresh.ends_at <= now {
            return Err(CertificateError::Ended { path: self.paths.certificate.clone(), ended_at: fresh.ends_at });
        }
        // The value is valid between any two of its operations, so a panic elsewhere does not spoil it.
        *self.shown.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(fresh);
        Ok(true)
    }

    fn shown(&self) -> Arc<Shown> {
        self.shown.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.shown().key.clone())
    }
}

impl Shown {
    fn of(files: (Vec<u8>, Vec<u8>), paths: &TlsPaths) -> Result<Self, CertificateError> {
        let TlsPaths { certificate, key } = paths;
        let no_pem = |path: &Path, what| {
            let path = path.to_owned();
            move |source| CertificateError::NoPem { path, what, source }
        };
        let chain = CertificateDer::pem_slice_iter(&files.0).collect::<Result<Vec<_>, _>>();
        let chain = chain.map_err(no_pem(certificate, "certificate"))?;
        let first = chain.first().ok_or_else(|| CertificateError::Empty(certificate.clone()))?;
        let unreadable = |message: String| CertificateError::Unreadable { path: certificate.clone(), message };
        let (_, read) = x509_parser::parse_x509_certificate(first).map_err(|error| unreadable(error.to_string()))?;
        let ends_at = DateTime::from_timestamp(read.validity().not_after.timestamp(), 0);
        let ends_at = ends_at.ok_or_else(|| unreadable("it ends at no moment".into()))?;
        let private = PrivateKeyDer::from_pem_slice(&files.1).map_err(no_pem(key, "private key"))?;
        let provider = rustls::crypto::ring::default_provider();
        let pair = CertifiedKey::from_der(chain, private, &provider).map_err(|source| CertificateError::NoPair {
            certificate: certificate.clone(),
            key: key.clone(),
            source,
        })?;
        Ok(Self { files, key: Arc::new(pair), ends_at })
    }
}

fn read(paths: &TlsPaths) -> Result<(Vec<u8>, Vec<u8>), CertificateError> {
    let read = |path: &Path| fs::read(path).map_err(|source| CertificateError::Read { path: path.to_owned(), source });
    Ok((read(&paths.certificate)?, read(&paths.key)?))
}

/// Shows what the files hold, until shutdown.
pub(super) async fn watch(
    certificates: Arc<Certificates>,
    cluster: Cluster,
    events: mpsc::Sender<Input>,
    mut hang_up: io::Result<Signal>,
    stop: CancellationToken,
) {
    if let Err(error) = &hang_up {
        tracing::warn!(%error, "SIGHUP cannot be heard: certificates are looked at once a minute");
    }
    let mut watcher = Watcher { certificates, cluster, events, refused: None };
    watcher.tell_of_the_end().await;
    loop {
        let asked = async {
            match &mut hang_up {
                Ok(signal) => drop(signal.recv().await),
                Err(_) => std::future::pending().await,
            }
        };
        let asked = tokio::select! {
            () = stop.cancelled() => return,
            () = asked => true,
            () = tokio::time::sleep(EVERY) => false,
        };
        let mut found = watcher.certificates.look(now());
        if found.is_err() && !asked {
            tokio::time::sleep(AGAIN).await;
            found = watcher.certificates.look(now());
        }
        watcher.tell(found, asked).await;
        watcher.tell_of_the_end().await;
    }
}

fn now() -> DateTime<Utc> {
    SystemTime::now().into()
}

struct Watcher {
    certificates: Arc<Certificates>,
    cluster: Cluster,
    events: mpsc::Sender<Input>,
    /// Why, as it was told last.
    refused: Option<String>,
}

impl Watcher {
    async fn tell(&mut self, found: Result<bool, CertificateError>, asked: bool) {
        match found {
            Ok(renewed) => {
                self.refused = None;
                self.cluster.troubles().tell(Kind::CertificateRefused, self.cluster.now(), None);
                let ends_at = self.certificates.ends_at();
                if renewed {
                    metrics::certificate_read("renewed");
                    tracing::info!(%ends_at, "a renewed certificate is shown from now on");
                    self.event("certificate.renewed", format!("a renewed certificate is shown; it ends at {ends_at}"))
                        .await;
                } else if asked {
                    tracing::info!(%ends_at, "the certificate is what it was");
                }
            }
            Err(error) => {
                let told = in_words(&error);
                if asked || self.refused.as_ref() != Some(&told) {
                    metrics::certificate_read("refused");
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        "the certificate is not read again; what was shown before goes on"
                    );
                    self.event("certificate.refused", format!("a changed certificate cannot be used: {told}")).await;
                }
                let trouble = Trouble {
                    headline: format!("A changed certificate cannot be used, and the server goes on with the one before: {told}"),
                    next_step: "Put both files right; they are looked at once a minute, and at SIGHUP: headway admin config validate".into(),
                };
                self.cluster.troubles().tell(Kind::CertificateRefused, self.cluster.now(), Some(trouble));
                self.refused = Some(told);
            }
        }
    }

    async fn tell_of_the_end(&self) {
        let ends_at = self.certificates.ends_at();
        let days = days_left(ends_at, now());
        metrics::certificate_days(days);
        let file = self.certificates.paths.certificate.display();
        let trouble = (days < ENDS_SOON_DAYS).then(|| Trouble {
            headline: match days {
                days if days <= 0.0 => {
                    format!("The server's certificate ended at {ends_at}: nobody trusts it any more")
                }
                days => format!("The server's certificate ends in {days:.1} days, at {ends_at}"),
            },
            next_step: format!("Renew {file} and its key; they are read again within a minute, without a restart"),
        });
        let (soon, headline) = (trouble.is_some(), trouble.as_ref().map(|trouble| trouble.headline.clone()));
        let news = self.cluster.troubles().tell(Kind::CertificateExpires, self.cluster.now(), trouble);
        if let (true, true, Some(headline)) = (news, soon, headline) {
            tracing::warn!(%ends_at, days, "the certificate ends soon");
            self.event("certificate.ends", headline).await;
        }
    }

    async fn event(&self, verb: &'static str, message: String) {
        // The loop has ended if this fails; a standby drops it, and says it in its log and its metrics alone.
        let _ = self.events.send(Input::event(Event::Told { verb, message })).await;
    }
}

fn days_left(ends_at: DateTime<Utc>, now: DateTime<Utc>) -> f64 {
    (ends_at - now).num_seconds() as f64 / 86_400.0
}

/// With all that caused it.
fn in_words(error: &dyn std::error::Error) -> String {
    let mut told = error.to_string();
    let mut cause = error.source();
    while let Some(source) = cause {
        told.push_str(&format!(": {source}"));
        cause = source.source();
    }
    told
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use chrono::TimeDelta;
    use rcgen::{CertificateParams, KeyPair};

    use super::*;

    /// A fresh pair that ends at a moment, in these files.
    fn write(paths: &TlsPaths, ends_at: DateTime<Utc>) -> String {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        params.not_after = SystemTime::from(ends_at).into();
        let pem = params.self_signed(&key).unwrap().pem();
        fs::write(&paths.certificate, &pem).unwrap();
        fs::write(&paths.key, key.serialize_pem()).unwrap();
        pem
    }

    #[test]
    fn a_renewed_pair_is_shown_and_what_cannot_be_used_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let paths = TlsPaths { certificate: dir.path().join("cert.pem"), key: dir.path().join("key.pem") };
        assert!(matches!(Certificates::read(&paths), Err(CertificateError::Read { .. })));
        let soon = DateTime::from_timestamp(now().timestamp(), 0).unwrap() + TimeDelta::days(10);
        let first = write(&paths, soon);
        let certificates = Certificates::read(&paths).unwrap();
        let shown = || certificates.shown().files.0.clone();
        assert_eq!((certificates.ends_at(), days_left(soon, soon - TimeDelta::days(10))), (soon, 10.0));
        assert!(!certificates.look(now()).unwrap());

        let later = soon + TimeDelta::days(80);
        let renewed = write(&paths, later);
        assert!(certificates.look(now()).unwrap());
        assert_eq!((shown(), certificates.ends_at()), (renewed.clone().into_bytes(), later));

        // Half written, nonsense, of another key, ended: each keeps what was shown.
        fs::write(&paths.certificate, &first).unwrap();
        assert!(matches!(certificates.look(now()), Err(CertificateError::NoPair { .. })));
        fs::write(&paths.certificate, "").unwrap();
        assert!(matches!(certificates.look(now()), Err(CertificateError::Empty(_))));
        fs::remove_file(&paths.certificate).unwrap();
        assert!(matches!(certificates.look(now()), Err(CertificateError::Read { .. })));
        write(&paths, now() - TimeDelta::days(1));
        assert!(matches!(certificates.look(now()), Err(CertificateError::Ended { .. })));
        write(&paths, later);
        fs::write(&paths.key, "no key").unwrap();
        assert!(matches!(certificates.look(now()), Err(CertificateError::NoPem { .. })));
        assert_eq!(shown(), renewed.into_bytes());
    }
}
