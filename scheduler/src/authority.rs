//! Who nodes are, by certificate: the authority that signs, what a certificate says, and the keeper that servers share it through.
//!
//! A node makes its key itself and asks for a signature over it; of what it asks for only the key counts, what the certificate says comes from
//! here. See `docs/decisions/0018-node-identity.md`.

mod keeper;
mod request;
mod site;
mod tls;

pub(crate) use keeper::speaks_for;
pub use keeper::{Authorities, AuthoritiesError, Issued};
pub(crate) use request::SigningRequest;
pub use site::SiteError;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use headway_api::agent::server_name;
use headway_api::secret::Secret;
use headway_types::offer::LONGEST_NODE_WORD;
use headway_types::{Seconds, Timestamp};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PublicKeyData, SanType,
};
use rustls::crypto::ring::sign::any_supported_type;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use sha2::{Digest, Sha256};
use uuid::Uuid;
use webpki::EndEntityCert;

/// A certificate holds from so long before it was made: clocks differ.
const BACKDATED: Seconds = Seconds(600.0);
/// Of an authority.
const AUTHORITY_LIFE: Seconds = Seconds(10.0 * 365.0 * 86_400.0);
/// Of what a server shows nodes; each server makes its own at its start and once a day.
const SERVER_LIFE: Seconds = Seconds(30.0 * 86_400.0);

/// The time of the machine's clock: certificates are read by others, who know nothing of the cluster's.
pub(crate) fn wall() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
}

/// Whether a certificate may name this one. What else a node may not be called is refused when it registers.
pub(crate) fn check_name(name: &str) -> Result<(), String> {
    let letters = name.chars().count();
    if !(1..=LONGEST_NODE_WORD).contains(&letters) {
        return Err(format!("a node's name has 1 to {LONGEST_NODE_WORD} characters"));
    }
    if name.chars().any(|letter| letter.is_whitespace() || letter.is_control()) {
        return Err("a node's name holds no space and no control character".into());
    }
    Ok(())
}

/// What speaks for nodes; the words of the column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::EnumString, strum::IntoStaticStr, strum::Display)]
#[strum(serialize_all = "snake_case")]
pub enum IdentityKind {
    Node,
    /// Emulated nodes of one process.
    Fleet,
}

/// Whom a certificate names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    pub kind: IdentityKind,
    /// The node's id; of a fleet one of its own.
    pub id: Uuid,
    pub name: String,
    /// Of how manyeth join.
    pub epoch: u64,
}

/// What a connection has shown, and TLS has found to be signed by an authority that is believed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    pub named: Named,
    pub expires_at: Timestamp,
    /// The fingerprint of who signed it.
    authority: String,
}

/// Why something cannot be signed, or an authority not be used.
#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    #[error("a certificate cannot be used: {0}")]
    Certificate(String),
    #[error("a key cannot be used: {0}")]
    Key(String),
    #[error("the signing request cannot be read: {0}")]
    Request(String),
    #[error("signing")]
    Sign(#[source] rcgen::Error),
}

/// What signs nodes' certificates.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: CertificateDer<'static>,
    pem: String,
    fingerprint: String,
    expires_at: Timestamp,
}

impl Shown {
    /// All that is to be known of a node stands in one name of its certificate, which machines read.
    fn uri(&self) -> String {
        let Named { kind, id, name, epoch } = &self.named;
        let (until, name) = (self.expires_at.0 / 1_000_000, hex::encode(name));
        format!("headway:{kind}:{id}:{epoch}:{until}:{}:{name}", self.authority)
    }

    fn read(uri: &str) -> Option<Self> {
        let parts: Vec<&str> = uri.strip_prefix("headway:")?.split(':').collect();
        let [kind, id, epoch, until, authority, name] = parts.as_slice() else { return None };
        let name = String::from_utf8(hex::decode(name).ok()?).ok()?;
        let named = Named { kind: kind.parse().ok()?, id: id.parse().ok()?, name, epoch: epoch.parse().ok()? };
        let until: i64 = until.parse().ok()?;
        Some(Self { named, expires_at: Timestamp(until.checked_mul(1_000_000)?), authority: (*authority).to_owned() })
    }

    /// Of a certificate that was found to be good. `None` where it names nobody: it is of some other use.
    pub fn of(certificate: &CertificateDer<'_>) -> Option<Self> {
        EndEntityCert::try_from(certificate).ok()?.valid_uri_names().find_map(Self::read)
    }

    /// Whether this one has signed it.
    pub fn is_of(&self, authority: &Authority) -> bool {
        self.authority == authority.fingerprint
    }
}

impl Authority {
    /// A new one, and its key.
    pub fn make(now: Timestamp) -> Result<(Self, Secret), AuthorityError> {
        let key = KeyPair::generate().map_err(AuthorityError::Sign)?;
        let until = whole(now + AUTHORITY_LIFE);
        let pem = authority_of(&key, now, until).self_signed(&key).map_err(AuthorityError::Sign)?.pem();
        let secret = Secret::new(key.serialize_pem());
        Ok((Self::read(&pem, &secret, until)?, secret))
    }

    /// One that was made before; both in PEM.
    pub fn read(certificate: &str, key: &Secret, expires_at: Timestamp) -> Result<Self, AuthorityError> {
        let key = KeyPair::from_pem(key.expose()).map_err(|error| AuthorityError::Key(error.to_string()))?;
        let der = CertificateDer::from_pem_slice(certificate.as_bytes());
        let certificate_der = der.map_err(|error| AuthorityError::Certificate(error.to_string()))?;
        let fingerprint = hex::encode(Sha256::digest(&certificate_der));
        let issuer = Issuer::from_ca_cert_der(&certificate_der, key);
        let issuer = issuer.map_err(|error| AuthorityError::Certificate(error.to_string()))?;
        let (pem, certificate) = (certificate.to_owned(), certificate_der.into_owned());
        Ok(Self { issuer, certificate, pem, fingerprint, expires_at })
    }

    /// SHA-256 of its certificate.
    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    pub fn pem(&self) -> &str {
        &self.pem
    }

    pub fn expires_at(&self) -> Timestamp {
        self.expires_at
    }

    /// Until when a certificate holds that is made now: no longer than this.
    pub fn until(&self, now: Timestamp, life: Seconds) -> Timestamp {
        whole((now + life).min(self.expires_at))
    }

    /// A node's certificate, in PEM.
    pub fn sign(
        &self,
        request: &SigningRequest,
        named: &Named,
        now: Timestamp,
        until: Timestamp,
    ) -> Result<String, AuthorityError> {
        let shown = Shown { named: named.clone(), expires_at: until, authority: self.fingerprint.clone() };
        let mut of = leaf(now, until);
        of.distinguished_name = called("Headway node");
        let uri = shown.uri().try_into().map_err(AuthorityError::Sign)?;
        of.subject_alt_names = vec![SanType::URI(uri)];
        of.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        Ok(of.signed_by(request, &self.issuer).map_err(AuthorityError::Sign)?.pem())
    }

    /// What a server shows nodes that believe this authority.
    pub fn server_key(&self, now: Timestamp) -> Result<CertifiedKey, AuthorityError> {
        let key = KeyPair::generate().map_err(AuthorityError::Sign)?;
        let mut of = leaf(now, self.until(now, SERVER_LIFE));
        of.distinguished_name = called("Headway scheduler");
        let name = server_name(&self.fingerprint).try_into().map_err(AuthorityError::Sign)?;
        of.subject_alt_names = vec![SanType::DnsName(name)];
        of.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let leaf = of.signed_by(&key, &self.issuer).map_err(AuthorityError::Sign)?;
        let private =
            PrivateKeyDer::try_from(key.serialize_der()).map_err(|wrong| AuthorityError::Key(wrong.into()))?;
        let signs = any_supported_type(&private).map_err(|error| AuthorityError::Key(error.to_string()))?;
        // With the authority's own, which a node that joins knows by its fingerprint alone.
        Ok(CertifiedKey::new(vec![leaf.der().clone(), self.certificate.clone()], signs))
    }
}

/// What an authority's certificate says. Its name follows from its key, so that two are told apart while one replaces the other.
fn authority_of(key: &KeyPair, now: Timestamp, until: Timestamp) -> CertificateParams {
    let mut of = holding(now, until);
    let digest = Sha256::digest(key.der_bytes());
    of.distinguished_name = called(&format!("Headway nodes {}", hex::encode(&digest[..6])));
    of.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    of.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    of
}

fn leaf(now: Timestamp, until: Timestamp) -> CertificateParams {
    let mut of = holding(now, until);
    of.use_authority_key_identifier_extension = true;
    of.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    of
}

fn holding(now: Timestamp, until: Timestamp) -> CertificateParams {
    let mut of = CertificateParams::default();
    of.not_before = moment(now - BACKDATED).into();
    of.not_after = moment(until).into();
    of
}

fn moment(at: Timestamp) -> SystemTime {
    UNIX_EPOCH + Duration::from_micros(u64::try_from(at.0).unwrap_or(0))
}

/// Certificates know whole seconds.
fn whole(at: Timestamp) -> Timestamp {
    Timestamp(at.0 - at.0.rem_euclid(1_000_000))
}

fn called(name: &str) -> DistinguishedName {
    let mut called = DistinguishedName::new();
    called.push(DnType::CommonName, name);
    called
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const NOW: Timestamp = Timestamp(1_900_000_000_000_000);

    fn named() -> Named {
        Named { kind: IdentityKind::Node, id: Uuid::from_u128(7), name: "gpu:7.é".into(), epoch: 2 }
    }

    fn shown(pem: &str) -> Shown {
        Shown::of(&CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()).unwrap()
    }

    #[test]
    fn a_certificate_says_what_was_signed_and_nothing_of_what_was_asked_for() {
        let (authority, key) = Authority::make(NOW).unwrap();
        let again = Authority::read(authority.pem(), &key, authority.expires_at()).unwrap();
        assert_eq!(again.fingerprint(), authority.fingerprint());
        let mut asked = CertificateParams::new(vec!["scheduler.example".to_owned()]).unwrap();
        asked.distinguished_name = called("somebody-else");
        let asked = asked.serialize_request(&KeyPair::generate().unwrap()).unwrap();
        let until = again.until(NOW, Seconds(3_600.5));
        let pem = again.sign(&SigningRequest::read(asked.der()).unwrap(), &named(), NOW, until).unwrap();
        let shown = shown(&pem);
        assert_eq!((&shown.named, shown.expires_at), (&named(), NOW + Seconds(3_600.0)));
        assert!(shown.is_of(&authority) && !shown.is_of(&Authority::make(NOW).unwrap().0));
    }

    #[test]
    fn a_certificate_never_outlives_its_authority() {
        let (authority, _) = Authority::make(NOW).unwrap();
        let late = authority.expires_at() - Seconds(60.0);
        assert_eq!(authority.until(late, Seconds(3_600.0)), authority.expires_at());
    }

    #[test]
    fn other_names_are_nobodys() {
        let of = Shown { named: named(), expires_at: NOW, authority: "ab".into() };
        let uri = of.uri();
        assert_eq!(Shown::read(&uri), Some(of));
        let (boss, longer, odd) = (uri.replace("node", "boss"), format!("{uri}:1"), format!("{uri}zz"));
        for wrong in ["https://x", "headway:node", &boss, &longer, &odd] {
            assert_eq!(Shown::read(wrong), None, "{wrong}");
        }
        let (authority, _) = Authority::make(NOW).unwrap();
        assert_eq!(Shown::of(&authority.server_key(NOW).unwrap().cert[0]), None, "a server is no node");
    }

    #[test]
    fn a_name_is_there_and_can_be_written_down() {
        for wrong in ["", "a b", "a\u{1b}[2J", &"n".repeat(129)] {
            assert!(check_name(wrong).is_err(), "{wrong:?}");
        }
        assert_eq!(check_name("gpu-7.rack-2"), Ok(()));
    }
}
