//! Strangers who open connections, send half of a request, or lie about its length: nobody who is known notices.
#![allow(clippy::unwrap_used)]

mod support;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use headway_engine::EngineConfig;
use headway_goodput::catalog::Catalog;
use headway_scheduler::{Bound, InitialToken, Retention, ServerConfig, Speed, serve_reporting};
use headway_types::TokenScope;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use support::TestDatabase;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

const SILENT: usize = 1_000;
const UNFINISHED: usize = 500;
const ASKED: usize = 100;

async fn serve() -> (TestDatabase, Bound, tokio_util::sync::DropGuard) {
    // Both ends of each connection are this process's.
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
    // Fails only if another test of this process was first.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let database = TestDatabase::create().await;
    let config = ServerConfig {
        database_url: database.url(),
        listen: "127.0.0.1:0".parse().unwrap(),
        agent_listen: "127.0.0.1:0".parse().unwrap(),
        standby: false,
        advertised: Default::default(),
        tls: None,
        node_certificates: headway_scheduler::NodeCertificates { tokens_too: true, ..Default::default() },
        hsts: std::time::Duration::ZERO,
        engine: EngineConfig::default(),
        tokens: vec![InitialToken { name: "admin".into(), scope: TokenScope::Admin, secret: "s3cret".into() }],
        secrets_key: None,
        oidc: None,
        webhook_networks: Vec::new(),
        retention: Retention::default(),
        site: Catalog::default(),
        speed: Speed::REAL,
        trust_clock: false,
        build: "unknown commit",
        metrics: false,
    };
    let (shutdown, (bound, addresses)) = (CancellationToken::new(), oneshot::channel());
    tokio::spawn(serve_reporting(config, shutdown.clone(), bound));
    (database, addresses.await.unwrap(), shutdown.drop_guard())
}

/// The slowest but one in a hundred, each on a connection of its own.
async fn slowest(of: SocketAddr) -> Duration {
    let mut took = Vec::new();
    let client = reqwest::Client::builder().pool_max_idle_per_host(0).build().unwrap();
    for _ in 0..ASKED {
        let began = Instant::now();
        let reply = client.get(format!("http://{of}/api/v1/auth/whoami")).bearer_auth("s3cret").send().await.unwrap();
        assert!(reply.status().is_success(), "{}", reply.status());
        took.push(began.elapsed());
    }
    took.sort();
    took[ASKED * 99 / 100 - 1]
}

async fn connect(to: SocketAddr, say: &str) -> TcpStream {
    let mut stream = TcpStream::connect(to).await.unwrap();
    // It may have been sent away already.
    let _ = stream.write_all(say.as_bytes()).await;
    stream
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn strangers_who_say_nothing_or_half_of_something_hold_nobody_up() {
    let (_database, bound, _shutdown) = serve().await;
    let alone = slowest(bound.http).await;
    let half = format!(
        "POST /api/v1/jobs HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nIdempotency-Key: k\r\nContent-Length: 1600000\r\n\r\n{{\"name\": \"{}",
        "x".repeat(10_000)
    );
    let mut strangers = Vec::new();
    for _ in 0..SILENT {
        strangers.push(connect(bound.http, "").await);
        strangers.push(connect(bound.agents, "").await);
    }
    let mut unfinished = Vec::new();
    for _ in 0..UNFINISHED {
        unfinished.push(connect(bound.http, &half).await);
    }
    let among = slowest(bound.http).await;
    println!("p99 alone {alone:?}, among strangers {among:?}");
    assert!(among < alone + Duration::from_millis(100), "{among:?}, {alone:?} alone");
    // Who sends half of a body is told at once that nobody knows him.
    let mut last = unfinished.pop().unwrap();
    let mut reply = vec![0; 64];
    let read = tokio::time::timeout(Duration::from_secs(5), last.read(&mut reply)).await.unwrap().unwrap();
    assert!(reply[..read].starts_with(b"HTTP/1.1 401"), "{}", String::from_utf8_lossy(&reply[..read]));
    // Heads that never end are no way in either.
    let head = format!("GET / HTTP/1.1\r\nX: {}", "y".repeat(200_000));
    let mut endless = connect(bound.http, &head).await;
    let mut reply = Vec::new();
    let closed = tokio::time::timeout(Duration::from_secs(5), endless.read_to_end(&mut reply)).await.unwrap();
    assert!(
        closed.is_err() || reply.is_empty() || reply.starts_with(b"HTTP/1.1 431"),
        "{}",
        String::from_utf8_lossy(&reply)
    );
}

#[tokio::test]
async fn an_agent_comes_in_past_strangers_at_its_own_door() {
    let (_database, bound, _shutdown) = serve().await;
    let mut strangers = Vec::new();
    for _ in 0..SILENT {
        strangers.push(connect(bound.agents, "").await);
    }
    let url = format!("http://{}", bound.agents);
    let channel = tonic::transport::Channel::from_shared(url).unwrap().connect().await.unwrap();
    let mut client = headway_api::agent::wire::agent_gateway_client::AgentGatewayClient::new(channel);
    let mut request = tonic::Request::new(tokio_stream::empty());
    request.metadata_mut().insert("authorization", "Bearer s3cret".parse().unwrap());
    let began = Instant::now();
    let refused = client.session(request).await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::FailedPrecondition, "it is let in, and says nothing: {refused}");
    assert!(began.elapsed() < Duration::from_secs(1));
}
