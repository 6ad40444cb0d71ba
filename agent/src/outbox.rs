//! Reports on their way to the scheduler. Observations wait for a session in a ring that drops its oldest; facts are
//! kept only while a session is open, since the ledger repeats them at the next one, and only the newest of each kind
//! and group. Facts overtake observations, but for those about the same group that an end or a checkpoint would make
//! stale.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use headway_types::{Generation, GroupPhase, JobId, NodeReport};
use tokio::sync::Notify;

/// Observations kept while they cannot be sent.
const OBSERVATIONS: usize = 512;

#[derive(Default)]
pub(crate) struct Outbox {
    queues: Mutex<Queues>,
    filled: Notify,
}

#[derive(Default)]
struct Queues {
    open: bool,
    facts: VecDeque<NodeReport>,
    observations: VecDeque<NodeReport>,
}

impl Outbox {
    /// A session begins; the ledger is about to repeat itself.
    pub(crate) fn open(&self) {
        let mut queues = self.lock();
        queues.open = true;
        queues.forget_facts();
    }

    /// The session is over.
    pub(crate) fn close(&self) {
        let mut queues = self.lock();
        queues.open = false;
        queues.forget_facts();
    }

    pub(crate) fn push(&self, report: NodeReport) {
        let mut queues = self.lock();
        if is_observation(&report) {
            if queues.observations.len() == OBSERVATIONS {
                queues.observations.pop_front();
            }
            queues.observations.push_back(report);
        } else if queues.open {
            queues.push_fact(report);
        }
        drop(queues);
        self.filled.notify_one();
    }

    /// The next report; facts overtake observations. Loses nothing when dropped while it waits.
    pub(crate) async fn next(&self) -> NodeReport {
        loop {
            {
                let mut queues = self.lock();
                if let Some(report) = queues.facts.pop_front() {
                    return report;
                }
                if let Some(report) = queues.observations.pop_front() {
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

impl Queues {
    fn push_fact(&mut self, fact: NodeReport) {
        self.facts.retain(|known| !replaces(&fact, known));
        if let Some(subject) = subject(&fact).filter(|_| is_last_word(&fact)) {
            let (about, others) = self.observations.drain(..).partition(|known| self::subject(known) == Some(subject));
            self.observations = others;
            let about: VecDeque<NodeReport> = about;
            self.facts.extend(about);
        }
        self.facts.push_back(fact);
    }

    /// The ledger repeats facts, but nobody repeats the observations that went ahead among them: they wait again.
    fn forget_facts(&mut self) {
        let ahead = self.facts.drain(..).filter(is_observation);
        self.observations = ahead.chain(self.observations.drain(..)).collect();
        let excess = self.observations.len().saturating_sub(OBSERVATIONS);
        self.observations.drain(..excess);
    }
}

fn is_observation(report: &NodeReport) -> bool {
    matches!(report, NodeReport::Steps { .. } | NodeReport::RankTimes { .. })
}

/// After these the scheduler is not interested in what came before.
fn is_last_word(fact: &NodeReport) -> bool {
    match fact {
        NodeReport::CheckpointWritten { .. } => true,
        NodeReport::Group { status } => matches!(status.phase, GroupPhase::Ended { .. }),
        _ => false,
    }
}

/// Whether nobody needs the older of two facts once there is the newer.
fn replaces(newer: &NodeReport, older: &NodeReport) -> bool {
    use NodeReport as R;
    let same_kind = matches!(
        (newer, older),
        (R::Group { .. }, R::Group { .. })
            | (R::Declared { .. }, R::Declared { .. })
            | (R::CheckpointWritten { .. }, R::CheckpointWritten { .. })
            | (R::Activity { .. }, R::Activity { .. })
            | (R::StartPhases { .. }, R::StartPhases { .. })
            | (R::LossAnomaly { .. }, R::LossAnomaly { .. })
            | (R::Inventory { .. }, R::Inventory { .. })
    );
    same_kind && subject(newer) == subject(older)
}

/// The group a report speaks of.
fn subject(report: &NodeReport) -> Option<(JobId, Generation)> {
    match report {
        NodeReport::Registered { .. } | NodeReport::Heartbeat | NodeReport::Inventory { .. } => None,
        NodeReport::Group { status } => Some((status.job, status.generation)),
        NodeReport::Steps { report } => Some((report.job, report.generation)),
        NodeReport::CheckpointWritten { job, checkpoint, .. } => Some((*job, checkpoint.generation)),
        NodeReport::Declared { job, generation, .. }
        | NodeReport::RankTimes { job, generation, .. }
        | NodeReport::LossAnomaly { job, generation, .. }
        | NodeReport::Activity { job, generation, .. }
        | NodeReport::StartPhases { job, generation, .. } => Some((*job, *generation)),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use headway_types::command::GroupStatus;
    use headway_types::{Configuration, GroupOutcome, Layout, Seconds, Sequences, StepReport, Tokens};

    use super::*;

    fn step(step: u64) -> NodeReport {
        NodeReport::Steps { report: Box::new(step_report(step)) }
    }

    pub(crate) fn step_report(step: u64) -> StepReport {
        StepReport {
            job: JobId(uuid::Uuid::from_u128(1)),
            generation: Generation(1),
            step,
            steps: 1,
            samples_seen: Sequences(step),
            tokens: Tokens(1.0),
            duration: Seconds(1.0),
            configuration: Configuration {
                layout: Layout { dp: 1, tp: 1, pp: 1, ..Layout::single() },
                micro_batch: Sequences(1),
                global_batch: Sequences(1),
            },
            loss: None,
            noise: None,
            preconditioned: None,
            memory_peak: None,
        }
    }

    fn group(phase: GroupPhase) -> NodeReport {
        let job = JobId(uuid::Uuid::from_u128(1));
        let status = GroupStatus { job, generation: Generation(1), gpus: vec![], phase, revision: 0, notice: 0 };
        NodeReport::Group { status }
    }

    #[tokio::test]
    async fn under_back_pressure_old_steps_go_and_group_statuses_stay() {
        let outbox = Outbox::default();
        outbox.open();
        for number in 0..2 * OBSERVATIONS as u64 {
            outbox.push(step(number));
        }
        outbox.push(group(GroupPhase::Preparing));
        outbox.push(group(GroupPhase::Running));
        assert_eq!(outbox.next().await, group(GroupPhase::Running));
        assert_eq!(outbox.next().await, step(OBSERVATIONS as u64));
    }

    #[tokio::test]
    async fn without_a_session_only_steps_wait() {
        let outbox = Outbox::default();
        outbox.push(group(GroupPhase::Running));
        outbox.push(step(1));
        assert_eq!(outbox.next().await, step(1));
    }

    #[tokio::test]
    async fn the_last_steps_of_a_group_go_before_its_end() {
        let outbox = Outbox::default();
        outbox.open();
        outbox.push(step(7));
        let ended = group(GroupPhase::Ended { outcome: GroupOutcome::Succeeded });
        outbox.push(ended.clone());
        assert_eq!(outbox.next().await, step(7));
        assert_eq!(outbox.next().await, ended);
    }

    #[tokio::test]
    async fn steps_that_went_ahead_of_an_end_outlive_the_session() {
        let outbox = Outbox::default();
        outbox.open();
        outbox.push(step(7));
        let ended = group(GroupPhase::Ended { outcome: GroupOutcome::Succeeded });
        outbox.push(ended.clone());
        outbox.close();
        outbox.push(step(8));
        outbox.open();
        outbox.push(ended.clone());
        for expected in [step(7), step(8), ended] {
            assert_eq!(outbox.next().await, expected);
        }
    }
}
