//! A gang on the nodes of the fleet: its run, which nodes take part in it and how far each is, and what its rank 0
//! would have printed.

use std::collections::BTreeMap;

use headway_api::agent::{LogChunk, LogRequest};
use headway_emulation::Run;
use headway_node::WorkerMessage;
use headway_types::{CheckpointRef, LaunchOrder, Seconds, Sequences, Timestamp};
use sha2::{Digest, Sha256};

/// Output kept per gang; the rest is dropped.
const LOG_LIMIT: usize = 16 * 1024;

/// How far a node's part of a gang is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Prepared,
    Up,
    Gone,
}

pub(super) struct Gang {
    pub(super) run: Run,
    pub(super) order: LaunchOrder,
    /// Its nodes by number, in rank order.
    pub(super) nodes: Vec<usize>,
    pub(super) parts: BTreeMap<usize, Part>,
    /// Whether it was asked to stop over the socket; such workers exit 0.
    pub(super) ordered: bool,
    /// Where its run stands in the queue.
    pub(super) due_at: Option<Timestamp>,
    log: String,
}

impl Gang {
    pub(super) fn new(run: Run, order: LaunchOrder, nodes: Vec<usize>) -> Self {
        let mut gang = Self {
            run,
            nodes,
            parts: BTreeMap::new(),
            ordered: false,
            due_at: None,
            log: String::from("an emulated worker: it computes nothing and follows a hidden truth\n"),
            order,
        };
        let on = format!("{} of {} nodes", gang.order.placement.gpus().words(), gang.nodes.len());
        let what = gang.order.configuration.map_or_else(|| "no model".to_owned(), |at| at.to_string());
        let from = gang.order.resume.as_ref().map_or(0, |checkpoint| checkpoint.step);
        gang.log.push_str(&format!("{} on {on}: {what}, from step {from}\n", gang.order.job_name));
        gang
    }

    /// Every node of the gang has its processes up.
    pub(super) fn is_whole(&self) -> bool {
        self.nodes.iter().all(|node| self.parts.get(node) == Some(&Part::Up))
    }

    pub(super) fn is_up_on(&self, node: usize) -> bool {
        self.parts.get(&node) == Some(&Part::Up)
    }

    pub(super) fn is_up(&self) -> bool {
        self.parts.values().any(|part| *part == Part::Up)
    }

    /// A line of output.
    pub(super) fn print(&mut self, now: Timestamp, line: &str) {
        if self.log.len() < LOG_LIMIT {
            self.log.push_str(&format!("[{:.0}] {line}\n", now.0 as f64 / 1e6));
        }
    }

    /// A checkpoint as a worker would offer it. Nothing lies at its path.
    pub(super) fn checkpoint(&self, step: u64, samples_seen: Sequences, duration: Seconds) -> WorkerMessage {
        let (job, generation) = (self.order.job, self.order.generation);
        let path = format!("{}/{generation}/step-{step:09}", self.order.checkpoint_dir);
        let manifest = format!("{job} {generation} {step} {samples_seen}");
        let manifest_sha256 = hex::encode(Sha256::digest(manifest));
        WorkerMessage::Checkpoint {
            checkpoint: CheckpointRef { generation, path, step, samples_seen, manifest_sha256 },
            duration,
        }
    }

    /// A piece of the output; all ranks print the same. `over`: nothing more will be printed.
    pub(super) fn read(&self, request: &LogRequest, over: bool) -> LogChunk {
        let text = self.log.as_bytes();
        let from = match request.tail_lines {
            None => usize::try_from(request.offset).unwrap_or(usize::MAX).min(text.len()),
            Some(lines) => {
                let mut breaks = self.log.trim_end().rmatch_indices('\n').map(|(at, _)| at + 1);
                if lines == 0 { text.len() } else { breaks.nth(lines as usize - 1).unwrap_or(0) }
            }
        };
        let limit = usize::try_from(request.limit_bytes).unwrap_or(usize::MAX).max(1);
        let bytes = text[from..].iter().copied().take(limit).collect::<Vec<u8>>();
        let next = from + bytes.len();
        LogChunk {
            request_id: request.request_id,
            bytes,
            next_offset: next as u64,
            eof: over && next >= text.len(),
            error: None,
            marks: Vec::new(),
            clock_ms: None,
        }
    }
}
