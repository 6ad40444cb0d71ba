//! The signal by which a job hears that its end is near. It goes to those who handle it, since it would be the end of all others.

use std::io;

use headway_node::Process;
use headway_types::spec::{NoticeSignal, NoticeTo};
use rustix::process::Signal;

use super::{end, read, remains, stat};

/// Tells a rank that its end is near, on a thread that may take its time to look at processes.
pub(crate) fn notify_soon(mark: String, process: Process, signal: NoticeSignal, to: NoticeTo) {
    tokio::task::spawn_blocking(move || match notify(&mark, &process, signal, to) {
        Ok(told) => tracing::info!(mark, %signal, told, "processes were sent a notice"),
        Err(error) => tracing::warn!(mark, %signal, %error, "sending a notice failed"),
    });
}

/// Sends it to processes with the mark or in the group of `leader`, which itself only waits for the command it has started; returns how
/// many handle it.
fn notify(prefix: &str, leader: &Process, signal: NoticeSignal, to: NoticeTo) -> io::Result<usize> {
    let mut told = 0;
    for (pid, started) in remains(prefix, Some(leader))? {
        let wanted = match to {
            NoticeTo::Handlers => true,
            NoticeTo::Command => stat(pid)?.is_some_and(|stat| stat.parent == leader.pid),
        };
        if wanted && pid != leader.pid && handles(pid, signal)? {
            end::send(pid, started, named(signal))?;
            told += 1;
        }
    }
    Ok(told)
}

/// Whether the process has a handler of its own for it.
fn handles(pid: u32, signal: NoticeSignal) -> io::Result<bool> {
    let status = read(pid, "status")?.unwrap_or_default();
    let status = String::from_utf8_lossy(&status);
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let caught = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    Ok(caught & (1 << (signal.number() - 1)) != 0)
}

fn named(signal: NoticeSignal) -> Signal {
    match signal {
        NoticeSignal::Hup => Signal::HUP,
        NoticeSignal::Int => Signal::INT,
        NoticeSignal::Quit => Signal::QUIT,
        NoticeSignal::Usr1 => Signal::USR1,
        NoticeSignal::Usr2 => Signal::USR2,
        NoticeSignal::Term => Signal::TERM,
    }
}
