//! What a user does with an array that exists: with all its elements at once, or with how many run. Each element goes through what is done with a job.

use headway_types::{ArrayId, JobId, Seconds};

use crate::draft::Note;
use crate::engine::Engine;
use crate::event::{Actor, ArrayDeed};
use crate::facts::arrays::Kept;
use crate::outcome::{ArrayDone, Refusal, Reply};
use crate::record::{Job, JobState, Wish};

impl Engine {
    /// Of elements that it does not concern nothing is asked; where it concerns none, nothing is done. A repeated
    /// cancellation succeeds, as that of a job does: the client may have lost the first reply.
    pub(super) fn do_with_array(&mut self, actor: &Actor, id: ArrayId, deed: ArrayDeed) -> Result<Reply, Refusal> {
        let kept = self.facts.arrays.get(id).cloned().ok_or(Refusal::NoSuchArray(id))?;
        let name = kept.row.name.clone();
        // An element that must not run twice cannot be held once it runs: the others are.
        let runs_once = |job: &Job| matches!(deed, ArrayDeed::Hold { .. }) && self.facts.has_used_its_only_start(job);
        let concerned = |job: &JobId| self.facts.jobs.get(job).is_some_and(|job| deed.concerns(job) && !runs_once(job));
        let touched: Vec<JobId> = kept.elements().into_iter().map(|(_, job)| job).filter(concerned).collect();
        if touched.is_empty() {
            if matches!(deed, ArrayDeed::Cancel { .. }) && self.is_cancelled(&kept) {
                return self.array_reply(id, touched);
            }
            let what = deed.in_words().0;
            return Err(Refusal::WrongState(format!("no element of array {name} can be {what}")));
        }
        let (what, reason) = deed.in_words();
        let why = reason.map_or(String::new(), |reason| format!(": {reason}"));
        let message = format!("{} of {} elements of {name} are {what}{why}", touched.len(), kept.row.count());
        self.facts.note(Note::new(deed.verb(), message.clone()).by(actor.clone()).job(touched[0]).with("array", id));
        // One cause for the round, however many elements ask for one.
        let wanted = self.facts.round_wanted.clone();
        for job in &touched {
            match &deed {
                ArrayDeed::Cancel { reason, grace } => self.cancel(actor, *job, reason.clone(), grace.map(Seconds))?,
                ArrayDeed::Hold { reason } => self.hold(actor, *job, reason.clone())?,
                ArrayDeed::Release => self.release_job(actor, *job)?,
            };
        }
        self.facts.round_wanted = wanted;
        self.facts.ask_round_for_somebody(message);
        self.array_reply(id, touched)
    }

    /// `expected`: only if the array is at this version now.
    pub(super) fn change_array(
        &mut self,
        actor: &Actor,
        id: ArrayId,
        parallel: Option<u32>,
        expected: Option<u64>,
    ) -> Result<Reply, Refusal> {
        let row = self.facts.array(id).cloned().ok_or(Refusal::NoSuchArray(id))?;
        let version = row.version + u64::from(self.facts.draft.arrays.contains(&id));
        if expected.is_some_and(|expected| expected != version) {
            return Err(Refusal::VersionChanged { what: format!("array {}", row.name), now: version });
        }
        if parallel == Some(0) {
            return Err(Refusal::Invalid(
                "at least one element runs at once; to keep all from running, hold the array".into(),
            ));
        }
        if row.parallel != parallel {
            let told =
                |parallel: Option<u32>| parallel.map_or_else(|| "any number".to_owned(), |most| most.to_string());
            let message = format!("of {}: {} at once become {}", row.name, told(row.parallel), told(parallel));
            self.facts.edit_array(id, |array| array.parallel = parallel);
            let first = self.facts.arrays.get(id).and_then(|kept| kept.elements().first().map(|(_, job)| *job));
            let note = Note::new("array.changed", message).by(actor.clone()).with("array", id);
            self.facts.note(Note { job: first, ..note });
        }
        self.array_reply(id, Vec::new())
    }

    /// Returns whether an element was cancelled, or is being cancelled.
    fn is_cancelled(&self, kept: &Kept) -> bool {
        let is_cancelled = |job: &Job| matches!(job.wish, Some(Wish::Cancelled { .. }));
        let mut elements = kept.elements().into_iter().filter_map(|(_, job)| self.facts.jobs.get(&job));
        kept.row.tally.cancelled > 0 || elements.any(|job| is_cancelled(job))
    }

    fn array_reply(&self, id: ArrayId, touched: Vec<JobId>) -> Result<Reply, Refusal> {
        let array = self.facts.array(id).cloned().ok_or(Refusal::NoSuchArray(id))?;
        Ok(Reply::Array(ArrayDone { array, touched }))
    }
}

impl ArrayDeed {
    fn concerns(&self, job: &Job) -> bool {
        let cancelled = matches!(job.wish, Some(Wish::Cancelled { .. }));
        let held = matches!(job.wish, Some(Wish::Held { .. })) || matches!(job.state, JobState::Held { .. });
        !job.state.is_final()
            && !cancelled
            && match self {
                Self::Cancel { .. } => true,
                Self::Hold { .. } => !held,
                Self::Release => held,
            }
    }

    fn in_words(&self) -> (&'static str, Option<&str>) {
        match self {
            Self::Cancel { reason, .. } => ("cancelled", reason.as_deref()),
            Self::Hold { reason } => ("put on hold", reason.as_deref()),
            Self::Release => ("released", None),
        }
    }

    fn verb(&self) -> &'static str {
        match self {
            Self::Cancel { .. } => "array.cancelled",
            Self::Hold { .. } => "array.held",
            Self::Release => "array.released",
        }
    }
}
