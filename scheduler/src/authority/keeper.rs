//! The authorities that this server believes, and the one that it signs with: shared with other servers through the store.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use headway_api::agent::server_name;
use headway_api::secret::Secret;
use headway_types::{Seconds, Timestamp};
use rustls::ServerConfig;
use rustls::server::ResolvesServerCert;
use tokio_util::sync::CancellationToken;

use super::site::{self, SiteError};
use super::tls::server_config;
use super::{Authority, AuthorityError, IdentityKind, Named, Shown, SigningRequest, wall};
use crate::metrics;
use crate::store::{AuditEntry, NewAuthority, Retirement, Store, StoreError, answered};

/// How soon a server hears that another has replaced the authority.
const REFRESH: Duration = Duration::from_secs(5);
/// How old what a server shows may be.
const SHOWN_FOR: Duration = Duration::from_secs(86_400);
/// A node renews its certificate when this much of its life is over.
const RENEWED_AT: f64 = 2.0 / 3.0;
/// An authority that was replaced is believed for so much longer than any certificate of its lasts.
const GRACE: Seconds = Seconds(86_400.0);

/// Why a server has no authority to sign with.
#[derive(Debug, thiserror::Error)]
pub enum AuthoritiesError {
    #[error("the authority of nodes' certificates")]
    Authority(#[from] AuthorityError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Site(#[from] SiteError),
    #[error("this authority has signed here before: give another")]
    Known,
    #[error("this server has no key file to seal an authority of nodes with (--secrets-key-file)")]
    None,
}

/// What a node is given.
#[derive(Clone, Debug, PartialEq)]
pub struct Issued {
    /// PEM.
    pub certificate: String,
    /// Whom to believe, the newest first; PEM.
    pub authorities: Vec<String>,
    pub server_name: String,
    pub authority: String,
    pub issued_at: Timestamp,
    pub expires_at: Timestamp,
    pub renew_after: Seconds,
}

/// The authorities; cheap to clone.
#[derive(Clone)]
pub struct Authorities(Arc<Inner>);

struct Inner {
    store: Store,
    /// Of nodes' certificates.
    life: Seconds,
    /// What is shown to whoever believes no authority of nodes.
    site: Option<Arc<dyn ResolvesServerCert>>,
    held: RwLock<Held>,
}

struct Held {
    /// The newest, which signs, first.
    authorities: Vec<Arc<Authority>>,
    tls: Option<Arc<ServerConfig>>,
    made_at: Instant,
}

impl Authorities {
    /// Reads them, and makes the first where the store keeps none. Without keys to seal with there are none.
    pub(crate) async fn open(
        store: Store,
        life: Seconds,
        site: Option<Arc<dyn ResolvesServerCert>>,
    ) -> Result<Self, AuthoritiesError> {
        let now = wall();
        let stored = stored(&store, life, now).await?;
        let none = stored.is_empty() && store.keeps_secrets();
        let authorities = if none { first(&store, life, now).await? } else { stored };
        let tls = server_config(&authorities, site.clone(), now)?;
        let held = RwLock::new(Held { authorities, tls, made_at: Instant::now() });
        Ok(Self(Arc::new(Inner { store, life, site, held })))
    }

    /// With what connections are encrypted; `None` where there is nothing to show.
    pub(crate) fn tls(&self) -> Option<Arc<ServerConfig>> {
        self.held(|held| held.tls.clone())
    }

    /// The fingerprint, the certificate (PEM) and the end of each, the one that signs first.
    #[must_use]
    pub fn all(&self) -> Vec<(String, String, Timestamp)> {
        let told = |one: &Arc<Authority>| (one.fingerprint().to_owned(), one.pem().to_owned(), one.expires_at());
        self.held(|held| held.authorities.iter().map(told).collect())
    }

    /// Whether who signed this certificate is still believed.
    pub(crate) fn believe(&self, shown: &Shown) -> bool {
        self.held(|held| held.authorities.iter().any(|one| shown.is_of(one)))
    }

    /// Until when a certificate that is made now holds.
    pub(crate) fn terms(&self) -> Result<(String, Timestamp, Timestamp), AuthoritiesError> {
        let now = wall();
        let signs = self.signing()?;
        Ok((signs.fingerprint().to_owned(), now, signs.until(now, self.0.life)))
    }

    /// Signs what a node asks for. On a thread of its own it would not be faster: it is one signature.
    pub(crate) fn issue(&self, request: &SigningRequest, named: &Named) -> Result<Issued, AuthoritiesError> {
        let signs = self.signing()?;
        let now = wall();
        let expires_at = signs.until(now, self.0.life);
        let certificate = signs.sign(request, named, now, expires_at)?;
        Ok(Issued {
            certificate,
            authorities: self.held(|held| held.authorities.iter().map(|one| one.pem().to_owned()).collect()),
            server_name: server_name(signs.fingerprint()),
            authority: signs.fingerprint().to_owned(),
            issued_at: now,
            expires_at,
            renew_after: Seconds(expires_at.since(now).0 * RENEWED_AT),
        })
    }

    /// Another authority signs from now on: one that is made here, or the site's, its certificate and its key in PEM.
    pub(crate) async fn replace(
        &self,
        site: Option<(&str, Secret)>,
        deed: Option<AuditEntry>,
    ) -> Result<(), AuthoritiesError> {
        self.signing()?;
        let (now, given) = (wall(), site.is_some());
        let new = match site {
            Some((certificate, key)) => storable(&site::taken(certificate, &key, now)?, key),
            None => fresh()?,
        };
        let done = self.0.store.replace_authority(&new, now, deed).await?;
        // Where a new one was made somebody else has replaced the former at the same moment, and theirs signs.
        if given && !done {
            return Err(AuthoritiesError::Known);
        }
        self.refresh().await
    }

    /// What this one has signed is believed no more.
    pub(crate) async fn retire(
        &self,
        fingerprint: &str,
        deed: Option<AuditEntry>,
    ) -> Result<Retirement, AuthoritiesError> {
        self.signing()?;
        let done = self.0.store.retire_authority(fingerprint, wall(), deed).await?;
        self.refresh().await?;
        Ok(done)
    }

    /// Hears what other servers have done, and makes what is shown anew before it is old. Until shutdown.
    pub(crate) async fn keep(self, stop: CancellationToken) {
        loop {
            self.measure().await;
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(REFRESH) => {}
            }
            if let Err(error) = self.refresh().await {
                // What is held goes on to hold; a store that does not answer is told of elsewhere.
                tracing::debug!(error = &error as &dyn std::error::Error, "the authorities are not read anew");
            }
        }
    }

    /// The days that are left: of the authority that signs, and of the certificate that ends first.
    async fn measure(&self) {
        let now = wall();
        let days = |until: Timestamp| until.since(now).0 / 86_400.0;
        let authority = self.held(|held| held.authorities.first().map(|one| days(one.expires_at())));
        metrics::authority_days_left(authority.unwrap_or(f64::NAN));
        if let Ok((held, first)) = answered(self.0.store.certificates_held()).await {
            metrics::node_certificates(held, first.map_or(f64::NAN, days));
        }
    }

    async fn refresh(&self) -> Result<(), AuthoritiesError> {
        let now = wall();
        let (known, made_at) = self.held(|held| (held.authorities.clone(), held.made_at));
        let newest = stored(&self.0.store, self.0.life, now).await?;
        let same = known.len() == newest.len()
            && known.iter().zip(&newest).all(|(one, other)| one.fingerprint() == other.fingerprint());
        if same && made_at.elapsed() < SHOWN_FOR {
            return Ok(());
        }
        let tls = server_config(&newest, self.0.site.clone(), now)?;
        let mut held = self.0.held.write().unwrap_or_else(PoisonError::into_inner);
        *held = Held { authorities: newest, tls, made_at: Instant::now() };
        Ok(())
    }

    fn signing(&self) -> Result<Arc<Authority>, AuthoritiesError> {
        self.held(|held| held.authorities.first().cloned()).ok_or(AuthoritiesError::None)
    }

    fn held<T>(&self, look: impl FnOnce(&Held) -> T) -> T {
        look(&self.0.held.read().unwrap_or_else(PoisonError::into_inner))
    }
}

fn fresh() -> Result<NewAuthority, AuthoritiesError> {
    let (authority, key) = Authority::make(wall())?;
    Ok(storable(&authority, key))
}

fn storable(authority: &Authority, key: Secret) -> NewAuthority {
    NewAuthority {
        fingerprint: authority.fingerprint().to_owned(),
        certificate: authority.pem().to_owned(),
        key,
        expires_at: authority.expires_at(),
    }
}

/// Of servers that begin at once one makes it.
async fn first(store: &Store, life: Seconds, now: Timestamp) -> Result<Vec<Arc<Authority>>, AuthoritiesError> {
    store.add_first_authority(&fresh()?, now).await?;
    stored(store, life, now).await
}

/// Those that are believed: one that was replaced for as long as a certificate of its may be in use, however long those that are made today last.
async fn stored(store: &Store, life: Seconds, now: Timestamp) -> Result<Vec<Arc<Authority>>, AuthoritiesError> {
    if !store.keeps_secrets() {
        return Ok(Vec::new());
    }
    let rows = answered(store.authorities()).await?;
    let until = |at: Timestamp, last: Option<Timestamp>| last.map_or(at + life, |last| last.max(at + life)) + GRACE;
    let believed = rows
        .iter()
        .filter(|one| one.expires_at > now && one.replaced_at.is_none_or(|at| now < until(at, one.used_until)));
    believed.map(|one| Ok(Arc::new(Authority::read(&one.certificate, &one.key, one.expires_at)?))).collect()
}

/// For what a fleet's certificate names: the beginning of its nodes' names.
pub(crate) fn speaks_for(named: &Named, name: &str) -> bool {
    match named.kind {
        IdentityKind::Node => named.name == name,
        IdentityKind::Fleet => name.strip_prefix(&named.name).is_some_and(|rest| rest.starts_with('-')),
    }
}
