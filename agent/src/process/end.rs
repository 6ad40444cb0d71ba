//! Waiting for the end of a process that is nobody's child here, through the kernel's own handle for it.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use headway_node::Process;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal};
use tokio::sync::oneshot;

use super::alive;

/// How often a process is looked at when the kernel gives no handle for it.
const POLL: Duration = Duration::from_millis(200);

/// Returns once this very process, not a later one with its pid, has ended.
pub(crate) async fn ended(process: &Process) {
    let waited = match open(process.pid, process.started) {
        Ok(None) => return,
        Ok(Some(handle)) => wait(handle).await,
        Err(error) => Err(error),
    };
    let Err(error) = waited else { return };
    tracing::warn!(pid = process.pid, %error, "no handle for a worker; looking at it now and then");
    while alive(process.pid, process.started).unwrap_or(true) {
        tokio::time::sleep(POLL).await;
    }
}

/// On a thread of its own, which an agent that goes down need not wait for: only adopted processes have one.
async fn wait(handle: OwnedFd) -> io::Result<()> {
    let (sender, receiver) = oneshot::channel();
    std::thread::Builder::new().name("adopted".to_owned()).spawn(move || {
        let waited = rustix::io::retry_on_intr(|| poll(&mut [PollFd::new(&handle, PollFlags::IN)], None));
        let _going_down = sender.send(waited);
    })?;
    receiver.await.map_err(io::Error::other)?.map(drop).map_err(io::Error::from)
}

/// Sends a signal to the process that has this pid and start time, never to its successor.
pub(super) fn send(pid: u32, started: u64, signal: Signal) -> io::Result<()> {
    match open(pid, started)? {
        Some(handle) => pidfd_send_signal(handle, signal).map_err(io::Error::from),
        None => Ok(()),
    }
}

/// Kills the process that has this pid and start time, never its successor.
pub(super) fn kill(pid: u32, started: u64) {
    match open(pid, started) {
        Ok(Some(handle)) => {
            let _already_gone = pidfd_send_signal(handle, Signal::KILL);
        }
        Ok(None) => {}
        Err(error) => {
            tracing::warn!(pid, %error, "no handle for a process to kill; killing it by its pid");
            kill_by_pid(pid, started);
        }
    }
}

/// Where the kernel has no handles, or no more of them. The pid could change hands between the look and the signal, but
/// a process that is never killed would hold its GPUs for ever.
fn kill_by_pid(pid: u32, started: u64) {
    let Some(number) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return };
    if alive(pid, started).unwrap_or(false) {
        let _already_gone = kill_process(number, Signal::KILL);
    }
}

/// The handle comes before the look at the start time: from then on it cannot turn into another process.
fn open(pid: u32, started: u64) -> io::Result<Option<OwnedFd>> {
    let Some(number) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return Ok(None) };
    match pidfd_open(number, PidfdFlags::empty()) {
        Ok(handle) => Ok(alive(pid, started)?.then_some(handle)),
        Err(rustix::io::Errno::SRCH) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::process::started;

    #[tokio::test]
    async fn an_end_is_seen_without_being_the_parent_and_a_successor_is_not_waited_for() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pid = child.id();
        let process = Process { rank: 0, pid, started: started(pid).unwrap() };
        let successor = Process { started: process.started + 1, ..process };
        ended(&successor).await;
        kill(pid, successor.started);
        assert!(child.try_wait().unwrap().is_none(), "a process was killed for its pid alone");
        let waiting = tokio::spawn(async move { ended(&process).await });
        kill(pid, process.started);
        tokio::time::timeout(Duration::from_secs(20), waiting).await.unwrap().unwrap();
        assert!(!child.wait().unwrap().success());
    }

    #[test]
    fn without_a_handle_a_process_is_killed_by_its_pid_and_its_successor_is_not() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let (pid, started) = (child.id(), started(child.id()).unwrap());
        kill_by_pid(pid, started + 1);
        assert!(child.try_wait().unwrap().is_none(), "a process was killed for its pid alone");
        kill_by_pid(pid, started);
        assert!(!child.wait().unwrap().success());
    }
}
