//! Children of `headway up`: started with their log, restarted when they die, stopped when asked.

use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context as _, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::process::Command;
use tokio::time::Instant;

use super::directory::DataDirectory;

/// Deaths in a row after which a child is given up.
const MAX_RESTARTS: u32 = 10;
/// A child that lived this long has started well.
const STEADY: Duration = Duration::from_secs(30);

pub struct Child {
    name: String,
    arguments: Vec<String>,
    log: PathBuf,
    process: tokio::process::Child,
    started: Instant,
    restarts: u32,
}

impl Child {
    /// Starts this same binary with other arguments. It ends when `up` does (`--die-with-parent`).
    pub fn start(name: &str, directory: &DataDirectory, arguments: Vec<String>) -> anyhow::Result<Self> {
        let log = directory.root().join(format!("logs/{name}.log"));
        let process = spawn(&arguments, &log).with_context(|| format!("starting {name}"))?;
        Ok(Self { name: name.into(), arguments, log, process, started: Instant::now(), restarts: 0 })
    }

    pub fn log(&self) -> &Path {
        &self.log
    }

    /// Its exit status, once it has ended.
    pub fn exited(&mut self) -> anyhow::Result<Option<ExitStatus>> {
        Ok(self.process.try_wait()?)
    }

    fn restart(&mut self, status: ExitStatus) -> anyhow::Result<()> {
        self.restarts = if self.started.elapsed() >= STEADY { 1 } else { self.restarts + 1 };
        if self.restarts > MAX_RESTARTS {
            bail!("{} ended {MAX_RESTARTS} times in a row ({status}); its log is {}", self.name, self.log.display());
        }
        aside!("headway: {} ended ({status}) and is started again; its log is {}", self.name, self.log.display());
        self.process = spawn(&self.arguments, &self.log)?;
        self.started = Instant::now();
        Ok(())
    }

    /// Sends SIGTERM and does not wait.
    pub fn terminate(&self) {
        if let Some(pid) = self.process.id() {
            // The process is ours and not yet reaped, so the pid cannot have been reused.
            kill(Pid::from_raw(pid.cast_signed()), Signal::SIGTERM).ok();
        }
    }

    /// SIGTERM, then SIGKILL after ten seconds.
    pub async fn stop(mut self) -> anyhow::Result<()> {
        self.terminate();
        let ended = tokio::time::timeout(Duration::from_secs(10), self.process.wait()).await;
        if ended.is_err() {
            self.process.kill().await?;
        }
        Ok(())
    }
}

fn spawn(arguments: &[String], log: &Path) -> anyhow::Result<tokio::process::Child> {
    let output = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(log)
        .with_context(|| format!("opening {}", log.display()))?;
    let binary = std::env::current_exe().context("finding this binary")?;
    Command::new(binary)
        .args(arguments)
        .arg("--die-with-parent")
        .arg(std::process::id().to_string())
        .stdin(Stdio::null())
        .stdout(output.try_clone()?)
        .stderr(output)
        // Ctrl-C in the terminal reaches `up` alone, which then stops its children in order.
        .process_group(0)
        .spawn()
        .context("starting a child")
}

/// Restarts whatever ends; returns only when a child cannot be kept alive.
pub async fn supervise(children: &mut [Child]) -> anyhow::Result<()> {
    let mut interval = tokio::time::interval(Duration::from_millis(300));
    loop {
        interval.tick().await;
        for child in children.iter_mut() {
            if let Some(status) = child.exited()? {
                child.restart(status)?;
            }
        }
    }
}

/// Workers outlive their agents by design; those that did not stop in time must not outlive `up`. They resume from
/// their last checkpoint. Found by the agent socket they were given, which lies below the data directory.
pub fn end_leftover_workers(root: &Path) {
    let mark = format!("HEADWAY_SOCKET={}/", root.display());
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else { continue };
        let environment = std::fs::read(entry.path().join("environ")).unwrap_or_default();
        if environment.split(|byte| *byte == 0).any(|variable| variable.starts_with(mark.as_bytes())) {
            kill(Pid::from_raw(pid), Signal::SIGKILL).ok();
        }
    }
}
