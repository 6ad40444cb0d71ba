//! `headway agent`: the node's side.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use headway_agent::{
    Access, AgentConfig, CgroupRoot, DeclaredGpus, Ending, FleetConfig, FleetGroup, GpuOffer, Joiner, Joining,
    OutputLimits, RunAs, WarmLimits, WrittenGroup, joined_name,
};
use headway_emulation::hardware::gpu_type;
use headway_goodput::catalog::Catalog;
use headway_goodput::physics::Parameters;
use headway_types::spec::MOST_NODE_LABELS;
use headway_types::{Bytes, EmulatedDevice, GpuCount, GpuType, NodeCount};

use super::node::node_label;
use super::{departure_tokens, shutdown_token};
use crate::context::read_token;
use crate::failure::{Failure, Kind};

#[derive(Args, Clone, Debug)]
pub struct Agent {
    /// URL of the scheduler's port for agents; of each of its servers, with commas or given more than once [default: those that the node
    /// has joined].
    #[arg(long, env = "HEADWAY_AGENT_SERVER", value_name = "URL", value_delimiter = ',')]
    pub server: Vec<String>,
    /// The node's key and certificate, which `headway node join` has written [default: identity.json in the data directory].
    #[arg(long, value_name = "FILE", conflicts_with = "agent_token_file")]
    pub identity: Option<PathBuf>,
    /// File with a join token: a node that has not joined does so at its start. For nodes that come and go by themselves.
    #[arg(
        long,
        env = "HEADWAY_JOIN_TOKEN_FILE",
        value_name = "FILE",
        requires = "server",
        conflicts_with = "agent_token_file"
    )]
    pub join_token_file: Option<PathBuf>,
    /// File that holds an agent token, where the scheduler takes them still (--agent-tokens).
    #[arg(long, env = "HEADWAY_AGENT_TOKEN_FILE", requires = "server")]
    pub agent_token_file: Option<PathBuf>,
    /// Where the ledger, the sockets and the logs are kept.
    #[arg(long, required_unless_present = "emulate")]
    pub data_dir: Option<PathBuf>,
    /// Name of the node [default: that of its certificate, else the host name], or of the emulated fleet [default: that of its
    /// certificate, else fleet].
    #[arg(long)]
    pub name: Option<String>,
    /// Address at which other nodes reach this one.
    #[arg(long, default_value = "127.0.0.1")]
    pub address: String,
    /// GPUs (or emulated devices) to offer, taken at the operator's word [default: those that NVML or ROCm know].
    #[arg(long)]
    pub gpus: Option<u32>,
    /// Type of the GPUs as the hardware catalog names it [default: the driver's; "emulated" with --gpus].
    #[arg(long)]
    pub gpu_type: Option<String>,
    /// Memory per GPU, bytes.
    #[arg(long, default_value_t = 4 << 30)]
    pub gpu_memory_bytes: u64,
    /// Offer emulated devices of this compute rate, FLOP/s.
    #[arg(long, requires_all = ["link_bytes_per_second", "gpus"])]
    pub device_flops: Option<u64>,
    /// Link rate of an emulated device, bytes/s.
    #[arg(long, requires = "device_flops")]
    pub link_bytes_per_second: Option<u64>,
    /// Catalog file with an entry for this node's GPUs (as `python -m headway.probe hardware` writes it), which goes before the
    /// scheduler's; with --emulate, GPU types that are not built in.
    #[arg(long, value_name = "FILE", conflicts_with = "device_flops")]
    pub hardware: Vec<PathBuf>,
    /// Nodes of one fabric domain talk at full bandwidth.
    #[arg(long, default_value = "default")]
    pub fabric_domain: String,
    /// NAME=VALUE, which jobs may choose nodes by (`resources.nodes.labels`) unless an operator says otherwise; may be given more than
    /// once.
    #[arg(long = "node-label", value_name = "NAME=VALUE", value_parser = node_label)]
    pub labels: Vec<(String, String)>,
    /// Interpreter for `{python}` in job commands.
    #[arg(long, env = "HEADWAY_PYTHON", default_value = "python3")]
    pub python: PathBuf,
    /// Shared memory that jobs may count on, bytes [default: what /dev/shm holds].
    #[arg(long, conflicts_with = "emulate")]
    pub shm_bytes: Option<u64>,
    /// Disk of this node's own that jobs may count on, bytes [default: the file system of the data directory].
    #[arg(long, conflicts_with = "emulate")]
    pub local_disk_bytes: Option<u64>,
    /// Whom workers run as: `owner` (the Unix user of the job owner's name), `agent`, or a user's name
    /// [default: owner for root, else agent].
    #[arg(long)]
    pub run_as: Option<RunAs>,
    /// With `--run-as agent`: take jobs of all owners, which then run as the agent's own user and can read what that user reads [default:
    /// jobs of the owner who has this user's name].
    #[arg(long)]
    pub allow_others: bool,
    /// With `--run-as owner`: least uid of a user as whom jobs run; those below are the system's own.
    #[arg(long, value_name = "UID", default_value_t = headway_agent::LEAST_UID)]
    pub least_uid: u32,
    /// Where workers' cgroups (version 2) are made: `auto` (below the agent's unit, if systemd delegates it), `off`, or
    /// a directory.
    #[arg(long, default_value = "auto")]
    pub cgroups: CgroupRoot,
    /// Let no job take more of the host's memory than its GPUs' share of 95 % of it (by its cgroup's memory.max).
    #[arg(long)]
    pub bound_memory: bool,
    /// Seconds over which a job's step reports are summed up into one for the scheduler, at most 60.
    #[arg(long, default_value_t = 10.0)]
    pub report_every_seconds: f64,
    /// Output kept of each rank, bytes on disk; the oldest goes first.
    #[arg(long, default_value_t = 256 << 20)]
    pub output_bytes_per_rank: u64,
    /// Hours that the output of ended groups is kept.
    #[arg(long, default_value_t = 7 * 24)]
    pub output_hours: u64,
    /// Output of ended groups kept altogether, bytes on disk.
    #[arg(long, default_value_t = 10 << 30)]
    pub output_bytes: u64,
    /// Python interpreters kept warm, so that moved jobs start without importing torch again; 0: none.
    #[arg(long, default_value_t = 2)]
    pub warm_interpreters: usize,
    /// Seconds that a warm interpreter is kept without a job on this node that could use it.
    #[arg(long, default_value_t = 3600)]
    pub warm_idle_seconds: u64,
    /// PEM certificate authority of the scheduler, for an agent with a token.
    #[arg(long, requires = "agent_token_file")]
    pub tls_ca: Option<PathBuf>,
    /// At SIGTERM, announce that the node goes away and let the scheduler move its jobs before the agent ends: at
    /// most 15 min, and no longer than the longest grace (and epilog) of its jobs and 30 s. A second SIGTERM ends it
    /// at once. For allocations and machines that are taken away after a SIGTERM.
    #[arg(long, conflicts_with_all = ["emulate", "die_with_parent"])]
    pub leave_on_term: bool,
    #[command(flatten)]
    pub fleet: Fleet,
    /// Ends when this process does (workers live on).
    #[arg(long, hide = true)]
    pub die_with_parent: Option<i32>,
}

/// Nodes that exist in this process only.
#[derive(Args, Clone, Debug)]
pub struct Fleet {
    /// Emulate nodes instead: TYPExGPUS or TYPExGPUS=NODES, several with commas (H100x8=150,A100-80Gx4=50).
    #[arg(long, value_delimiter = ',', conflicts_with_all = ["gpus", "gpu_type", "device_flops", "data_dir"])]
    pub emulate: Vec<WrittenGroup>,
    /// Emulated nodes of each group that names no number [default: 1].
    #[arg(long, requires = "emulate", conflicts_with = "data_dir")]
    pub nodes: Option<u32>,
    /// Failures of emulated nodes, times the published rates.
    #[arg(long, requires = "emulate", conflicts_with = "data_dir", default_value_t = 1.0)]
    pub failures: f64,
}

impl Fleet {
    /// The groups with their numbers of nodes.
    fn groups(&self, site: &Catalog) -> Result<Vec<FleetGroup>, Failure> {
        let usual = NodeCount(self.nodes.unwrap_or(1));
        self.emulate.iter().map(|written| group(written, site, usual)).collect()
    }
}

/// The emulated nodes that a text means, of a type that is built in or the site's.
pub fn group(written: &WrittenGroup, site: &Catalog, usual: NodeCount) -> Result<FleetGroup, Failure> {
    let known = gpu_type(&written.name, site).map_err(|error| {
        Failure::new(Kind::Usage, format!("{written}: {error}")).hint("a file adds GPU types, see docs/operations.md")
    })?;
    Ok(written.of(known, usual))
}

/// Where a node's key and certificate are unless somebody says otherwise.
pub fn identity_file(data_dir: &Path) -> PathBuf {
    data_dir.join("identity.json")
}

pub fn host_name() -> Result<String, Failure> {
    Ok(nix::unistd::gethostname().context("reading the host name")?.to_string_lossy().into_owned())
}

impl Agent {
    /// What opens the scheduler, and the name that goes with it. A node that has not joined joins here, if it was given what it takes. `None`:
    /// there is no file.
    async fn access(
        &self,
        file: Option<PathBuf>,
        usual: &str,
        who: Joiner,
    ) -> Result<Option<(Access, String)>, Failure> {
        if let Some(token) = &self.agent_token_file {
            let access = Access::Token { secret: read_token(token)?, tls_ca: self.tls_ca.clone() };
            return Ok(Some((access, self.name.clone().unwrap_or_else(|| usual.to_owned()))));
        }
        let Some(file) = file else { return Ok(None) };
        let known = joined_name(&file);
        let name = self.name.clone().or(known.clone()).unwrap_or_else(|| usual.to_owned());
        if let (None, Some(token)) = (known, &self.join_token_file) {
            let joining = Joining {
                token: read_token(token)?.parse().map_err(|wrong| Failure::new(Kind::Usage, format!("{wrong}")))?,
                servers: self.server.clone(),
                name: name.clone(),
                who,
                file: file.clone(),
            };
            headway_agent::join(joining).await.map_err(|error| Failure::from(anyhow::Error::new(error)))?;
        }
        Ok(Some((Access::Certificate(file), name)))
    }
}

pub async fn run(agent: Agent) -> Result<(), Failure> {
    let ending = match agent.leave_on_term {
        true => departure_tokens()?,
        false => Ending { stop: shutdown_token(agent.die_with_parent)?, ..Ending::default() },
    };
    let site = super::catalog::read(&agent.hardware, Parameters::built_in())?;
    let labels: BTreeMap<String, String> = agent.labels.iter().cloned().collect();
    if labels.len() > MOST_NODE_LABELS {
        return Err(Failure::new(Kind::Usage, format!("a node has {MOST_NODE_LABELS} labels at most")));
    }
    if !agent.fleet.emulate.is_empty() {
        let Some((access, name)) = agent.access(agent.identity.clone(), "fleet", Joiner::Fleet).await? else {
            return Err(Failure::new(
                Kind::Usage,
                "--identity is needed: the fleet's key and certificate are kept there",
            )
            .hint("headway node join TOKEN --fleet --identity FILE makes it"));
        };
        let config = FleetConfig {
            server_urls: agent.server,
            access,
            name,
            groups: agent.fleet.groups(&site)?,
            fabric: agent.fabric_domain,
            labels,
            failures: agent.fleet.failures,
        };
        return headway_agent::run_fleet(config, ending.stop)
            .await
            .map_err(|error| Failure::from(anyhow::Error::new(error)));
    }
    let Some(data_dir) = agent.data_dir.clone() else {
        return Err(Failure::new(Kind::Usage, "--data-dir is needed: the ledger is kept there"));
    };
    let file = agent.identity.clone().unwrap_or_else(|| identity_file(&data_dir));
    let (usual, who) = (host_name()?, Joiner::Node { data_dir: data_dir.clone() });
    let Some((access, name)) = agent.access(Some(file), &usual, who).await? else {
        return Err(Failure::new(Kind::Failed, "a node has a file for its certificate"));
    };
    let emulated = agent
        .device_flops
        .zip(agent.link_bytes_per_second)
        .map(|(flop_per_second, link)| EmulatedDevice { flop_per_second, link_bytes_per_second: link });
    let config = AgentConfig {
        server_urls: agent.server,
        access,
        data_dir,
        name,
        address: agent.address,
        gpus: match agent.gpus {
            Some(count) => GpuOffer::Declared(DeclaredGpus {
                gpu_type: GpuType(agent.gpu_type.unwrap_or_else(|| "emulated".to_owned())),
                count: GpuCount(count),
                memory: Bytes(agent.gpu_memory_bytes),
                emulated,
            }),
            None => GpuOffer::Discovered { gpu_type: agent.gpu_type.map(GpuType) },
        },
        hardware: site.by_name(),
        shm: agent.shm_bytes.map(Bytes),
        local_disk: agent.local_disk_bytes.map(Bytes),
        fabric: agent.fabric_domain,
        labels,
        python: agent.python.display().to_string(),
        headway_binary: std::env::current_exe().context("finding this binary")?,
        run_as: agent.run_as.unwrap_or_else(RunAs::by_privilege),
        allow_others: agent.allow_others,
        least_uid: agent.least_uid,
        cgroups: agent.cgroups,
        bound_memory: agent.bound_memory,
        report_every: Duration::from_secs_f64(agent.report_every_seconds.clamp(0.01, 60.0)),
        output: OutputLimits {
            per_rank: Bytes(agent.output_bytes_per_rank),
            age: Duration::from_secs(agent.output_hours * 3600),
            total: Bytes(agent.output_bytes),
        },
        warm: WarmLimits { interpreters: agent.warm_interpreters, idle: Duration::from_secs(agent.warm_idle_seconds) },
    };
    headway_agent::run(config, ending).await.map_err(|error| Failure::from(anyhow::Error::new(error)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        agent: Agent,
    }

    fn parse(arguments: &str) -> Result<Agent, clap::Error> {
        let common = ["agent", "--server", "http://s:1", "--agent-token-file", "/t"];
        Line::try_parse_from(common.into_iter().chain(arguments.split_whitespace())).map(|line| line.agent)
    }

    #[test]
    fn a_fleet_needs_no_gpus_and_a_node_does() {
        let none = Catalog::default();
        let agent = parse("--emulate H100x8=150,A100-80Gx4 --nodes 50").unwrap();
        let nodes: Vec<u32> = agent.fleet.groups(&none).unwrap().iter().map(|group| group.nodes.0).collect();
        assert_eq!(nodes, [150, 50]);
        let ambiguous = parse("--emulate A100x8").unwrap().fleet.groups(&none).unwrap_err();
        assert!(ambiguous.message.contains("A100-40G, A100-80G"), "{ambiguous}");
        assert!(parse("--data-dir /d --gpus 8").is_ok());
        for wrong in ["--identity /i", "--join-token-file /j"] {
            assert!(parse(&format!("--data-dir /d {wrong}")).is_err(), "{wrong}: it has a token");
        }
        assert!(parse("--data-dir /d --leave-on-term").unwrap().leave_on_term);
        assert!(parse("--emulate H100x8 --leave-on-term").is_err(), "emulated nodes are taken away by nobody");
        for wrong in ["", "--gpus 8", "--emulate H100x8 --gpus 8", "--emulate x8", "--data-dir /d --nodes 3"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
