//! The unix socket workers talk to (docs/worker-protocol.md): who may speak, lines in, lines out. It never decides;
//! a checked worker's words go to the node's loop.

#[cfg(test)]
mod fuzz;
mod message;

use std::collections::BTreeMap;
use std::fs::Permissions;
use std::future::Future;
use std::ops::Range;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use headway_node::{NodeEvent, WorkerMessage};
use headway_types::{CheckpointRef, Generation, JobId, Seconds};
use nix::unistd::geteuid;
use sha2::{Digest, Sha256};
use tokio::io::AsyncWriteExt;
use tokio::net::unix::{OwnedReadHalf, UCred};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio_stream::StreamExt;
use tokio_util::codec::{FramedRead, LinesCodec};

use crate::AgentError;
use crate::checkpoints;
use crate::connections::{Connection, Connections};
use crate::files::read_beginning;
use crate::node::{Hello, Input};
use crate::observer::Observer;
use crate::site::Site;
use crate::view::View;
pub(crate) use message::AgentLine;
use message::{CheckpointLine, HelloLine, WorkerLine};

/// Longest line either way.
const LINE_LIMIT: usize = 64 * 1024;
/// Lines to a worker that may wait for it to read.
const LINES: usize = 32;

/// How long a connection may take to say who it is.
const HELLO_PATIENCE: Duration = Duration::from_secs(10);
/// Open at a time, far more than a node has ranks; any further ones wait in the kernel's queue.
const CONNECTIONS: usize = 512;
/// Of these, of one user other than the agent's own: nobody keeps the workers of others out.
const CONNECTIONS_OF_ONE: usize = 128;
/// More than a secret takes, in bytes.
const SECRET_LIMIT: u64 = 128;

/// Lines to one connected worker.
pub(crate) type WorkerLines = mpsc::Sender<AgentLine>;

/// The only directory a worker's checkpoints may lie in, the owner of its job, and the ranks for which it may speak.
#[derive(Clone, Debug)]
pub(crate) struct Home {
    pub(crate) directory: String,
    pub(crate) owner: String,
    pub(crate) ranks: Range<u32>,
}

type Lines = FramedRead<OwnedReadHalf, LinesCodec>;

/// Binds the socket now; the future serves it.
pub(crate) fn listen(
    site: Arc<Site>,
    observer: Observer,
    inputs: mpsc::Sender<Input>,
    connections: Connections,
) -> Result<impl Future<Output = ()> + use<>, AgentError> {
    let path = site.files.socket();
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(AgentError::io("removing the old worker socket")(error));
        }
        _ => {}
    }
    let listener = UnixListener::bind(&path).map_err(AgentError::io("binding the worker socket"))?;
    // Who may speak is checked with every hello.
    let mode = if site.users.are_others() { 0o666 } else { 0o600 };
    std::fs::set_permissions(&path, Permissions::from_mode(mode)).map_err(AgentError::io("opening the socket"))?;
    Ok(async move {
        let room = Arc::new(Semaphore::new(CONNECTIONS));
        let mut shares = Shares::default();
        while let Ok(place) = Arc::clone(&room).acquire_owned().await {
            match listener.accept().await {
                Ok((stream, _)) => {
                    let Some(share) = shares.take(stream.peer_cred().ok().map(|peer| peer.uid())) else {
                        tracing::debug!("a user has as many connections as one may have");
                        continue;
                    };
                    let place = (place, share);
                    let (site, inputs, connections) = (Arc::clone(&site), inputs.clone(), connections.clone());
                    let door = Door { site, inputs, connections, _place: place };
                    tokio::spawn(serve(stream, door, observer.clone()));
                }
                Err(error) => {
                    tracing::warn!(%error, "a worker's connection failed");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    })
}

/// What each user has of the connections.
#[derive(Default)]
struct Shares(BTreeMap<u32, Arc<Semaphore>>);

/// One connection of a user's share; the agent's own user has no bound.
type Share = Option<OwnedSemaphorePermit>;

impl Shares {
    /// `None` where the user has no more; who is not known has a share with all who are not.
    fn take(&mut self, user: Option<u32>) -> Option<Share> {
        if user == Some(geteuid().as_raw()) {
            return Some(None);
        }
        let share = self.0.entry(user.unwrap_or(u32::MAX));
        let share = share.or_insert_with(|| Arc::new(Semaphore::new(CONNECTIONS_OF_ONE)));
        Arc::clone(share).try_acquire_owned().ok().map(Some)
    }
}

/// What it takes to let a worker in.
struct Door {
    site: Arc<Site>,
    inputs: mpsc::Sender<Input>,
    connections: Connections,
    /// Among the connections that may be open.
    _place: (OwnedSemaphorePermit, Share),
}

/// One worker's connection, from hello to its end.
async fn serve(stream: UnixStream, door: Door, observer: Observer) {
    let peer = stream.peer_cred();
    let (reader, mut writer) = stream.into_split();
    let (sender, mut receiver) = mpsc::channel::<AgentLine>(LINES);
    let writing = tokio::spawn(async move {
        while let Some(line) = receiver.recv().await {
            if writer.write_all(line.to_text().as_bytes()).await.is_err() {
                return;
            }
        }
    });
    let mut lines = FramedRead::new(reader, LinesCodec::new_with_max_length(LINE_LIMIT));
    let greeted = match peer {
        Ok(peer) => door.greet(&mut lines, peer, sender.clone()).await,
        Err(error) => Err(format!("no credentials: {error}")),
    };
    match greeted {
        // The loop keeps the other sender until the group ends or the connection does.
        Ok(worker) => {
            drop(sender);
            worker.listen(&mut lines, &observer, &door.inputs).await;
            writing.abort();
        }
        Err(reason) => {
            tracing::info!(reason, "a worker was refused");
            let _gone = sender.send(AgentLine::Refused { reason }).await;
            drop(sender);
            let _written = writing.await;
        }
    }
}

impl Door {
    /// Reads the hello; checks the secret and that the peer is the user the group runs as (or the agent's own).
    async fn greet(&self, lines: &mut Lines, peer: UCred, sender: WorkerLines) -> Result<Worker, String> {
        let said = tokio::time::timeout(HELLO_PATIENCE, lines.next()).await;
        let text = match said.map_err(|_| format!("no hello within {} s", HELLO_PATIENCE.as_secs()))? {
            Some(Ok(text)) => text,
            Some(Err(error)) => return Err(format!("unreadable hello: {error}")),
            None => return Err("closed without a hello".to_owned()),
        };
        let hello = match serde_json::from_str(&text) {
            Ok(WorkerLine::Hello(hello)) => hello,
            Ok(_) => return Err("hello must come first".to_owned()),
            Err(error) => return Err(format!("unreadable hello: {error}")),
        };
        let HelloLine { job, generation, secret, rank, capabilities } = hello;
        let path = self.site.files.secret(job, generation);
        // The secret belongs to the group's user.
        let user = std::fs::metadata(&path).ok().map(|metadata| metadata.uid());
        let expected = read_beginning(&path, SECRET_LIMIT).unwrap_or_default();
        // Hashes are compared, so that the time taken says nothing about the secret.
        if expected.is_empty() || Sha256::digest(&expected) != Sha256::digest(&secret) {
            return Err(format!("wrong secret for generation {generation} of job {job}"));
        }
        if user != Some(peer.uid()) && peer.uid() != geteuid().as_raw() {
            return Err(format!("generation {generation} of job {job} belongs to another user"));
        }
        // Before the welcome: from then on the worker may say something and exit.
        let connection = self.connections.open(job, generation, rank);
        let (reply, answer) = oneshot::channel();
        let pid = peer.pid().and_then(|pid| u32::try_from(pid).ok());
        let cgroups = self.site.cgroups.as_ref();
        let launched = pid.and_then(|pid| cgroups?.rank_of(job, generation, pid));
        let hello = Hello { job, generation, rank, launched, capabilities, lines: sender, reply };
        let going_down = |_| "the agent is going down".to_owned();
        self.inputs.send(Input::Hello(hello)).await.map_err(|_| "the agent is going down".to_owned())?;
        let home = answer.await.map_err(going_down)??;
        Ok(Worker { job, generation, rank, home, site: Arc::clone(&self.site), _connection: connection })
    }
}

/// A worker that was welcomed.
struct Worker {
    job: JobId,
    generation: Generation,
    rank: u32,
    home: Home,
    site: Arc<Site>,
    _connection: Connection,
}

impl Worker {
    async fn listen(&self, lines: &mut Lines, observer: &Observer, inputs: &mpsc::Sender<Input>) {
        while let Some(line) = lines.next().await {
            let text = match line {
                Ok(text) => text,
                Err(error) => {
                    tracing::warn!(job_id = %self.job, %error, "a worker's line cannot be read");
                    return;
                }
            };
            match serde_json::from_str(&text) {
                Ok(line) => {
                    let Some(message) = self.message(line, observer).await else { continue };
                    let event = NodeEvent::Worker { job: self.job, generation: self.generation, message };
                    if inputs.send(Input::Event(event)).await.is_err() {
                        return;
                    }
                }
                Err(error) => tracing::warn!(job_id = %self.job, %error, "a worker's message is malformed"),
            }
        }
    }

    /// What a line means to the ledger; `None` for observations, and for lines that mean nothing to it.
    async fn message(&self, line: WorkerLine, observer: &Observer) -> Option<WorkerMessage> {
        let (job, generation) = (self.job, self.generation);
        if matches!(line, WorkerLine::Checkpoint(_) | WorkerLine::Stopped { .. }) {
            observer.flush(job, generation);
        }
        match line {
            WorkerLine::Step(step) => {
                observer.steps(step.report(job, generation));
                None
            }
            // Nobody speaks for others.
            WorkerLine::Busy { .. } if !self.home.ranks.contains(&self.rank) => None,
            WorkerLine::Busy { steps, busy_s } => {
                observer.busy(job, generation, self.rank, steps, busy_s);
                None
            }
            WorkerLine::Checkpoint(offer) => match self.verify(offer).await {
                Ok((checkpoint, duration)) => Some(WorkerMessage::Checkpoint { checkpoint, duration }),
                Err(reason) => {
                    tracing::warn!(job_id = %self.job, reason, "a checkpoint was not accepted");
                    None
                }
            },
            WorkerLine::Phases { phases } => Some(WorkerMessage::Phases { phases }),
            WorkerLine::LossAnomaly { step, loss, usual } => Some(WorkerMessage::LossAnomaly { step, loss, usual }),
            WorkerLine::Stopped { step, samples_seen } => Some(WorkerMessage::Stopped { step, samples_seen }),
            WorkerLine::Hello(_) | WorkerLine::Heartbeat | WorkerLine::Unknown => None,
        }
    }

    async fn verify(&self, offer: CheckpointLine) -> Result<(CheckpointRef, Seconds), String> {
        let CheckpointLine { step, samples_seen, path, manifest_sha256, duration_s } = offer;
        let offer = CheckpointRef { generation: self.generation, path, step, samples_seen, manifest_sha256 };
        let user = self.site.user_of_started(&self.home.owner).await.map_err(|fault| fault.message)?;
        let view = View(self.site.users.prefix(user.as_ref()));
        let verified = checkpoints::verify(&view, Path::new(&self.home.directory), self.job, offer).await?;
        Ok((verified, duration_s))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn nobody_takes_the_places_of_others() {
        let (own, mut shares) = (geteuid().as_raw(), Shares::default());
        let mut held: Vec<Share> = (0..CONNECTIONS_OF_ONE).map(|_| shares.take(Some(own + 1)).unwrap()).collect();
        assert!(shares.take(Some(own + 1)).is_none());
        assert!(shares.take(Some(own + 2)).is_some() && shares.take(Some(own)).is_some());
        held.pop();
        assert!(shares.take(Some(own + 1)).is_some(), "what is given back can be had again");
    }
}
