//! Starts the processes of a group and tells the node's loop when each is gone. Children write to files and lead
//! their own process groups, so they outlive the agent; a small shell around each writes down its exit status, so that
//! the next agent learns it too.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use headway_node::{Exit, NodeEvent, Process};
use headway_types::spec::RunPer;
use headway_types::{Fault, Generation, JobId, LaunchOrder, NodeInventory};
use tokio::process::{Child, Command};
use tokio::sync::mpsc;

use crate::config::AgentConfig;
use crate::connections::Connections;
use crate::environment::{self, Host, Member};
use crate::files::{Files, create_private_dir, write_durably};
use crate::node::Input;
use crate::process;

/// Keeps SIGTERM from the shell itself (the command gets it: traps are not inherited) and records how it ended.
const WRAPPER: &str = r#"trap : TERM INT HUP; "$@"; code=$?; echo "$code" >"$0.tmp" && mv "$0.tmp" "$0"; exit "$code""#;
/// How often an adopted process, which is nobody's child, is looked at.
const ADOPTED_POLL: Duration = Duration::from_millis(200);
/// How long the end of a process waits for what it said last: a checkpoint told after the end would be refused.
const LAST_WORDS: Duration = Duration::from_secs(5);

#[derive(Clone)]
pub(crate) struct Launcher {
    files: Files,
    inventory: Arc<NodeInventory>,
    inputs: mpsc::Sender<Input>,
    connections: Connections,
    python: String,
    headway: PathBuf,
    inherited: Arc<BTreeMap<String, String>>,
}

impl Launcher {
    pub(crate) fn new(
        config: &AgentConfig,
        files: Files,
        inventory: Arc<NodeInventory>,
        inputs: mpsc::Sender<Input>,
        connections: Connections,
    ) -> Self {
        let inherited = ["PATH", "HOME", "LANG"]
            .into_iter()
            .filter_map(|name| Some((name.to_owned(), std::env::var(name).ok()?)))
            .collect();
        Self {
            files,
            inventory,
            inputs,
            connections,
            python: config.python.clone(),
            headway: config.headway_binary.clone(),
            inherited: Arc::new(inherited),
        }
    }

    /// Starts the group and watches it; answers `Spawned` and then each `Exited`, or `SpawnFailed`.
    pub(crate) fn launch(&self, order: LaunchOrder, port: u16) {
        let launcher = self.clone();
        tokio::spawn(async move {
            let (job, generation) = (order.job, order.generation);
            match launcher.start_all(&order, port) {
                Ok(children) => {
                    let processes = children.iter().map(|(process, _)| *process).collect();
                    launcher.tell(NodeEvent::Spawned { job, generation, processes }).await;
                    for (process, child) in children {
                        launcher.watch(&order, process, Some(child));
                    }
                }
                Err(message) => launcher.fail(job, generation, Fault::of_node(message)).await,
            }
        });
    }

    /// Watches processes an earlier agent started.
    pub(crate) fn adopt(&self, order: &LaunchOrder, processes: Vec<Process>) {
        for process in processes {
            self.watch(order, process, None);
        }
    }

    /// Kills what a launch that was cut short may have started.
    pub(crate) fn sweep(&self, job: JobId, generation: Generation) {
        let launcher = self.clone();
        tokio::spawn(async move {
            let fault = Fault::of_infrastructure("the agent restarted during the launch");
            launcher.fail(job, generation, fault).await;
        });
    }

    async fn fail(&self, job: JobId, generation: Generation, fault: Fault) {
        process::sweep(environment::mark(self.inventory.node, job, generation), None).await;
        self.tell(NodeEvent::SpawnFailed { job, generation, fault }).await;
    }

    fn start_all(&self, order: &LaunchOrder, port: u16) -> Result<Vec<(Process, Child)>, String> {
        let directory = self.files.group(order.job, order.generation);
        create_private_dir(&directory).map_err(|error| format!("making {}: {error}", directory.display()))?;
        let secret = new_secret()?;
        write_durably(&self.files.secret(order.job, order.generation), secret.as_bytes())
            .map_err(|error| format!("storing the worker secret: {error}"))?;
        let socket = self.files.socket();
        let host = Host {
            inventory: &self.inventory,
            socket: &socket,
            python: &self.python,
            headway: &self.headway,
            inherited: &self.inherited,
        };
        let members = environment::members(order, port, &secret, &host)?;
        members.into_iter().map(|member| self.start(order, member)).collect()
    }

    fn start(&self, order: &LaunchOrder, member: Member) -> Result<(Process, Child), String> {
        let rank = member.rank;
        let describe = |error: std::io::Error| format!("starting rank {rank}: {error}");
        let log = open_log(&self.files.log(order.job, order.generation, rank)).map_err(describe)?;
        let workdir = order.run.workdir.as_ref().map_or_else(|| self.files.job(order.job), PathBuf::from);
        let child = Command::new("/bin/sh")
            .arg("-c")
            .arg(WRAPPER)
            .arg(self.files.exit_status(order.job, order.generation, rank))
            .args(&member.argv)
            .env_clear()
            .envs(&member.variables)
            .current_dir(workdir)
            .stdin(Stdio::null())
            .stdout(log.try_clone().map_err(describe)?)
            .stderr(log)
            .process_group(0)
            .spawn()
            .map_err(describe)?;
        let identity = child.id().and_then(|pid| Some(Process { rank, pid, started: process::started(pid)? }));
        identity.map(|process| (process, child)).ok_or_else(|| format!("rank {rank} does not show in /proc"))
    }

    /// Waits for the end of a process, then for the end of all it started and of all they said, then says so.
    fn watch(&self, order: &LaunchOrder, process: Process, child: Option<Child>) {
        let launcher = self.clone();
        let (job, generation) = (order.job, order.generation);
        let group = environment::mark_of_group(&self.inventory, order);
        // The only process of a node speaks for all its ranks.
        let ranks = match order.run.per {
            RunPer::Node => 0..u32::MAX,
            RunPer::Gpu => process.rank..process.rank + 1,
        };
        tokio::spawn(async move {
            let exit = match child {
                Some(mut child) => match child.wait().await {
                    Ok(status) => match (status.code(), status.signal()) {
                        (Some(code), _) => Exit::Code(code),
                        (None, Some(signal)) => Exit::Signal(signal),
                        (None, None) => Exit::Unknown,
                    },
                    Err(error) => {
                        tracing::warn!(pid = process.pid, %error, "waiting for a worker failed");
                        launcher.await_adopted(job, generation, &process).await
                    }
                },
                None => launcher.await_adopted(job, generation, &process).await,
            };
            process::sweep(environment::mark_of_rank(&group, process.rank), Some(process)).await;
            launcher.connections.closed(job, generation, ranks, LAST_WORDS).await;
            launcher.tell(NodeEvent::Exited { job, generation, rank: process.rank, exit, fault: None }).await;
        });
    }

    async fn await_adopted(&self, job: JobId, generation: Generation, process: &Process) -> Exit {
        while process::is_alive(process) {
            tokio::time::sleep(ADOPTED_POLL).await;
        }
        let written = std::fs::read_to_string(self.files.exit_status(job, generation, process.rank)).ok();
        written.and_then(|text| text.trim().parse().ok()).map_or(Exit::Unknown, Exit::Code)
    }

    async fn tell(&self, event: NodeEvent) {
        if self.inputs.send(Input::Event(event)).await.is_err() {
            tracing::debug!("the agent is going down; the next one will learn this from the processes");
        }
    }
}

fn open_log(path: &Path) -> std::io::Result<File> {
    OpenOptions::new().create(true).append(true).open(path)
}

fn new_secret() -> Result<String, String> {
    let mut bytes = [0_u8; 32];
    getrandom::fill(&mut bytes).map_err(|error| format!("drawing the worker secret: {error}"))?;
    Ok(hex::encode(bytes))
}
