//! One warm interpreter (`worker/src/headway/zygote.py`) and the talk with it: requests with descriptors in, process
//! ids out. It decides nothing; whatever goes wrong is an error, after which the interpreter is of no more use.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::{IoSlice, Read, Seek, SeekFrom};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream as StdStream;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Interest};
use tokio::net::UnixStream;
use tokio::process::{Child, Command};

use super::kind::Kind;
use crate::carried::{ARRIVE, carry};
use crate::cgroup::Enclosure;
use crate::secret_file::SecretFile;

/// What this agent and `headway.zygote` must agree on.
const VERSION: u32 = 1;
/// How long the imports may take: a cold file system on a busy node is slow.
const IMPORT_PATIENCE: Duration = Duration::from_secs(600);
/// How long one launch may take; it takes milliseconds.
const LAUNCH_PATIENCE: Duration = Duration::from_secs(10);
/// Longest answer.
const LINE_LIMIT: u64 = 16 * 1024;
/// Room for the variables and the arguments of workers, which are shown in the place of the interpreter's own.
const ROOM_FOR_VARIABLES: usize = 48 << 10;
const ROOM_FOR_ARGUMENTS: usize = 2 << 10;

/// Why a warm interpreter is of no use (any more).
#[derive(Debug, thiserror::Error)]
pub(crate) enum ZygoteError {
    #[error("starting it: {0}")]
    Start(std::io::Error),
    #[error("talking to it: {0}")]
    Talk(std::io::Error),
    #[error("it gave no answer within {} s", .0.as_secs())]
    Silent(Duration),
    #[error("it is gone{0}")]
    Gone(String),
    #[error("it speaks version {0}, this agent {VERSION}")]
    Version(u32),
    #[error("{0}")]
    Refused(String),
}

/// What to run in a forked worker.
#[derive(Debug, Serialize)]
pub(crate) struct Request<'a> {
    /// Module and arguments.
    pub(crate) arguments: &'a [String],
    pub(crate) variables: &'a BTreeMap<String, String>,
    pub(crate) directory: &'a Path,
    /// The variables of secrets, in the order of their descriptors.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) secrets: Vec<&'a str>,
}

/// The descriptors that go with a request: where the worker writes to, where its exit status lands, and what it waits
/// at until a byte says go; and its secrets. An interpreter of an earlier release refuses those, and the worker starts cold.
pub(crate) struct Descriptors<'a> {
    pub(crate) output: &'a OwnedFd,
    pub(crate) exit_status: &'a OwnedFd,
    pub(crate) go: &'a OwnedFd,
    pub(crate) secrets: &'a [SecretFile],
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Answer {
    Ready(u32),
    Pid(u32),
    Refused(String),
}

/// Killed when dropped; what it forked lives on.
pub(crate) struct Zygote {
    child: Child,
    stream: BufReader<UnixStream>,
    complaints: PathBuf,
    /// Where there are cgroups.
    _enclosure: Option<Enclosure>,
}

impl Zygote {
    /// Starts the interpreter as the user it is for, in a cgroup of its own. `complaints`: a file for what it says on its
    /// standard error.
    pub(crate) fn start(
        kind: &Kind,
        prefix: &[String],
        complaints: &Path,
        enclosure: Option<Enclosure>,
    ) -> Result<Self, ZygoteError> {
        let (ours, its) = StdStream::pair().map_err(ZygoteError::Start)?;
        ours.set_nonblocking(true).map_err(ZygoteError::Start)?;
        let log = OpenOptions::new().create(true).write(true).truncate(true).mode(0o600).open(complaints);
        let mut words = enclosure.as_ref().map(Enclosure::words).unwrap_or_default();
        words.extend_from_slice(prefix);
        words.extend(["/bin/sh", "-c", &format!("{ARRIVE}exec \"$@\""), "headway"].map(String::from));
        words.push(kind.interpreter.clone());
        words.extend(["-m", "headway.zygote"].map(String::from));
        // Blanks do not show in a list of processes.
        words.push(" ".repeat(ROOM_FOR_ARGUMENTS));
        let mut command = Command::new(&words[0]);
        carry(&mut command, &kind.variables);
        let child = command
            .args(&words[1..])
            // It owns no GPU: only what it forks does, under the launch's own variables.
            .env("CUDA_VISIBLE_DEVICES", "")
            .env("HEADWAY_ROOM", ".".repeat(ROOM_FOR_VARIABLES))
            .current_dir("/")
            .stdin(Stdio::from(OwnedFd::from(its)))
            .stdout(Stdio::null())
            .stderr(log.map_err(ZygoteError::Start)?)
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map_err(ZygoteError::Start)?;
        let stream = BufReader::new(UnixStream::from_std(ours).map_err(ZygoteError::Start)?);
        Ok(Self { child, stream, complaints: complaints.to_owned(), _enclosure: enclosure })
    }

    /// Returns once it has imported everything.
    pub(crate) async fn ready(&mut self) -> Result<(), ZygoteError> {
        match self.answer(IMPORT_PATIENCE).await? {
            Answer::Ready(VERSION) => Ok(()),
            Answer::Ready(version) => Err(ZygoteError::Version(version)),
            Answer::Pid(_) => Err(ZygoteError::Refused("it spoke out of turn".into())),
            Answer::Refused(reason) => Err(ZygoteError::Refused(reason)),
        }
    }

    /// Has a worker forked, which waits for the word to go. It leads a process group of its own and carries its mark.
    pub(crate) async fn fork(
        &mut self,
        request: &Request<'_>,
        descriptors: &Descriptors<'_>,
    ) -> Result<u32, ZygoteError> {
        let mut line = serde_json::to_vec(request).map_err(|error| ZygoteError::Talk(error.into()))?;
        line.push(b'\n');
        let told = tokio::time::timeout(LAUNCH_PATIENCE, self.tell(&line, descriptors)).await;
        told.map_err(|_| ZygoteError::Silent(LAUNCH_PATIENCE))?.map_err(ZygoteError::Talk)?;
        match self.answer(LAUNCH_PATIENCE).await? {
            Answer::Pid(pid) => Ok(pid),
            Answer::Ready(_) => Err(ZygoteError::Refused("it spoke out of turn".into())),
            Answer::Refused(reason) => Err(ZygoteError::Refused(reason)),
        }
    }

    #[cfg(test)]
    pub(crate) fn process(&self) -> Option<u32> {
        self.child.id()
    }

    pub(crate) fn is_gone(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// The descriptors go with the first bytes.
    async fn tell(&mut self, line: &[u8], descriptors: &Descriptors<'_>) -> std::io::Result<()> {
        let stream = self.stream.get_mut();
        let secrets = descriptors.secrets.iter().map(|secret| &secret.file);
        let all = [descriptors.output, descriptors.exit_status, descriptors.go].into_iter().chain(secrets);
        let numbers: Vec<RawFd> = all.map(AsRawFd::as_raw_fd).collect();
        let socket = stream.as_fd().as_raw_fd();
        let send = || {
            let control = [ControlMessage::ScmRights(&numbers)];
            let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
            Ok(sendmsg::<()>(socket, &[IoSlice::new(line)], &control, flags, None)?)
        };
        let sent = stream.async_io(Interest::WRITABLE, send).await?;
        stream.write_all(&line[sent..]).await
    }

    async fn answer(&mut self, patience: Duration) -> Result<Answer, ZygoteError> {
        let mut line = String::new();
        let mut reader = (&mut self.stream).take(LINE_LIMIT);
        let read = tokio::time::timeout(patience, reader.read_line(&mut line)).await;
        match read.map_err(|_| ZygoteError::Silent(patience))? {
            Ok(0) => Err(ZygoteError::Gone(self.last_words())),
            Ok(_) => Answer::read(&line).ok_or_else(|| ZygoteError::Refused(format!("it answered {line:?}"))),
            Err(error) => Err(ZygoteError::Talk(error)),
        }
    }

    /// What an interpreter that did not get far had to say, for the log.
    fn last_words(&self) -> String {
        let mut text = Vec::new();
        let read = std::fs::File::open(&self.complaints).and_then(|mut file| {
            let length = file.metadata()?.len();
            file.seek(SeekFrom::Start(length.saturating_sub(LINE_LIMIT)))?;
            file.take(LINE_LIMIT).read_to_end(&mut text)
        });
        let text = String::from_utf8_lossy(&text);
        match (read, text.lines().next_back()) {
            (Ok(_), Some(line)) => format!(": {line}"),
            _ => String::new(),
        }
    }
}

impl Answer {
    /// What a newer interpreter adds to an answer is not asked for here.
    fn read(line: &str) -> Option<Self> {
        let fields: serde_json::Map<String, serde_json::Value> = serde_json::from_str(line).ok()?;
        let known = fields.into_iter().find(|(name, _)| ["ready", "pid", "refused"].contains(&name.as_str()))?;
        serde_json::from_value(serde_json::Value::Object([known].into_iter().collect())).ok()
    }
}
