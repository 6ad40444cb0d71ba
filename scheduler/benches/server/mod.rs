//! A server process for benchmarks: this same executable, started again with the arguments of a server.

#![allow(dead_code)] // Each benchmark uses a part of it.

pub mod client;
pub mod fleet;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use headway_engine::EngineConfig;
use headway_goodput::catalog::Catalog;
use headway_scheduler::{InitialToken, PrivatePostgres, Retention, ServerConfig, Speed, serve};
use headway_types::TokenScope;
use tokio_util::sync::CancellationToken;

/// The administrator's token.
pub const SECRET: &str = "hw_benchmark";
const DEADLINE: Duration = Duration::from_secs(120);

/// Killed when dropped.
pub struct Server {
    process: Child,
    pub address: SocketAddr,
    /// Where agents dial in.
    pub agents: SocketAddr,
}

/// A whole benchmark: becomes a server if started as one; otherwise measures on a Postgres of its own.
pub fn bench(runtime: &mut tokio::runtime::Builder, measure: impl AsyncFnOnce(&PrivatePostgres)) {
    become_server_if_told();
    runtime.enable_all().build().expect("a runtime").block_on(async {
        let dir = tempfile::tempdir().expect("a temporary directory");
        std::fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("it is ours");
        let postgres = PrivatePostgres::start(&dir.path().join("pg")).await.expect("Postgres is installed");
        measure(&postgres).await;
        postgres.stop().await.expect("Postgres stops");
    });
}

fn become_server_if_told() {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, word, url, listen, agents] = arguments.as_slice() else { return };
    if word != "serve" {
        return;
    }
    let config = ServerConfig {
        database_url: url.clone(),
        listen: listen.parse().expect("the parent gives an address"),
        agent_listen: agents.parse().expect("the parent gives an address"),
        standby: false,
        advertised: Default::default(),
        tls: None,
        node_certificates: headway_scheduler::NodeCertificates { tokens_too: true, ..Default::default() },
        hsts: std::time::Duration::ZERO,
        engine: EngineConfig::default(),
        tokens: vec![InitialToken { name: "admin".into(), scope: TokenScope::Admin, secret: SECRET.into() }],
        secrets_key: None,
        oidc: None,
        webhook_networks: Vec::new(),
        retention: Retention::default(),
        site: Catalog::default(),
        speed: Speed::REAL,
        trust_clock: false,
        build: "unknown commit",
        metrics: true,
    };
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    if let Err(error) = runtime.block_on(serve(config, CancellationToken::new())) {
        eprintln!("server: {error}: {:?}", std::error::Error::source(&error));
    }
    std::process::exit(1);
}

impl Server {
    /// Starts one and says how long it took from `exec` until `/readyz` said yes.
    pub fn start(database_url: &str) -> (Self, Duration) {
        let (address, agents) = (free_address(), free_address());
        let began = Instant::now();
        let process = Command::new(std::env::current_exe().expect("this executable has a path"))
            .args(["serve", database_url, &address.to_string(), &agents.to_string()])
            .stdin(Stdio::null())
            .spawn()
            .expect("this executable can be started again");
        let server = Self { process, address, agents };
        while !server.ready() {
            assert!(began.elapsed() < DEADLINE, "the server did not become ready");
            std::thread::sleep(Duration::from_millis(1));
        }
        (server, began.elapsed())
    }

    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// SIGKILL, as after a power cut.
    pub fn kill(mut self) {
        self.process.kill().expect("it was running");
        self.process.wait().expect("it is ours");
    }

    fn ready(&self) -> bool {
        let Ok(mut stream) = TcpStream::connect(self.address) else { return false };
        let mut answer = String::new();
        stream.write_all(b"GET /readyz HTTP/1.0\r\n\r\n").is_ok()
            && stream.read_to_string(&mut answer).is_ok()
            && answer.contains(" 200 ")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have been killed already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn free_address() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("it is bound")
}

/// CPU seconds a process has used so far, with its children that have ended.
pub fn cpu_seconds(pid: u32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let after_name = stat.rsplit(") ").next().unwrap_or_default();
    // utime, stime, cutime, cstime: fields 14 to 17 of proc(5); the state after the name is field 3.
    let ticks: f64 = after_name.split(' ').skip(11).take(4).filter_map(|field| field.parse::<f64>().ok()).sum();
    ticks / 100.0
}

/// CPU seconds of the Postgres below this directory: the postmaster and every process it has started.
pub fn postgres_cpu_seconds(root: &Path) -> f64 {
    let lock_file = std::fs::read_to_string(root.join("data/postmaster.pid")).unwrap_or_default();
    let Some(Ok(postmaster)) = lock_file.lines().next().map(str::parse::<u32>) else { return 0.0 };
    let children = std::fs::read_to_string(format!("/proc/{postmaster}/task/{postmaster}/children"));
    let children = children.unwrap_or_default();
    let children = children.split_whitespace().filter_map(|pid| pid.parse().ok()).map(cpu_seconds);
    cpu_seconds(postmaster) + children.sum::<f64>()
}

/// Resident memory in MiB.
pub fn resident_mib(pid: u32) -> f64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    line.split_whitespace().next().and_then(|kib| kib.parse::<f64>().ok()).unwrap_or(0.0) / 1024.0
}

pub fn load_average() -> String {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    load.split(' ').take(2).collect::<Vec<_>>().join(" ")
}
