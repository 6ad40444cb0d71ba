//! A cluster of real processes: private Postgres, one scheduler, agents with emulated devices.

use std::collections::BTreeSet;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use headway_api::client::Client;
use headway_api::v1::AvailabilityKind;
use headway_scheduler::postgres::PrivatePostgres;
use nix::sys::signal::Signal;
use tempfile::TempDir;

use crate::complaint::{Expected, unexpected};
use crate::databases::Databases;
use crate::network::Network;
use crate::process::Process;
use crate::wait::{soon, until};
use crate::workers::{self, Worker};

const TOKEN: &str = "hw_test_admin_token_000000000000000000";
/// Seals the key that signs nodes' certificates.
const SECRETS_KEY: &str = "00000000000000000000000000000000000000000000000000000000000000aa";

/// Seconds of silence after which the scheduler of a test gives a node up.
pub const LEASE_SECONDS: f64 = 2.0;

/// Where one scheduler listens.
struct Ports {
    people: u16,
    agents: u16,
}

impl Ports {
    fn free() -> Self {
        Self { people: free_port(), agents: free_port() }
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.people)
    }

    fn agent_url(&self) -> String {
        format!("https://127.0.0.1:{}", self.agents)
    }
}

pub struct Cluster {
    pub client: Client,
    /// Of the first scheduler.
    pub url: String,
    /// Of each scheduler: with more than one, all stand by.
    ports: Vec<Ports>,
    gpus: u32,
    /// Interpreters each agent keeps warm.
    warm: usize,
    python: String,
    lease_seconds: f64,
    servers: Vec<Option<Process>>,
    agents: Vec<Option<Process>>,
    /// Without wires.
    postgres: Option<PrivatePostgres>,
    /// Wires between all of them, where there are any.
    pub network: Option<Network>,
    dir: TempDir,
}

impl Cluster {
    /// Starts Postgres, the scheduler and `nodes` agents with `gpus` emulated devices each, and waits for them. No
    /// interpreter is kept warm.
    pub async fn start(nodes: usize, gpus: u32) -> Self {
        let python = std::env::var("HEADWAY_TEST_PYTHON").unwrap_or_else(|_| "python3".into());
        Self::start_with(nodes, gpus, 0, python).await
    }

    /// The same with so many schedulers, of which the first leads and the others stand by. The client knows all of them.
    pub async fn start_several(servers: usize, nodes: usize, gpus: u32) -> Self {
        Self::start_all(servers, nodes, gpus, 0, "python3".into()).await
    }

    /// The same of one scheduler with `warm` interpreters per agent.
    pub async fn start_with(nodes: usize, gpus: u32, warm: usize, python: String) -> Self {
        Self::start_all(1, nodes, gpus, warm, python).await
    }

    /// Two schedulers, Postgres with a synchronous replica, and nodes of one GPU each, with a wire between any two of them that speak to each
    /// other. Nodes are given up after `lease_seconds`.
    pub async fn start_wired(nodes: usize, lease_seconds: f64) -> Self {
        let dir = new_dir();
        let ports: Vec<Ports> = (0..2).map(|_| Ports::free()).collect();
        let databases = Databases::start(dir.path()).await;
        let people: Vec<u16> = ports.iter().map(|one| one.people).collect();
        let agents: Vec<u16> = ports.iter().map(|one| one.agents).collect();
        let network = Network::between(databases, &people, &agents, nodes).await;
        let client = Client::new(&network.people_urls().join(","), TOKEN).expect("a client");
        let url = network.people[0].url();
        let mut cluster = Self {
            client,
            url,
            ports,
            gpus: 1,
            warm: 0,
            python: "python3".into(),
            lease_seconds,
            servers: Vec::new(),
            agents: Vec::new(),
            postgres: None,
            network: Some(network),
            dir,
        };
        cluster.start_processes(nodes).await;
        cluster.network.as_mut().expect("it was just made").databases.replicate().await;
        cluster
    }

    async fn start_all(servers: usize, nodes: usize, gpus: u32, warm: usize, python: String) -> Self {
        let dir = new_dir();
        let postgres = PrivatePostgres::start(&dir.path().join("pg")).await.expect("a private Postgres");
        let ports: Vec<Ports> = (0..servers).map(|_| Ports::free()).collect();
        let urls: Vec<String> = ports.iter().map(Ports::url).collect();
        let client = Client::new(&urls.join(","), TOKEN).expect("a client");
        let mut cluster = Self {
            client,
            url: urls[0].clone(),
            ports,
            gpus,
            warm,
            python,
            lease_seconds: LEASE_SECONDS,
            servers: Vec::new(),
            agents: Vec::new(),
            postgres: Some(postgres),
            network: None,
            dir,
        };
        cluster.start_processes(nodes).await;
        cluster
    }

    async fn start_processes(&mut self, nodes: usize) {
        for index in 0..self.ports.len() {
            self.servers.push(None);
            self.start_server_at(index).await;
        }
        for index in 0..nodes {
            self.agents.push(None);
            self.join(index);
            self.start_agent(index);
        }
        self.wait_for_nodes(nodes).await;
    }

    /// Starts the scheduler on the same ports and store as before, and waits until it serves.
    pub async fn start_server(&mut self) {
        self.start_server_at(0).await;
    }

    /// One of several; one that stands by is not waited for any longer.
    pub async fn start_server_at(&mut self, index: usize) {
        let path = |name: &str| self.dir.path().join(name).display().to_string();
        let ports = &self.ports[index];
        let several = self.ports.len() > 1;
        let mut arguments = vec![
            "server".to_owned(),
            "--database-url".into(),
            self.database_url_of(index),
            "--listen".into(),
            format!("127.0.0.1:{}", ports.people),
            "--agent-listen".into(),
            format!("127.0.0.1:{}", ports.agents),
            "--admin-token-file".into(),
            path("admin.token"),
            "--secrets-key-file".into(),
            path("secrets.key"),
            "--checkpoint-root".into(),
            path("checkpoints"),
            "--lease-seconds".into(),
            self.lease_seconds.to_string(),
        ];
        arguments.extend(several.then(|| "--standby".to_owned()));
        if let Some(network) = &self.network {
            let (people, agents) = (network.people[index].url(), network.agents[0][index].url());
            arguments.extend(["--advertise-url".to_owned(), people, "--advertise-agents".into(), agents]);
        }
        let log = if index == 0 { "server".to_owned() } else { format!("server-{}", index + 1) };
        let mut process = Process::start(&arguments, &self.log(&log)).expect("starting the scheduler");
        // Past the wires, which may be broken.
        let client = Client::new(&ports.url(), TOKEN).expect("a client");
        until("the scheduler to be ready", soon(), || {
            let ended = process.ended();
            let client = client.clone();
            async move {
                assert!(ended.is_none(), "the scheduler ended: {}", ended.unwrap_or_default());
                client.ready().await.ok().filter(|ready| *ready || several).map(|_| ())
            }
        })
        .await;
        self.servers[index] = Some(process);
    }

    /// Where the first scheduler takes agents.
    pub fn agents_url(&self) -> String {
        self.ports[0].agent_url()
    }

    /// A client of all schedulers that has asked none of them yet.
    pub fn client_of_all(&self) -> Client {
        Client::new(&self.urls().join(","), TOKEN).expect("a client")
    }

    /// Where clients reach each scheduler.
    pub fn urls(&self) -> Vec<String> {
        match &self.network {
            Some(network) => network.people_urls(),
            None => self.ports.iter().map(Ports::url).collect(),
        }
    }

    /// A client of one scheduler alone.
    pub fn client_of(&self, index: usize) -> Client {
        Client::new(&self.urls()[index], TOKEN).expect("a client")
    }

    /// The same past all wires.
    pub fn direct_client_of(&self, index: usize) -> Client {
        Client::new(&self.ports[index].url(), TOKEN).expect("a client")
    }

    pub fn token(&self) -> &'static str {
        TOKEN
    }

    /// Has a node join by a token for it: it is given a certificate, and what it had before opens nothing.
    pub fn join(&self, index: usize) {
        let name = format!("node-{}", index + 1);
        let token = self.command(&["node", "token", "create", "--node", &name]);
        let servers: Vec<String> = match &self.network {
            Some(network) => {
                network.agents[index].iter().map(|link| link.url().replace("http://", "https://")).collect()
            }
            None => self.ports.iter().map(Ports::agent_url).collect(),
        };
        let data_dir = self.dir.path().join(&name).display().to_string();
        self.command(&[
            "node",
            "join",
            token.trim(),
            "--server",
            &servers.join(","),
            "--data-dir",
            &data_dir,
            "--name",
            &name,
        ]);
    }

    /// By the certificate that it has; where it reaches the schedulers it knows since it joined.
    pub fn start_agent(&mut self, index: usize) {
        self.start_agent_with(index, &[]);
    }

    /// Starts an agent with further options.
    pub fn start_agent_with(&mut self, index: usize, further: &[&str]) {
        let path = |name: &str| self.dir.path().join(name).display().to_string();
        let name = format!("node-{}", index + 1);
        let arguments = [
            "agent",
            "--data-dir",
            &path(&name),
            "--name",
            &name,
            "--gpus",
            &self.gpus.to_string(),
            "--device-flops",
            "1000000000",
            "--link-bytes-per-second",
            "4000000",
            "--python",
            &self.python,
            "--warm-interpreters",
            &self.warm.to_string(),
            "--run-as",
            "agent",
            "--allow-others",
            "--cgroups",
            "off",
            "--report-every-seconds",
            "1",
        ]
        .map(String::from);
        let further = further.iter().map(|one| (*one).to_owned());
        let arguments: Vec<String> = arguments.into_iter().chain(further).collect();
        self.agents[index] = Some(Process::start(&arguments, &self.log(&name)).expect("starting an agent"));
    }

    pub async fn wait_for_nodes(&self, nodes: usize) {
        until("the nodes to be available", soon(), || async {
            let list = self.client.nodes().await.ok()?;
            (list.iter().filter(|node| node.availability == AvailabilityKind::Available).count() >= nodes).then_some(())
        })
        .await;
        // A host without room takes no job: every test would wait for its first step until its time is over.
        let overview = self.client.overview().await.expect("the overview");
        let ailing = overview.attention.iter().find(|one| one.kind == "node_ailing");
        assert!(ailing.is_none(), "no job would start here: {}", ailing.map_or("", |one| &one.headline));
    }

    /// `kill -9` of the scheduler.
    pub fn kill_server(&mut self) {
        self.kill_server_at(0);
    }

    /// The same of one of several.
    pub fn kill_server_at(&mut self, index: usize) {
        self.servers[index].take().expect("the scheduler runs").kill_outright();
    }

    /// Where one of several schedulers reaches the database.
    fn database_url_of(&self, index: usize) -> String {
        match &self.network {
            Some(network) => network.database_url(index),
            None => self.database_url(),
        }
    }

    /// Where its database is.
    pub fn database_url(&self) -> String {
        self.postgres.as_ref().expect("Postgres runs as long as the cluster").url()
    }

    /// The scheduler is gone, and the disk of its database with it. There is another Postgres, which is empty.
    pub async fn lose_the_database(&mut self) {
        self.kill_server();
        self.postgres.take().expect("Postgres runs as long as the cluster").stop().await.expect("stopping Postgres");
        let place = self.dir.path().join("pg");
        std::fs::rename(&place, self.dir.path().join("pg-lost")).expect("moving the database away");
        self.postgres = Some(PrivatePostgres::start(&place).await.expect("a private Postgres"));
    }

    /// Runs a command to its end, and returns what it wrote; it must succeed.
    pub fn command(&self, arguments: &[&str]) -> String {
        let (code, out, err) = self.run(arguments);
        assert_eq!(code, Some(0), "headway {}: {err}{out}", arguments.join(" "));
        out
    }

    /// What a command tells programs.
    pub fn told(&self, arguments: &[&str]) -> serde_json::Value {
        let out = self.command(&[&["-o", "json"], arguments].concat());
        serde_json::from_str(&out).unwrap_or_else(|error| panic!("headway {}: {error}: {out}", arguments.join(" ")))
    }

    /// Runs a command that must fail: its exit code, and what it complained of.
    pub fn refused(&self, arguments: &[&str]) -> (i32, String) {
        let (code, out, err) = self.run(arguments);
        assert_ne!(code, Some(0), "headway {}: {out}", arguments.join(" "));
        (code.unwrap_or(-1), err)
    }

    fn run(&self, arguments: &[&str]) -> (Option<i32>, String, String) {
        let output = std::process::Command::new(crate::process::binary())
            .args(arguments)
            .env("XDG_CONFIG_HOME", self.dir.path().join("config"))
            .env("HEADWAY_URL", &self.url)
            .env("HEADWAY_TOKEN", TOKEN)
            .env_remove("HEADWAY_TOKEN_FILE")
            .stdin(std::process::Stdio::null())
            .output()
            .expect("running headway");
        let [out, err] = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        (output.status.code(), out, err)
    }

    /// `kill -9` of an agent; its workers live on.
    pub fn kill_agent(&mut self, index: usize) {
        self.agents[index].take().expect("the agent runs").kill_outright();
    }

    /// Whether an agent has ended by itself, and what it wrote last if so.
    pub fn agent_ended(&mut self, index: usize) -> Option<String> {
        let ended = self.agents[index].as_mut().expect("the agent runs").ended()?;
        self.agents[index] = None;
        Some(ended)
    }

    /// Sends an agent a signal, such as SIGSTOP or SIGCONT.
    pub fn signal_agent(&self, index: usize, signal: Signal) {
        self.agents[index].as_ref().expect("the agent runs").signal(signal);
    }

    pub fn agent_pid(&self, index: usize) -> i32 {
        self.agents[index].as_ref().expect("the agent runs").pid()
    }

    /// SIGSTOP or SIGCONT of the scheduler.
    pub fn signal_server(&self, signal: Signal) {
        self.signal_server_at(0, signal);
    }

    /// The same of one of several.
    pub fn signal_server_at(&self, index: usize, signal: Signal) {
        self.servers[index].as_ref().expect("the scheduler runs").signal(signal);
    }

    /// Its live worker processes.
    pub fn workers(&self) -> Vec<Worker> {
        workers::workers(self.dir.path())
    }

    /// Every live process of one job, whatever it runs.
    pub fn processes_of(&self, job: &str) -> BTreeSet<i32> {
        workers::processes(self.dir.path(), job)
    }

    /// Live workers of one job.
    pub fn workers_of(&self, job: &str) -> Vec<Worker> {
        self.workers().into_iter().filter(|worker| worker.job == job).collect()
    }

    /// Fails if two live groups use one GPU, or two generations of a job run on one node.
    pub fn check_use(&self) {
        // Between the two looks a group that was on its way out is gone.
        let look = || workers::double_use(&self.workers(), self.gpus);
        if look().is_some()
            && let Some(found) = look()
        {
            panic!("{found}: {:#?}", self.workers());
        }
    }

    pub fn nodes(&self) -> usize {
        self.agents.len()
    }

    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub fn log(&self, name: &str) -> PathBuf {
        self.dir.path().join(format!("{name}.log"))
    }

    /// Stops everything in order and checks that nobody complained of anything but what the test brings about.
    pub async fn stop(mut self, expected: &[Expected]) {
        for process in self.agents.drain(..).chain(self.servers.drain(..)).flatten() {
            process.stop().await;
        }
        let mut complaints = Vec::new();
        for entry in std::fs::read_dir(self.dir.path()).expect("the directory of the cluster").flatten() {
            if entry.path().extension().is_some_and(|extension| extension == "log") {
                let text = std::fs::read_to_string(entry.path()).unwrap_or_default();
                let unexpected = unexpected(&text, expected).into_iter();
                complaints.extend(unexpected.map(|line| format!("{}: {line}", entry.file_name().display())));
            }
        }
        if let Some(postgres) = self.postgres.take() {
            postgres.stop().await.expect("stopping Postgres");
        }
        if let Some(network) = self.network.take() {
            network.databases.stop().await;
        }
        assert!(complaints.is_empty(), "unexpected warnings:\n{}", complaints.join("\n"));
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.agents.clear();
        self.servers.clear();
        // Workers outlive their agent by design; those of a test end with it.
        for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
            let Ok(pid) = entry.file_name().to_string_lossy().parse::<i32>() else { continue };
            let environment = std::fs::read(entry.path().join("environ")).unwrap_or_default();
            let here = self.dir.path().display().to_string();
            if String::from_utf8_lossy(&environment).contains(&format!("HEADWAY_SOCKET={here}")) {
                nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), Signal::SIGKILL).ok();
            }
        }
    }
}

/// With the tokens that servers and agents read.
fn new_dir() -> TempDir {
    rustls::crypto::ring::default_provider().install_default().ok();
    let dir = tempfile::Builder::new().prefix("hw").tempdir_in("/tmp").expect("a temporary directory");
    open_to_postgres(dir.path());
    // As operators make it: a server warns of one that only root can write to.
    let checkpoints = dir.path().join("checkpoints");
    std::fs::create_dir(&checkpoints).expect("making the checkpoint root");
    std::fs::set_permissions(&checkpoints, std::fs::Permissions::from_mode(0o1777)).expect("opening it to owners");
    for (name, secret) in [("admin.token", TOKEN), ("secrets.key", SECRETS_KEY)] {
        let path = dir.path().join(name);
        std::fs::write(&path, secret).expect("writing a secret");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).expect("closing a secret to others");
    }
    dir
}

/// Postgres runs as another user when the tests run as root.
pub fn open_to_postgres(dir: &Path) {
    std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o755)).expect("opening the directory");
}

pub fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("a bound socket has an address").port()
}
