//! The subtree that systemd has handed to the agent's unit (`Delegate=yes`). A cgroup whose children have controllers may
//! hold no process itself, so the agent stands in a subgroup: systemd 254 starts it there (`DelegateSubgroup=agent`), before
//! that the agent goes there by itself. And no unit can be started in a cgroup whose children have controllers, as those
//! of workers do that outlive their agent: when the unit has stopped, the controllers are handed back (`ExecStopPost=`).

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::children;

/// What systemd sets on a subtree it has handed over.
const MARKS: [&str; 2] = ["trusted.delegate", "user.delegate"];
/// Where the agent stands.
const SUBGROUP: &str = "agent";
/// Where systemd starts what it runs beside and after a unit's main process.
const CONTROL: &str = ".control";

/// The subtree that was delegated to this process, if one was.
pub(super) fn find() -> Option<PathBuf> {
    subtree(&own()?, |path| {
        MARKS.iter().any(|name| {
            let mut value = [0_u8; 1];
            rustix::fs::getxattr(path, *name, &mut value[..]).is_ok_and(|length| length == 1 && value == *b"1")
        })
    })
}

/// The cgroup this process is in.
pub(super) fn own() -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
    let mount = mounts.lines().find_map(|line| {
        let mut words = line.split(' ');
        let (_, mount, kind) = (words.next()?, words.next()?, words.next()?);
        (kind == "cgroup2").then(|| PathBuf::from(mount))
    })?;
    let own = fs::read_to_string("/proc/self/cgroup").ok()?;
    Some(mount.join(own.lines().find_map(|line| line.strip_prefix("0::/"))?))
}

fn subtree(own: &Path, is_delegated: impl Fn(&Path) -> bool) -> Option<PathBuf> {
    match own.parent() {
        Some(parent) if (own.ends_with(SUBGROUP) || own.ends_with(CONTROL)) && is_delegated(parent) => {
            Some(parent.to_owned())
        }
        _ => is_delegated(own).then(|| own.to_owned()),
    }
}

/// Moves this process, which is in cgroup `own`, out of `base`, if it is there.
pub(super) fn vacate(base: &Path, own: Option<&Path>) -> io::Result<()> {
    if own != Some(base) {
        return Ok(());
    }
    let subgroup = base.join(SUBGROUP);
    match fs::create_dir(&subgroup) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => fs::write(subgroup.join("cgroup.procs"), std::process::id().to_string()),
    }
}

/// Takes all controllers from the children of `base` and of everything below it, innermost first: none can be taken from
/// a cgroup that has passed it on. What runs there runs on; the next agent gives them out again.
pub(super) fn hand_back(base: &Path) -> io::Result<()> {
    for child in children(base) {
        hand_back(&child)?;
    }
    let file = base.join("cgroup.subtree_control");
    let controllers = match fs::read_to_string(&file) {
        // Its rank has ended meanwhile.
        Err(_) if !base.exists() => return Ok(()),
        read => read?,
    };
    if controllers.trim().is_empty() {
        return Ok(());
    }
    let taken: Vec<String> = controllers.split_whitespace().map(|name| format!("-{name}")).collect();
    fs::write(file, taken.join(" "))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn the_subtree_is_the_units_wherever_in_it_systemd_started_the_agent() {
        let unit = Path::new("/sys/fs/cgroup/system.slice/headway-agent.service");
        let of = |own: &Path| subtree(own, |path| path == unit);
        for own in [unit.to_owned(), unit.join("agent"), unit.join(".control")] {
            assert_eq!(of(&own).as_deref(), Some(unit), "{}", own.display());
        }
        for other in [unit.join("elsewhere"), unit.parent().unwrap().to_owned(), unit.with_file_name("agent")] {
            assert_eq!(of(&other), None, "{}", other.display());
        }
    }

    #[test]
    fn an_agent_that_stands_in_the_subtree_itself_goes_into_a_subgroup_each_time_it_starts() {
        let dir = tempfile::tempdir().unwrap();
        let members = dir.path().join("agent/cgroup.procs");
        for elsewhere in [None, Some(dir.path().join("agent")), Some("/".into())] {
            vacate(dir.path(), elsewhere.as_deref()).unwrap();
            assert!(!members.exists());
        }
        for _restart in 0..2 {
            vacate(dir.path(), Some(dir.path())).unwrap();
            assert_eq!(fs::read_to_string(&members).unwrap(), std::process::id().to_string());
            fs::remove_file(&members).unwrap();
        }
        assert!(vacate(Path::new("/proc/none"), Some(Path::new("/proc/none"))).is_err());
    }

    #[test]
    fn controllers_are_handed_back_innermost_first() {
        let dir = tempfile::tempdir().unwrap();
        let group = dir.path().join("workers-n/job-g1");
        fs::create_dir_all(group.join("rank-0")).unwrap();
        let control = |path: &Path| path.join("cgroup.subtree_control");
        for (path, controllers) in [
            (dir.path(), "memory pids\n"),
            (group.parent().unwrap(), "memory\n"),
            (&group, "memory\n"),
            (&group.join("rank-0"), "\n"),
        ] {
            fs::write(control(path), controllers).unwrap();
        }
        hand_back(dir.path()).unwrap();
        let now = |path: &Path| fs::read_to_string(control(path)).unwrap();
        assert_eq!(now(dir.path()), "-memory -pids");
        assert_eq!(
            [now(group.parent().unwrap()), now(&group), now(&group.join("rank-0"))],
            ["-memory", "-memory", "\n"]
        );
        // A base that keeps its controllers because something below cannot be read is not half done.
        let broken = tempfile::tempdir().unwrap();
        fs::create_dir_all(broken.path().join("child/cgroup.subtree_control")).unwrap();
        fs::write(control(broken.path()), "memory\n").unwrap();
        assert!(hand_back(broken.path()).is_err());
        assert_eq!(fs::read_to_string(control(broken.path())).unwrap(), "memory\n");
    }
}
