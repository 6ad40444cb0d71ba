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
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::support::TestDatabase;

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

/// What a request may hold of memory whose sender is not known, as its reply is not read.
const COST: u64 = 64 * 1024;
const CONNECTIONS: u32 = 12;
const STREAMS: u32 = 48;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// A connection of HTTP/2 whose windows are shut, with as many requests as it may have; returns once all heads have come.
async fn ask_and_read_nothing(of: SocketAddr, paths: &[&str]) -> TcpStream {
    const SHUT: &[u8] = &[0, 4, 0, 0, 0, 0];
    const GET: u8 = 0x82;
    const HTTP: u8 = 0x86;
    const GZIP: u8 = 0x90;
    let mut said = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    said.extend(frame(4, 0, 0, SHUT));
    for (number, path) in (0..STREAMS).zip(paths.iter().cycle()) {
        // Path and authority are written out behind the index of their names (RFC 7541).
        let path = [&[0x04, u8::try_from(path.len()).unwrap()], path.as_bytes()].concat();
        let head = [&[GET, HTTP], &path[..], &[0x01, 1, b'h'], &[GZIP]].concat();
        said.extend(frame(1, 0x05, 2 * number + 1, &head));
    }
    let mut stream = TcpStream::connect(of).await.unwrap();
    stream.write_all(&said).await.unwrap();
    let mut heads = 0;
    while heads < STREAMS {
        let mut head = [0; 9];
        tokio::time::timeout(Duration::from_secs(20), stream.read_exact(&mut head)).await.unwrap().unwrap();
        let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
        stream.read_exact(&mut payload).await.unwrap();
        assert!(head[3] != 3 && head[3] != 7, "a request was refused: {head:?}");
        heads += u32::from(head[3] == 1);
    }
    stream
}

fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    resident.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1_024
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_request_of_a_stranger_holds_more_than_64_kib_however_little_he_reads() {
    let (_database, bound, _shutdown) = serve().await;
    // The longest of what is open to everybody; of the page's files a binary for tests has none, or those of web/dist.
    let paths = ["/api/v1/openapi.json", "/licenses", "/", "/metrics", "/readyz"];
    let client = reqwest::Client::builder().build().unwrap();
    for path in paths {
        let reply = client.get(format!("http://{}{path}", bound.http)).header("accept-encoding", "gzip").send().await;
        reply.unwrap().bytes().await.unwrap();
    }
    let mut held = vec![ask_and_read_nothing(bound.http, &paths).await];
    let before = resident_bytes();
    for _ in 0..CONNECTIONS {
        held.push(ask_and_read_nothing(bound.http, &paths).await);
    }
    let each = resident_bytes().saturating_sub(before) / u64::from(CONNECTIONS * STREAMS);
    println!("a request whose reply is not read holds {each} bytes");
    assert!(each < COST, "{each} bytes");
    assert!(slowest(bound.http).await < Duration::from_secs(1), "who is known is answered meanwhile");
}
