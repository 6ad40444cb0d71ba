//! `headway agent`: the node's side.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use headway_agent::{AgentConfig, CgroupRoot, DeclaredGpus, GpuOffer, OutputLimits, RunAs};
use headway_types::{Bytes, EmulatedDevice, GpuCount, GpuType};

use super::shutdown_token;
use crate::context::read_token;
use crate::failure::Failure;

#[derive(Args, Clone, Debug)]
pub struct Agent {
    /// URL of the scheduler's port for agents.
    #[arg(long, env = "HEADWAY_AGENT_SERVER")]
    pub server: String,
    /// File that holds the agent token.
    #[arg(long, env = "HEADWAY_AGENT_TOKEN_FILE")]
    pub agent_token_file: PathBuf,
    /// Where the ledger, the sockets and the logs are kept.
    #[arg(long)]
    pub data_dir: PathBuf,
    /// Name of the node [default: the host name].
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
    /// Nodes of one fabric domain talk at full bandwidth.
    #[arg(long, default_value = "default")]
    pub fabric_domain: String,
    /// Interpreter for `{python}` in job commands.
    #[arg(long, env = "HEADWAY_PYTHON", default_value = "python3")]
    pub python: PathBuf,
    /// Whom workers run as: `owner` (the Unix user of the job owner's name), `agent`, or a user's name
    /// [default: owner for root, else agent].
    #[arg(long)]
    pub run_as: Option<RunAs>,
    /// Where workers' cgroups (version 2) are made: `auto` (below the agent's unit, if systemd delegates it), `off`, or
    /// a directory.
    #[arg(long, default_value = "auto")]
    pub cgroups: CgroupRoot,
    /// Seconds over which a job's step reports are summed up into one for the scheduler.
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
    /// PEM certificate authority of the scheduler.
    #[arg(long)]
    pub tls_ca: Option<PathBuf>,
    /// Ends when this process does (workers live on).
    #[arg(long, hide = true)]
    pub die_with_parent: Option<i32>,
}

pub async fn run(agent: Agent) -> Result<(), Failure> {
    let shutdown = shutdown_token(agent.die_with_parent)?;
    let emulated = agent
        .device_flops
        .zip(agent.link_bytes_per_second)
        .map(|(flop_per_second, link)| EmulatedDevice { flop_per_second, link_bytes_per_second: link });
    let name = match agent.name {
        Some(name) => name,
        None => nix::unistd::gethostname().context("reading the host name")?.to_string_lossy().into_owned(),
    };
    let config = AgentConfig {
        server_url: agent.server,
        token: read_token(&agent.agent_token_file)?,
        data_dir: agent.data_dir,
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
        fabric: agent.fabric_domain,
        python: agent.python.display().to_string(),
        headway_binary: std::env::current_exe().context("finding this binary")?,
        run_as: agent.run_as.unwrap_or_else(RunAs::by_privilege),
        cgroups: agent.cgroups,
        report_every: Duration::from_secs_f64(agent.report_every_seconds.clamp(0.01, 3600.0)),
        output: OutputLimits {
            per_rank: Bytes(agent.output_bytes_per_rank),
            age: Duration::from_secs(agent.output_hours * 3600),
            total: Bytes(agent.output_bytes),
        },
        tls_ca: agent.tls_ca,
    };
    headway_agent::run(config, shutdown).await.map_err(|error| Failure::from(anyhow::Error::new(error)))
}
