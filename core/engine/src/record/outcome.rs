//! What came of a plan's moves: each is told by what the job got first after the plan was adopted, beside what it had before.

use headway_types::plan::MoveKind;
use headway_types::{JobId, Move, Seconds, Timestamp, TokensPerSecond};

use super::{Allocation, AllocationPhase};

/// Where a move stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, strum::Display)]
#[strum(serialize_all = "snake_case")]
pub enum MoveState {
    /// Its job has not begun to stop, or waits for its GPUs.
    Waiting,
    /// What it leaves is being saved and stopped.
    Stopping,
    /// On its new GPUs, and not training yet.
    Starting,
    Done,
    /// The job got something else first, or ended.
    Overtaken,
}

/// A move as it turned out. What is not known (yet), or does not apply, is `None`.
#[derive(Clone, Debug, PartialEq)]
pub struct MoveOutcome {
    pub job: JobId,
    pub state: MoveState,
    /// From the stop to training again, less the time that it waited for GPUs; of a start, from the grant.
    pub downtime: Option<Seconds>,
    /// Measured over the generation before, and over the one it led to.
    pub goodput_before: Option<TokensPerSecond>,
    pub goodput_after: Option<TokensPerSecond>,
    /// How long the latter has been measured.
    pub measured_for: Option<Seconds>,
}

/// What a job had and got around a plan's adoption.
#[derive(Clone, Copy, Debug)]
pub struct Around<'a> {
    /// The last allocation granted before.
    pub before: Option<&'a Allocation>,
    /// The first granted after.
    pub after: Option<&'a Allocation>,
    /// Whether the job lives.
    pub lives: bool,
}

impl MoveOutcome {
    /// What came of a move of a plan adopted at `adopted`; a running generation is measured by `live`.
    #[must_use]
    pub fn of(one: &Move, adopted: Timestamp, around: Around<'_>, live: Option<super::Made>) -> Self {
        let measured = |of: &Allocation| match of.phase() {
            AllocationPhase::Running => live,
            _ => of.made,
        };
        let (before, after) = (around.before.and_then(measured), around.after.and_then(measured));
        let state = state(one, adopted, around);
        let as_meant = state == MoveState::Done;
        Self {
            job: one.job,
            state,
            downtime: around
                .after
                .filter(|_| as_meant && one.to_gpus.0 > 0)
                .and_then(|after| downtime(around.before, after)),
            goodput_before: before.and_then(|made| made.goodput()).filter(|_| one.from_gpus.0 > 0),
            goodput_after: after.filter(|_| as_meant).and_then(|made| made.goodput()),
            measured_for: after.filter(|_| as_meant).map(|made| made.within),
        }
    }
}

fn state(one: &Move, adopted: Timestamp, Around { before, after, lives }: Around<'_>) -> MoveState {
    let stopped = before.and_then(|before| before.stopping_at).filter(|at| *at >= adopted);
    match (one.kind, after) {
        (MoveKind::Reconfigure(tier), _) if tier.is_live() => match before {
            Some(held) if held.configuration == one.to_configuration => MoveState::Done,
            Some(held) if held.phase() == AllocationPhase::Running => MoveState::Waiting,
            _ => MoveState::Overtaken,
        },
        (MoveKind::Preempt, None) => match before.map(Allocation::phase) {
            Some(AllocationPhase::Stopping) => MoveState::Stopping,
            Some(AllocationPhase::Ended) | None => MoveState::Done,
            Some(_) => MoveState::Waiting,
        },
        (MoveKind::Preempt, Some(_)) => {
            if stopped.is_some() {
                MoveState::Done
            } else {
                MoveState::Overtaken
            }
        }
        (_, Some(got)) if got.placement.gpus() == one.to_gpus => match got.phase() {
            _ if got.training_at.is_some() => MoveState::Done,
            // A job that is not modelled never tells of its first step.
            AllocationPhase::Running if got.configuration.is_none() => MoveState::Done,
            AllocationPhase::Preparing | AllocationPhase::Launching | AllocationPhase::Running => MoveState::Starting,
            AllocationPhase::Stopping | AllocationPhase::Ended => MoveState::Overtaken,
        },
        (_, Some(_)) => MoveState::Overtaken,
        (_, None) if !lives => MoveState::Overtaken,
        (_, None) => match before.map(Allocation::phase) {
            Some(AllocationPhase::Stopping) => MoveState::Stopping,
            _ => MoveState::Waiting,
        },
    }
}

fn downtime(before: Option<&Allocation>, after: &Allocation) -> Option<Seconds> {
    let starting = after.training_at.or(after.launched_at)?.since(after.granted_at);
    let stopping = before.and_then(|before| Some(before.ended_at?.since(before.stopping_at?)));
    Some(Seconds(starting.0 + stopping.map_or(0.0, |took| took.0)))
}
