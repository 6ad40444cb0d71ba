//! Processes as the kernel shows them: identity by pid and start time, signals to groups, and finding everything a
//! launch has left behind.

use std::collections::BTreeSet;
use std::time::Duration;

use headway_node::{Process, Signal};
use nix::sys::signal;
use nix::unistd::Pid;

/// Every process of a launch carries this variable, whatever its parent or process group.
pub(crate) const MARK: &str = "HEADWAY_LAUNCH";

/// Clock ticks from boot to the start of a process, also of one that ended and was not yet waited for.
pub(crate) fn started(pid: u32) -> Option<u64> {
    stat(pid).map(|(_, started)| started)
}

/// State letter and start time.
fn stat(pid: u32) -> Option<(char, u64)> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The command in parentheses may itself hold spaces and parentheses; fields are counted behind the last one.
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    // `starttime` is field 22 of proc_pid_stat(5); the state was field 3.
    Some((state, fields.nth(18)?.parse().ok()?))
}

/// Whether this very process, not a later one with its pid, is alive.
pub(crate) fn is_alive(process: &Process) -> bool {
    stat(process.pid).is_some_and(|(state, started)| started == process.started && !matches!(state, 'Z' | 'X'))
}

/// Signals the process group a live process leads.
pub(crate) fn signal_group(process: &Process, what: Signal) {
    if !is_alive(process) {
        return;
    }
    let what = match what {
        Signal::Terminate => signal::SIGTERM,
        Signal::Kill => signal::SIGKILL,
    };
    if let Err(error) = signal::killpg(Pid::from_raw(process.pid as i32), what) {
        tracing::debug!(pid = process.pid, %error, "process group is gone already");
    }
}

/// Kills every process whose mark starts with `prefix` and returns once none is left: the proof that GPUs are free.
pub(crate) async fn sweep(prefix: String) {
    let mut pause = Duration::from_millis(10);
    loop {
        let scan = prefix.clone();
        let found = tokio::task::spawn_blocking(move || marked(&scan)).await.unwrap_or_default();
        if found.is_empty() {
            return;
        }
        for pid in found {
            let _already_gone = signal::kill(Pid::from_raw(pid), signal::SIGKILL);
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_secs(1));
    }
}

/// Live processes whose mark starts with `prefix`.
fn marked(prefix: &str) -> BTreeSet<i32> {
    let wanted = format!("{MARK}={prefix}");
    let Ok(entries) = std::fs::read_dir("/proc") else { return BTreeSet::new() };
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok())
        .filter(|pid| {
            let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environment.split(|byte| *byte == 0).any(|variable| variable.starts_with(wanted.as_bytes()))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::os::unix::process::CommandExt;

    use super::*;

    #[test]
    fn a_reused_pid_is_another_process() {
        let pid = std::process::id();
        let started = started(pid).unwrap();
        assert!(is_alive(&Process { rank: 0, pid, started }));
        assert!(!is_alive(&Process { rank: 0, pid, started: started - 1 }));
    }

    #[test]
    fn a_signal_misses_the_successor_of_a_dead_process() {
        let mut child = std::process::Command::new("sleep").arg("60").process_group(0).spawn().unwrap();
        let pid = child.id();
        let wrong = Process { rank: 0, pid, started: started(pid).unwrap() + 1 };
        signal_group(&wrong, Signal::Kill);
        assert!(child.try_wait().unwrap().is_none());
        signal_group(&Process { started: wrong.started - 1, ..wrong }, Signal::Kill);
        assert!(!child.wait().unwrap().success());
    }

    #[tokio::test]
    async fn a_sweep_finds_what_left_its_process_group() {
        let mark = format!("test/{}/", std::process::id());
        let mut child =
            std::process::Command::new("setsid").args(["sleep", "60"]).env(MARK, format!("{mark}0")).spawn().unwrap();
        let deadline = std::time::Instant::now() + Duration::from_secs(10);
        while marked(&mark).is_empty() && std::time::Instant::now() < deadline {
            tokio::task::yield_now().await;
        }
        sweep(mark.clone()).await;
        assert!(marked(&mark).is_empty());
        child.wait().unwrap();
    }
}
