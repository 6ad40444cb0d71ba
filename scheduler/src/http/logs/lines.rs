//! Output as lines: of several ranks in the order of their times, with their ranks, and with their times where they are asked for. What is kept is a piece
//! of each rank, however much there is.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::body::Bytes;
use chrono::{DateTime, SecondsFormat};
use futures::{Stream, StreamExt};
use headway_engine::record::Allocation;
use headway_types::spec::RunPer;
use headway_types::{Generation, JobId};

use super::merge::{Line, Merge};
use super::wanted::{MOST_RANKS, Ranks};
use super::{POLL, is_over, restarted};
use crate::cluster::{Cluster, LogError, LogQuery};

/// Of one rank at a time.
const PIECE_BYTES: u32 = 64 * 1024;
/// Ranks that are asked at a time: a node that does not answer keeps the others waiting but once.
const AT_ONCE: usize = 8;

/// What of it, and how.
#[derive(Clone, Debug)]
pub struct Lines {
    pub job: JobId,
    pub per: RunPer,
    /// Of which ranks.
    pub ranks: Ranks,
    /// `None`: of the newest attempt and, for a follower, of those that come after it.
    pub generation: Option<Generation>,
    /// Milliseconds since 1970.
    pub since_ms: Option<i64>,
    /// Only the last so many of each rank.
    pub tail: Option<u32>,
    pub timestamps: bool,
    pub follow: bool,
}

impl Lines {
    /// Global ranks of an attempt that write, of those that were asked for; they may be more than are read at once.
    pub fn of(&self, attempt: &Allocation) -> Result<Vec<u32>, LogError> {
        let writing = writing(attempt, self.per);
        let ranks: Vec<u32> = match &self.ranks {
            Ranks::All => writing,
            Ranks::These(ranks) => ranks.iter().copied().collect(),
        };
        let gpus = attempt.placement.gpus().0;
        match ranks.iter().find(|rank| **rank >= gpus) {
            Some(rank) => Err(LogError::NoSuchRank { generation: attempt.generation, rank: *rank }),
            None => Ok(ranks),
        }
    }
}

/// One process for each GPU, or one for each node, called by the first rank there.
fn writing(attempt: &Allocation, per: RunPer) -> Vec<u32> {
    let mut first = 0;
    let mut ranks = Vec::new();
    for slice in attempt.placement.slices() {
        let gpus = slice.gpus.len() as u32;
        ranks.extend(match per {
            RunPer::Gpu => first..first + gpus,
            RunPer::Node => first..first + 1,
        });
        first += gpus;
    }
    ranks
}

/// Everything that was asked for. A follower's ends with the job, or when the wanted attempt is over.
pub fn stream(cluster: Cluster, wanted: Lines) -> impl Stream<Item = Result<Bytes, LogError>> {
    async_stream::stream! {
        let mut poll = tokio::time::interval(POLL);
        poll.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let pinned = wanted.generation.is_some();
        let mut generation = wanted.generation;
        let mut later = false;
        loop {
            let over = is_over(&cluster, wanted.job, generation, pinned);
            let attempt = match cluster.attempt(wanted.job, generation).await {
                Ok(attempt) => attempt,
                Err(LogError::NotStarted) if wanted.follow && !over => {
                    poll.tick().await;
                    continue;
                }
                Err(error) => {
                    yield Err(error);
                    return;
                }
            };
            let mut ranks = match wanted.of(&attempt) {
                Ok(ranks) => ranks,
                Err(error) => {
                    yield Err(error);
                    return;
                }
            };
            if ranks.len() > MOST_RANKS {
                let all = ranks.len();
                ranks.truncate(MOST_RANKS);
                yield Ok(Bytes::from(format!("(the first {MOST_RANKS} of {all} ranks: no more are read at once)\n")));
            }
            let mut reader = Reader::new(&cluster, &wanted, attempt, &ranks, later);
            loop {
                let over = is_over(&cluster, wanted.job, Some(reader.attempt.generation), pinned);
                let text = reader.read().await;
                if !text.is_empty() {
                    yield Ok(Bytes::from(text));
                }
                if !reader.merge.hungry().is_empty() {
                    continue;
                }
                let next = restarted(&cluster, wanted.job, reader.attempt.generation, pinned);
                if !wanted.follow || over || next.is_some() {
                    let rest = reader.rest();
                    if !rest.is_empty() {
                        yield Ok(Bytes::from(rest));
                    }
                    match next.filter(|_| wanted.follow && !over) {
                        None => return,
                        Some(next) => (generation, later) = (Some(next), true),
                    }
                    break;
                }
                poll.tick().await;
                reader.merge.look_again();
            }
        }
    }
}

/// One attempt's ranks, as far as they have been read.
struct Reader<'a> {
    cluster: &'a Cluster,
    wanted: &'a Lines,
    attempt: Arc<Allocation>,
    merge: Merge,
    /// By rank: where to read on. Absent: nothing was read yet.
    offsets: BTreeMap<u32, u64>,
    /// By rank: why its newest piece could not be read.
    unread: BTreeMap<u32, LogError>,
    prefixed: bool,
    /// An attempt that a follower was led to, which is read from its beginning.
    later: bool,
}

impl<'a> Reader<'a> {
    fn new(cluster: &'a Cluster, wanted: &'a Lines, attempt: Arc<Allocation>, ranks: &[u32], later: bool) -> Self {
        let (merge, prefixed) = (Merge::of(ranks), ranks.len() > 1);
        Self { cluster, wanted, attempt, merge, offsets: BTreeMap::new(), unread: BTreeMap::new(), prefixed, later }
    }

    /// A piece of each rank that has no line left, and the lines that can be told by then.
    async fn read(&mut self) -> Vec<u8> {
        let queries = self.merge.hungry().into_iter().map(|rank| {
            let known = self.offsets.get(&rank).copied();
            let first = known.is_none() && !self.later;
            LogQuery {
                generation: Some(self.attempt.generation),
                rank,
                offset: known.unwrap_or(0),
                limit: PIECE_BYTES,
                tail_lines: self.wanted.tail.filter(|_| first),
                since_ms: self.wanted.since_ms.filter(|_| first),
            }
        });
        let (cluster, attempt) = (self.cluster, &self.attempt);
        let ask = |query: LogQuery| async move { (query.rank, query.offset, cluster.logs_of(attempt, query).await) };
        let queries: Vec<LogQuery> = queries.collect();
        let pages: Vec<_> = futures::stream::iter(queries).map(ask).buffered(AT_ONCE).collect().await;
        let mut text = Vec::new();
        for (rank, offset, page) in pages {
            match page {
                Ok(page) => {
                    // Of a tail, and of what was written since a moment, the beginning is left out as it was asked for.
                    let is_first = !self.offsets.contains_key(&rank) && !self.later;
                    let is_part = is_first && (self.wanted.tail.is_some() || self.wanted.since_ms.is_some());
                    if let Some(trimmed) = page.offset.checked_sub(offset).filter(|bytes| *bytes > 0 && !is_part) {
                        let note = format!("(rank {rank}: {trimmed} bytes of output were trimmed here)\n");
                        text.extend(note.into_bytes());
                    }
                    self.merge.feed(rank, page.offset, &page.data, &page.marks, page.at_end);
                    self.offsets.insert(rank, page.next_offset);
                    self.unread.remove(&rank);
                }
                Err(error) => {
                    // A follower waits for the node to come back, as long as the attempt lasts.
                    self.merge.feed(rank, offset, &[], &[], true);
                    self.unread.insert(rank, error);
                }
            }
        }
        while let Some(line) = self.merge.take_line() {
            self.write(line, &mut text);
        }
        text
    }

    /// The last lines, and what could not be read.
    fn rest(&mut self) -> Vec<u8> {
        let mut text = Vec::new();
        for line in self.merge.rest() {
            self.write(line, &mut text);
        }
        for (rank, error) in std::mem::take(&mut self.unread) {
            text.extend(format!("[rank {rank}] (cannot be read: {error})\n").into_bytes());
        }
        text
    }

    fn write(&self, line: Line, text: &mut Vec<u8>) {
        if self.wanted.timestamps {
            let at = line.at_ms.and_then(DateTime::from_timestamp_millis);
            let at = at.map_or_else(|| "-".into(), |at| at.to_rfc3339_opts(SecondsFormat::Secs, true));
            text.extend(format!("{at} ").into_bytes());
        }
        if self.prefixed {
            text.extend(format!("[rank {}] ", line.rank).into_bytes());
        }
        text.extend_from_slice(&line.bytes);
        if !line.bytes.ends_with(b"\n") {
            text.push(b'\n');
        }
    }
}
