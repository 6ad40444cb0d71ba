//! `headway agent`: the node's side.

use std::path::PathBuf;

use clap::Args;

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
    /// GPUs (or emulated devices) to offer.
    #[arg(long)]
    pub gpus: u32,
    /// Type of the GPUs as the hardware catalog names it.
    #[arg(long, default_value = "emulated")]
    pub gpu_type: String,
    /// Memory per GPU, bytes.
    #[arg(long, default_value_t = 4 << 30)]
    pub gpu_memory_bytes: u64,
    /// Offer emulated devices of this compute rate, FLOP/s.
    #[arg(long, requires = "link_bytes_per_second")]
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
    /// PEM certificate authority of the scheduler.
    #[arg(long)]
    pub tls_ca: Option<PathBuf>,
    /// Ends when this process does (workers live on).
    #[arg(long, hide = true)]
    pub die_with_parent: Option<i32>,
}
