//! `headway node join`: the first contact of a node with the scheduler. The join token says which authority the scheduler's certificate has to be
//! of, so that nobody else is told the token; the key is made here, and what leaves is a request to sign it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use headway_api::agent::wire::node_registrar_client::NodeRegistrarClient;
use headway_api::agent::{FIRST_CONTACT, JoinToken, server_name, wire};
use headway_types::NodeId;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};
use sha2::{Digest, Sha256};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tonic::codegen::http::Uri;
use tonic::transport::{Certificate as Pem, ClientTlsConfig, Endpoint};
use tonic::{Code, Status};
use uuid::Uuid;

use crate::AgentError;
use crate::certificate::{Held, NewKey, learned_servers};
use crate::identity::node_id_in;
use crate::session::{chain, https_only};

/// How long one server may take for all of it.
const PATIENCE: Duration = Duration::from_secs(15);

/// What joins, and where.
#[derive(Clone, Debug)]
pub struct Joining {
    pub token: JoinToken,
    /// `https://host:port` of the scheduler's agent port; of each of its servers, where there are several.
    pub servers: Vec<String>,
    pub name: String,
    pub who: Joiner,
    /// Where the key and the certificate are kept.
    pub file: PathBuf,
}

/// What the certificate is for.
#[derive(Clone, Debug)]
pub enum Joiner {
    /// The node of this data directory.
    Node { data_dir: PathBuf },
    /// An emulated fleet.
    Fleet,
}

/// What has joined.
#[derive(Clone, Debug)]
pub struct Joined {
    pub id: Uuid,
    pub name: String,
    pub file: PathBuf,
}

/// Whether there is a certificate in the file that holds and believes this authority (PEM).
#[must_use]
pub fn has_joined(file: &Path, authority: &str) -> bool {
    matches!(Held::read(file), Ok(Some(held)) if !held.has_expired() && held.believes(authority))
}

/// The name that the certificate in this file is of, where there is one.
#[must_use]
pub fn joined_name(file: &Path) -> Option<String> {
    Held::read(file).ok().flatten().map(|held| held.name)
}

/// Joins, and writes the certificate.
pub async fn join(joining: Joining) -> Result<Joined, AgentError> {
    let id = match &joining.who {
        Joiner::Node { data_dir } => {
            std::fs::create_dir_all(data_dir).map_err(AgentError::io(format!("creating {}", data_dir.display())))?;
            let NodeId(id) = node_id_in(data_dir)?;
            id
        }
        Joiner::Fleet => Held::read(&joining.file).ok().flatten().map_or_else(Uuid::now_v7, |held| held.id),
    };
    Held::try_to_write(&joining.file)?;
    let fleet = matches!(joining.who, Joiner::Fleet);
    let key = NewKey::make()?;
    let request = wire::JoinRequest {
        token: joining.token.text(),
        identity_id: id.to_string(),
        name: joining.name.clone(),
        fleet,
        signing_request: key.request.clone(),
    };
    let mut last = AgentError::Certificate { message: "there is no server to join".into() };
    for url in &joining.servers {
        let asked = ask(url, &joining.token.fingerprint, request.clone());
        match tokio::time::timeout(PATIENCE, asked).await {
            Ok(Ok(issued)) => {
                let held = Held::of((id, joining.name.clone(), fleet), joining.servers.clone(), &key, issued);
                held.write(&joining.file)?;
                // Of the cluster that it was in before.
                let _was_none = std::fs::remove_file(learned_servers(&joining.file));
                return Ok(Joined { id, name: joining.name, file: joining.file });
            }
            // Whoever leads has said no, and no other will say anything else.
            Ok(Err(NotJoined::Refused(message))) => return Err(AgentError::Certificate { message }),
            Ok(Err(NotJoined::Elsewhere(message))) => last = AgentError::Certificate { message },
            Ok(Err(NotJoined::Unusable(error))) => return Err(error),
            Err(_) => last = AgentError::Certificate { message: format!("{url} did not answer in time") },
        }
    }
    Err(last)
}

enum NotJoined {
    Refused(String),
    /// Another server may take it.
    Elsewhere(String),
    Unusable(AgentError),
}

async fn ask(url: &str, fingerprint: &str, request: wire::JoinRequest) -> Result<wire::IssuedCertificate, NotJoined> {
    let unusable = |message: String| NotJoined::Unusable(AgentError::Server { url: url.to_owned(), message });
    let endpoint = Endpoint::from_shared(url.to_owned()).map_err(|error| unusable(chain(&error)))?;
    https_only(endpoint.uri()).map_err(&unusable)?;
    let authority = authority_at(endpoint.uri(), fingerprint).await?;
    let tls = ClientTlsConfig::new().ca_certificate(Pem::from_pem(authority)).domain_name(server_name(fingerprint));
    let channel = endpoint.tls_config(tls).map_err(|error| unusable(chain(&error)))?.connect().await;
    let channel = channel.map_err(|error| NotJoined::Elsewhere(format!("connecting to {url}: {}", chain(&error))))?;
    let answer = NodeRegistrarClient::new(channel).join(request).await;
    answer.map(tonic::Response::into_inner).map_err(|status| refused(url, &status))
}

fn refused(url: &str, status: &Status) -> NotJoined {
    match status.code() {
        Code::PermissionDenied | Code::InvalidArgument | Code::ResourceExhausted => {
            NotJoined::Refused(status.message().to_owned())
        }
        _ => NotJoined::Elsewhere(format!("{url}: {}", status.message())),
    }
}

/// The certificate of the authority, PEM, as the server shows it. It is known by its fingerprint, so that it does not matter who shows it; nothing
/// is said over this connection.
async fn authority_at(uri: &Uri, fingerprint: &str) -> Result<String, NotJoined> {
    let elsewhere = |error: std::io::Error| NotJoined::Elsewhere(format!("connecting to {uri}: {}", chain(&error)));
    let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
    let stream = TcpStream::connect((host, uri.port_u16().unwrap_or(443))).await.map_err(elsewhere)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = ByFingerprint { fingerprint: fingerprint.to_owned(), provider: Arc::clone(&provider) };
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("ring has the usual cipher suites")
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth();
    let name = ServerName::try_from(FIRST_CONTACT).expect("it is a host name");
    let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await.map_err(elsewhere)?;
    let shown = stream.get_ref().1.peer_certificates().unwrap_or_default();
    let authority = shown.iter().find(|one| is(one, fingerprint));
    let authority = authority.ok_or_else(|| NotJoined::Elsewhere(format!("{uri} shows another authority")))?;
    Ok(pem(authority))
}

fn is(certificate: &CertificateDer<'_>, fingerprint: &str) -> bool {
    hex::encode(Sha256::digest(certificate)) == fingerprint
}

fn pem(certificate: &CertificateDer<'_>) -> String {
    format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", STANDARD.encode(certificate))
}

/// Takes whoever shows the authority's certificate.
#[derive(Debug)]
struct ByFingerprint {
    fingerprint: String,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for ByFingerprint {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let mut shown = std::iter::once(end_entity).chain(intermediates);
        match shown.any(|one| is(one, &self.fingerprint)) {
            true => Ok(ServerCertVerified::assertion()),
            false => Err(rustls::Error::General(
                "its certificate is not of the authority that the join token names: the URL is of the port for people (7600) instead of the port for \
                 agents (7601), or of another cluster, or somebody stands between"
                    .into(),
            )),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
