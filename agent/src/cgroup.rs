//! A cgroup (version 2) per rank, below a subtree that is the agent's to write: what a worker starts stays in it,
//! whatever it does to its environment, session or parent, so that killing it leaves nothing behind; and the kernel
//! says there whom it killed for want of memory. Without such a subtree everything works by process groups and marks.
//!
//! The path comes from outside, so that tests can hand in a directory that is no cgroup at all.

mod enclosure;

use std::convert::Infallible;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use headway_types::{Generation, JobId, NodeId};

use crate::AgentError;
pub(crate) use enclosure::Enclosure;

/// What systemd sets on a subtree it has handed over (`Delegate=yes`).
const DELEGATED: [&str; 2] = ["trusted.delegate", "user.delegate"];
/// The unit's own subgroup for the agent (`DelegateSubgroup=agent`), which leaves the unit itself free of processes,
/// as controllers need it.
const SUBGROUP: &str = "agent";

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
}

/// Whose memory ran out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OutOfMemory {
    /// The group's own limit was reached.
    Limit,
    /// The kernel killed in the group although its own limit was not reached.
    Host,
}

impl Cgroups {
    /// `None` where there is no subtree to write to; an error only if the operator named one. Each node has a directory
    /// of its own, since agents of several nodes may share a subtree and each ends what its ledger does not know.
    pub(crate) fn open(root: &CgroupRoot, node: NodeId) -> Result<Option<Self>, AgentError> {
        let (base, named) = match root {
            CgroupRoot::Off => return Ok(None),
            CgroupRoot::At(path) => (path.clone(), true),
            CgroupRoot::Auto => match delegated() {
                Some(path) => (path, false),
                None => return Ok(None),
            },
        };
        let workers = base.join(format!("workers-{node}"));
        match fs::create_dir_all(&workers) {
            Ok(()) => {}
            Err(error) if named => return Err(AgentError::io(format!("making {}", workers.display()))(error)),
            Err(error) => {
                tracing::info!(path = %workers.display(), %error, "no cgroups here");
                return Ok(None);
            }
        }
        for parent in [&base, &workers] {
            enable(parent, "memory");
            enable(parent, "pids");
        }
        let cgroups = Self { workers };
        cgroups.clear_enclosures();
        Ok(Some(cgroups))
    }

    fn group(&self, job: JobId, generation: Generation) -> PathBuf {
        self.workers.join(format!("{job}-{generation}"))
    }

    fn rank(&self, job: JobId, generation: Generation, rank: u32) -> PathBuf {
        self.group(job, generation).join(format!("rank-{rank}"))
    }

    /// Makes a rank's cgroup; the words make a command start inside it.
    pub(crate) fn words(&self, job: JobId, generation: Generation, rank: u32) -> io::Result<Vec<String>> {
        Ok(joining(&self.make(job, generation, rank)?))
    }

    /// Makes a rank's cgroup and moves a process into it, with all that this process starts from then on.
    pub(crate) fn take_in(&self, job: JobId, generation: Generation, rank: u32, pid: u32) -> io::Result<()> {
        fs::write(self.make(job, generation, rank)?.join("cgroup.procs"), pid.to_string())
    }

    fn make(&self, job: JobId, generation: Generation, rank: u32) -> io::Result<PathBuf> {
        let path = self.rank(job, generation, rank);
        fs::create_dir_all(self.group(job, generation))?;
        enable(&self.group(job, generation), "memory");
        fs::create_dir_all(&path)?;
        Ok(path)
    }

    /// SIGKILL to everything in the group at once.
    pub(crate) fn kill(&self, job: JobId, generation: Generation) {
        kill(&self.group(job, generation));
    }

    /// Whether the kernel has killed in a rank's cgroup for want of memory.
    pub(crate) fn out_of_memory(&self, job: JobId, generation: Generation, rank: u32) -> Option<OutOfMemory> {
        let events = fs::read_to_string(self.rank(job, generation, rank).join("memory.events")).ok()?;
        let count = |name: &str| value(&events, name).unwrap_or(0);
        match (count("oom_kill"), count("oom")) {
            (0, _) => None,
            (_, 0) => Some(OutOfMemory::Host),
            _ => Some(OutOfMemory::Limit),
        }
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
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let parsed = name
                .rsplit_once("-g")
                .and_then(|(job, generation)| Some((job.parse::<JobId>().ok()?, Generation(generation.parse().ok()?))));
            if parsed.is_some_and(|(job, generation)| !known(job, generation)) {
                end(&path).await;
                ended.push(name);
            }
        }
        ended
    }
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
fn enable(path: &Path, controller: &str) {
    if let Err(error) = fs::write(path.join("cgroup.subtree_control"), format!("+{controller}")) {
        tracing::debug!(path = %path.display(), controller, %error, "no such accounting by cgroup");
    }
}

/// The number behind a name in a file of `name number` lines.
fn value(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
}

/// The subtree that systemd has handed to the agent.
fn delegated() -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
    let mount = mounts.lines().find_map(|line| {
        let mut words = line.split(' ');
        let (_, mount, kind) = (words.next()?, words.next()?, words.next()?);
        (kind == "cgroup2").then(|| PathBuf::from(mount))
    })?;
    let own = fs::read_to_string("/proc/self/cgroup").ok()?;
    let own = mount.join(own.lines().find_map(|line| line.strip_prefix("0::/"))?);
    let is_delegated = |path: &Path| {
        DELEGATED.iter().any(|name| {
            let mut value = [0_u8; 1];
            rustix::fs::getxattr(path, *name, &mut value[..]).is_ok_and(|length| length == 1 && value == *b"1")
        })
    };
    match own.parent() {
        Some(parent) if own.ends_with(SUBGROUP) && is_delegated(parent) => Some(parent.to_owned()),
        _ => is_delegated(&own).then_some(own),
    }
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

    #[tokio::test]
    async fn agents_on_one_subtree_leave_each_others_workers_alone() {
        let dir = tempfile::tempdir().unwrap();
        let open = |node| Cgroups::open(&CgroupRoot::At(dir.path().into()), node).unwrap().unwrap();
        let (one, other) = (open(node()), open(NodeId(uuid::Uuid::from_u128(5))));
        one.words(job(), Generation(1), 0).unwrap();
        assert!(other.end_others(|_, _| false).await.is_empty());
        assert_eq!(one.end_others(|_, _| false).await, [format!("{}-g1", job())]);
    }

    #[tokio::test]
    async fn who_ran_out_of_memory_is_read_from_the_events() {
        let dir = tempfile::tempdir().unwrap();
        let cgroups = Cgroups::open(&CgroupRoot::At(dir.path().into()), node()).unwrap().unwrap();
        let words = cgroups.words(job(), Generation(2), 0).unwrap();
        let status = std::process::Command::new(&words[0]).args(&words[1..]).arg("true").status().unwrap();
        assert!(status.success());
        let rank = dir.path().join(format!("workers-{}/{}-g2/rank-0", node(), job()));
        assert_eq!(fs::read_to_string(rank.join("cgroup.procs")).unwrap(), "0\n");
        for (events, expected) in [
            ("oom 0\noom_kill 0\n", None),
            ("oom 0\noom_kill 1\noom_group_kill 0\n", Some(OutOfMemory::Host)),
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

    #[tokio::test]
    async fn what_left_its_session_and_its_environment_is_killed_all_the_same() {
        let Some(real) = Real::make("kill") else { return };
        let cgroups = Cgroups::open(&CgroupRoot::At(real.0.clone()), node()).unwrap().unwrap();
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
        assert!(Cgroups::open(&CgroupRoot::Off, node()).unwrap().is_none());
        assert!(Cgroups::open(&CgroupRoot::At("/proc/none".into()), node()).is_err());
    }
}
