//! A cgroup (version 2) per rank, below a subtree that is the agent's to write: what a worker starts stays in it,
//! whatever it does to its environment, session or parent, so that killing it leaves nothing behind; and the kernel
//! says there whom it killed for want of memory. Without such a subtree everything works by process groups and marks.
//!
//! The path comes from outside, so that tests can hand in a directory that is no cgroup at all.

mod delegation;
mod enclosure;
mod filter;

use std::convert::Infallible;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use headway_types::{Bytes, Generation, JobId, NodeId};

use crate::AgentError;
pub(crate) use enclosure::Enclosure;
pub(crate) use filter::{DeviceFilter, GpuFiles};

/// What bounds memory and counts who was killed for want of it, and what bounds the number of processes.
const CONTROLLERS: [&str; 2] = ["memory", "pids"];

/// Where cgroups may be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CgroupRoot {
    /// Where systemd has delegated a subtree to the agent, else nowhere.
    Auto,
    Off,
    /// In this directory of a cgroup2 file system.
    At(PathBuf),
}

impl FromStr for CgroupRoot {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(match text {
            "auto" => Self::Auto,
            "off" => Self::Off,
            path => Self::At(path.into()),
        })
    }
}

/// The agent's subtree.
#[derive(Clone, Debug)]
pub(crate) struct Cgroups {
    workers: PathBuf,
    /// Whether the controllers are there. Their absence is told once.
    bounded: bool,
}

/// The agent's subtree, if it has one, and what is lost by what it lacks, if the operator did not ask for that.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) cgroups: Option<Cgroups>,
    pub(crate) unbounded: Option<String>,
}

/// Whose memory ran out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OutOfMemory {
    /// The kernel has killed nobody in the group for that.
    No,
    /// The group's own limit was reached.
    Limit,
    /// The kernel killed in the group although its own limit was not reached. `held`: the most that the group has had, where that is known.
    Host { held: Option<Bytes> },
}

impl Cgroups {
    /// `None` where there is no subtree to write to; an error only if the operator named one. Each node has a directory
    /// of its own, since agents of several nodes may share a subtree and each ends what its ledger does not know.
    pub(crate) fn open(root: &CgroupRoot, node: NodeId) -> Result<Opened, AgentError> {
        let (base, named) = match root {
            CgroupRoot::Off => return Ok(Opened { cgroups: None, unbounded: None }),
            CgroupRoot::At(path) => (path.clone(), true),
            CgroupRoot::Auto => match delegation::find() {
                Some(path) => (path, false),
                None => return Ok(Opened::without("no cgroup has been delegated to the agent")),
            },
        };
        let workers = base.join(format!("workers-{node}"));
        match fs::create_dir_all(&workers) {
            Ok(()) => {}
            Err(error) if named => return Err(AgentError::io(format!("making {}", workers.display()))(error)),
            Err(error) => return Ok(Opened::without(&format!("{} cannot be made: {error}", workers.display()))),
        }
        let lost = prepare(&base, &workers);
        let cgroups = Self { workers, bounded: lost.is_empty() };
        cgroups.clear_enclosures();
        cgroups.count_again();
        let unbounded = (!cgroups.bounded).then(|| format!("cgroups without bounds and counts: {}", lost.join("; ")));
        Ok(Opened { cgroups: Some(cgroups), unbounded })
    }

    /// Groups that have outlived their agent have had their controllers handed back.
    fn count_again(&self) {
        for path in children(&self.workers) {
            if launch(&path).is_some() {
                enable_quietly(&path);
            }
        }
    }

    fn group(&self, job: JobId, generation: Generation) -> PathBuf {
        self.workers.join(format!("{job}-{generation}"))
    }

    fn rank(&self, job: JobId, generation: Generation, rank: u32) -> PathBuf {
        self.group(job, generation).join(format!("rank-{rank}"))
    }

    /// Makes the cgroup of a group, in which those of its ranks are: what is denied there is denied to all of them.
    pub(crate) fn make_group(&self, job: JobId, generation: Generation) -> io::Result<PathBuf> {
        let group = self.group(job, generation);
        fs::create_dir_all(&group)?;
        enable_quietly(&group);
        Ok(group)
    }

    /// That of a group which runs, where it has one.
    pub(crate) fn group_that_is(&self, job: JobId, generation: Generation) -> Option<PathBuf> {
        Some(self.group(job, generation)).filter(|path| path.is_dir())
    }

    /// Makes a rank's cgroup, in that of its group, which must be there; the words make a command start inside it.
    pub(crate) fn words(&self, job: JobId, generation: Generation, rank: u32) -> io::Result<Vec<String>> {
        Ok(joining(&self.make(job, generation, rank)?))
    }

    /// As which rank of a group a process was started; `None` where no cgroup tells.
    pub(crate) fn rank_of(&self, job: JobId, generation: Generation, pid: u32) -> Option<u32> {
        rank_in(&fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?, &format!("{job}-{generation}"))
    }

    /// Makes a rank's cgroup and moves a process into it, with all that this process starts from then on.
    pub(crate) fn take_in(&self, job: JobId, generation: Generation, rank: u32, pid: u32) -> io::Result<()> {
        fs::write(self.make(job, generation, rank)?.join("cgroup.procs"), pid.to_string())
    }

    fn make(&self, job: JobId, generation: Generation, rank: u32) -> io::Result<PathBuf> {
        let path = self.rank(job, generation, rank);
        match fs::create_dir(&path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
            _ => Ok(path),
        }
    }

    /// SIGKILL to everything in the group at once.
    pub(crate) fn kill(&self, job: JobId, generation: Generation) {
        kill(&self.group(job, generation));
    }

    /// Whether the kernel has killed in a rank's cgroup for want of memory; `None` where it does not count that.
    pub(crate) fn out_of_memory(&self, job: JobId, generation: Generation, rank: u32) -> Option<OutOfMemory> {
        let events = fs::read_to_string(self.rank(job, generation, rank).join("memory.events")).ok()?;
        let count = |name: &str| value(&events, name).unwrap_or(0);
        match (count("oom_kill"), count("oom") + self.limit_reached(job, generation)) {
            (0, _) => Some(OutOfMemory::No),
            (_, 0) => Some(OutOfMemory::Host { held: self.held(job, generation) }),
            _ => Some(OutOfMemory::Limit),
        }
    }

    /// How often a group has come up against its own bound, or one of its ranks.
    fn limit_reached(&self, job: JobId, generation: Generation) -> u64 {
        let events = fs::read_to_string(self.group(job, generation).join("memory.events"));
        events.ok().and_then(|events| value(&events, "oom")).unwrap_or(0)
    }

    /// Bounds the memory of a group. Where there is no controller nothing can be bounded, which was told at start.
    pub(crate) fn bound_memory(&self, group: &Path, most: Bytes) -> io::Result<()> {
        if self.bounded { fs::write(group.join("memory.max"), most.0.to_string()) } else { Ok(()) }
    }

    /// The most memory that a group has had; where the kernel keeps no such mark, what it has.
    fn held(&self, job: JobId, generation: Generation) -> Option<Bytes> {
        let group = self.group(job, generation);
        let read = |file: &str| fs::read_to_string(group.join(file)).ok()?.trim().parse().ok();
        read("memory.peak").or_else(|| read("memory.current")).map(Bytes)
    }

    /// Kills what is left of a rank; returns once it is gone, with its cgroup.
    pub(crate) async fn end_rank(&self, job: JobId, generation: Generation, rank: u32) {
        end(&self.rank(job, generation, rank)).await;
        // Goes with its last rank.
        let _not_the_last = fs::remove_dir(self.group(job, generation));
    }

    /// The same for all ranks.
    pub(crate) async fn end_group(&self, job: JobId, generation: Generation) {
        end(&self.group(job, generation)).await;
    }

    /// Ends every group that is not `known`; returns their names.
    pub(crate) async fn end_others(&self, known: impl Fn(JobId, Generation) -> bool) -> Vec<String> {
        let mut ended = Vec::new();
        for path in children(&self.workers) {
            if launch(&path).is_some_and(|(job, generation)| !known(job, generation)) {
                end(&path).await;
                ended.push(path.file_name().unwrap_or_default().to_string_lossy().into_owned());
            }
        }
        ended
    }
}

impl Opened {
    fn without(why: &str) -> Self {
        Self { cgroups: None, unbounded: Some(format!("no cgroups, no bounds on memory: {why}")) }
    }
}

/// Hands the controllers of the unit's subtree back to systemd, once the agent has stopped and its workers have not.
pub fn hand_back_cgroups() -> Result<(), AgentError> {
    let Some(base) = delegation::find() else { return Ok(()) };
    delegation::hand_back(&base).map_err(AgentError::io(format!("taking the controllers from {}", base.display())))
}

/// Whose cgroup it is, by its name.
fn launch(path: &Path) -> Option<(JobId, Generation)> {
    let (job, generation) = path.file_name()?.to_str()?.rsplit_once("-g")?;
    Some((job.parse().ok()?, Generation(generation.parse().ok()?)))
}

/// By what proc_pid_cgroup(5) says of version 2. A worker may have made cgroups inside that of its rank.
fn rank_in(cgroups: &str, group: &str) -> Option<u32> {
    let path = cgroups.lines().find_map(|line| line.strip_prefix("0::"))?;
    let mut names = path.split('/').skip_while(|name| *name != group).skip(1);
    names.next()?.strip_prefix("rank-")?.parse().ok()
}

/// Gets the agent out of the way and lets ranks and interpreters have the controllers; says which they cannot have, and why.
fn prepare(base: &Path, workers: &Path) -> Vec<String> {
    if let Err(error) = delegation::vacate(base, delegation::own().as_deref()) {
        return vec![format!("the agent cannot leave {}: {error}", base.display())];
    }
    let lost = CONTROLLERS.map(|controller| {
        let (error, parent) = [base, workers].into_iter().find_map(|at| Some((enable(at, controller).err()?, at)))?;
        Some(format!("no {controller} controller from {}: {error}", parent.display()))
    });
    lost.into_iter().flatten().collect()
}

/// Kills all in a cgroup and below it; returns once that is gone, with the cgroup and those that were made inside.
async fn end(path: &Path) {
    let mut pause = Duration::from_millis(5);
    while path.exists() {
        kill(path);
        let populated =
            fs::read_to_string(path.join("cgroup.events")).ok().and_then(|events| value(&events, "populated"));
        if populated != Some(1) {
            match remove(path) {
                // Somebody is not gone yet, or somebody else removes it too.
                Err(error) if error.raw_os_error() == Some(nix::errno::Errno::EBUSY as i32) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return tracing::debug!(path = %path.display(), %error, "a cgroup stays"),
                Ok(()) => return,
            }
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_secs(1));
    }
}

/// Innermost first: a worker may have made cgroups inside its own, and one that has any is busy for ever.
fn remove(path: &Path) -> io::Result<()> {
    for child in children(path) {
        remove(&child)?;
    }
    fs::remove_dir(path)
}

fn kill(path: &Path) {
    if let Err(error) = fs::write(path.join("cgroup.kill"), "1") {
        tracing::debug!(path = %path.display(), %error, "no kill by cgroup");
    }
}

fn children(path: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|entry| entry.path()).collect()
}

/// The words that make a command start inside a cgroup.
fn joining(path: &Path) -> Vec<String> {
    const JOIN: &str = r#"echo 0 >"$0/cgroup.procs" || exit 126; exec "$@""#;
    ["/bin/sh", "-c", JOIN, &path.display().to_string()].map(String::from).into()
}

/// Lets the children have a controller, where that is possible.
fn enable(path: &Path, controller: &str) -> io::Result<()> {
    fs::write(path.join("cgroup.subtree_control"), format!("+{controller}"))
}

/// The same for memory, of a group, where a want has been told for all of them.
fn enable_quietly(group: &Path) {
    if let Err(error) = enable(group, "memory") {
        tracing::debug!(path = %group.display(), %error, "no such accounting by cgroup");
    }
}

/// The number behind a name in a file of `name number` lines.
fn value(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
}

#[cfg(test)]
pub(crate) mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    /// A directory of the real hierarchy that this test may write to, if there is one; removed in the end.
    pub(crate) struct Real(pub(crate) PathBuf);

    impl Real {
        pub(crate) fn make(name: &str) -> Option<Self> {
            let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
            let mount = mounts.lines().find(|line| line.contains(" cgroup2 "))?.split(' ').nth(1)?;
            let path = Path::new(mount).join(format!("headway-test-{name}-{}", std::process::id()));
            fs::create_dir(&path).ok()?;
            path.join("cgroup.kill").exists().then_some(Self(path))
        }
    }

    impl Drop for Real {
        fn drop(&mut self) {
            for path in children(&self.0).iter().chain([&self.0]) {
                let _left = fs::remove_dir(path);
            }
        }
    }

    fn job() -> JobId {
        JobId(uuid::Uuid::from_u128(3))
    }

    fn node() -> NodeId {
        NodeId(uuid::Uuid::from_u128(4))
    }

    pub(crate) fn open(path: &Path, node: NodeId) -> Cgroups {
        Cgroups::open(&CgroupRoot::At(path.into()), node).unwrap().cgroups.unwrap()
    }

    #[tokio::test]
    async fn agents_on_one_subtree_leave_each_others_workers_alone() {
        let dir = tempfile::tempdir().unwrap();
        let (one, other) = (open(dir.path(), node()), open(dir.path(), NodeId(uuid::Uuid::from_u128(5))));
        one.make_group(job(), Generation(1)).unwrap();
        one.words(job(), Generation(1), 0).unwrap();
        assert!(other.end_others(|_, _| false).await.is_empty());
        assert_eq!(one.end_others(|_, _| false).await, [format!("{}-g1", job())]);
    }

    #[tokio::test]
    async fn who_ran_out_of_memory_is_read_from_the_events() {
        let dir = tempfile::tempdir().unwrap();
        let cgroups = open(dir.path(), node());
        assert!(cgroups.words(job(), Generation(2), 0).is_err(), "no rank is outside its group");
        cgroups.make_group(job(), Generation(2)).unwrap();
        let words = cgroups.words(job(), Generation(2), 0).unwrap();
        let status = std::process::Command::new(&words[0]).args(&words[1..]).arg("true").status().unwrap();
        assert!(status.success());
        let rank = dir.path().join(format!("workers-{}/{}-g2/rank-0", node(), job()));
        assert_eq!(fs::read_to_string(rank.join("cgroup.procs")).unwrap(), "0\n");
        fs::write(rank.parent().unwrap().join("memory.peak"), "1099511627776\n").unwrap();
        for (events, expected) in [
            ("oom 0\noom_kill 0\n", Some(OutOfMemory::No)),
            ("oom 0\noom_kill 1\noom_group_kill 0\n", Some(OutOfMemory::Host { held: Some(Bytes(1 << 40)) })),
            ("oom 2\noom_kill 1\n", Some(OutOfMemory::Limit)),
        ] {
            fs::write(rank.join("memory.events"), events).unwrap();
            assert_eq!(cgroups.out_of_memory(job(), Generation(2), 0), expected);
        }
        cgroups.kill(job(), Generation(2));
        assert_eq!(fs::read_to_string(rank.parent().unwrap().join("cgroup.kill")).unwrap(), "1");
        assert!(cgroups.end_others(|_, _| true).await.is_empty());
        assert_eq!(cgroups.end_others(|_, _| false).await, [format!("{}-g2", job())]);
    }

    #[test]
    fn the_rank_of_a_process_is_told_by_its_cgroup() {
        let group = format!("{}-g1", job());
        let told = |path: &str| rank_in(&format!("1:name=systemd:/x\n0::{path}\n"), &group);
        assert_eq!(told(&format!("/headway.slice/workers-n/{group}/rank-12")), Some(12));
        assert_eq!(told(&format!("/workers-n/{group}/rank-3/of/its/own")), Some(3));
        for elsewhere in ["/", "/workers-n/other-g1/rank-1", &format!("/{group}/x"), &format!("/{group}-g1/rank-1")] {
            assert_eq!(told(elsewhere), None, "{elsewhere}");
        }
    }

    #[tokio::test]
    async fn what_left_its_session_and_its_environment_is_killed_all_the_same() {
        let Some(real) = Real::make("kill") else { return };
        let cgroups = open(&real.0, node());
        cgroups.make_group(job(), Generation(1)).unwrap();
        let words = cgroups.words(job(), Generation(1), 0).unwrap();
        let mut child = std::process::Command::new(&words[0])
            .args(&words[1..])
            .args(["sh", "-c", "env -i setsid sleep 60 & sleep 60"])
            .spawn()
            .unwrap();
        let rank = real.0.join(format!("workers-{}/{}-g1/rank-0", node(), job()));
        let members = || fs::read_to_string(rank.join("cgroup.procs")).unwrap_or_default().lines().count();
        let deadline = std::time::Instant::now() + Duration::from_secs(20);
        while members() < 3 && std::time::Instant::now() < deadline {
            tokio::task::yield_now().await;
        }
        assert_eq!(members(), 3);
        tokio::time::timeout(Duration::from_secs(20), cgroups.end_rank(job(), Generation(1), 0)).await.unwrap();
        assert!(!child.wait().unwrap().success());
        assert!(!rank.parent().unwrap().exists());
    }

    #[test]
    fn cgroups_within_cgroups_go_innermost_first() {
        let dir = tempfile::tempdir().unwrap();
        let rank = dir.path().join("rank-0");
        fs::create_dir_all(rank.join("a/b")).unwrap();
        fs::create_dir_all(rank.join("c")).unwrap();
        remove(&rank).unwrap();
        assert!(!rank.exists());
    }

    #[test]
    fn a_subtree_that_cannot_be_made_is_an_error_only_if_it_was_asked_for() {
        let off = Cgroups::open(&CgroupRoot::Off, node()).unwrap();
        assert!(off.cgroups.is_none() && off.unbounded.is_none());
        assert!(Cgroups::open(&CgroupRoot::At("/proc/none".into()), node()).is_err());
    }

    #[test]
    fn a_controller_that_is_not_to_be_had_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let opened = Cgroups::open(&CgroupRoot::At(dir.path().into()), node()).unwrap();
        assert_eq!(opened.unbounded, None);
        let closed = tempfile::tempdir().unwrap();
        fs::create_dir(closed.path().join("cgroup.subtree_control")).unwrap();
        let opened = Cgroups::open(&CgroupRoot::At(closed.path().into()), node()).unwrap();
        let lost = opened.unbounded.unwrap();
        assert!(lost.contains("no memory controller from") && lost.contains("no pids controller from"), "{lost}");
        assert!(opened.cgroups.is_some(), "ranks are ended by cgroup all the same");
    }

    #[test]
    fn groups_that_outlived_their_agent_are_counted_again() {
        let dir = tempfile::tempdir().unwrap();
        open(dir.path(), node()).make_group(job(), Generation(1)).unwrap();
        let control = dir.path().join(format!("workers-{}/{}-g1/cgroup.subtree_control", node(), job()));
        fs::write(&control, "").unwrap();
        open(dir.path(), node());
        assert_eq!(fs::read_to_string(control).unwrap(), "+memory");
    }
}
