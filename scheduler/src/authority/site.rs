//! An authority that the site's own has made for Headway: its certificate and its key, tried before it signs anything.

use std::time::Duration;

use headway_api::secret::Secret;
use headway_types::{Seconds, Timestamp};
use rcgen::{CertificateParams, KeyPair, PublicKeyData};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, UnixTime};
use uuid::Uuid;
use webpki::{EndEntityCert, ExtendedKeyUsageValidator, KeyUsage, anchor_from_trusted_cert};
use x509_parser::certificate::X509Certificate;

use super::{Authority, AuthorityError, IdentityKind, Named, SigningRequest, whole};

/// In bytes, of the certificate and of the key.
const LONGEST: usize = 16 * 1024;
/// An authority that ends sooner is not taken.
const SHORTEST: Seconds = Seconds(86_400.0);

/// Why what the site has given cannot sign nodes' certificates.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum SiteError {
    #[error("the certificate and the key have at most {LONGEST} bytes each")]
    Long,
    #[error("give one certificate in PEM, the authority's own, without those above it")]
    Certificate,
    #[error("the certificate cannot be read: {0}")]
    Unreadable(String),
    #[error("the key has a pass phrase: give it without (openssl pkcs8 -topk8 -nocrypt)")]
    Encrypted,
    #[error("the key is no PKCS #8 in PEM of ECDSA, Ed25519 or RSA (openssl pkcs8 -topk8 -nocrypt): {0}")]
    Key(String),
    #[error("the key is not this certificate's")]
    NoPair,
    #[error("the certificate is no authority's: it may not sign others (CA:TRUE, keyCertSign)")]
    NoAuthority,
    #[error("the certificate does not hold yet")]
    Early,
    #[error("the certificate ends within a day")]
    Late,
    #[error("what it signs for {whom} would not be believed: {why}")]
    Useless { whom: &'static str, why: String },
}

/// Of a certificate and its key, both in PEM. Whoever has another certificate of it that names a node is taken for that node: the site makes it for
/// Headway alone.
pub(super) fn taken(certificate: &str, key: &Secret, now: Timestamp) -> Result<Authority, SiteError> {
    if certificate.len().max(key.expose().len()) > LONGEST {
        return Err(SiteError::Long);
    }
    let mut given = CertificateDer::pem_slice_iter(certificate.as_bytes());
    let (Some(Ok(der)), None) = (given.next(), given.next()) else { return Err(SiteError::Certificate) };
    let unreadable = |error: String| SiteError::Unreadable(error);
    let (_, read) = x509_parser::parse_x509_certificate(&der).map_err(|error| unreadable(error.to_string()))?;
    if key.expose().contains("ENCRYPTED") {
        return Err(SiteError::Encrypted);
    }
    let pair = KeyPair::from_pem(key.expose()).map_err(|error| SiteError::Key(error.to_string()))?;
    if read.public_key().raw != pair.subject_public_key_info() {
        return Err(SiteError::NoPair);
    }
    if !signs(&read) {
        return Err(SiteError::NoAuthority);
    }
    let at = |seconds: i64| Timestamp(seconds.saturating_mul(1_000_000));
    let (from, until) = (at(read.validity().not_before.timestamp()), at(read.validity().not_after.timestamp()));
    if now < from {
        return Err(SiteError::Early);
    }
    if until < now + SHORTEST {
        return Err(SiteError::Late);
    }
    let authority = Authority::read(certificate, key, whole(until)).map_err(|error| unreadable(error.to_string()))?;
    try_out(&authority, now)?;
    Ok(authority)
}

fn signs(of: &X509Certificate<'_>) -> bool {
    let authority = of.basic_constraints().ok().flatten().is_some_and(|one| one.value.ca);
    // Without the extension a key may be used for anything.
    authority && of.key_usage().is_ok_and(|one| one.is_none_or(|one| one.value.key_cert_sign()))
}

/// Has it sign a node and a server, and believes them as the other side will: names that it may not sign, and kinds of keys that nobody here
/// reads, show at once and not when nodes are shut out.
fn try_out(authority: &Authority, now: Timestamp) -> Result<(), SiteError> {
    let useless = |whom| move |why: AuthorityError| SiteError::Useless { whom, why: why.to_string() };
    let (node, server) = (useless("a node"), useless("a server"));
    let asked = KeyPair::generate().and_then(|key| CertificateParams::default().serialize_request(&key));
    let asked =
        asked.map_err(AuthorityError::Sign).and_then(|asked| SigningRequest::read(asked.der())).map_err(&node)?;
    let named = Named { kind: IdentityKind::Node, id: Uuid::nil(), name: "node".into(), epoch: 1 };
    let pem = authority.sign(&asked, &named, now, authority.until(now, SHORTEST)).map_err(&node)?;
    let leaf = CertificateDer::from_pem_slice(pem.as_bytes());
    let leaf = leaf.map_err(|error| AuthorityError::Certificate(error.to_string())).map_err(&node)?;
    believed(authority, &leaf, KeyUsage::client_auth(), now).map_err(&node)?;
    let shown = authority.server_key(now).map_err(&server)?;
    believed(authority, &shown.cert[0], KeyUsage::server_auth(), now).map_err(&server)
}

fn believed(
    authority: &Authority,
    leaf: &CertificateDer<'_>,
    usage: impl ExtendedKeyUsageValidator,
    now: Timestamp,
) -> Result<(), AuthorityError> {
    let wrong = |error: webpki::Error| AuthorityError::Certificate(error.to_string());
    let anchors = [anchor_from_trusted_cert(&authority.certificate).map_err(wrong)?];
    let now = UnixTime::since_unix_epoch(Duration::from_micros(now.0.unsigned_abs()));
    let algorithms = default_provider().signature_verification_algorithms.all;
    let leaf = EndEntityCert::try_from(leaf).map_err(wrong)?;
    leaf.verify_for_usage(algorithms, &anchors, &[], now, usage, None, None).map(drop).map_err(wrong)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use rcgen::{
        BasicConstraints, DnType, GeneralSubtree, IsCa, Issuer, KeyUsagePurpose, NameConstraints, PKCS_ED25519,
    };

    use super::super::{authority_of, moment};
    use super::*;

    const NOW: Timestamp = Timestamp(1_900_000_000_000_000);

    /// The site's root signs an authority for Headway; both in PEM.
    fn made(change: impl FnOnce(&mut CertificateParams)) -> (String, Secret) {
        let (root_key, key) = (KeyPair::generate().unwrap(), KeyPair::generate_for(&PKCS_ED25519).unwrap());
        let root = authority_of(&root_key, NOW, NOW + Seconds(1e8));
        let mut of = CertificateParams::default();
        of.distinguished_name.push(DnType::OrganizationName, "Example & Söhne");
        of.distinguished_name.push(DnType::CommonName, "GPU cluster");
        of.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        of.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        of.not_before = moment(NOW - Seconds(3_600.0)).into();
        of.not_after = moment(NOW + Seconds(1e7)).into();
        change(&mut of);
        let pem = of.signed_by(&key, &Issuer::new(root, root_key)).unwrap().pem();
        (pem, Secret::new(key.serialize_pem()))
    }

    fn refused(change: impl FnOnce(&mut CertificateParams)) -> SiteError {
        let (certificate, key) = made(change);
        taken(&certificate, &key, NOW).err().unwrap()
    }

    #[test]
    fn an_authority_below_the_sites_own_signs_until_it_ends() {
        let (certificate, key) = made(|_| {});
        let authority = taken(&certificate, &key, NOW).unwrap();
        assert_eq!(authority.expires_at(), NOW + Seconds(1e7));
        let again = Authority::read(authority.pem(), &key, authority.expires_at()).unwrap();
        assert_eq!(again.fingerprint(), authority.fingerprint());
        try_out(&again, NOW + Seconds(5e6)).unwrap();
    }

    #[test]
    fn what_could_not_sign_is_refused_with_what_is_wrong() {
        assert_eq!(refused(|of| of.is_ca = IsCa::NoCa), SiteError::NoAuthority);
        assert_eq!(refused(|of| of.key_usages = vec![KeyUsagePurpose::DigitalSignature]), SiteError::NoAuthority);
        let hour = Seconds(3_600.0);
        assert_eq!(refused(|of| of.not_after = moment(NOW + hour).into()), SiteError::Late);
        assert_eq!(refused(|of| of.not_before = moment(NOW + hour).into()), SiteError::Early);
        let elsewhere = NameConstraints {
            permitted_subtrees: vec![GeneralSubtree::DnsName("example.org".into())],
            excluded_subtrees: Vec::new(),
        };
        let told = refused(|of| of.name_constraints = Some(elsewhere));
        assert!(matches!(told, SiteError::Useless { whom: "a server", .. }), "{told:?}");

        let ((certificate, key), (other, _)) = (made(|_| {}), made(|_| {}));
        let told = |certificate: &str, key: &str| taken(certificate, &Secret::new(key), NOW).err();
        assert_eq!(told(&other, key.expose()), Some(SiteError::NoPair));
        assert_eq!(told(&format!("{certificate}{other}"), key.expose()), Some(SiteError::Certificate));
        assert_eq!(told("", key.expose()), Some(SiteError::Certificate));
        let locked = key.expose().replace("PRIVATE", "ENCRYPTED PRIVATE");
        assert_eq!(told(&certificate, &locked), Some(SiteError::Encrypted));
        assert!(matches!(told(&certificate, &certificate), Some(SiteError::Key(_))));
        assert_eq!(told(&certificate, &" ".repeat(LONGEST + 1)), Some(SiteError::Long));
    }
}
