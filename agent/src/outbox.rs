//! Reports on their way to the scheduler. Step reports wait for a session in a ring that drops its oldest; all other
//! reports are kept only while a session is open, since the ledger repeats them at the next one.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use headway_types::NodeReport;
use tokio::sync::Notify;

/// Step reports kept while they cannot be sent.
const STEPS: usize = 512;

#[derive(Default)]
pub(crate) struct Outbox {
    queues: Mutex<Queues>,
    filled: Notify,
}

#[derive(Default)]
struct Queues {
    open: bool,
    facts: VecDeque<NodeReport>,
    steps: VecDeque<NodeReport>,
}

impl Outbox {
    /// A session begins; the ledger is about to repeat itself.
    pub(crate) fn open(&self) {
        let mut queues = self.lock();
        queues.open = true;
        queues.facts.clear();
    }

    /// The session is over.
    pub(crate) fn close(&self) {
        let mut queues = self.lock();
        queues.open = false;
        queues.facts.clear();
    }

    pub(crate) fn push(&self, report: NodeReport) {
        let mut queues = self.lock();
        if matches!(report, NodeReport::Steps { .. }) {
            if queues.steps.len() == STEPS {
                queues.steps.pop_front();
            }
            queues.steps.push_back(report);
        } else if queues.open {
            // Only the newest status of a group matters, and the newest offer, however slow the stream is.
            queues.facts.retain(|known| match (known, &report) {
                (NodeReport::Group { status: old }, NodeReport::Group { status: new }) => {
                    (old.job, old.generation) != (new.job, new.generation)
                }
                (NodeReport::Inventory { .. }, NodeReport::Inventory { .. }) => false,
                _ => true,
            });
            queues.facts.push_back(report);
        }
        drop(queues);
        self.filled.notify_one();
    }

    /// The next report; facts overtake step reports. Loses nothing when dropped while it waits.
    pub(crate) async fn next(&self) -> NodeReport {
        loop {
            {
                let mut queues = self.lock();
                if let Some(report) = queues.facts.pop_front() {
                    return report;
                }
                if let Some(report) = queues.steps.pop_front() {
                    return report;
                }
            }
            self.filled.notified().await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queues> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use headway_types::command::GroupStatus;
    use headway_types::{Configuration, Generation, GroupPhase, JobId, Layout, Seconds, Sequences, StepReport, Tokens};

    use super::*;

    fn step(step: u64) -> NodeReport {
        let report = StepReport {
            job: JobId(uuid::Uuid::from_u128(1)),
            generation: Generation(1),
            step,
            steps: 1,
            samples_seen: Sequences(step),
            tokens: Tokens(1.0),
            duration: Seconds(1.0),
            configuration: Configuration {
                layout: Layout { dp: 1, tp: 1, pp: 1 },
                micro_batch: Sequences(1),
                global_batch: Sequences(1),
            },
            loss: None,
            noise: None,
        };
        NodeReport::Steps { report: Box::new(report) }
    }

    fn group(phase: GroupPhase) -> NodeReport {
        let status =
            GroupStatus { job: JobId(uuid::Uuid::from_u128(1)), generation: Generation(1), gpus: vec![], phase };
        NodeReport::Group { status }
    }

    #[tokio::test]
    async fn under_back_pressure_old_steps_go_and_group_statuses_stay() {
        let outbox = Outbox::default();
        outbox.open();
        for number in 0..2 * STEPS as u64 {
            outbox.push(step(number));
        }
        outbox.push(group(GroupPhase::Preparing));
        outbox.push(group(GroupPhase::Running));
        assert_eq!(outbox.next().await, group(GroupPhase::Running));
        assert_eq!(outbox.next().await, step(STEPS as u64));
    }

    #[tokio::test]
    async fn without_a_session_only_steps_wait() {
        let outbox = Outbox::default();
        outbox.push(group(GroupPhase::Running));
        outbox.push(step(1));
        assert_eq!(outbox.next().await, step(1));
    }
}
