//! Programs that the agent runs as a job's user: with an empty environment, outside of every directory, for a limited
//! time, and killed with whoever waits for them.

use std::ffi::OsStr;
use std::process::{Output, Stdio};
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::process::Command;

/// The reason why a program gave no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoAnswer {
    #[error("running {program}: {error}")]
    NotRun { program: String, error: std::io::Error },
    #[error("the file system did not answer within {} s", .0.as_secs())]
    Late(Duration),
}

/// Runs a program and waits for its end. `prefix`: the words that make a command run as the user; none where that is
/// the agent's own.
pub(crate) async fn run_program(
    prefix: &[String],
    program: &str,
    arguments: impl IntoIterator<Item = impl AsRef<OsStr>>,
    input: &[u8],
    patience: Duration,
) -> Result<Output, NoAnswer> {
    let (first, others) = prefix.split_first().map_or((program, [].as_slice()), |(first, others)| (first, others));
    let mut command = Command::new(first);
    command
        .args(others)
        .args((!prefix.is_empty()).then_some(program))
        .args(arguments)
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("LC_ALL", "C")
        .current_dir("/")
        .stdin(if input.is_empty() { Stdio::null() } else { Stdio::piped() })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    let running = async {
        let mut child = command.spawn()?;
        if let Some(mut stdin) = child.stdin.take() {
            // A program that does not read has ended: its exit status says why.
            let _ended = stdin.write_all(input).await;
        }
        child.wait_with_output().await
    };
    let ended = tokio::time::timeout(patience, running).await.map_err(|_| NoAnswer::Late(patience))?;
    ended.map_err(|error| NoAnswer::NotRun { program: program.to_owned(), error })
}

/// Runs a script of the shell, likewise.
pub(crate) async fn run_script(
    prefix: &[String],
    script: &str,
    arguments: &[&OsStr],
    input: &[u8],
    patience: Duration,
) -> Result<Output, NoAnswer> {
    let words = ["-c", script, "headway-agent"].map(OsStr::new);
    run_program(prefix, "/bin/sh", words.iter().chain(arguments), input, patience).await
}
