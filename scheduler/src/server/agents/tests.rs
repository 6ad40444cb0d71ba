//! Nodes join, register, renew and are shut out, over TLS as on a live port.
#![allow(clippy::unwrap_used)]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use headway_api::agent::wire::agent_gateway_client::AgentGatewayClient;
use headway_api::agent::wire::node_registrar_client::NodeRegistrarClient;
use headway_api::agent::{JoinToken, SchedulerToAgent, registration, server_name, wire};
use headway_engine::EngineConfig;
use headway_goodput::catalog::Catalog;
use headway_types::{IdSource, NodeId, NodeReport, Seconds, Term, Timestamp, TokenScope, example};
use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Code, Status, Streaming};

use super::*;
use crate::authority::{IdentityKind, wall};
use crate::clock::Clock;
use crate::cluster::Cluster;
use crate::config::Retention;
use crate::driver::Driver;
use crate::grpc::{Admission, Sessions};
use crate::leader::Leader;
use crate::secrets::Keyring;
use crate::server::connections::Limits;
use crate::store::{AuditFilter, AuditResult, EventFilter, JoinRefusal, NewJoinToken, TokenHash};
use crate::support::{START, TestDatabase};

const DEADLINE: Duration = Duration::from_secs(20);

struct Served {
    cluster: Cluster,
    authorities: Authorities,
    url: String,
    tokens: AtomicUsize,
    shutdown: CancellationToken,
}

impl Drop for Served {
    fn drop(&mut self) {
        self.shutdown.cancel();
    }
}

/// A port as a live server has it.
async fn served(tokens_too: bool) -> Served {
    let database = TestDatabase::create().await;
    let store = database.store().await.with_keyring(Keyring::of(&[[7; 32]]).unwrap());
    store.ensure_token("agent", TokenScope::Agent, "agent", START).await.unwrap();
    let authorities = Authorities::open(store.clone(), Seconds(3_600.0), None).await.unwrap();
    let (sessions, clock, config) = (Sessions::default(), Clock::default(), EngineConfig::default());
    let leader = Leader::new(database.options.clone());
    let (retention, told) = (Retention::default(), config.clone());
    let started = Driver::start(store.clone(), leader, sessions.clone(), clock.clone(), config, retention, "abc1234");
    let started = started.await.unwrap();
    let shutdown = CancellationToken::new();
    let mut ready = started.cluster.readiness();
    tokio::spawn(started.driver.run(started.leading, shutdown.clone()));
    ready.wait_for(|ready| *ready).await.unwrap();
    let admitting = (started.cluster.standing(), Admission::by_certificate(authorities.clone(), tokens_too));
    let gateway = Gateway::new(
        (started.inbox, started.registrations),
        sessions,
        store,
        clock,
        &told,
        Catalog::default(),
        admitting,
    );
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    let entrance = Entrance { authorities: authorities.clone(), plain: tokens_too };
    let visitors = Connections::new("agents", Limits::of_agents(1_000));
    tokio::spawn(serve(gateway, listener, visitors, entrance, shutdown.clone()));
    Served { cluster: started.cluster, authorities, url, tokens: AtomicUsize::new(0), shutdown }
}

/// A node, with what it was given.
struct Node {
    id: NodeId,
    name: String,
    key: KeyPair,
    issued: wire::IssuedCertificate,
}

fn id(seed: u64) -> NodeId {
    IdSource::seeded(seed).node(Timestamp(0))
}

fn request(key: &KeyPair) -> Vec<u8> {
    CertificateParams::default().serialize_request(key).unwrap().der().to_vec()
}

impl Served {
    async fn token(&self, name: Option<&str>, kind: IdentityKind) -> String {
        let (authority, now, _) = self.authorities.terms().unwrap();
        let secret = format!("{:064x}", self.tokens.fetch_add(1, Ordering::Relaxed));
        let new = NewJoinToken { kind, name, uses: 1, expires_at: now + Seconds(60.0) };
        let hash = TokenHash::of(&secret);
        self.cluster.store().create_join_token(&new, &hash, "ada", now, None).await.unwrap();
        JoinToken { secret, fingerprint: authority }.text()
    }

    /// By whom it believes and what it shows.
    async fn channel(&self, of: Option<&Node>) -> Result<Channel, tonic::transport::Error> {
        let (fingerprint, pem, _) = self.authorities.all().remove(0);
        let tls =
            ClientTlsConfig::new().ca_certificate(Certificate::from_pem(pem)).domain_name(server_name(&fingerprint));
        let tls = match of {
            Some(node) => tls.identity(Identity::from_pem(&node.issued.certificate, node.key.serialize_pem())),
            None => tls,
        };
        Endpoint::from_shared(self.url.clone())?.tls_config(tls)?.connect().await
    }

    async fn join(&self, token: &str, id: NodeId, name: &str, fleet: bool) -> Result<Node, Status> {
        let key = KeyPair::generate().unwrap();
        let asks = wire::JoinRequest {
            token: token.to_owned(),
            identity_id: id.to_string(),
            name: name.to_owned(),
            fleet,
            signing_request: request(&key),
        };
        let issued = NodeRegistrarClient::new(self.channel(None).await.unwrap()).join(asks).await?.into_inner();
        Ok(Node { id, name: name.to_owned(), key, issued })
    }

    async fn joined(&self, seed: u64, name: &str) -> Node {
        let token = self.token(None, IdentityKind::Node).await;
        self.join(&token, id(seed), name, false).await.unwrap()
    }

    async fn session(&self, of: Option<&Node>, id: NodeId, name: &str, token: Option<&str>) -> Result<Session, Status> {
        let mut inventory = example::inventory(id, 1, 1);
        inventory.name = name.to_owned();
        let report = NodeReport::Registered { inventory: Box::new(inventory), groups: vec![] };
        let (reports, outgoing) = mpsc::channel(16);
        reports.send(registration(&report, Term(0))).await.unwrap();
        let mut request = tonic::Request::new(ReceiverStream::new(outgoing));
        if let Some(token) = token {
            request.metadata_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
        }
        let mut client = AgentGatewayClient::new(self.channel(of).await.unwrap());
        Ok(Session { _reports: reports, incoming: client.session(request).await?.into_inner() })
    }

    async fn welcomed(&self, node: &Node) -> Session {
        let mut session = self.session(Some(node), node.id, &node.name, None).await.unwrap();
        let told = session.hear().await;
        assert!(matches!(told, Some(SchedulerToAgent::Welcome { .. })), "{told:?}");
        self.registered(node.id).await;
        session
    }

    /// Until the engine has stored what a session was welcomed with.
    async fn registered(&self, id: NodeId) {
        let deadline = tokio::time::Instant::now() + DEADLINE;
        while self.cluster.store().claims(&[(id.0, String::new())]).await.unwrap()[0].registered.is_none() {
            assert!(tokio::time::Instant::now() < deadline, "{id} does not register");
            tokio::task::yield_now().await;
        }
    }

    async fn refused(&self, of: Option<&Node>, id: NodeId, name: &str, token: Option<&str>) -> String {
        match self.session(of, id, name, token).await {
            Err(status) => status.message().to_owned(),
            Ok(mut session) => match session.hear().await {
                Some(SchedulerToAgent::Refused { reason, .. }) => reason,
                other => panic!("{other:?}"),
            },
        }
    }
}

struct Session {
    _reports: mpsc::Sender<wire::AgentMessage>,
    incoming: Streaming<wire::SchedulerMessage>,
}

impl Session {
    async fn hear(&mut self) -> Option<SchedulerToAgent> {
        let message = tokio::time::timeout(DEADLINE, self.incoming.message()).await.unwrap().unwrap()?;
        Some(message.try_into().unwrap())
    }
}

#[tokio::test]
async fn a_join_token_admits_one_node_and_its_certificate_that_node_alone() {
    let served = served(false).await;
    let token = served.token(None, IdentityKind::Node).await;
    let node = served.join(&token, id(1), "gpu-1", false).await.unwrap();
    let again = served.join(&token, id(2), "gpu-2", false).await.err().unwrap();
    assert!(again.code() == Code::PermissionDenied && again.message().contains("used up"), "{again}");
    let _session = served.welcomed(&node).await;
    let other = served.joined(2, "gpu-2").await;

    let without = served.session(None, id(1), "gpu-1", Some("agent")).await.err().unwrap();
    assert_eq!(without.code(), Code::PermissionDenied, "a certificate is demanded");
    assert!(without.message().contains("headway node join"), "{without}");
    for (as_id, as_name) in [(id(1), "gpu-1"), (id(1), "gpu-2"), (id(2), "gpu-1"), (id(3), "gpu-2")] {
        let told = served.refused(Some(&other), as_id, as_name, None).await;
        assert!(told.contains("its certificate is of the node gpu-2"), "{told}");
    }
    // People hear of it, and the audit has it.
    let store = served.cluster.store();
    let filter = EventFilter { verbs: vec!["node.refused".into()], limit: 10, ..EventFilter::default() };
    let deadline = tokio::time::Instant::now() + DEADLINE;
    loop {
        let events = store.events(&filter).await.unwrap().items.len();
        let audit = AuditFilter { action: Some("open_agent_session".into()), limit: 10, ..AuditFilter::default() };
        let lines = store.audit(&audit).await.unwrap().items;
        if events >= 4 && lines.len() >= 4 {
            assert!(lines.iter().all(|line| line.entry.result == AuditResult::Refused && line.entry.address.is_some()));
            break;
        }
        assert!(tokio::time::Instant::now() < deadline, "{events} events, {} lines", lines.len());
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_renewed_certificate_opens_what_the_former_did() {
    let served = served(false).await;
    let node = served.joined(1, "gpu-1").await;
    let key = KeyPair::generate().unwrap();
    let mut client = NodeRegistrarClient::new(served.channel(Some(&node)).await.unwrap());
    let asks = wire::RenewRequest { signing_request: request(&key) };
    let issued = client.renew(asks.clone()).await.unwrap().into_inner();
    let renewed = Node { key, issued, name: node.name.clone(), ..node };
    let _session = served.welcomed(&renewed).await;
    let bare = NodeRegistrarClient::new(served.channel(None).await.unwrap()).renew(asks).await.unwrap_err();
    assert_eq!(bare.code(), Code::Unauthenticated);
    // By another authority, and what the former has signed opens nothing once that is retired.
    let former = served.authorities.all()[0].0.clone();
    served.authorities.replace(None, None).await.unwrap();
    assert_eq!(served.authorities.all().len(), 2);
    let mut session = served.welcomed(&renewed).await;
    served.authorities.retire(&former, None).await.unwrap();
    served.cluster.tokens_changed();
    let told = session.hear().await;
    assert!(matches!(&told, Some(SchedulerToAgent::Refused { reason, .. }) if reason.contains("retired")), "{told:?}");
}

#[tokio::test]
async fn a_revoked_certificate_ends_the_session_and_opens_nothing() {
    let served = served(false).await;
    let (node, other) = (served.joined(1, "gpu-1").await, served.joined(2, "gpu-2").await);
    let (mut session, _stands) = (served.welcomed(&node).await, served.welcomed(&other).await);
    assert!(served.cluster.store().revoke_identity(node.id.0, wall(), None).await.unwrap());
    served.cluster.tokens_changed();
    let told = tokio::time::timeout(Duration::from_secs(1), session.hear()).await.unwrap();
    assert!(matches!(&told, Some(SchedulerToAgent::Refused { reason, .. }) if reason.contains("revoked")), "{told:?}");
    assert!(served.refused(Some(&node), node.id, "gpu-1", None).await.contains("was revoked"));
    let mut client = NodeRegistrarClient::new(served.channel(Some(&node)).await.unwrap());
    let renewal = wire::RenewRequest { signing_request: request(&node.key) };
    assert_eq!(client.renew(renewal).await.unwrap_err().code(), Code::PermissionDenied);
    // It is known here: only a token for it admits it again, and what it had before is over.
    let any = served.token(None, IdentityKind::Node).await;
    let refused = served.join(&any, node.id, "gpu-1", false).await.err().unwrap();
    assert!(refused.message().contains("headway node token create --node gpu-1"), "{refused}");
    let bound = served.token(Some("gpu-1"), IdentityKind::Node).await;
    let again = served.join(&bound, node.id, "gpu-1", false).await.unwrap();
    let _session = served.welcomed(&again).await;
    assert!(served.refused(Some(&node), node.id, "gpu-1", None).await.contains("has joined again"));
}

#[tokio::test]
async fn names_and_ids_are_given_once_unless_an_operator_says_whose() {
    let served = served(false).await;
    let node = served.joined(1, "gpu-1").await;
    let any = served.token(None, IdentityKind::Node).await;
    let taken = served.join(&any, id(2), "gpu-1", false).await.err().unwrap();
    assert!(taken.message().contains("the name gpu-1 is"), "{taken}");
    for hostile in ["", "a b", "a\u{1b}[2J", &"n".repeat(129)] {
        let refused = served.join(&any, id(2), hostile, false).await.err().unwrap();
        assert_eq!(refused.code(), Code::InvalidArgument, "{hostile:?}");
    }
    let bound = served.token(Some("gpu-9"), IdentityKind::Node).await;
    let other = served.join(&bound, id(2), "gpu-2", false).await.err().unwrap();
    assert_eq!(other.message(), JoinRefusal::OtherName("gpu-9".into()).to_string());
    // A machine with a new disk takes the name over, and the former opens nothing.
    let mut session = served.welcomed(&node).await;
    let bound = served.token(Some("gpu-1"), IdentityKind::Node).await;
    served.join(&bound, id(3), "gpu-1", false).await.unwrap();
    let told = session.hear().await;
    assert!(matches!(&told, Some(SchedulerToAgent::Refused { reason, .. }) if reason.contains("revoked")), "{told:?}");
}

#[tokio::test]
async fn a_fleet_speaks_for_its_own_nodes_alone() {
    let served = served(false).await;
    let node = served.joined(1, "gpu-1").await;
    let token = served.token(None, IdentityKind::Fleet).await;
    assert_eq!(served.join(&token, id(5), "lab", false).await.err().unwrap().code(), Code::PermissionDenied);
    let fleet = served.join(&token, id(5), "lab", true).await.unwrap();
    let mut session = served.session(Some(&fleet), id(6), "lab-h100-1", None).await.unwrap();
    assert!(matches!(session.hear().await, Some(SchedulerToAgent::Welcome { .. })));
    for (as_id, as_name) in [(id(7), "gpu-7"), (node.id, "lab-h100-2"), (id(8), "lab")] {
        let told = served.refused(Some(&fleet), as_id, as_name, None).await;
        assert!(told.contains("fleet lab"), "{told}");
    }
    let any = served.token(None, IdentityKind::Node).await;
    let within = served.join(&any, id(9), "lab-h100-1", false).await.err().unwrap();
    assert_eq!(within.code(), Code::PermissionDenied, "{within}");
}

#[tokio::test]
async fn a_token_speaks_for_no_node_that_has_a_certificate() {
    let served = served(true).await;
    let node = served.joined(1, "gpu-1").await;
    for (as_id, as_name) in [(node.id, "gpu-1"), (node.id, "gpu-7"), (id(7), "gpu-1")] {
        let told = served.refused(None, as_id, as_name, Some("agent")).await;
        assert!(told.contains("is known by its certificate"), "{told}");
    }
    let mut session = served.session(None, id(7), "gpu-7", Some("agent")).await.unwrap();
    assert!(matches!(session.hear().await, Some(SchedulerToAgent::Welcome { .. })));
    served.registered(id(7)).await;
    // Whoever joins as a node that a token has registered keeps its id and name; another id does not.
    let any = served.token(None, IdentityKind::Node).await;
    assert!(served.join(&any, id(8), "gpu-7", false).await.is_err());
    let joined = served.join(&any, id(7), "gpu-7", false).await.unwrap();
    let _session = served.welcomed(&joined).await;
}

#[tokio::test]
async fn a_certificate_that_a_restored_database_does_not_know_is_believed() {
    let served = served(false).await;
    let node = served.joined(1, "gpu-1").await;
    served.cluster.store().forget_identities().await;
    let _session = served.welcomed(&node).await;
    let known = served.cluster.store().identities_of(&[node.id.0]).await.unwrap().remove(0).unwrap();
    assert_eq!((known.named.name.as_str(), known.revoked_at), ("gpu-1", None));
}

/// What a server says of HTTP/2 first: its settings by number, and by how much it opens the window of the connection.
async fn greeting(served: &Served, of: Option<&Node>) -> (std::collections::BTreeMap<u16, u32>, u32) {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let (fingerprint, pem, _) = served.authorities.all().remove(0);
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()).unwrap();
    let believing = rustls::ClientConfig::builder().with_root_certificates(roots);
    let mut tls = match of {
        None => believing.with_no_client_auth(),
        Some(node) => {
            let chain = CertificateDer::pem_slice_iter(node.issued.certificate.as_bytes());
            let key = PrivateKeyDer::from_pem_slice(node.key.serialize_pem().as_bytes()).unwrap();
            believing.with_client_auth_cert(chain.collect::<Result<_, _>>().unwrap(), key).unwrap()
        }
    };
    tls.alpn_protocols = vec![b"h2".to_vec()];
    let address = served.url.strip_prefix("https://").unwrap();
    let stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let name = server_name(&fingerprint).try_into().unwrap();
    let mut stream = tokio_rustls::TlsConnector::from(Arc::new(tls)).connect(name, stream).await.unwrap();
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.unwrap();
    let (mut settings, mut opened, mut acknowledged) = (std::collections::BTreeMap::new(), 0, false);
    // The acknowledgement of ours is behind both.
    while !acknowledged {
        let mut head = [0; 9];
        tokio::time::timeout(DEADLINE, stream.read_exact(&mut head)).await.unwrap().unwrap();
        let mut frame = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
        stream.read_exact(&mut frame).await.unwrap();
        match head[3] {
            4 if head[4] & 1 == 1 => acknowledged = true,
            4 => settings.extend(frame.chunks_exact(6).map(|one| {
                (u16::from_be_bytes([one[0], one[1]]), u32::from_be_bytes([one[2], one[3], one[4], one[5]]))
            })),
            8 => opened = u32::from_be_bytes(frame[..4].try_into().unwrap()),
            _ => {}
        }
    }
    (settings, opened)
}

#[tokio::test]
async fn who_shows_no_certificate_may_have_few_requests_and_little_unread() {
    const STREAMS: u16 = 3;
    const WINDOW: u16 = 4;
    /// Of a connection, before it is opened further (RFC 9113).
    const FIRST: u32 = 65_535;
    let served = served(false).await;
    let (settings, opened) = greeting(&served, None).await;
    assert_eq!(settings.get(&STREAMS), Some(&REQUESTS_OF_STRANGERS), "{settings:?}");
    assert!(settings.get(&WINDOW).is_some_and(|window| *window <= UNREAD_BYTES / 2), "{settings:?}");
    assert!(FIRST + opened <= UNREAD_BYTES, "{opened}");
    let node = served.joined(1, "gpu-1").await;
    let (settings, _) = greeting(&served, Some(&node)).await;
    assert_eq!(settings.get(&STREAMS), Some(&REQUESTS_OF_NODES), "{settings:?}");
}
