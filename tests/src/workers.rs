//! The worker processes of a cluster as the kernel shows them: the truth that no report can bend.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// One live worker process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Worker {
    pub pid: i32,
    pub node: String,
    pub job: String,
    pub generation: u64,
    /// GPUs of its node that its group uses.
    pub gpus: u32,
}

impl Worker {
    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.pid), signal).ok();
    }
}

/// Every live worker of the cluster in this directory: the processes that run the job's command, not the shells
/// around them.
pub fn workers(cluster: &Path) -> Vec<Worker> {
    pids().filter_map(|pid| worker(pid, cluster)).collect()
}

/// Every live process of a job in the cluster of this directory, whatever it runs.
pub fn processes(cluster: &Path, job: &str) -> BTreeSet<i32> {
    pids()
        .filter(|pid| !has_ended(*pid))
        .filter(|pid| {
            let variables = variables(*pid);
            let is = |name: &str, value: &str| variables.get(name).is_some_and(|found| found.starts_with(value));
            is("HEADWAY_JOB_ID", job) && is("HEADWAY_SOCKET", &cluster.display().to_string())
        })
        .collect()
}

/// What two groups would both use, in words; `None` if every node's live groups fit on its GPUs and no node runs two
/// generations of one job.
pub fn double_use(workers: &[Worker], gpus_per_node: u32) -> Option<String> {
    let mut groups: BTreeMap<(&str, &str, u64), u32> = BTreeMap::new();
    for worker in workers {
        groups.insert((&worker.node, &worker.job, worker.generation), worker.gpus);
    }
    let mut used: BTreeMap<&str, u32> = BTreeMap::new();
    let mut generations: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    for ((node, job, generation), gpus) in groups {
        *used.entry(node).or_default() += gpus;
        if let Some(other) = generations.insert((node, job), generation) {
            return Some(format!("node {node} runs generations {other} and {generation} of job {job}"));
        }
    }
    let crowded = used.into_iter().find(|(_, gpus)| *gpus > gpus_per_node);
    crowded.map(|(node, gpus)| format!("node {node} has {gpus_per_node} GPUs and runs groups that use {gpus}"))
}

fn pids() -> impl Iterator<Item = i32> {
    let processes = std::fs::read_dir("/proc").expect("a proc file system").flatten();
    processes.filter_map(|entry| entry.file_name().to_string_lossy().parse().ok())
}

/// What a process was started with; nothing once it is gone.
fn variables(pid: i32) -> BTreeMap<String, String> {
    let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    environment
        .split(|byte| *byte == 0)
        .filter_map(|variable| {
            let text = String::from_utf8_lossy(variable);
            let (name, value) = text.split_once('=')?;
            // The shell around a worker has them as they travelled there, behind another name.
            let (name, value) =
                value.split_once('=').filter(|_| name.starts_with("HEADWAY_CARRIED_")).unwrap_or((name, value));
            Some((name.to_owned(), value.to_owned()))
        })
        .collect()
}

fn worker(pid: i32, cluster: &Path) -> Option<Worker> {
    let command = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let program = command.split(|byte| *byte == 0).next()?;
    if !program.ends_with(b"/headway") || has_ended(pid) {
        return None;
    }
    let variables = variables(pid);
    let socket = Path::new(variables.get("HEADWAY_SOCKET")?);
    let node = socket.parent().filter(|directory| directory.starts_with(cluster))?;
    Some(Worker {
        pid,
        node: node.file_name()?.to_string_lossy().into_owned(),
        job: variables.get("HEADWAY_JOB_ID")?.clone(),
        generation: variables.get("HEADWAY_GENERATION")?.parse().ok()?,
        gpus: variables.get("LOCAL_WORLD_SIZE")?.parse().ok()?,
    })
}

/// A zombie uses nothing.
fn has_ended(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with(['Z', 'X']))
}
