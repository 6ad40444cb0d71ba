//! Starts the processes of a group and tells the node's loop when each is gone. Children write to files and lead
//! their own process groups, so they outlive the agent; a small shell around each writes down its exit status, so that
//! the next agent learns it too.

mod unseen;

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use command_fds::{CommandFdExt, FdMapping};
use headway_api::agent::Secrets;
use headway_node::{Exit, NodeEvent, Process};
use headway_types::spec::RunPer;
use headway_types::{Fault, Generation, JobId, LaunchOrder};
use nix::sys::signal::SIGKILL;
use tokio::process::Child;
use tokio::sync::mpsc;

use crate::cause::{self, Before};
use crate::cgroup::OutOfMemory;
use crate::clock::now;
use crate::connections::Connections;
use crate::environment::{self, Member};
use crate::exec;
use crate::files::{read_end, write_durably};
use crate::node::Input;
use crate::observer::Observer;
use crate::printed;
use crate::process;
use crate::recovery;
use crate::secret_file::{self, SecretFile, descriptor_variable};
use crate::site::Site;
use crate::user::{UnixUser, give};
use crate::warm::{Cold, Descriptors, Kind, Request, Warm};

/// Enters the working directory as the job's user, keeps SIGTERM from the shell itself (the command gets it: traps are
/// not inherited) and records how it ended, in place: the file has its blocks already, should the disk be full. It holds the job's secrets open as
/// long as the command runs, and says where: a program that hands on no descriptors hands on that.
const WRAPPER: &str = r#"
umask 022
_headway_status=$1
for _headway_secret in $3; do
    export "${_headway_secret%=*}_FILE=/proc/$$/fd/${_headway_secret#*=}"
done
cd -- "$2" || { printf '%-7s\n' 126 1<>"$_headway_status"; exit 126; }
shift 3
trap : TERM INT HUP
"$@"
code=$?
printf '%-7s\n' "$code" 1<>"$_headway_status"
exit "$code"
"#;
/// An exit status that was not written yet.
const NO_STATUS: &str = "       \n";
/// What of a rank's output is searched for the reason of its end, in bytes.
const LAST_OUTPUT: u64 = 64 * 1024;
/// How long the end of a process waits for what it said last: a checkpoint told after the end would be refused.
const LAST_WORDS: Duration = Duration::from_secs(5);

#[derive(Clone)]
pub(crate) struct Launcher {
    site: Arc<Site>,
    inputs: mpsc::Sender<Input>,
    connections: Connections,
    observer: Observer,
    warm: Warm,
    starts: Arc<Starts>,
}

/// Workers started since the agent began, of those that could have started warm.
#[derive(Default)]
struct Starts {
    warm: AtomicU64,
    cold: AtomicU64,
}

/// What a rank needs on this node besides its command.
struct Place {
    output: OwnedFd,
    exit_status: OwnedFd,
    exit_status_path: PathBuf,
    directory: PathBuf,
    secrets: Vec<SecretFile>,
}

/// How this agent learns of a process's end.
enum Tie {
    Child(Child),
    /// Forked by a warm interpreter on this agent's word.
    Forked,
    /// Started by an earlier agent.
    Adopted,
}

impl Launcher {
    pub(crate) fn new(
        site: Arc<Site>,
        inputs: mpsc::Sender<Input>,
        connections: Connections,
        observer: Observer,
    ) -> Self {
        let warm = Warm::new(Arc::clone(&site));
        Self { site, inputs, connections, observer, warm, starts: Arc::default() }
    }

    /// Starts the group and watches it; answers `Spawned` and then each `Exited`, or `SpawnFailed`.
    pub(crate) fn launch(&self, order: LaunchOrder, port: u16, secrets: Secrets) {
        let launcher = self.clone();
        tokio::spawn(async move {
            let (job, generation) = (order.job, order.generation);
            let before = Before::now();
            let started = match launcher.site.user(&order.owner).await {
                Ok(user) => launcher.start_all(&order, port, &secrets, user.as_ref()).await,
                Err(fault) => Err(fault),
            };
            match started {
                Ok(children) => {
                    let processes = children.iter().map(|(process, _)| *process).collect();
                    launcher.tell(NodeEvent::Spawned { job, generation, processes }).await;
                    for (process, tie) in children {
                        launcher.watch(&order, process, tie, before);
                    }
                }
                Err(fault) => launcher.fail(job, generation, fault).await,
            }
        });
    }

    /// Watches processes an earlier agent started.
    pub(crate) fn adopt(&self, order: &LaunchOrder, processes: Vec<Process>) {
        let of_group = processes.clone();
        for process in processes {
            exec::end_forgotten(
                environment::mark(self.site.inventory.now().node, order.job, order.generation),
                process.rank,
            );
            self.watch(order, process, Tie::Adopted, Before::now());
        }
        let (launcher, adopted) = (self.clone(), order.clone());
        tokio::spawn(async move {
            // An agent that could not filter devices, or an earlier release, may have started it.
            let has_ended = || !of_group.iter().any(|one| process::started(one.pid) == Some(one.started));
            if let Err(error) = launcher.site.confine_started(&adopted, has_ended).await {
                tracing::warn!(job_id = %adopted.job, %error, "a group that runs is not kept from the GPUs of others");
            }
        });
        self.warm_up(order.clone());
    }

    /// Has an interpreter warmed up for the next launch of this job, without waiting for it.
    pub(crate) fn warm_up(&self, order: LaunchOrder) {
        let launcher = self.clone();
        tokio::spawn(async move {
            if let Some(kind) = launcher.kind(&order).await {
                launcher.warm.want(&kind);
            }
        });
    }

    /// Looks after the warm interpreters. Never ends by itself.
    pub(crate) async fn keep_warm(self) {
        if let Some(kind) = self.site.usual_kind() {
            self.warm.want(&kind);
        }
        self.warm.run().await;
    }

    #[cfg(test)]
    pub(crate) fn site(&self) -> &Site {
        &self.site
    }

    #[cfg(test)]
    pub(crate) fn warm(&self) -> &Warm {
        &self.warm
    }

    /// The kind of interpreter that could start the order; `None` if it must start cold.
    pub(crate) async fn kind(&self, order: &LaunchOrder) -> Option<Kind> {
        let user = self.site.user_of_started(&order.owner).await.ok()?;
        let members = self.site.members(order, 0, "", user.as_ref()).ok()?;
        Kind::of(members.first()?, user.as_ref())
    }

    /// Kills what a group's cgroup holds, if it has one. Signals to its members go out besides.
    pub(crate) fn kill(&self, job: JobId, generation: Generation) {
        if let Some(cgroups) = &self.site.cgroups {
            cgroups.kill(job, generation);
        }
    }

    async fn fail(&self, job: JobId, generation: Generation, fault: Fault) {
        self.end_all(job, generation).await;
        self.tell(NodeEvent::SpawnFailed { job, generation, fault }).await;
    }

    async fn start_all(
        &self,
        order: &LaunchOrder,
        port: u16,
        secrets: &Secrets,
        user: Option<&UnixUser>,
    ) -> Result<Vec<(Process, Tie)>, Fault> {
        let began = now();
        environment::check_secrets(order, secrets).map_err(Fault::of_job)?;
        let (files, job, generation) = (&self.site.files, order.job, order.generation);
        let directory = files.group(job, generation);
        files
            .make_group(job, generation, user)
            .map_err(|error| Fault::of_node(format!("making {}: {error}", directory.display())))?;
        self.site.confine(order).await.map_err(|error| Fault::of_node(format!("making its cgroup: {error}")))?;
        let secret = new_secret().map_err(Fault::of_node)?;
        let path = files.secret(job, generation);
        write_durably(&path, secret.as_bytes())
            .and_then(|()| give(&path, user))
            .map_err(|error| Fault::of_node(format!("storing the worker secret: {error}")))?;
        let members = self.site.members(order, port, &secret, user)?;
        recovery::note_launch(files, order);
        let mut started = Vec::new();
        for mut member in members {
            let rank = member.rank;
            member.launched_at(began);
            member.take_secrets(secrets, &order.run.secret_files);
            let failed = |error| Fault::of_node(format!("starting rank {rank}: {error}"));
            started.push(self.start(order, &member, user).await.map_err(failed)?);
        }
        Ok(started)
    }

    async fn start(&self, order: &LaunchOrder, member: &Member, user: Option<&UnixUser>) -> io::Result<(Process, Tie)> {
        let place = self.place(order, member, user)?;
        if self.site.warm.interpreters > 0
            && let Some(kind) = Kind::of(member, user)
        {
            let (job_id, generation, rank) = (order.job, order.generation, member.rank);
            match self.start_warm(order, member, &kind, &place).await {
                Ok(process) => {
                    let number = self.count(&self.starts.warm);
                    tracing::info!(%job_id, %generation, rank, number, "a worker was started warm");
                    return Ok((process, Tie::Forked));
                }
                Err(reason) => {
                    let number = self.count(&self.starts.cold);
                    tracing::info!(%job_id, %generation, rank, number, %reason, "a worker is started cold");
                }
            }
        }
        self.start_cold(order, member, user, place)
    }

    /// Makes the files of a rank.
    fn place(&self, order: &LaunchOrder, member: &Member, user: Option<&UnixUser>) -> io::Result<Place> {
        let (files, rank) = (&self.site.files, member.rank);
        let log = files.log(order.job, order.generation, rank);
        let output = OpenOptions::new().create(true).append(true).mode(0o600).open(&log)?;
        give(&log, user)?;
        let path = files.exit_status(order.job, order.generation, rank);
        let mut status = OpenOptions::new().create(true).write(true).truncate(true).mode(0o600).open(&path)?;
        status.write_all(NO_STATUS.as_bytes())?;
        give(&path, user)?;
        let directory = self.site.directory(order);
        let secrets = member.files.iter().map(|(variable, value)| SecretFile::open(variable, value, user));
        let secrets = secrets.collect::<io::Result<_>>()?;
        Ok(Place { output: output.into(), exit_status: status.into(), exit_status_path: path, directory, secrets })
    }

    /// Has a warm interpreter fork the worker. It does nothing before it is known here and in its cgroup, and ends by
    /// itself should this be given up.
    async fn start_warm(
        &self,
        order: &LaunchOrder,
        member: &Member,
        kind: &Kind,
        place: &Place,
    ) -> Result<Process, Cold> {
        let (waits, mut go) = std::io::pipe()?;
        let waits = waits.into();
        let directory = place.directory.as_path();
        let secrets: Vec<&str> = place.secrets.iter().map(|secret| secret.variable.as_str()).collect();
        let request = Request { arguments: &member.argv[2..], variables: &member.variables, directory, secrets };
        let (output, exit_status, secrets) = (&place.output, &place.exit_status, place.secrets.as_slice());
        let descriptors = Descriptors { output, exit_status, go: &waits, secrets };
        let pid = self.warm.fork(kind, &request, &descriptors).await?;
        // The interpreter is the user's: what it names is looked at before the agent's own power is used on it.
        let marked = pid > 1 && process::mark_of(pid).as_ref() == member.variables.get(process::MARK);
        let started = process::started(pid).filter(|_| marked);
        let started = started.ok_or_else(|| io::Error::other("it does not show in /proc"))?;
        if let Some(cgroups) = &self.site.cgroups {
            cgroups.take_in(order.job, order.generation, member.rank, pid)?;
        }
        go.write_all(b"!")?;
        Ok(Process { rank: member.rank, pid, started })
    }

    fn start_cold(
        &self,
        order: &LaunchOrder,
        member: &Member,
        user: Option<&UnixUser>,
        place: Place,
    ) -> io::Result<(Process, Tie)> {
        let rank = member.rank;
        let mut command = self.site.shell(order, member, user, WRAPPER)?;
        let (mut words, mut mappings) = (Vec::new(), Vec::new());
        for (child_fd, SecretFile { variable, file }) in secret_file::numbered(place.secrets) {
            command.env(descriptor_variable(&variable), child_fd.to_string());
            words.push(format!("{variable}={child_fd}"));
            mappings.push(FdMapping { parent_fd: file, child_fd });
        }
        let child = command
            .arg(place.exit_status_path)
            .arg(place.directory)
            .arg(words.join(" "))
            .args(&member.argv)
            .stdout(place.output.try_clone()?)
            .stderr(place.output)
            .fd_mappings(mappings)
            .map_err(io::Error::other)?
            .spawn()?;
        let identity = child.id().and_then(|pid| Some(Process { rank, pid, started: process::started(pid)? }));
        let process = identity.ok_or_else(|| io::Error::other("it does not show in /proc"))?;
        Ok((process, Tie::Child(child)))
    }

    fn count(&self, starts: &AtomicU64) -> u64 {
        starts.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Waits for the end of a process and reports it; then for the end of all it started and of all they said, and reports that.
    fn watch(&self, order: &LaunchOrder, process: Process, tie: Tie, before: Before) {
        let (launcher, order) = (self.clone(), order.clone());
        let (job, generation) = (order.job, order.generation);
        let group = environment::mark(self.site.inventory.now().node, job, generation);
        // The only process of a node speaks for all its ranks.
        let ranks = match order.run.per {
            RunPer::Node => 0..u32::MAX,
            RunPer::Gpu => process.rank..process.rank + 1,
        };
        let adopted = matches!(tie, Tie::Adopted);
        let follower = printed::follow(&self.site, &self.observer, &self.inputs, &order, process.rank, adopted);
        tokio::spawn(async move {
            // Beside the wait: who looks users up may answer late or never.
            let looked_up = tokio::spawn({
                let (launcher, order) = (launcher.clone(), order.clone());
                async move {
                    let kind = launcher.kind(&order).await;
                    kind.map(|kind| (launcher.warm.hold(kind.clone()), kind))
                }
            });
            let exit = match tie {
                Tie::Child(mut child) => match child.wait().await {
                    Ok(status) => match (status.code(), status.signal()) {
                        (Some(code), _) => Exit::Code(code),
                        (None, Some(signal)) => Exit::Signal(signal),
                        (None, None) => Exit::Unknown,
                    },
                    Err(error) => {
                        tracing::warn!(pid = process.pid, %error, "waiting for a worker failed");
                        launcher.await_end(job, generation, &process).await.unwrap_or(Exit::Unknown)
                    }
                },
                Tie::Adopted => launcher.await_end(job, generation, &process).await.unwrap_or(Exit::Unknown),
                // Its supervisor writes whatever comes; only SIGKILL gives it no time to.
                Tie::Forked => {
                    launcher.await_end(job, generation, &process).await.unwrap_or(Exit::Signal(SIGKILL as i32))
                }
            };
            // At once: what follows takes time, and a stop that comes meanwhile must not undo the end.
            if exit != Exit::Unknown {
                launcher.tell(NodeEvent::Left { job, generation, rank: process.rank, exit }).await;
            }
            process::sweep(environment::mark_of_rank(&group, process.rank), Some(process)).await;
            let killed = launcher.end_cgroup(job, generation, process.rank).await;
            launcher.connections.closed(job, generation, ranks, LAST_WORDS).await;
            if let Some(follower) = follower {
                follower.end().await;
            }
            let log = launcher.site.files.log(job, generation, process.rank);
            let last_words = read_end(&log, LAST_OUTPUT).unwrap_or_default();
            let mut fault = cause::of(exit, before, killed, &last_words, &order, &launcher.site.inventory.now());
            if fault.is_none() && exit != Exit::Code(0) {
                fault = cause::full_disk(&launcher.site, &order).await;
            }
            launcher.tell(NodeEvent::Exited { job, generation, rank: process.rank, exit, fault }).await;
            // It may come back, and scripts that say nothing to the agent were not seen to have imported.
            if let Ok(Some((held, kind))) = looked_up.await {
                launcher.warm.want(&kind);
                drop(held);
            }
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
    async fn await_end(&self, job: JobId, generation: Generation, process: &Process) -> Option<Exit> {
        process::ended(process).await;
        self.written_exit(job, generation, process.rank)
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
