//! The signal a job asked for before its end.

use headway_types::spec::Notice;
use headway_types::{Generation, JobId};

use super::Ledger;
use crate::group::Phase;
use crate::outcome::{NodeAction, NodeOutcome, Refusal, Signal};

impl Ledger {
    /// Passed on once: whoever asks again learns that it was.
    pub(super) fn notify(&mut self, job: JobId, generation: Generation, number: u32, out: &mut NodeOutcome) {
        match self.group_mut(job, generation) {
            None => out.refusal = Some(Refusal::Unknown { job, generation }),
            Some(group) => match (&group.phase, group.order.notice) {
                (Phase::Running { .. }, Some(notice)) if group.notice < number => {
                    group.notice = number;
                    out.persist = true;
                    out.actions.push(NodeAction::Signal { job, generation, signal: notice.into() });
                }
                // What comes down has heard worse.
                (Phase::Running { .. } | Phase::Stopping { .. } | Phase::Ended { .. }, _) => {}
                (phase, _) => {
                    let phase = phase.name();
                    out.refusal = Some(Refusal::WrongPhase { job, generation, phase, command: "notify" });
                }
            },
        }
        self.report(job, generation, out);
    }
}

impl From<Notice> for Signal {
    fn from(notice: Notice) -> Self {
        Self::Notice { signal: notice.signal, to: notice.to }
    }
}
