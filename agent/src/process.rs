//! Processes as the kernel shows them: identity by pid and start time, signals to groups, and finding everything a
//! launch has left behind.

mod end;
mod notice;

pub(crate) use end::ended;
pub(crate) use notice::notify_soon;

use std::collections::BTreeSet;
use std::io;
use std::time::Duration;

use headway_node::Process;
use nix::sys::signal;
use nix::unistd::Pid;

/// Every process of a launch carries this variable, whatever its parent or process group.
pub(crate) const MARK: &str = "HEADWAY_LAUNCH";

/// Clock ticks from boot to the start of a process, also of one that ended and was not yet waited for.
pub(crate) fn started(pid: u32) -> Option<u64> {
    stat(pid).ok().flatten().map(|stat| stat.started)
}

/// What proc_pid_stat(5) says of a process.
#[derive(Debug)]
struct Stat {
    state: char,
    parent: u32,
    group: u32,
    threads: u64,
    started: u64,
}

impl Stat {
    /// A zombie holds nothing any more, unless other threads of the process are still coming down.
    fn runs(&self) -> bool {
        match self.state {
            'X' => false,
            'Z' => self.threads > 1,
            _ => true,
        }
    }
}

/// `None` if there is no such process; an error if that cannot be told.
fn stat(pid: u32) -> io::Result<Option<Stat>> {
    let Some(stat) = read(pid, "stat")? else { return Ok(None) };
    let stat = String::from_utf8_lossy(&stat);
    let parse = || {
        // The command in parentheses may itself hold spaces and parentheses; the fields behind it start with number 3.
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_ascii_whitespace().collect();
        Some(Stat {
            state: fields.first()?.chars().next()?,
            parent: fields.get(1)?.parse().ok()?,
            group: fields.get(2)?.parse().ok()?,
            threads: fields.get(17)?.parse().ok()?,
            started: fields.get(19)?.parse().ok()?,
        })
    };
    parse().map(Some).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, format!("/proc/{pid}/stat: {stat}")))
}

fn read(pid: u32, name: &str) -> io::Result<Option<Vec<u8>>> {
    match std::fs::read(format!("/proc/{pid}/{name}")) {
        Ok(content) => Ok(Some(content)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) if error.raw_os_error() == Some(nix::errno::Errno::ESRCH as i32) => Ok(None),
        Err(error) => Err(error),
    }
}

fn alive(pid: u32, started: u64) -> io::Result<bool> {
    Ok(stat(pid)?.is_some_and(|stat| stat.started == started && stat.runs()))
}

/// Whether this very process runs. Where that cannot be told, it does.
pub(crate) fn runs(process: &Process) -> bool {
    alive(process.pid, process.started).unwrap_or(true)
}

/// Whether no child of the process runs: a shell whose command has ended, or has not begun. False where the kernel does not say.
pub(crate) fn has_no_running_child(process: &Process) -> bool {
    let children = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", process.pid));
    children.is_ok_and(|children| !has_running(&children))
}

/// Whether one of these processes, as the kernel lists children, runs. A child that ended is listed until its parent has waited for it.
fn has_running(pids: &str) -> bool {
    let mut pids = pids.split_ascii_whitespace();
    pids.any(|pid| pid.parse().is_ok_and(|pid| stat(pid).map_or(true, |stat| stat.is_some_and(|stat| stat.runs()))))
}

/// Children of a process that have ended and were not waited for, as pid and start time.
pub(crate) fn zombies_of(parent: u32) -> io::Result<BTreeSet<(u32, u64)>> {
    let mut found = BTreeSet::new();
    for entry in std::fs::read_dir("/proc")? {
        let Some(pid) = entry?.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        if let Some(stat) = stat(pid)?
            && stat.parent == parent
            && stat.state == 'Z'
        {
            found.insert((pid, stat.started));
        }
    }
    Ok(found)
}

/// Signals the process group a live process leads.
pub(crate) fn signal_group(process: &Process, what: signal::Signal) {
    // Unlike elsewhere, doubt means no: a signal must never reach a stranger.
    if !alive(process.pid, process.started).unwrap_or(false) {
        return;
    }
    if let Err(error) = signal::killpg(Pid::from_raw(process.pid as i32), what) {
        tracing::debug!(pid = process.pid, %error, "process group is gone already");
    }
}

/// Kills every process whose mark starts with `prefix`, or which is in the process group of `leader`, and returns once
/// none is left: the proof that GPUs are free. It fails closed: what cannot be looked at is looked at again.
pub(crate) async fn sweep(prefix: String, leader: Option<Process>) {
    let mut pause = Duration::from_millis(10);
    // Once found, a process counts until it is gone: one that is coming down loses its mark before it frees its GPU.
    let mut found = BTreeSet::new();
    loop {
        let scan = prefix.clone();
        let scanned = tokio::task::spawn_blocking(move || remains(&scan, leader.as_ref())).await;
        let complete = match scanned.unwrap_or_else(|error| Err(io::Error::other(error))) {
            Ok(more) => {
                found.extend(more);
                true
            }
            Err(error) => {
                tracing::warn!(%error, "cannot tell whether processes of a launch are left");
                false
            }
        };
        found.retain(|(pid, started)| alive(*pid, *started).unwrap_or(true));
        if complete && found.is_empty() {
            return;
        }
        for (pid, started) in &found {
            end::kill(*pid, *started);
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_secs(1));
    }
}

/// Live processes, as pid and start time, with the mark or in the group.
fn remains(prefix: &str, leader: Option<&Process>) -> io::Result<BTreeSet<(u32, u64)>> {
    let wanted = format!("{MARK}={prefix}");
    // A group is known by its leader's pid, which may belong to another leader by now.
    let leader = match leader {
        Some(leader) if stat(leader.pid)?.is_none_or(|stat| stat.started == leader.started) => Some(leader.pid),
        _ => None,
    };
    let mut found = BTreeSet::new();
    for entry in std::fs::read_dir("/proc")? {
        let Some(pid) = entry?.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        let Some(stat) = stat(pid)?.filter(Stat::runs) else { continue };
        if leader == Some(stat.group) || is_marked(pid, &wanted)? {
            found.insert((pid, stat.started));
        }
    }
    Ok(found)
}

fn is_marked(pid: u32, wanted: &str) -> io::Result<bool> {
    Ok(environment(pid)?.split(|byte| *byte == 0).any(|variable| variable.starts_with(wanted.as_bytes())))
}

fn environment(pid: u32) -> io::Result<Vec<u8>> {
    match read(pid, "environ") {
        Ok(environment) => Ok(environment.unwrap_or_default()),
        // Another user's process, which no launch of this agent can be: one that runs workers as other users may read
        // theirs, or does not start. Waiting for it would be waiting forever.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// The mark of a live process, empty if it carries none; `None` if there is no such process.
pub(crate) fn mark_of(pid: u32) -> Option<String> {
    stat(pid).ok().flatten().filter(Stat::runs)?;
    let environment = environment(pid).unwrap_or_default();
    let environment = String::from_utf8_lossy(&environment);
    let mark = environment.split('\0').find_map(|variable| variable.strip_prefix(MARK)?.strip_prefix('='));
    Some(mark.unwrap_or_default().to_owned())
}

/// The marks of all live processes of which `ours` says so, given their environment.
pub(crate) fn marks(ours: impl Fn(&[&str]) -> bool) -> io::Result<BTreeSet<String>> {
    let mut marks = BTreeSet::new();
    for entry in std::fs::read_dir("/proc")? {
        let Some(pid) = entry?.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        let environment = environment(pid)?;
        let environment = String::from_utf8_lossy(&environment);
        let variables: Vec<&str> = environment.split('\0').collect();
        let mark = variables.iter().find_map(|variable| variable.strip_prefix(MARK)?.strip_prefix('='));
        if let Some(mark) = mark
            && ours(&variables)
            && stat(pid)?.is_some_and(|stat| stat.runs())
        {
            marks.insert(mark.to_owned());
        }
    }
    Ok(marks)
}

#[cfg(test)]
pub(crate) mod tests {
    #![allow(clippy::unwrap_used)]

    use std::os::unix::process::CommandExt;

    use super::*;

    /// Whether some process has this pid, zombies aside.
    pub(crate) fn exists(pid: u32) -> bool {
        stat(pid).unwrap().is_some_and(|stat| stat.runs())
    }

    #[test]
    fn a_reused_pid_is_another_process() {
        let pid = std::process::id();
        let started = started(pid).unwrap();
        assert!(alive(pid, started).unwrap());
        assert!(!alive(pid, started - 1).unwrap());
    }

    #[test]
    fn a_signal_misses_the_successor_of_a_dead_process() {
        let mut child = std::process::Command::new("sleep").arg("60").process_group(0).spawn().unwrap();
        let pid = child.id();
        let wrong = Process { rank: 0, pid, started: started(pid).unwrap() + 1 };
        signal_group(&wrong, signal::SIGKILL);
        assert!(child.try_wait().unwrap().is_none());
        signal_group(&Process { started: wrong.started - 1, ..wrong }, signal::SIGKILL);
        assert!(!child.wait().unwrap().success());
    }

    #[tokio::test]
    async fn a_sweep_finds_what_left_its_process_group() {
        let mark = format!("test/{}/", std::process::id());
        let mut child =
            std::process::Command::new("setsid").args(["sleep", "60"]).env(MARK, format!("{mark}0")).spawn().unwrap();
        let deadline = std::time::Instant::now() + Duration::from_secs(10);
        while remains(&mark, None).unwrap().is_empty() && std::time::Instant::now() < deadline {
            tokio::task::yield_now().await;
        }
        sweep(mark.clone(), None).await;
        assert!(remains(&mark, None).unwrap().is_empty());
        child.wait().unwrap();
    }

    #[tokio::test]
    async fn a_sweep_finds_what_shows_no_mark_in_its_process_group() {
        let mut child = std::process::Command::new("sleep").arg("60").env_clear().process_group(0).spawn().unwrap();
        let pid = child.id();
        let leader = Process { rank: 0, pid, started: started(pid).unwrap() };
        let successor = Process { started: leader.started + 1, ..leader };
        assert!(remains("no such mark", Some(&successor)).unwrap().is_empty());
        sweep("no such mark".into(), Some(leader)).await;
        assert!(!child.wait().unwrap().success());
    }

    #[test]
    fn a_child_that_ended_and_was_not_waited_for_does_not_run() {
        let mut ended = std::process::Command::new("true").spawn().unwrap();
        let mut running = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let deadline = std::time::Instant::now() + Duration::from_secs(20);
        while exists(ended.id()) && std::time::Instant::now() < deadline {
            std::thread::yield_now();
        }
        assert!(!has_running(&format!("{} ", ended.id())), "the kernel lists it still");
        assert!(has_running(&format!("{} {} ", ended.id(), running.id())));
        assert!(!has_running("") && !has_running(&u32::MAX.to_string()));
        running.kill().unwrap();
        running.wait().unwrap();
        ended.wait().unwrap();
    }

    #[test]
    fn a_process_that_does_not_exist_is_told_from_one_that_cannot_be_read() {
        assert!(stat(u32::MAX).unwrap().is_none());
        assert!(read(std::process::id(), "task").is_err());
    }
}
