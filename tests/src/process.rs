//! A child process with its log, which can be asked to stop, killed outright, or paused.

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::Context as _;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::wait::{soon, until};

/// The `headway` binary that was built beside this test.
pub fn binary() -> PathBuf {
    let test = std::env::current_exe().expect("a test knows its own path");
    let profile = test.ancestors().nth(2).expect("tests lie in target/<profile>/deps");
    let binary = profile.join("headway");
    assert!(binary.exists(), "{} is not built: run `cargo build -p headway-cli` first", binary.display());
    binary
}

/// A running `headway` process. Killed when dropped.
pub struct Process {
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts the binary with these arguments, its output appended to `log`.
    pub fn start(arguments: &[String], log: &Path) -> anyhow::Result<Self> {
        let output = OpenOptions::new().create(true).append(true).open(log)?;
        let child = Command::new(binary())
            .args(arguments)
            .env("NO_COLOR", "1")
            // What it remembers of clusters is not that of whoever runs the tests.
            .env("XDG_CONFIG_HOME", log.with_extension("config"))
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn()
            .with_context(|| format!("starting headway {}", arguments.join(" ")))?;
        Ok(Self { child, log: log.into() })
    }

    pub fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }

    /// SIGKILL: what a power cut looks like to everybody else.
    pub fn kill_outright(mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }

    /// SIGTERM; it must end soon, whatever state its peers are in.
    pub async fn stop(mut self) {
        self.signal(Signal::SIGTERM);
        let log = self.log.display().to_string();
        until(&format!("the end of the process of {log}"), soon(), || {
            let ended = self.ended();
            async move { ended }
        })
        .await;
    }

    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.pid()), signal).ok();
    }

    /// Whether it has ended, and what it wrote last if so.
    pub fn ended(&mut self) -> Option<String> {
        let status = self.child.try_wait().ok()??;
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let tail: Vec<&str> = text.lines().rev().take(20).collect();
        Some(format!("{status}:\n{}", tail.into_iter().rev().collect::<Vec<_>>().join("\n")))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
