//! The TLS of the port for agents: a client shows a certificate or none, and what it may do without one is not decided here.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use headway_api::agent::{FIRST_CONTACT, server_name};
use headway_types::Timestamp;
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::{RootCertStore, ServerConfig};

use super::{Authority, AuthorityError};

/// Which certificate a server shows: to a node that believes an authority one of that authority; to whoever calls the server otherwise the site's.
struct Certificates {
    by_name: BTreeMap<String, Arc<CertifiedKey>>,
    site: Option<Arc<dyn ResolvesServerCert>>,
}

impl fmt::Debug for Certificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificates").field("names", &self.by_name.keys()).finish_non_exhaustive()
    }
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let named = hello.server_name().and_then(|name| self.by_name.get(name)).cloned();
        named.or_else(|| match &self.site {
            Some(site) => site.resolve(hello),
            None => self.by_name.get(FIRST_CONTACT).cloned(),
        })
    }
}

/// `authorities`: the newest first. `None` without any and without a certificate of the site: then there is nothing to show.
pub(super) fn server_config(
    authorities: &[Arc<Authority>],
    site: Option<Arc<dyn ResolvesServerCert>>,
    now: Timestamp,
) -> Result<Option<Arc<ServerConfig>>, AuthorityError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut by_name = BTreeMap::new();
    let mut roots = RootCertStore::empty();
    for authority in authorities {
        let key = Arc::new(authority.server_key(now)?);
        by_name.insert(server_name(authority.fingerprint()), Arc::clone(&key));
        by_name.entry(FIRST_CONTACT.to_owned()).or_insert(key);
        roots.add(authority.certificate.clone()).map_err(|error| AuthorityError::Certificate(error.to_string()))?;
    }
    if by_name.is_empty() && site.is_none() {
        return Ok(None);
    }
    let wrong = |error: rustls::Error| AuthorityError::Certificate(error.to_string());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions();
    let builder = builder.map_err(wrong)?;
    let builder = match authorities {
        [] => builder.with_no_client_auth(),
        _ => {
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            let verifier = verifier.allow_unauthenticated().build();
            builder.with_client_cert_verifier(verifier.map_err(|error| AuthorityError::Certificate(error.to_string()))?)
        }
    };
    let mut config = builder.with_cert_resolver(Arc::new(Certificates { by_name, site }));
    config.alpn_protocols = vec![b"h2".to_vec()];
    // A connection that is resumed would show what its certificate was then.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(Some(Arc::new(config)))
}
