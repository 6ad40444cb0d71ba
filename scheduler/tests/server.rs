//! The whole server in one process: it comes up on free ports and goes down when told.

use std::time::Duration;

use headway_api::agent::wire::agent_gateway_client::AgentGatewayClient;
use headway_api::client::{Client, VerifyQuery};
use headway_api::secret::Secret;
use headway_api::v1;
use headway_engine::EngineConfig;
use headway_goodput::catalog::Catalog;
use headway_scheduler::store::{GrantError, Purse, SecretId, SecretOwner, Store, StoreError, TokenHash};
use headway_scheduler::{
    Advertised, InitialToken, Keyring, PrivatePostgres, Retention, SecretsKey, ServerConfig, ServerError, Speed,
    TlsPaths, serve, serve_reporting,
};
use headway_types::TokenScope;
use sqlx::ConnectOptions as _;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use tonic::Code;
use tonic::transport::{Certificate, Channel, ClientTlsConfig};

use crate::support::{START, TestDatabase};

/// Opens a server of [`config`] as administrator and as agent.
pub const TOKEN: &str = "s3cret";

pub fn config(database: &TestDatabase) -> ServerConfig {
    ServerConfig {
        database_url: database.url(),
        listen: "127.0.0.1:0".parse().unwrap(),
        agent_listen: "127.0.0.1:0".parse().unwrap(),
        standby: false,
        advertised: Advertised::default(),
        tls: None,
        node_certificates: headway_scheduler::NodeCertificates { tokens_too: true, ..Default::default() },
        hsts: std::time::Duration::ZERO,
        engine: EngineConfig::default(),
        tokens: vec![InitialToken { name: "admin".into(), scope: TokenScope::Admin, secret: TOKEN.into() }],
        secrets_key: None,
        oidc: None,
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
async fn a_server_whose_migrations_wait_for_a_table_goes_down_when_told() {
    let database = TestDatabase::create().await;
    // Instead of a table that a migration needs, which differs from release to release.
    let mut holder = database.options.connect().await.unwrap();
    let held = "BEGIN; LOCK TABLE _sqlx_migrations IN ACCESS EXCLUSIVE MODE";
    sqlx::raw_sql(held).execute(&mut holder).await.unwrap();
    let shutdown = CancellationToken::new();
    let server = tokio::spawn(serve(config(&database), shutdown.clone()));
    let waits = "SELECT EXISTS (SELECT FROM pg_locks JOIN pg_database ON pg_database.oid = database
        WHERE datname = current_database() AND relation = '_sqlx_migrations'::regclass AND NOT granted)";
    while !sqlx::query_scalar::<_, bool>(waits).fetch_one(&mut holder).await.unwrap() {
        assert!(!server.is_finished(), "its migrations need the table");
    }
    shutdown.cancel();
    tokio::time::timeout(Duration::from_secs(10), server).await.expect("it waits on").unwrap().unwrap();
}

/// A process and all that it has started.
fn family(of: i32) -> Vec<nix::unistd::Pid> {
    let parent = |pid: i32| -> Option<i32> {
        let told = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        told.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()
    };
    let all = std::fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let own = all.filter(|pid| *pid == of || parent(*pid) == Some(of));
    own.map(nix::unistd::Pid::from_raw).collect()
}

#[tokio::test]
async fn a_server_is_ready_as_long_as_its_database_answers() {
    use nix::sys::signal::{Signal, kill};
    let _ = rustls::crypto::ring::default_provider().install_default();
    let dir = tempfile::tempdir().unwrap();
    // Whoever runs Postgres must be able to pass through.
    std::fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let root = dir.path().join("pg");
    let postgres = PrivatePostgres::start(&root).await.unwrap();
    let unused = TestDatabase::create().await;
    let config = ServerConfig { database_url: postgres.url().to_string(), ..config(&unused) };
    let (shutdown, (bound, addresses)) = (CancellationToken::new(), oneshot::channel());
    let server = tokio::spawn(serve_reporting(config, shutdown.clone(), bound));
    let http = addresses.await.unwrap().http;
    let client = reqwest::Client::builder().timeout(Duration::from_secs(5)).build().unwrap();
    let becomes = async |wanted: u16| {
        let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
        loop {
            let reply = client.get(format!("http://{http}/readyz")).send().await.unwrap();
            let (status, body) = (reply.status().as_u16(), reply.text().await.unwrap());
            if status == wanted {
                return body;
            }
            assert!(tokio::time::Instant::now() < deadline, "/readyz stays {status}: {body}");
            let alive = client.get(format!("http://{http}/healthz")).send().await.unwrap();
            assert!(alive.status().is_success(), "the process answers whatever the database does");
        }
    };
    assert!(becomes(200).await.starts_with("ready"));
    let lock_file = std::fs::read_to_string(root.join("data/postmaster.pid")).unwrap();
    let all = family(lock_file.lines().next().unwrap().parse().unwrap());
    assert!(all.len() > 5, "{all:?}");
    let signal = |which| all.iter().for_each(|pid| kill(*pid, which).unwrap());
    signal(Signal::SIGSTOP);
    let told = becomes(503).await;
    signal(Signal::SIGCONT);
    assert!(told.contains("unavailable"), "{told}");
    becomes(200).await;
    postgres.stop().await.unwrap();
    becomes(503).await;
    shutdown.cancel();
    // Without its database it may not end well, but it ends.
    let _ = tokio::time::timeout(Duration::from_secs(30), server).await.unwrap().unwrap();
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

/// Whether a client that trusts this certificate alone is answered; and what browsers are told.
async fn trusted(port: u16, certificate: &str) -> Option<String> {
    let root = reqwest::Certificate::from_pem(certificate.as_bytes()).unwrap();
    let client = reqwest::Client::builder().tls_certs_only([root]).build().unwrap();
    let reply =
        client.get(format!("https://localhost:{port}/api/v1/overview")).bearer_auth("s3cret").send().await.ok()?;
    let told = reply.headers().get("strict-transport-security").map(|told| told.to_str().unwrap().to_owned());
    let shown = reply.text().await.unwrap();
    Some(format!("{} {shown}", told.unwrap_or_default()))
}

#[tokio::test]
async fn a_renewed_certificate_is_shown_without_a_restart_and_a_broken_one_is_not() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let database = TestDatabase::create().await;
    let dir = tempfile::tempdir().unwrap();
    let paths = TlsPaths { certificate: dir.path().join("cert.pem"), key: dir.path().join("key.pem") };
    let write = || {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        std::fs::write(&paths.certificate, made.cert.pem()).unwrap();
        std::fs::write(&paths.key, made.signing_key.serialize_pem()).unwrap();
        made.cert.pem()
    };
    let hang_up = || nix::sys::signal::raise(nix::sys::signal::Signal::SIGHUP).unwrap();
    let first = write();
    let hsts = Duration::from_secs(86_400);
    let config = ServerConfig { tls: Some(paths.clone()), hsts, ..config(&database) };
    let shutdown = CancellationToken::new();
    let (bound, addresses) = oneshot::channel();
    let server = tokio::spawn(serve_reporting(config, shutdown.clone(), bound));
    let port = addresses.await.unwrap().http.port();
    assert!(trusted(port, &first).await.unwrap().starts_with("max-age=86400 "));

    let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
    let renewed = write();
    hang_up();
    while trusted(port, &renewed).await.is_none() {
        assert!(tokio::time::Instant::now() < deadline, "the renewed certificate is not shown");
        tokio::task::yield_now().await;
    }
    assert!(trusted(port, &first).await.is_none());

    std::fs::write(&paths.key, "nonsense").unwrap();
    hang_up();
    loop {
        let shown = trusted(port, &renewed).await.unwrap();
        if shown.contains("certificate_refused") {
            break;
        }
        assert!(tokio::time::Instant::now() < deadline, "nobody is told: {shown}");
        tokio::task::yield_now().await;
    }
    let again = write();
    hang_up();
    while trusted(port, &again).await.is_none_or(|shown| shown.contains("certificate_refused")) {
        assert!(tokio::time::Instant::now() < deadline, "what was put right is not shown");
        tokio::task::yield_now().await;
    }
    shutdown.cancel();
    tokio::time::timeout(Duration::from_secs(10), server).await.unwrap().unwrap().unwrap();
}

#[tokio::test]
async fn a_role_that_owns_nothing_runs_a_server_and_cannot_change_the_audit() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let database = TestDatabase::create().await;
    let mut owner = database.options.connect().await.unwrap();
    // One of all tests: roles outlive databases.
    const ROLE: &str = "headway_runtime_of_tests";
    let made = format!(
        "DO $$ BEGIN CREATE ROLE {ROLE} LOGIN; EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END $$"
    );
    sqlx::raw_sql(sqlx::AssertSqlSafe(made)).execute(&mut owner).await.unwrap();
    let store = database.store().await;
    assert!(matches!(store.grant_to("nobody_at_all").await, Err(GrantError::NoSuchRole(_))));
    assert!(matches!(store.grant_to("headway").await, Err(GrantError::TooPowerful(_))));
    store.grant_to(ROLE).await.unwrap();
    store.grant_to(ROLE).await.unwrap();

    let as_role = database.options.clone().username(ROLE);
    let key = key_file(&[[7; 32]], 0o600);
    let config = ServerConfig {
        database_url: as_role.to_url_lossy().to_string(),
        secrets_key: Some(SecretsKey::File(key.path().into())),
        ..config(&database)
    };
    let shutdown = CancellationToken::new();
    let (bound, addresses) = oneshot::channel();
    let server = tokio::spawn(serve_reporting(config, shutdown.clone(), bound));
    let url = format!("http://{}", addresses.await.unwrap().http);
    let client = Client::new(&url, "s3cret").unwrap();
    let job = "{version: 1, name: one, resources: {gpus: 1}, run: {command: [sleep, '1']}}";
    let made = client.submit_yaml(job, None).await.unwrap();
    let id = made.jobs[0].id.to_string();
    client.cancel(&id, Some("enough")).await.unwrap();
    let token =
        client.create_token(&v1::TokenRequest { name: "ci".into(), ..v1::TokenRequest::default() }).await.unwrap();
    client.revoke_token(&token.token.id.to_string()).await.unwrap();
    let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
    let head = loop {
        let head = client.audit_head().await.unwrap();
        if head.sealed == 4 {
            break head;
        }
        assert!(tokio::time::Instant::now() < deadline, "{head:?}");
        tokio::task::yield_now().await;
    };
    assert_eq!(head.kept_by, "role");
    assert_eq!(client.verify_audit(&VerifyQuery::default()).await.unwrap().broken, None);

    let mut role = as_role.connect().await.unwrap();
    for forbidden in [
        "UPDATE audit SET actor = 'user:eve'",
        "DELETE FROM audit",
        "TRUNCATE audit",
        "ALTER TABLE audit DISABLE TRIGGER ALL",
        "DROP TRIGGER audit_is_kept ON audit",
        "DROP TABLE audit",
        "CREATE OR REPLACE FUNCTION keep_audit() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'",
        "UPDATE audit_seals SET hash = previous_hash",
        "DELETE FROM audit_seals",
        "TRUNCATE audit_seals",
        "DROP TABLE audit_seals",
        "DELETE FROM audit_start",
        "INSERT INTO audit_start (position, audit_id, hash) SELECT position, audit_id, hash FROM audit_seals",
        "DELETE FROM audit_time_ranges",
        "UPDATE audit_time_ranges SET latest = earliest",
        "INSERT INTO audit_time_ranges (range_id, earliest, latest) VALUES (9, now(), now())",
        "SET session_replication_role = replica",
        "UPDATE _sqlx_migrations SET checksum = ''",
    ] {
        let refused = sqlx::raw_sql(forbidden).execute(&mut role).await.unwrap_err().to_string();
        let told = ["permission denied", "must be owner"].iter().any(|told| refused.contains(told));
        assert!(told, "{forbidden}: {refused}");
    }
    let pruned = sqlx::query_scalar::<_, i64>("SELECT prune_audit(1000, now())").fetch_one(&mut role).await.unwrap();
    assert_eq!(pruned, 0, "the role prunes only what is a year old");
    shutdown.cancel();
    tokio::time::timeout(Duration::from_secs(10), server).await.unwrap().unwrap().unwrap();

    // A schema of another release is the owner's to change.
    sqlx::raw_sql("DELETE FROM _sqlx_migrations WHERE version = (SELECT max(version) FROM _sqlx_migrations)")
        .execute(&mut owner)
        .await
        .unwrap();
    let behind = Store::connect(as_role).await.unwrap().migrate().await.unwrap_err();
    assert!(matches!(&behind, StoreError::SchemaBehind { pending } if pending.len() == 1), "{behind}");
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

    let with = |file: &tempfile::NamedTempFile| ServerConfig {
        secrets_key: Some(SecretsKey::File(file.path().into())),
        ..config(&database)
    };
    let none = refusal(config(&database)).await;
    assert!(none.contains("1 secrets are stored") && none.contains("--secrets-key-file"), "{none}");
    let other = refusal(with(&key_file(&[[2; 32]], 0o600))).await;
    assert!(other.contains("is not in the key file"), "{other}");
    let open = refusal(with(&key_file(&[[1; 32]], 0o644))).await;
    assert!(open.contains("chmod 600"), "{open}");
    let failing = ["sh", "-c", "echo hunter22; exit 3"].map(String::from).to_vec();
    let failed = refusal(ServerConfig { secrets_key: Some(SecretsKey::Command(failing)), ..config(&database) }).await;
    assert!(failed.contains("exit status: 3") && !failed.contains("hunter22"), "{failed}");
}

#[tokio::test]
async fn a_new_first_key_seals_all_secrets_anew_at_the_next_start() {
    let database = TestDatabase::create().await;
    let old = Keyring::of(&[[1; 32]]).unwrap();
    let id = SecretId { owner: SecretOwner::Project("nlp".into()), name: "hf".into() };
    let store = database.store().await.with_keyring(old);
    store.set_secret(&id, &Secret::new("hunter22"), "ada", START, None).await.unwrap();

    // By the program that a key command names, which prints as a key file holds them.
    let both = key_file(&[[2; 32], [1; 32]], 0o644);
    let command = SecretsKey::Command(vec!["cat".into(), both.path().display().to_string()]);
    let (bound, up) = oneshot::channel();
    let shutdown = CancellationToken::new();
    let config = ServerConfig { secrets_key: Some(command), ..config(&database) };
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
