//! The whole server in one process: it comes up on free ports and goes down when told.
#![allow(clippy::unwrap_used)]

mod support;

use std::time::Duration;

use headway_api::agent::wire::agent_gateway_client::AgentGatewayClient;
use headway_api::secret::Secret;
use headway_engine::EngineConfig;
use headway_goodput::catalog::Catalog;
use headway_scheduler::store::{Purse, SecretId, SecretOwner, TokenHash};
use headway_scheduler::{
    Advertised, InitialToken, Keyring, Retention, ServerConfig, ServerError, Speed, TlsPaths, serve, serve_reporting,
};
use headway_types::TokenScope;
use support::{START, TestDatabase};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use tonic::Code;
use tonic::transport::{Certificate, Channel, ClientTlsConfig};

fn config(database: &TestDatabase) -> ServerConfig {
    ServerConfig {
        database_url: database.url(),
        listen: "127.0.0.1:0".parse().unwrap(),
        agent_listen: "127.0.0.1:0".parse().unwrap(),
        standby: false,
        advertised: Advertised::default(),
        tls: None,
        node_certificates: headway_scheduler::NodeCertificates { tokens_too: true, ..Default::default() },
        engine: EngineConfig::default(),
        tokens: vec![InitialToken { name: "admin".into(), scope: TokenScope::Admin, secret: "s3cret".into() }],
        secrets_key: None,
        webhook_networks: Vec::new(),
        retention: Retention::default(),
        site: Catalog::default(),
        speed: Speed::REAL,
        trust_clock: false,
        build: "unknown commit",
        metrics: false,
    }
}

#[tokio::test]
async fn a_server_comes_up_on_free_ports_and_goes_down_when_told() {
    let database = TestDatabase::create().await;
    let shutdown = CancellationToken::new();
    let (bound, addresses) = oneshot::channel();
    let server = tokio::spawn(serve_reporting(config(&database), shutdown.clone(), bound));
    let addresses = addresses.await.unwrap();
    assert_ne!(addresses.http.port(), 0);
    assert_ne!(addresses.http, addresses.agents);
    // Fails only if another test of this process was first.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let health = reqwest::get(format!("http://{}/healthz", addresses.http)).await.unwrap();
    assert!(health.status().is_success());
    let token = database.store().await.find_token(&TokenHash::of("s3cret"), START).await.unwrap().unwrap();
    assert_eq!((token.name.as_str(), token.scope), ("admin", TokenScope::Admin));
    shutdown.cancel();
    tokio::time::timeout(Duration::from_secs(10), server).await.unwrap().unwrap().unwrap();
}

#[tokio::test]
async fn with_certificates_both_ports_speak_tls() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let database = TestDatabase::create().await;
    let dir = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let paths = TlsPaths { certificate: dir.path().join("cert.pem"), key: dir.path().join("key.pem") };
    std::fs::write(&paths.certificate, made.cert.pem()).unwrap();
    std::fs::write(&paths.key, made.signing_key.serialize_pem()).unwrap();
    let config = ServerConfig { listen: "0.0.0.0:0".parse().unwrap(), tls: Some(paths), ..config(&database) };
    let shutdown = CancellationToken::new();
    let (bound, addresses) = oneshot::channel();
    let server = tokio::spawn(serve_reporting(config, shutdown.clone(), bound));
    let addresses = addresses.await.unwrap();

    let root = reqwest::Certificate::from_pem(made.cert.pem().as_bytes()).unwrap();
    let client = reqwest::Client::builder().tls_certs_only([root]).build().unwrap();
    let health = client.get(format!("https://localhost:{}/healthz", addresses.http.port())).send().await.unwrap();
    assert!(health.status().is_success());

    let trust = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(made.cert.pem()));
    let url = format!("https://localhost:{}", addresses.agents.port());
    let channel = Channel::from_shared(url).unwrap().tls_config(trust).unwrap().connect().await.unwrap();
    let refused = AgentGatewayClient::new(channel).session(tokio_stream::empty()).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unauthenticated);
    shutdown.cancel();
    tokio::time::timeout(Duration::from_secs(10), server).await.unwrap().unwrap().unwrap();
}

#[tokio::test]
async fn a_server_in_the_clear_does_not_leave_this_machine() {
    let database = TestDatabase::create().await;
    let open = ServerConfig { listen: "0.0.0.0:0".parse().unwrap(), ..config(&database) };
    assert!(matches!(serve(open, CancellationToken::new()).await, Err(ServerError::Config(_))));
}

fn key_file(keys: &[[u8; 32]], mode: u32) -> tempfile::NamedTempFile {
    use std::os::unix::fs::PermissionsExt;
    let file = tempfile::NamedTempFile::new().unwrap();
    let lines: String = keys.iter().map(|key| format!("{}\n", hex::encode(key))).collect();
    std::fs::write(file.path(), lines).unwrap();
    std::fs::set_permissions(file.path(), std::fs::Permissions::from_mode(mode)).unwrap();
    file
}

async fn refusal(config: ServerConfig) -> String {
    let refused = serve_reporting(config, CancellationToken::new(), oneshot::channel().0).await.unwrap_err();
    refused.to_string()
}

#[tokio::test]
async fn a_server_without_the_keys_of_its_secrets_does_not_start_and_says_what_is_missing() {
    let database = TestDatabase::create().await;
    let store = database.store().await.with_keyring(Keyring::of(&[[1; 32]]).unwrap());
    let id = SecretId { owner: SecretOwner::User("ada".into()), name: "hf".into() };
    store.set_secret(&id, &Secret::new("hunter22"), "ada", START, None).await.unwrap();

    let with =
        |file: &tempfile::NamedTempFile| ServerConfig { secrets_key: Some(file.path().into()), ..config(&database) };
    let none = refusal(config(&database)).await;
    assert!(none.contains("1 secrets are stored") && none.contains("--secrets-key-file"), "{none}");
    let other = refusal(with(&key_file(&[[2; 32]], 0o600))).await;
    assert!(other.contains("is not in the key file"), "{other}");
    let open = refusal(with(&key_file(&[[1; 32]], 0o644))).await;
    assert!(open.contains("chmod 600"), "{open}");
}

#[tokio::test]
async fn a_new_first_key_seals_all_secrets_anew_at_the_next_start() {
    let database = TestDatabase::create().await;
    let old = Keyring::of(&[[1; 32]]).unwrap();
    let id = SecretId { owner: SecretOwner::Project("nlp".into()), name: "hf".into() };
    let store = database.store().await.with_keyring(old);
    store.set_secret(&id, &Secret::new("hunter22"), "ada", START, None).await.unwrap();

    let both = key_file(&[[2; 32], [1; 32]], 0o600);
    let (bound, up) = oneshot::channel();
    let shutdown = CancellationToken::new();
    let config = ServerConfig { secrets_key: Some(both.path().into()), ..config(&database) };
    let server = tokio::spawn(serve_reporting(config, shutdown.clone(), bound));
    up.await.unwrap();
    shutdown.cancel();
    server.await.unwrap().unwrap();

    let new = database.store().await.with_keyring(Keyring::of(&[[2; 32]]).unwrap());
    assert_eq!(new.check_secrets_keys().await.unwrap(), Ok(()));
    let of = Purse { user: "bob", project: Some("nlp") };
    let opened = new.use_secrets(of, &["hf".into()], START).await.unwrap();
    assert_eq!(opened["hf"], Secret::new("hunter22"));
}
