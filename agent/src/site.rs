//! What this node adds to every order: its files, its offer, its users, its interpreters. Shared by the checks before a
//! launch and by the launch itself, so that both see the same command.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::OnceLock;
use std::time::Duration;

use headway_node::Share;
use headway_types::{Bytes, Condition, ConditionKind, Fault, GpuUuid, LaunchOrder};
use tokio::process::Command;
use tokio::sync::watch;

use crate::AgentError;
use crate::carried::{ARRIVE, carry};
use crate::cause;
use crate::cgroup::{Cgroups, DeviceFilter, GpuFiles, Opened};
use crate::closed_roots::ClosedRoots;
use crate::config::AgentConfig;
use crate::environment::{self, Host, Member};
use crate::files::Files;
use crate::gpu::Gpus;
use crate::housekeeping::Census;
use crate::inventory::Inventory;
use crate::logs::OutputLimits;
use crate::user::{UnixUser, Users};
use crate::warm::{Kind, WarmLimits};

/// Of the host's memory, where what jobs take is bounded.
const HOSTS_OWN: f64 = 0.05;
/// For the trial of a device filter: the agent takes no work before.
const PROOF: Duration = Duration::from_secs(60);

pub(crate) struct Site {
    pub(crate) files: Files,
    pub(crate) inventory: Inventory,
    pub(crate) gpus: Gpus,
    pub(crate) users: Users,
    pub(crate) cgroups: Option<Cgroups>,
    pub(crate) closed_roots: ClosedRoots,
    bound_memory: bool,
    /// Set once it has shown that it works here.
    filter: OnceLock<DeviceFilter>,
    pub(crate) output: OutputLimits,
    pub(crate) warm: WarmLimits,
    /// The ledger as it was last stored, for who must not wait for the node's loop.
    pub(crate) census: watch::Sender<Census>,
    python: String,
    headway: PathBuf,
    inherited: BTreeMap<String, String>,
}

impl Site {
    pub(crate) fn new(
        config: &AgentConfig,
        files: Files,
        inventory: Inventory,
        gpus: Gpus,
        users: Users,
    ) -> Result<Self, AgentError> {
        let inherited = ["PATH", "HOME", "LANG"]
            .into_iter()
            .filter_map(|name| Some((name.to_owned(), std::env::var(name).ok()?)))
            .collect();
        let (python, headway) = (config.python.clone(), config.headway_binary.clone());
        let (output, warm, census) = (config.output, config.warm, watch::Sender::default());
        let Opened { cgroups, unbounded } = Cgroups::open(&config.cgroups, inventory.now().node)?;
        if let Some(message) = unbounded {
            tracing::warn!(why = message, "workers are not bounded");
            let condition = Condition { kind: ConditionKind::Unbounded, message };
            inventory.set_conditions(&[ConditionKind::Unbounded], vec![condition]);
        }
        let (filter, bound_memory) = (OnceLock::new(), config.bound_memory);
        let closed_roots = ClosedRoots::new(&files);
        Ok(Self {
            files,
            inventory,
            gpus,
            users,
            cgroups,
            closed_roots,
            bound_memory,
            filter,
            output,
            warm,
            census,
            python,
            headway,
            inherited,
        })
    }

    /// Finds out whether GPUs can be kept from groups that were not granted them, and says so in the offer.
    pub(crate) async fn isolate(&self, gpus: GpuFiles) {
        let reason = match self.prove(gpus).await {
            Ok(filter) => {
                let _set_before = self.filter.set(filter);
                tracing::info!("GPUs are isolated: a device filter keeps them from jobs that were not granted them");
                None
            }
            Err(reason) => {
                tracing::info!(reason, "GPUs are not isolated");
                Some(reason)
            }
        };
        self.inventory.change(|offer| (offer.isolated, offer.not_isolated_reason) = (reason.is_none(), reason));
    }

    async fn prove(&self, gpus: GpuFiles) -> Result<DeviceFilter, String> {
        if self.inventory.now().emulated.is_some() {
            return Err("emulated devices have no device files".to_owned());
        }
        if gpus.values().any(Vec::is_empty) {
            return Err("its GPUs were declared (--gpus), so their device files are not known".to_owned());
        }
        let cgroups = self.cgroups.as_ref().ok_or("there are no cgroups (version 2) for jobs (--cgroups)")?;
        let mount = self.files.mount().map_err(|error| format!("making a directory to mount on: {error}"))?;
        let proved = tokio::time::timeout(PROOF, DeviceFilter::prove(cgroups, mount, gpus)).await;
        proved.unwrap_or_else(|_| Err(format!("a trial of the device filter took longer than {} s", PROOF.as_secs())))
    }

    /// Makes the cgroup that all processes of a group are started in, with no other GPUs than it was granted. To be called before any of
    /// them is.
    pub(crate) async fn confine(&self, order: &LaunchOrder) -> io::Result<()> {
        let Some(cgroups) = &self.cgroups else { return Ok(()) };
        let group = cgroups.make_group(order.job, order.generation)?;
        if self.bound_memory {
            let share = cause::share_of_memory(order, &self.inventory.now());
            cgroups.bound_memory(&group, Bytes((share * (1.0 - HOSTS_OWN)) as u64))?;
        }
        self.confine_group(&group, order).await
    }

    /// The same for a group that an earlier agent has started, as long as it has not ended. An error where nothing can be kept from it.
    pub(crate) async fn confine_started(&self, order: &LaunchOrder, has_ended: impl Fn() -> bool) -> io::Result<()> {
        let Some(cgroups) = self.cgroups.as_ref().filter(|_| self.filter.get().is_some()) else { return Ok(()) };
        let confined = match cgroups.group_that_is(order.job, order.generation) {
            Some(group) => self.confine_group(&group, order).await,
            None => Err(io::Error::other("it was started outside any cgroup")),
        };
        if has_ended() { Ok(()) } else { confined }
    }

    async fn confine_group(&self, group: &Path, order: &LaunchOrder) -> io::Result<()> {
        let node = self.inventory.now().node;
        let granted = Share::of(order, node).map_or(&[][..], |share| share.slice.gpus.as_slice());
        self.confine_to(group, granted).await
    }

    /// Keeps all GPUs but those that are granted from a cgroup, where that can be done.
    pub(crate) async fn confine_to(&self, cgroup: &Path, granted: &[GpuUuid]) -> io::Result<()> {
        let Some(filter) = self.filter.get() else { return Ok(()) };
        let confined = filter.confine(cgroup, granted).await;
        confined.map_err(|why| io::Error::other(format!("keeping the GPUs of others from {}: {why}", cgroup.display())))
    }

    /// The user a job of this owner is to run as. Directory services may take their time to answer.
    pub(crate) async fn user(&self, owner: &str) -> Result<Option<UnixUser>, Fault> {
        self.look_up(owner, Users::of).await
    }

    /// The user a group of this owner was started as.
    pub(crate) async fn user_of_started(&self, owner: &str) -> Result<Option<UnixUser>, Fault> {
        self.look_up(owner, Users::of_started).await
    }

    async fn look_up(
        &self,
        owner: &str,
        find: fn(&Users, &str) -> Result<Option<UnixUser>, Fault>,
    ) -> Result<Option<UnixUser>, Fault> {
        let (users, owner) = (self.users.clone(), owner.to_owned());
        let found = tokio::task::spawn_blocking(move || find(&users, &owner)).await;
        found.unwrap_or_else(|error| Err(Fault::of_infrastructure(format!("looking up a user broke off: {error}"))))
    }

    /// Every process of the order on this node.
    pub(crate) fn members(
        &self,
        order: &LaunchOrder,
        port: u16,
        secret: &str,
        user: Option<&UnixUser>,
    ) -> Result<Vec<Member>, Fault> {
        let inventory = self.inventory.now();
        let Some(share) = Share::of(order, inventory.node) else {
            return Err(Fault::of_infrastructure("the placement does not name this node"));
        };
        let inherited = self.inherited(user);
        let host = Host {
            inventory: &inventory,
            socket: &self.files.socket(),
            python: &self.python,
            headway: &self.headway,
            inherited: &inherited,
        };
        environment::members(order, &share, port, secret, &host).map_err(Fault::of_job)
    }

    /// Where the order's commands begin.
    pub(crate) fn directory(&self, order: &LaunchOrder) -> PathBuf {
        order.run.workdir.as_ref().map_or_else(|| self.files.work(order.job), PathBuf::from)
    }

    /// A shell in the cgroup of a rank, as the job's user, with the rank's variables, which leads a process group of its own. What follows its
    /// script (arguments) and where its output goes is the caller's to add.
    pub(crate) fn shell(
        &self,
        order: &LaunchOrder,
        member: &Member,
        user: Option<&UnixUser>,
        script: &str,
    ) -> io::Result<Command> {
        let mut words = match &self.cgroups {
            Some(cgroups) => cgroups.words(order.job, order.generation, member.rank)?,
            None => Vec::new(),
        };
        words.extend(self.users.prefix(user));
        // By the last of them the shell calls itself in what it says of a command that cannot be run.
        words.extend(["/bin/sh", "-c", &format!("{ARRIVE}{script}"), "headway"].map(String::from));
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).current_dir("/").stdin(Stdio::null()).process_group(0);
        carry(&mut command, &member.variables);
        Ok(command)
    }

    /// What an order needs that names this node's interpreter and sets no variables, where one user runs all jobs.
    pub(crate) fn usual_kind(&self) -> Option<Kind> {
        let user = self.users.only()?;
        let variables = environment::lasting(&self.inventory.now(), &self.inherited(user.as_ref()), true);
        Some(Kind { user, interpreter: self.python.clone(), variables })
    }

    fn inherited(&self, user: Option<&UnixUser>) -> BTreeMap<String, String> {
        let mut inherited = self.inherited.clone();
        inherited.extend(user.map(UnixUser::variables).unwrap_or_default());
        inherited
    }
}
