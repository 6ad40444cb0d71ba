//! `headway up`: a living cluster on one machine. A private Postgres, the scheduler and agents run as children of this
//! process, all below one data directory; Ctrl-C checkpoints what trains and stops everything, and the next `up` resumes.

mod child;
mod demo;
mod directory;
mod enrolment;
mod nodes;
mod server;

use std::io::IsTerminal as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::{ArgGroup, Args};
use headway_agent::{FleetGroup, WrittenGroup};
use headway_api::client::{Client, ClientError};
use headway_api::v1::{DrainRequest, Node};
use headway_goodput::physics::Parameters;
use headway_scheduler::Network;
use headway_scheduler::postgres::PrivatePostgres;
use headway_types::{AvailabilityKind, NodeCount, NodePolicyKind};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::command::agent::group;
use crate::command::catalog::read;
use crate::context::{Context, Contexts};
use crate::failure::{Failure, Kind};
use crate::logging::SpansTo;
use child::Child;
pub use directory::DataDirectory;

/// How long a busy scheduler is asked again for one node.
const BUSY: Duration = Duration::from_secs(60);
/// How long a cluster that commands speak to may take to say that it is there.
const ANSWER: Duration = Duration::from_secs(2);
/// Nodes changed at once when the cluster starts or stops.
const CHANGES: usize = 64;
/// Reason by which the next start recognises its own drains.
const STOPPING: &str = "headway up is stopping";

#[derive(Args, Clone, Debug)]
#[command(group(ArgGroup::new("fleet").multiple(true)))]
pub struct Up {
    /// Where everything is kept [default: /var/lib/headway for root, else ~/.local/share/headway; with --demo the same and -demo].
    #[arg(long, env = "HEADWAY_DATA_DIR")]
    pub data_dir: Option<PathBuf>,
    /// Port for people: REST, stream, web page.
    #[arg(long, default_value = "127.0.0.1:7600")]
    pub listen: SocketAddr,
    /// Port for agents: gRPC.
    #[arg(long, default_value = "127.0.0.1:7601")]
    pub agent_listen: SocketAddr,
    /// Local agents to run, or nodes to emulate of each group that names no number.
    #[arg(long, default_value_t = 2)]
    pub nodes: u32,
    /// Have people of four projects submit a day's work, in the shape of published traces, to 64 emulated nodes at 60 times the speed of time.
    #[arg(long, group = "fleet")]
    pub demo: bool,
    /// Emulate nodes instead of running agents: TYPExGPUS or TYPExGPUS=NODES, several with commas
    /// (H100x8=150,A100-80Gx4=50).
    #[arg(long, value_delimiter = ',', group = "fleet")]
    pub emulate: Vec<WrittenGroup>,
    /// Files with GPU types of your own, in the form of the built-in hardware catalog; a later entry of the same name holds.
    #[arg(long = "catalog", value_name = "FILE")]
    pub catalogs: Vec<PathBuf>,
    /// Seconds of the cluster's time per second of yours.
    #[arg(long, requires = "fleet", value_parser = positive)]
    pub speed: Option<f64>,
    /// Failures of emulated nodes, times the published rates [default: 1; with --demo 15].
    #[arg(long, requires = "fleet")]
    pub failures: Option<f64>,
    /// Emulated devices per agent.
    #[arg(long, default_value_t = 4)]
    pub gpus_per_node: u32,
    /// Compute rate of an emulated device, FLOP/s.
    #[arg(long, default_value_t = 1_200_000_000)]
    pub device_flops: u64,
    /// Link rate of an emulated device, bytes/s.
    #[arg(long, default_value_t = 3_000_000)]
    pub link_bytes_per_second: u64,
    /// What jobs' webhooks may call though it is no public address: 10.1.0.0/16, or one address; several with commas.
    #[arg(long, value_name = "NETWORK", value_delimiter = ',')]
    pub webhook_allow_network: Vec<Network>,
    /// File that says through which identity provider people log in (TOML; docs/people.md).
    #[arg(long, env = "HEADWAY_OIDC", value_name = "FILE")]
    pub oidc: Option<PathBuf>,
    #[command(flatten)]
    pub spans: SpansTo,
    /// Python interpreter for `{python}` in job commands.
    #[arg(long, env = "HEADWAY_PYTHON", default_value = "python3")]
    pub python: PathBuf,
    /// Seconds that training jobs get to save themselves when `up` is stopped.
    #[arg(long, default_value_t = 60)]
    pub stop_grace: u64,
}

impl Up {
    /// With what a demo wants where nobody says otherwise.
    fn filled_in(mut self) -> anyhow::Result<Self> {
        if self.demo {
            if self.emulate.is_empty() {
                let read = headway_evidence::demo::NODES.split(',').map(str::parse).collect::<Result<_, _>>();
                self.emulate = read.map_err(|error| anyhow::anyhow!("the demo's nodes: {error}"))?;
            }
            self.speed.get_or_insert(demo::SPEED);
            self.failures.get_or_insert(demo::FAILURES);
            if self.data_dir.is_none() {
                let mut root = DataDirectory::default_root()?.into_os_string();
                root.push("-demo");
                self.data_dir = Some(root.into());
            }
        }
        Ok(self)
    }

    /// What the cluster consists of, in words.
    fn offer(&self, groups: &[FleetGroup]) -> String {
        if groups.is_empty() {
            return format!("{} nodes with {} emulated devices each", self.nodes, self.gpus_per_node);
        }
        let group = |group: &FleetGroup| {
            format!("{} emulated nodes with {} {} each", group.nodes, group.gpus_per_node, group.gpu_type)
        };
        let groups: Vec<String> = groups.iter().map(group).collect();
        match self.speed {
            Some(speed) => format!("{}, at {speed} times the speed of time", groups.join(", ")),
            None => groups.join(", "),
        }
    }
}

fn positive(text: &str) -> Result<f64, String> {
    let speed = text.parse::<f64>().map_err(|error| error.to_string())?;
    if speed.is_finite() && speed > 0.0 { Ok(speed) } else { Err("must be positive".into()) }
}

/// Refuses an address that somebody else has: what answers there would be taken for our own scheduler.
fn free(address: SocketAddr, flag: &str) -> Result<(), Failure> {
    match std::net::TcpListener::bind(address) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => {
            let taken = format!("{address} is taken by another process, perhaps another `headway up`");
            Err(Failure::new(Kind::Conflict, taken).hint(format!("give this one another port: {flag} 127.0.0.1:PORT")))
        }
        Err(error) => Err(Failure::new(Kind::Usage, format!("cannot listen on {address} ({flag}): {error}"))),
    }
}

/// Runs until Ctrl-C or SIGTERM.
pub async fn run(up: Up, name: Option<&str>) -> Result<(), Failure> {
    let up = up.filled_in()?;
    let site = read(&up.catalogs, Parameters::built_in())?;
    let groups = up.emulate.iter().map(|written| group(written, &site, NodeCount(up.nodes)));
    let groups = groups.collect::<Result<Vec<_>, _>>()?;
    // Before anything is started: the scheduler would say it to its log alone.
    up.spans.collector()?;
    let directory = DataDirectory::open(up.data_dir.clone())?;
    if up.demo {
        demo::claim(directory.root())?;
    }
    for (address, flag) in [(up.listen, "--listen"), (up.agent_listen, "--agent-listen")] {
        free(address, flag)?;
    }
    aside!("headway: data in {}", directory.root().display());
    let mut postgres = PrivatePostgres::start(&directory.root().join("postgres")).await.context("starting Postgres")?;
    let mut children = Vec::new();
    let database = postgres.url();
    let outcome = tokio::select! {
        outcome = run_cluster(&up, name, &groups, &directory, &database, &mut children) => outcome,
        never = postgres.keep() => match never {},
    };
    // Agents first, and all at once: what they still have to say is said to a scheduler that can store it, which is
    // the first child.
    children.iter().skip(1).for_each(Child::terminate);
    while let Some(child) = children.pop() {
        child.stop().await?;
    }
    child::end_leftover_workers(directory.root());
    postgres.stop().await.context("stopping Postgres")?;
    aside!("headway: stopped");
    Ok(outcome?)
}

async fn run_cluster(
    up: &Up,
    name: Option<&str>,
    groups: &[FleetGroup],
    directory: &DataDirectory,
    database: &str,
    children: &mut Vec<Child>,
) -> anyhow::Result<()> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let url = format!("http://{}", up.listen);
    let admin = tokio::select! {
        token = server::start(&url, up, directory, database, children) => token?,
        _ = interrupt.recv() => return Ok(()),
        _ = terminate.recv() => return Ok(()),
    };
    let client = Client::new(&url, &admin.secret)?;
    let enrolment = enrolment::Enrolment::look(&client, up.agent_listen).await?;
    if groups.is_empty() {
        for number in 1..=up.nodes {
            let name = format!("node-{number}");
            enrolment.node(&client, directory, &name).await?;
            children.push(Child::start(&name, directory, agent_arguments(up, directory, &name))?);
        }
    } else {
        let identity = enrolment.fleet(&client, directory).await?;
        children.push(Child::start("fleet", directory, fleet_arguments(up, groups, &identity))?);
    }
    return_nodes_to_service(&client).await?;
    let expected = nodes::expected(up.nodes, groups);
    let missing = tokio::select! {
        missing = nodes::wait(&client, &expected) => missing?,
        _ = interrupt.recv() => return Ok(()),
        _ = terminate.recv() => return Ok(()),
        failed = child::supervise(children) => return failed,
    };
    let context = Context { url: url.clone(), token_file: admin.file.clone(), authority: None };
    let elsewhere = match introduce(context, name).await {
        Ok(elsewhere) => elsewhere,
        Err(failure) => {
            aside!("headway: other terminals need --url and --token-file: {}", failure.message);
            None
        }
    };

    match missing {
        None => say!("Headway is up: {}", up.offer(groups)).ok(),
        Some(missing) => {
            say!("Headway is up, but not whole: {missing}; logs are in {}", directory.logs().display()).ok()
        }
    };
    // A log that others may read is no place for the token.
    if std::io::stdout().is_terminal() {
        say!("  web page  {url}/#token={}", admin.secret).ok();
    } else {
        say!("  web page  {url}").ok();
    }
    say!("  REST      {url}/api/v1   (token in {})", admin.file.display()).ok();
    if up.demo {
        say!("  demo      eight people submit a day's work again and again, nodes break and are mended; look at the web page").ok();
        say!("  try       headway top · headway ps · headway queue list · headway plan history").ok();
    } else {
        say!("  try       headway submit --gpus 1 -- ./train.sh · headway logs -f · headway ps").ok();
    }
    if let Some((own, current)) = elsewhere {
        say!("  Commands speak to {current}, which runs too: give --context {own}, or `headway context use {own}`.")
            .ok();
    }
    say!("Ctrl-C saves what trains and stops everything; the next `headway up` resumes.").ok();

    let played = async {
        if up.demo
            && let Err(failure) = demo::play(&url, &client, groups).await
        {
            aside!("headway: demo: nobody submits any more: {}", failure.message);
        }
        std::future::pending::<()>().await;
    };
    let outcome = tokio::select! {
        _ = interrupt.recv() => Ok(()),
        _ = terminate.recv() => Ok(()),
        failed = child::supervise(children) => failed,
        () = played => Ok(()),
    };
    aside!("\nheadway: stopping; training jobs save themselves first (again Ctrl-C to skip)");
    tokio::select! {
        saved = drain(&client, Duration::from_secs(up.stop_grace)) => {
            if let Err(error) = saved {
                aside!("headway: could not drain before stopping: {error:#}");
            }
        }
        _ = interrupt.recv() => aside!("headway: not waiting; jobs resume from their last checkpoint"),
    }
    outcome
}

/// Makes the cluster known to other terminals. What commands speak to stays as it is while that answers: then both names are returned.
async fn introduce(context: Context, name: Option<&str>) -> Result<Option<(String, String)>, Failure> {
    let mut known = Contexts::load()?;
    let answers = match known.chosen(None)? {
        Some(current) if current.token_file != context.token_file && current.url != context.url => {
            let current = current.client("")?;
            tokio::time::timeout(ANSWER, current.ready()).await.is_ok_and(|ready| ready.unwrap_or(false))
        }
        _ => false,
    };
    let own = known.add(context, name, answers)?;
    known.save()?;
    Ok(known.current.filter(|current| *current != own).map(|current| (own, current)))
}

/// As `--emulate` takes them.
fn written(groups: &[FleetGroup]) -> String {
    let group = |group: &FleetGroup| format!("{}x{}={}", group.gpu_type, group.gpus_per_node, group.nodes);
    groups.iter().map(group).collect::<Vec<_>>().join(",")
}

fn fleet_arguments(up: &Up, groups: &[FleetGroup], identity: &std::path::Path) -> Vec<String> {
    let mut arguments = vec![
        "agent".into(),
        "--server".into(),
        format!("https://{}", up.agent_listen),
        "--identity".into(),
        identity.display().to_string(),
        "--emulate".into(),
        written(groups),
        "--failures".into(),
        up.failures.unwrap_or(1.0).to_string(),
    ];
    arguments.extend(up.catalogs.iter().flat_map(|file| ["--hardware".into(), file.display().to_string()]));
    arguments
}

fn agent_arguments(up: &Up, directory: &DataDirectory, name: &str) -> Vec<String> {
    vec![
        "agent".into(),
        "--server".into(),
        format!("https://{}", up.agent_listen),
        "--data-dir".into(),
        directory.root().join(name).display().to_string(),
        "--name".into(),
        name.into(),
        "--gpus".into(),
        up.gpus_per_node.to_string(),
        "--device-flops".into(),
        up.device_flops.to_string(),
        "--link-bytes-per-second".into(),
        up.link_bytes_per_second.to_string(),
        "--python".into(),
        up.python.display().to_string(),
        // Whoever runs `up` has the only account it is about.
        "--run-as".into(),
        "agent".into(),
        "--allow-others".into(),
        // A delegated subtree would be that of whatever unit `up` happens to run in.
        "--cgroups".into(),
        "off".into(),
        // Whoever watches it live wants to see it move.
        "--report-every-seconds".into(),
        "1".into(),
    ]
}

/// Undoes the drains of the last stop, and only those.
async fn return_nodes_to_service(client: &Client) -> anyhow::Result<()> {
    let drained = |node: &Node| node.policy_reason.as_deref() == Some(STOPPING);
    let ids = client.nodes().await?.into_iter().filter(drained).map(|node| node.id.to_string()).collect();
    change_nodes(client, ids, Change::Uncordon).await
}

#[derive(Clone, Copy)]
enum Change {
    Drain,
    Uncordon,
}

/// Changes many nodes at once, so that the scheduler takes them into few decisions.
async fn change_nodes(client: &Client, mut nodes: Vec<String>, change: Change) -> anyhow::Result<()> {
    let mut under_way = JoinSet::new();
    loop {
        while under_way.len() < CHANGES
            && let Some(node) = nodes.pop()
        {
            let client = client.clone();
            under_way.spawn(async move { change_node(&client, &node, change).await });
        }
        match under_way.join_next().await {
            Some(changed) => changed.context("changing a node")??,
            None => return Ok(()),
        };
    }
}

/// A scheduler that is busy is asked again.
async fn change_node(client: &Client, node: &str, change: Change) -> Result<Node, ClientError> {
    let stopping = DrainRequest { reason: Some(STOPPING.into()), deadline: None, within_seconds: None };
    let deadline = Instant::now() + BUSY;
    loop {
        let changed = match change {
            Change::Drain => client.drain(node, &stopping).await,
            Change::Uncordon => client.uncordon(node).await,
        };
        match changed {
            Err(ClientError::Problem(problem)) if problem.status == 503 && Instant::now() < deadline => {
                tokio::time::sleep(Duration::from_millis(250)).await;
            }
            changed => return changed,
        }
    }
}

/// Checkpoints and stops every worker through the scheduler, so that each stop is a recorded decision.
async fn drain(client: &Client, grace: Duration) -> anyhow::Result<()> {
    let deadline = Instant::now() + grace;
    // A cordoned node would keep what runs on it; it stays cordoned under the operator's reason otherwise.
    let busy =
        |node: &Node| node.policy == NodePolicyKind::Schedulable || node.gpus.iter().any(|gpu| gpu.job_id.is_some());
    let ids = client.nodes().await?.into_iter().filter(busy).map(|node| node.id.to_string()).collect();
    change_nodes(client, ids, Change::Drain).await?;
    loop {
        let nodes = client.nodes().await?;
        // A node without a session stops nothing, however long it is waited for. It stays available for a lease after
        // it has lost it.
        let reachable = nodes.iter().filter(|node| node.availability == AvailabilityKind::Available && node.connected);
        let busy: usize = reachable.map(|node| node.gpus.iter().filter(|gpu| gpu.job_id.is_some()).count()).sum();
        if busy == 0 {
            return Ok(());
        }
        if Instant::now() >= deadline {
            bail!("{busy} devices were still busy after {} s", grace.as_secs());
        }
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
}

#[cfg(test)]
mod tests;
