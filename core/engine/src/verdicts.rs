//! What readers are told of a job: the newest plan's word, or the engine's own where the planner was not asked. A plan's words are taken over all
//! at once, shared with the plan, so that a long queue costs the loop nothing.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use headway_types::plan::NodeLeftOut;
use headway_types::{JobId, JobVerdict, Reason, ReasonCode, Seconds};

use crate::record::{Job, JobState};
use crate::view::View;

/// What rounds say of jobs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Verdicts {
    /// By the newest plan made, adopted or not.
    pub said: Arc<BTreeMap<JobId, JobVerdict>>,
    /// Whom rounds leave for later since some gave no plan.
    pub left: Arc<BTreeSet<JobId>>,
    /// Jobs that were due when the newest plan was made, each with the wait after which it is.
    pub due: BTreeMap<JobId, Seconds>,
    /// Nodes that it could not be planned with.
    pub nodes_left_out: Arc<Vec<NodeLeftOut>>,
}

impl View {
    /// Why a live job is where it is; nothing of one that no round has looked at yet.
    #[must_use]
    pub fn verdict(&self, job: JobId) -> Option<Cow<'_, JobVerdict>> {
        let row = &self.jobs.get(&job)?.job;
        let own = |code, headline: String| Some(Cow::Owned(own(code, headline.clone(), headline)));
        match (&row.state, row.not_before) {
            (JobState::Held { reason, .. }, _) => {
                let why = reason.as_deref().map_or(String::new(), |reason| format!(": {reason}"));
                own(ReasonCode::Held, format!("on hold until it is released{why}"))
            }
            (JobState::Queued { .. }, _) if row.open_dependencies().next().is_some() => Some(Cow::Owned(blocked(row))),
            (JobState::Queued { .. }, _) if row.waits_for_its_array() => {
                let told = self.array_limit(row);
                own(ReasonCode::ArrayLimit, told)
            }
            (JobState::Queued { .. }, Some(until)) if until > self.at => {
                let setbacks = row.failures + row.setbacks;
                own(ReasonCode::BackOff, format!("waits a while after {setbacks} failed attempts in a row"))
            }
            (state, _) if self.is_aside(job) => Some(Cow::Owned(aside(matches!(state, JobState::Queued { .. })))),
            (JobState::Queued { .. }, _) if self.verdicts.left.contains(&job) => Some(Cow::Owned(left())),
            _ => self.verdicts.said.get(&job).map(Cow::Borrowed),
        }
    }

    /// How many of a job's array run, and how many may.
    fn array_limit(&self, row: &Job) -> String {
        let array = row.element.as_ref().and_then(|element| self.arrays.get(&element.array));
        let Some((shown, limit)) = array.and_then(|shown| Some((shown, shown.array.parallel?))) else {
            return "waits for others of its array to end".into();
        };
        let name = &shown.array.name;
        let next = shown.admitted.saturating_sub(shown.running);
        let next = if next > 0 { format!(" and {next} may start") } else { String::new() };
        format!("waits for others of array {name} to end: {} run{next}, and it allows {limit} at once", shown.running)
    }

    /// Whether rounds do without the job, since they gave no plan with it.
    fn is_aside(&self, job: JobId) -> bool {
        self.trouble.as_ref().is_some_and(|trouble| trouble.aside.contains_key(&job))
    }
}

fn blocked(job: &Job) -> JobVerdict {
    let reason = |detail| Reason { code: ReasonCode::Dependency, binding: true, detail };
    let open: Vec<String> = job.open_dependencies().map(|one| one.in_words(&job.spec.project)).collect();
    let headline = match open.as_slice() {
        [first, others @ ..] if !others.is_empty() => format!("{first}, and for {} more", others.len()),
        _ => open.concat(),
    };
    JobVerdict { headline, reasons: open.into_iter().map(reason).collect(), ..JobVerdict::default() }
}

fn aside(waits: bool) -> JobVerdict {
    let lot = if waits { "waits" } else { "keeps what it has" };
    let detail = "rounds gave no plan with it and do without it; it is tried again from time to time";
    own(ReasonCode::Malformed, format!("Cannot be planned with and {lot}: {detail}"), detail.into())
}

fn left() -> JobVerdict {
    let detail = "rounds gave no plan, so that only some of those that wait are planned for now";
    own(ReasonCode::NotReady, format!("Waits for a later round: {detail}"), detail.into())
}

fn own(code: ReasonCode, headline: String, detail: String) -> JobVerdict {
    JobVerdict { headline, reasons: vec![Reason { code, binding: true, detail }], ..JobVerdict::default() }
}
