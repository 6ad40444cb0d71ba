//! Which generations may not start here any more, and for how long the ledger remembers it.
//!
//! A command may arrive late, twice, or after newer ones. As long as a job has a group here, or had one lately, its
//! highest generation is kept and compared. Of all other jobs only one thing is kept: the newest of the commands that
//! the forgotten fences came from. The engine orders no generation again once it has told a node to stop or to forget
//! it, so whatever would revive one was sent before that command and has a lower serial; a job that is new here is
//! ordered by a command with a higher one. (A fence that a stray Launch has raised waits for its Forget, since the engine
//! may order the generation again until it has heard that it can never start here.) A lawful command that is overtaken by so many others is refused too, and
//! loses nothing: the engine repeats commands, with a new serial, until it sees their effect.

use headway_types::{Generation, JobId, Serial, Term};
use serde::{Deserialize, Serialize};

use super::Ledger;
use crate::outcome::{NodeOutcome, Refusal};

/// Jobs without a group of which the fence is kept: far more than can change while one command is under way.
pub(super) const REMEMBERED: usize = 1_000;

/// The place of a command among all that a node may hear.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct Sent {
    pub term: Term,
    pub serial: Serial,
}

/// What of one job may not start any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Form")]
pub(super) struct Fence {
    /// The highest generation heard.
    pub generation: Generation,
    /// The last command after which the engine orders nothing up to this generation here. `None` until one is known: the
    /// fence stands until it comes, or until the next term.
    sent: Option<Sent>,
}

impl Fence {
    /// A fence that stands until the engine has done with the generation.
    pub(super) fn new(generation: Generation) -> Self {
        Self { generation, sent: None }
    }
}

/// How a fence stands on disk: before commands were counted, it was a generation.
#[derive(Deserialize)]
#[serde(untagged)]
enum Form {
    Uncounted(Generation),
    Counted { generation: Generation, sent: Option<Sent> },
}

impl From<Form> for Fence {
    fn from(form: Form) -> Self {
        match form {
            Form::Uncounted(generation) => Self { generation, sent: None },
            Form::Counted { generation, sent } => Self { generation, sent },
        }
    }
}

impl Ledger {
    /// Follows the newest term heard. Whatever is of a term before is refused from now on, counted or not, and false.
    pub(super) fn follow(&mut self, term: Term, out: &mut NodeOutcome) -> bool {
        if term < self.term {
            out.refusal = Some(Refusal::OldTerm { term, highest: self.term });
            return false;
        }
        if term > self.term {
            let last = Sent { term: self.term, serial: Serial(u64::MAX) };
            self.highest.values_mut().for_each(|fence| fence.sent = fence.sent.or(Some(last)));
            self.term = term;
            out.persist = true;
        }
        true
    }

    /// Whether a command may speak of a generation whose fence has been forgotten.
    pub(super) fn is_late(&self, job: JobId, sent: Option<Sent>) -> bool {
        let known = self.highest.contains_key(&job) || self.groups.contains_key(&job);
        !known && sent.is_some() && sent <= self.forgotten
    }

    /// Makes sure that nothing up to this generation can be ordered here later.
    pub(super) fn fence(&mut self, job: JobId, generation: Generation, sent: Option<Sent>, out: &mut NodeOutcome) {
        let fence = self.highest.entry(job).or_insert(Fence { generation: Generation(0), sent });
        if fence.generation < generation {
            *fence = Fence { generation, sent };
            out.persist = true;
        }
    }

    /// The engine has done with this generation here: what it said of it before has a lower serial.
    pub(super) fn release_fence(
        &mut self,
        job: JobId,
        generation: Generation,
        sent: Option<Sent>,
        out: &mut NodeOutcome,
    ) {
        let Some(fence) = self.highest.get_mut(&job).filter(|fence| fence.generation <= generation) else { return };
        // After a command that was not counted, what came before it may be late and not counted either.
        let sent = sent.and(fence.sent.max(sent));
        if fence.sent != sent {
            fence.sent = sent;
            out.persist = true;
        }
    }

    /// Keeps this many fences of jobs that have no group here, those of the newest commands. The ledger does so by itself;
    /// a simulation may have it keep fewer.
    pub fn forget_fences(&mut self, kept: usize) {
        let idle = || self.highest.iter().filter(|(job, _)| !self.groups.contains_key(job));
        let excess = idle().count().saturating_sub(kept);
        if excess == 0 {
            return;
        }
        let mut counted: Vec<(Sent, JobId)> = idle().filter_map(|(job, fence)| Some((fence.sent?, *job))).collect();
        counted.sort_unstable();
        for (sent, job) in counted.into_iter().take(excess) {
            self.highest.remove(&job);
            self.forgotten = self.forgotten.max(Some(sent));
        }
    }
}
