//! Starts the processes of a group and tells the node's loop when each is gone. Children write to files and lead
//! their own process groups, so they outlive the agent; a small shell around each writes down its exit status, so that
//! the next agent learns it too.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use headway_node::{Exit, NodeEvent, Process};
use headway_types::spec::RunPer;
use headway_types::{Fault, Generation, JobId, LaunchOrder};
use tokio::process::{Child, Command};
use tokio::sync::mpsc;

use crate::cause::{self, Before};
use crate::cgroup::OutOfMemory;
use crate::connections::Connections;
use crate::environment::{self, Member};
use crate::files::{read_beginning, read_end, write_durably};
use crate::node::Input;
use crate::process;
use crate::site::Site;
use crate::user::{UnixUser, give};

/// Enters the working directory as the job's user, keeps SIGTERM from the shell itself (the command gets it: traps are
/// not inherited) and records how it ended, in place: the file has its blocks already, should the disk be full.
const WRAPPER: &str = r#"
umask 022
cd -- "$1" || { printf '%-7s\n' 126 1<>"$0"; exit 126; }
shift
trap : TERM INT HUP
"$@"
code=$?
printf '%-7s\n' "$code" 1<>"$0"
exit "$code"
"#;
/// An exit status that was not written yet.
const NO_STATUS: &str = "       \n";
/// More than any exit status takes, in bytes.
const STATUS_LIMIT: u64 = 64;
/// What of a rank's output is searched for the reason of its end, in bytes.
const LAST_OUTPUT: u64 = 64 * 1024;
/// How long the end of a process waits for what it said last: a checkpoint told after the end would be refused.
const LAST_WORDS: Duration = Duration::from_secs(5);

#[derive(Clone)]
pub(crate) struct Launcher {
    site: Arc<Site>,
    inputs: mpsc::Sender<Input>,
    connections: Connections,
}

impl Launcher {
    pub(crate) fn new(site: Arc<Site>, inputs: mpsc::Sender<Input>, connections: Connections) -> Self {
        Self { site, inputs, connections }
    }

    /// Starts the group and watches it; answers `Spawned` and then each `Exited`, or `SpawnFailed`.
    pub(crate) fn launch(&self, order: LaunchOrder, port: u16) {
        let launcher = self.clone();
        tokio::spawn(async move {
            let (job, generation) = (order.job, order.generation);
            let before = Before::now();
            let started = match launcher.site.user(&order.owner).await {
                Ok(user) => launcher.start_all(&order, port, user.as_ref()),
                Err(fault) => Err(fault),
            };
            match started {
                Ok(children) => {
                    let processes = children.iter().map(|(process, _)| *process).collect();
                    launcher.tell(NodeEvent::Spawned { job, generation, processes }).await;
                    for (process, child) in children {
                        launcher.watch(&order, process, Some(child), before);
                    }
                }
                Err(fault) => launcher.fail(job, generation, fault).await,
            }
        });
    }

    /// Watches processes an earlier agent started.
    pub(crate) fn adopt(&self, order: &LaunchOrder, processes: Vec<Process>) {
        for process in processes {
            self.watch(order, process, None, Before::now());
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

    /// Kills what a group's cgroup holds, if it has one. Signals to its members go out besides.
    pub(crate) fn kill(&self, job: JobId, generation: Generation) {
        if let Some(cgroups) = &self.site.cgroups {
            cgroups.kill(job, generation);
        }
    }

    async fn fail(&self, job: JobId, generation: Generation, fault: Fault) {
        if let Some(cgroups) = &self.site.cgroups {
            cgroups.end_group(job, generation).await;
        }
        process::sweep(environment::mark(self.site.inventory.now().node, job, generation), None).await;
        self.tell(NodeEvent::SpawnFailed { job, generation, fault }).await;
    }

    fn start_all(
        &self,
        order: &LaunchOrder,
        port: u16,
        user: Option<&UnixUser>,
    ) -> Result<Vec<(Process, Child)>, Fault> {
        let (files, job, generation) = (&self.site.files, order.job, order.generation);
        let directory = files.group(job, generation);
        files
            .make_group(job, generation, user)
            .map_err(|error| Fault::of_node(format!("making {}: {error}", directory.display())))?;
        let secret = new_secret().map_err(Fault::of_node)?;
        let path = files.secret(job, generation);
        write_durably(&path, secret.as_bytes())
            .and_then(|()| give(&path, user))
            .map_err(|error| Fault::of_node(format!("storing the worker secret: {error}")))?;
        let members = self.site.members(order, port, &secret, user)?;
        let start = |member: Member| {
            let rank = member.rank;
            let failed = |error| Fault::of_node(format!("starting rank {rank}: {error}"));
            self.start(order, member, user).map_err(failed)
        };
        members.into_iter().map(start).collect()
    }

    fn start(&self, order: &LaunchOrder, member: Member, user: Option<&UnixUser>) -> std::io::Result<(Process, Child)> {
        let (files, rank) = (&self.site.files, member.rank);
        let log = files.log(order.job, order.generation, rank);
        let output = OpenOptions::new().create(true).append(true).mode(0o600).open(&log)?;
        give(&log, user)?;
        let exit_status = files.exit_status(order.job, order.generation, rank);
        OpenOptions::new()
            .create(true)
            .write(true)
            .truncate(true)
            .mode(0o600)
            .open(&exit_status)?
            .write_all(NO_STATUS.as_bytes())?;
        give(&exit_status, user)?;
        let workdir = order.run.workdir.as_ref().map_or_else(|| files.work(order.job), PathBuf::from);
        let mut words = match &self.site.cgroups {
            Some(cgroups) => cgroups.words(order.job, order.generation, rank)?,
            None => Vec::new(),
        };
        words.extend(self.site.users.prefix(user));
        words.extend(["/bin/sh", "-c", WRAPPER].map(String::from));
        let child = Command::new(&words[0])
            .args(&words[1..])
            .arg(exit_status)
            .arg(workdir)
            .args(&member.argv)
            .env_clear()
            .envs(&member.variables)
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .process_group(0)
            .spawn()?;
        let identity = child.id().and_then(|pid| Some(Process { rank, pid, started: process::started(pid)? }));
        let process = identity.ok_or_else(|| std::io::Error::other("it does not show in /proc"))?;
        Ok((process, child))
    }

    /// Waits for the end of a process, then for the end of all it started and of all they said, then says so.
    fn watch(&self, order: &LaunchOrder, process: Process, child: Option<Child>, before: Before) {
        let (launcher, order) = (self.clone(), order.clone());
        let (job, generation) = (order.job, order.generation);
        let group = environment::mark(self.site.inventory.now().node, job, generation);
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
            let killed = launcher.end_cgroup(job, generation, process.rank).await;
            launcher.connections.closed(job, generation, ranks, LAST_WORDS).await;
            let log = launcher.site.files.log(job, generation, process.rank);
            let last_words = read_end(&log, LAST_OUTPUT).unwrap_or_default();
            let fault = cause::of(exit, before, killed, &last_words, &order, &launcher.site.inventory.now());
            launcher.tell(NodeEvent::Exited { job, generation, rank: process.rank, exit, fault }).await;
        });
    }

    /// Makes sure that the rank's cgroup is empty; says whether the kernel had killed there for want of memory.
    async fn end_cgroup(&self, job: JobId, generation: Generation, rank: u32) -> Option<OutOfMemory> {
        let cgroups = self.site.cgroups.as_ref()?;
        let killed = cgroups.out_of_memory(job, generation, rank);
        cgroups.end_rank(job, generation, rank).await;
        killed
    }

    /// The status comes from a file that the job's own user could have written: it can lie about that job only, and
    /// only while no agent is there to see the end itself.
    async fn await_adopted(&self, job: JobId, generation: Generation, process: &Process) -> Exit {
        process::ended(process).await;
        let written = read_beginning(&self.site.files.exit_status(job, generation, process.rank), STATUS_LIMIT).ok();
        let complete = written.filter(|text| text.ends_with('\n'));
        complete.and_then(|text| text.trim().parse().ok()).map_or(Exit::Unknown, Exit::Code)
    }

    async fn tell(&self, event: NodeEvent) {
        if self.inputs.send(Input::Event(event)).await.is_err() {
            tracing::debug!("the agent is going down; the next one will learn this from the processes");
        }
    }
}

fn new_secret() -> Result<String, String> {
    let mut bytes = [0_u8; 32];
    getrandom::fill(&mut bytes).map_err(|error| format!("drawing the worker secret: {error}"))?;
    Ok(hex::encode(bytes))
}
