//! The transition table of a job. Nobody assigns a `JobState` outside `apply`; every pair not listed is an
//! `IllegalTransition` value, counted and recorded by the caller, never a panic.

use core::fmt;

use headway_types::{Generation, JobId, JobStateKind, Timestamp};

use crate::record::{JobState, StopCause};

/// What may happen to a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobEvent {
    /// GPUs were granted under a new generation.
    Grant {
        generation: Generation,
    },
    /// Every node of the gang runs.
    Launched,
    /// The generation is to end.
    Stop {
        cause: StopCause,
    },
    /// The generation has ended and the job wants GPUs again.
    Requeue,
    /// A job that has ended goes on, by its owner's word.
    Revive,
    /// The jobs that come before it have come as far as they were to: its wait for GPUs begins.
    Unblock,
    Hold {
        reason: Option<String>,
    },
    Release,
    Cancel {
        by: String,
        reason: Option<String>,
    },
    Succeed,
    Fail {
        message: String,
    },
}

/// A pair of state and event that the table does not list.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("job {job} is {state} and cannot take {event:?}")]
pub struct IllegalTransition {
    pub job: JobId,
    pub state: JobState,
    pub event: JobEvent,
}

impl JobState {
    /// The whole table.
    pub fn apply(self, job: JobId, now: Timestamp, event: JobEvent) -> Result<JobState, IllegalTransition> {
        use {JobEvent as E, JobState as S};
        Ok(match (self, event) {
            (S::Queued { .. }, E::Grant { generation }) => S::Starting { generation, since: now },
            (S::Starting { generation, .. }, E::Launched) => S::Running { generation, since: now },
            (S::Starting { generation, .. } | S::Running { generation, .. }, E::Stop { cause }) => {
                S::Stopping { generation, since: now, cause }
            }
            (S::Stopping { .. }, E::Requeue)
            | (S::Held { .. }, E::Release)
            | (S::Queued { .. }, E::Unblock)
            | (S::Failed { .. } | S::Cancelled { .. }, E::Revive) => S::Queued { since: now },
            // Also where it is on hold: for another reason.
            (S::Queued { .. } | S::Held { .. } | S::Stopping { .. }, E::Hold { reason }) => {
                S::Held { since: now, reason }
            }
            (S::Queued { .. } | S::Held { .. } | S::Stopping { .. }, E::Cancel { by, reason }) => {
                S::Cancelled { at: now, by, reason }
            }
            // Also while it waits: its last generation may have ended well out of sight.
            (
                S::Starting { .. } | S::Running { .. } | S::Stopping { .. } | S::Queued { .. } | S::Held { .. },
                E::Succeed,
            ) => S::Succeeded { at: now },
            (S::Stopping { .. }, E::Fail { message }) => S::Failed { at: now, message },
            (state, event) => return Err(IllegalTransition { job, state, event }),
        })
    }

    /// The generation whose processes may be alive, as far as the job is concerned.
    #[must_use]
    pub fn generation(&self) -> Option<Generation> {
        match self {
            JobState::Starting { generation, .. }
            | JobState::Running { generation, .. }
            | JobState::Stopping { generation, .. } => Some(*generation),
            _ => None,
        }
    }

    /// Whether the job is over for good.
    #[must_use]
    pub fn is_final(&self) -> bool {
        self.kind().is_final()
    }

    /// Which state it is, without what it carries.
    #[must_use]
    pub fn kind(&self) -> JobStateKind {
        match self {
            JobState::Queued { .. } => JobStateKind::Queued,
            JobState::Held { .. } => JobStateKind::Held,
            JobState::Starting { .. } => JobStateKind::Starting,
            JobState::Running { .. } => JobStateKind::Running,
            JobState::Stopping { .. } => JobStateKind::Stopping,
            JobState::Succeeded { .. } => JobStateKind::Succeeded,
            JobState::Failed { .. } => JobStateKind::Failed,
            JobState::Cancelled { .. } => JobStateKind::Cancelled,
        }
    }
}

impl fmt::Display for JobState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.kind().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use headway_types::IdSource;

    use super::*;

    const NOW: Timestamp = Timestamp(9);
    const G: Generation = Generation(3);

    fn states() -> Vec<JobState> {
        let since = Timestamp(1);
        vec![
            JobState::Queued { since },
            JobState::Held { since, reason: None },
            JobState::Starting { generation: G, since },
            JobState::Running { generation: G, since },
            JobState::Stopping { generation: G, since, cause: StopCause::Rescale },
            JobState::Succeeded { at: since },
            JobState::Failed { at: since, message: "out of memory".into() },
            JobState::Cancelled { at: since, by: "ada".into(), reason: None },
        ]
    }

    fn events() -> Vec<(&'static str, JobEvent)> {
        vec![
            ("grant", JobEvent::Grant { generation: G }),
            ("launched", JobEvent::Launched),
            ("stop", JobEvent::Stop { cause: StopCause::Preempt }),
            ("requeue", JobEvent::Requeue),
            ("unblock", JobEvent::Unblock),
            ("revive", JobEvent::Revive),
            ("hold", JobEvent::Hold { reason: None }),
            ("release", JobEvent::Release),
            ("cancel", JobEvent::Cancel { by: "ada".into(), reason: None }),
            ("succeed", JobEvent::Succeed),
            ("fail", JobEvent::Fail { message: "x".into() }),
        ]
    }

    #[test]
    fn the_table_lists_exactly_these_transitions() {
        let job = IdSource::seeded(1).job(NOW);
        let mut table = String::new();
        for state in states() {
            for (name, event) in events() {
                if let Ok(next) = state.clone().apply(job, NOW, event) {
                    table.push_str(&format!("{state} + {name} = {next}\n"));
                }
            }
        }
        insta::assert_snapshot!(table, @"
        queued + grant = starting
        queued + unblock = queued
        queued + hold = held
        queued + cancel = cancelled
        queued + succeed = succeeded
        held + hold = held
        held + release = queued
        held + cancel = cancelled
        held + succeed = succeeded
        starting + launched = running
        starting + stop = stopping
        starting + succeed = succeeded
        running + stop = stopping
        running + succeed = succeeded
        stopping + requeue = queued
        stopping + hold = held
        stopping + cancel = cancelled
        stopping + succeed = succeeded
        stopping + fail = failed
        failed + revive = queued
        cancelled + revive = queued
        ");
    }

    #[test]
    fn a_final_state_takes_nothing_but_its_owners_word() {
        let job = IdSource::seeded(1).job(NOW);
        for state in states().into_iter().filter(JobState::is_final) {
            for (_, event) in events().into_iter().filter(|(_, event)| *event != JobEvent::Revive) {
                assert_eq!(state.clone().apply(job, NOW, event.clone()).unwrap_err().event, event);
            }
        }
    }

    #[test]
    fn a_stopping_job_keeps_its_generation_until_it_has_stopped() {
        let job = IdSource::seeded(1).job(NOW);
        let running = JobState::Running { generation: G, since: Timestamp(1) };
        let stopping = running.apply(job, NOW, JobEvent::Stop { cause: StopCause::Drain }).unwrap();
        assert_eq!(stopping.generation(), Some(G));
        assert_eq!(stopping.apply(job, NOW, JobEvent::Requeue).unwrap().generation(), None);
    }
}
