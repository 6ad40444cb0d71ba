//! Commands beside a rank (`headway job exec`): as the job's user, in its directory, with its variables and within its cgroup. What they write is
//! fetched piece by piece, as logs are: what nobody fetches waits in the command's pipes, and a command that nobody asks about any more is ended.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use headway_api::agent::{ExecEnded, ExecPiece, ExecRequest, ExecStart};
use headway_node::Process;
use headway_types::LaunchOrder;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{Child, ChildStderr, ChildStdout};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use uuid::Uuid;

use crate::environment::{self, Member};
use crate::node::{Input, ask};
use crate::process;
use crate::site::Site;

/// Commands of one node that run at once.
const AT_ONCE: usize = 8;
/// Most bytes of one stream in one piece.
const PIECE: usize = 64 * 1024;
/// How long a piece waits for something to tell.
const PATIENCE: Duration = Duration::from_secs(1);
/// After this without a question nobody will ask again.
const FORGOTTEN: Duration = Duration::from_secs(15);
/// The mark of a command follows that of its rank.
const EXEC: &str = "exec/";
/// Enters the working directory, then runs the command in place of itself.
const SHELL: &str = r#"umask 022; cd -- "$1" || exit 126; shift; exec "$@""#;

type Question = oneshot::Sender<ExecPiece>;

/// The commands that run on this node; cheap to clone.
#[derive(Clone)]
pub(crate) struct Execs {
    site: Arc<Site>,
    inputs: mpsc::Sender<Input>,
    running: Arc<Mutex<BTreeMap<Uuid, mpsc::Sender<Question>>>>,
}

impl Execs {
    pub(crate) fn new(site: Arc<Site>, inputs: mpsc::Sender<Input>) -> Self {
        Self { site, inputs, running: Arc::default() }
    }

    /// Starts what is to be started and tells what has been written since it was asked last.
    pub(crate) async fn answer(&self, request: ExecRequest) -> ExecPiece {
        let request_id = request.request_id;
        match self.piece(request).await {
            Ok(piece) => ExecPiece { request_id, ..piece },
            Err(error) => ExecPiece { request_id, error: Some(error), ..ExecPiece::default() },
        }
    }

    async fn piece(&self, request: ExecRequest) -> Result<ExecPiece, String> {
        if let Some(start) = request.start {
            self.start(request.exec, start).await?;
        }
        let gone = || "the command is over, or was ended since nobody asked for its output".to_owned();
        let running = self.lock().get(&request.exec).cloned().ok_or_else(gone)?;
        let (question, answer) = oneshot::channel();
        running.send(question).await.map_err(|_| gone())?;
        answer.await.map_err(|_| gone())
    }

    async fn start(&self, exec: Uuid, start: ExecStart) -> Result<(), String> {
        let ExecStart { job, generation, rank, command, timeout } = start;
        let order = ask(&self.inputs, |reply| Input::Running { job, generation, reply }).await.flatten();
        let order = order.ok_or_else(|| format!("generation {generation} of the job does not run on this node"))?;
        let user = self.site.user_of_started(&order.owner).await.map_err(|fault| fault.message)?;
        let members = self.site.members(&order, 0, "", user.as_ref()).map_err(|fault| fault.message)?;
        // A node's only process speaks for all its ranks.
        let member = members.into_iter().rfind(|member| member.rank <= rank);
        let mut member = member.ok_or_else(|| format!("rank {rank} does not run on this node"))?;
        let group = environment::mark(self.site.inventory.now().node, job, generation);
        let mark = format!("{}{EXEC}{exec}/", environment::mark_of_rank(&group, member.rank));
        member.stand_aside(mark.clone());
        let (questions, asked) = mpsc::channel(1);
        {
            let mut running = self.lock();
            if running.contains_key(&exec) {
                return Err("this command runs already".into());
            }
            if running.len() >= AT_ONCE {
                return Err(format!("{AT_ONCE} commands run on this node already; wait until one has ended"));
            }
            running.insert(exec, questions);
        }
        let ends = Instant::now() + Duration::from_secs_f64(timeout.0.min(86_400.0));
        let started = self.spawn(&order, &member, user.as_ref(), &command).and_then(|child| {
            Running::of(child, member.rank, mark, ends).ok_or_else(|| io::Error::other("it does not show in /proc"))
        });
        match started {
            Ok(running) => {
                tracing::info!(job_id = %job, %generation, rank, %exec, program = %command[0], "a command runs beside a rank");
                let execs = self.clone();
                tokio::spawn(async move {
                    running.serve(asked).await;
                    execs.lock().remove(&exec);
                });
                Ok(())
            }
            Err(error) => {
                self.lock().remove(&exec);
                Err(format!("starting the command: {error}"))
            }
        }
    }

    fn spawn(
        &self,
        order: &LaunchOrder,
        member: &Member,
        user: Option<&crate::user::UnixUser>,
        command: &[String],
    ) -> io::Result<Child> {
        self.site
            .shell(order, member, user, SHELL)?
            .arg(self.site.directory(order))
            .args(command)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Uuid, mpsc::Sender<Question>>> {
        // The map is valid between any two of its operations, so a panic elsewhere does not spoil it.
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends what an earlier agent had started beside a rank: nobody can ask about it any more.
pub(crate) fn end_forgotten(group: String, rank: u32) {
    tokio::spawn(async move {
        process::sweep(format!("{}{EXEC}", environment::mark_of_rank(&group, rank)), None).await;
    });
}

/// One command.
struct Running {
    /// Waits for the command itself whether or not there is a question: where the agent is process 1, a process that nobody waits for is
    /// reaped, and its exit status is lost.
    exit: JoinHandle<io::Result<ExitStatus>>,
    leader: Process,
    mark: String,
    stdout: Pipe<ChildStdout>,
    stderr: Pipe<ChildStderr>,
    ends: Instant,
    /// Known as soon as the command itself has ended and nothing of it is left.
    ended: Option<ExecEnded>,
}

impl Running {
    fn of(mut child: Child, rank: u32, mark: String, ends: Instant) -> Option<Self> {
        let pid = child.id()?;
        let leader = Process { rank, pid, started: process::started(pid)? };
        let (stdout, stderr) = (Pipe::new(child.stdout.take()), Pipe::new(child.stderr.take()));
        let exit = tokio::spawn(async move { child.wait().await });
        Some(Self { exit, leader, mark, stdout, stderr, ends, ended: None })
    }

    /// Answers questions until the end was told, or nobody asks any more; then nothing of it is left.
    async fn serve(mut self, mut asked: mpsc::Receiver<Question>) {
        while let Ok(Some(question)) = timeout(FORGOTTEN, asked.recv()).await {
            let piece = self.piece().await;
            let last = piece.ended.is_some();
            // Who gave up waiting has lost this piece, so it does not ask for the next.
            if question.send(piece).is_err() || last {
                break;
            }
        }
        self.sweep().await;
    }

    /// What it has written, as soon as there is something; nothing if there is nothing for a while.
    async fn piece(&mut self) -> ExecPiece {
        let patience = sleep(PATIENCE);
        tokio::pin!(patience);
        while self.stdout.read.is_empty() && self.stderr.read.is_empty() {
            if self.stdout.is_closed() && self.stderr.is_closed() && self.ended.is_some() {
                return ExecPiece { ended: self.ended, ..ExecPiece::default() };
            }
            tokio::select! {
                () = self.stdout.more(), if !self.stdout.is_closed() => {}
                () = self.stderr.more(), if !self.stderr.is_closed() => {}
                exit = &mut self.exit, if self.ended.is_none() => {
                    self.sweep().await;
                    self.ended = Some(exit.ok().and_then(Result::ok).map_or_else(ExecEnded::default, ended));
                }
                () = sleep_until(self.ends), if self.ended.is_none() => {
                    self.sweep().await;
                    self.ended = Some(ExecEnded { timed_out: true, ..ExecEnded::default() });
                }
                () = &mut patience => break,
            }
        }
        ExecPiece { stdout: self.stdout.take(), stderr: self.stderr.take(), ..ExecPiece::default() }
    }

    /// Also what it has left in the background.
    async fn sweep(&self) {
        process::sweep(self.mark.clone(), Some(self.leader)).await;
    }
}

fn ended(status: ExitStatus) -> ExecEnded {
    ExecEnded { exit_code: status.code(), signal: status.signal(), timed_out: false }
}

/// One stream of a command, with what was read and not yet told.
struct Pipe<R> {
    from: Option<R>,
    read: Vec<u8>,
}

impl<R: AsyncRead + Unpin> Pipe<R> {
    fn new(from: Option<R>) -> Self {
        Self { from, read: Vec::new() }
    }

    fn is_closed(&self) -> bool {
        self.from.is_none()
    }

    /// Reads once.
    async fn more(&mut self) {
        let Some(from) = &mut self.from else { return };
        self.read.reserve(PIECE);
        match (&mut *from).take(PIECE as u64).read_buf(&mut self.read).await {
            Ok(1..) => {}
            // A stream that cannot be read any more has ended.
            Ok(0) | Err(_) => self.from = None,
        }
    }

    fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.read)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[tokio::test]
    async fn a_command_is_waited_for_while_nobody_asks() {
        let piped = ["-c", "read -r line; echo $line; exit 5"];
        let mut command = tokio::process::Command::new("sh");
        command.args(piped).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        let mut child = command.spawn().unwrap();
        let stdin = child.stdin.take();
        let mark = format!("test/{}/exec", std::process::id());
        let mut running = Running::of(child, 0, mark, Instant::now() + Duration::from_secs(60)).unwrap();
        drop(stdin);
        let leader = running.leader;
        let deadline = Instant::now() + Duration::from_secs(20);
        // A process that was not waited for still shows when it was started.
        while process::started(leader.pid) == Some(leader.started) {
            assert!(Instant::now() < deadline, "the command is not waited for");
            tokio::task::yield_now().await;
        }
        let mut stdout = Vec::new();
        let ended = loop {
            let piece = running.piece().await;
            stdout.extend(piece.stdout);
            if let Some(ended) = piece.ended {
                break ended;
            }
        };
        assert_eq!((ended.exit_code, ended.timed_out, &*stdout), (Some(5), false, &b"\n"[..]));
    }
}
