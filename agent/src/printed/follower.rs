//! Looks at a rank's log from time to time and tells what its lines say. However much a script prints, and whatever the pattern, a look
//! takes a bounded part of the node's time; what that leaves out is said once.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use headway_node::{NodeEvent, Share, WorkerMessage};
use headway_types::spec::PrintingRank;
use headway_types::{LaunchOrder, StepReport};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::Reader;
use super::lines::Lines;
use super::loss::LossAnomaly;
use crate::clock::now;
use crate::node::Input;
use crate::observer::Observer;
use crate::site::Site;

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(500);
/// After a look that took long, so many times as long: no more than a tenth of a core's time goes into a job's output.
const REST: u32 = 9;
/// Of what was written since the last look the newest part counts, bytes.
const AT_ONCE: u64 = 4 * 1024 * 1024;
/// A look that takes longer leaves out the rest.
const LONGEST: Duration = Duration::from_millis(100);
const PIECE: usize = 64 * 1024;

/// A task that follows one log.
pub(crate) struct Follower {
    over: CancellationToken,
    task: JoinHandle<()>,
}

/// Where to begin in a log.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum From {
    Beginning,
    /// An earlier agent has told what stands there.
    End,
}

/// Follows the output of this rank, where the order's steps are read from there. Steps go to `observer`, odd losses to `inputs`. `adopted`: an earlier agent began with it.
pub(crate) fn follow(
    site: &Site,
    observer: &Observer,
    inputs: &mpsc::Sender<Input>,
    order: &LaunchOrder,
    rank: u32,
    adopted: bool,
) -> Option<Follower> {
    let progress = order.run.progress.as_ref().filter(|progress| printing(order, progress.rank) == Some(rank))?;
    let (job_id, generation) = (order.job, order.generation);
    let reader = match Reader::new(order, progress, now()) {
        Ok(reader) => reader,
        Err(error) => {
            tracing::warn!(%job_id, %generation, %error, "no steps can be read from the output");
            return None;
        }
    };
    let (node, slices) = (site.inventory.now().node, order.placement.slices());
    // What is in use before this agent was there may be from earlier.
    let own = slices.iter().find(|slice| slice.node == node).filter(|_| !adopted);
    observer.open(order.job, order.generation, own.map_or(&[], |slice| slice.gpus.as_slice()));
    let from = if adopted { From::End } else { From::Beginning };
    let (path, observer) = (site.files.log(order.job, order.generation, rank), observer.clone());
    let inputs = inputs.clone();
    let over = CancellationToken::new();
    let ends = over.clone();
    let task = tokio::spawn(async move {
        let mut log = Log::new(reader, &path, from);
        loop {
            let last = ends.is_cancelled();
            let began = Instant::now();
            let looked = tokio::task::spawn_blocking(move || {
                let report = log.look(last);
                (log, report)
            });
            let Ok((back, report)) = looked.await else { return };
            log = back;
            match report {
                Ok(report) => report.into_iter().for_each(|report| observer.steps(report)),
                Err(error) => tracing::debug!(%job_id, %generation, %error, "the output cannot be read"),
            }
            if let Some(LossAnomaly { step, loss, usual }) = log.take_anomaly() {
                let message = WorkerMessage::LossAnomaly { step, loss, usual };
                let event = NodeEvent::Worker { job: job_id, generation, message };
                if inputs.send(Input::Event(event)).await.is_err() {
                    return;
                }
            }
            if last {
                return;
            }
            let pause = PAUSE.max(began.elapsed() * REST);
            tokio::select! {
                () = ends.cancelled() => {}
                () = tokio::time::sleep(pause) => {}
            }
        }
    });
    Some(Follower { over, task })
}

/// The rank whose output has the steps: of the processes that are started, the gang's first or last.
fn printing(order: &LaunchOrder, rank: PrintingRank) -> Option<u32> {
    match rank {
        PrintingRank::First => Some(0),
        PrintingRank::Last => Share::of(order, order.placement.slices().last()?.node)?.processes(order).last(),
    }
}

impl Follower {
    /// Reads what was written last. Nothing may write any more.
    pub(crate) async fn end(self) {
        self.over.cancel();
        let _ended = self.task.await;
    }
}

pub(super) struct Log {
    reader: Reader,
    lines: Lines,
    path: PathBuf,
    file: Option<File>,
    offset: u64,
    from: From,
    /// That something was left out.
    said: bool,
}

impl Log {
    pub(super) fn new(reader: Reader, path: &Path, from: From) -> Self {
        Self { reader, lines: Lines::default(), path: path.to_owned(), file: None, offset: 0, from, said: false }
    }

    /// Reads on. `last`: what stands there is all, and ends its last line.
    pub(super) fn look(&mut self, last: bool) -> io::Result<Option<StepReport>> {
        let read = self.read(last);
        let report = self.reader.look_over(now());
        read.map(|()| report)
    }

    /// Returns the gravest odd loss since the last call, if any was odd.
    pub(super) fn take_anomaly(&mut self) -> Option<LossAnomaly> {
        self.reader.take_anomaly()
    }

    fn read(&mut self, last: bool) -> io::Result<()> {
        let began = Instant::now();
        let mut file = self.open()?;
        let length = file.metadata()?.len();
        if length.saturating_sub(self.offset) > AT_ONCE {
            self.leave_out(length - AT_ONCE);
        }
        file.seek(SeekFrom::Start(self.offset))?;
        let mut piece = vec![0; PIECE];
        while self.offset < length {
            let wanted = usize::try_from(length - self.offset).unwrap_or(PIECE).min(PIECE);
            let read = file.read(&mut piece[..wanted])?;
            if read == 0 {
                break;
            }
            self.offset += read as u64;
            let reader = &mut self.reader;
            let in_time = self.lines.take(&piece[..read], |line| {
                reader.read(line);
                began.elapsed() < LONGEST
            });
            if !in_time {
                self.leave_out(length);
            }
        }
        if last {
            let reader = &mut self.reader;
            self.lines.end(&mut |line| {
                reader.read(line);
                true
            });
        }
        Ok(())
    }

    fn open(&mut self) -> io::Result<File> {
        if let Some(file) = &self.file {
            return file.try_clone();
        }
        let file = File::open(&self.path)?;
        if self.from == From::End {
            self.offset = file.metadata()?.len();
            self.lines.tear();
        }
        self.file = Some(file.try_clone()?);
        Ok(file)
    }

    fn leave_out(&mut self, to: u64) {
        if !std::mem::replace(&mut self.said, true) {
            let (bytes, log) = (to - self.offset, self.path.display());
            tracing::info!(bytes, %log, "a job prints more than its steps are read from; parts of its output are left out");
        }
        self.offset = to;
        self.lines.tear();
    }
}
