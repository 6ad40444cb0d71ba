//! What came of a plan's moves: each is told by what the job got first after the plan was adopted, beside what it had before.

use headway_types::plan::MoveKind;
use headway_types::{JobId, Move, Seconds, Tier, TokensPerSecond};

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
    /// What came of a move of a plan that was adopted; a running generation is measured by `live`.
    #[must_use]
    pub fn of(one: &Move, around: Around<'_>, live: Option<super::Made>) -> Self {
        let measured = |of: &Allocation| match of.phase() {
            AllocationPhase::Running => of.made.or(live),
            _ => of.made,
        };
        let state = state(one, around);
        // A start leaves nothing, and what is granted after a change in place or a preemption is no longer of this move.
        let left = around.before.filter(|_| one.from_gpus.0 > 0);
        let granted = one.kind != MoveKind::Preempt && !is_in_place(one, around.before);
        let led_to = around.after.filter(|_| state == MoveState::Done && granted);
        let made = led_to.and_then(measured);
        Self {
            job: one.job,
            state,
            downtime: led_to.and_then(|after| downtime(left, after)),
            goodput_before: left.and_then(measured).and_then(|made| made.goodput()),
            goodput_after: made.and_then(|made| made.goodput()),
            measured_for: made.map(|made| made.within),
        }
    }
}

/// Whether the generation that was there goes on: of a live change, and of a layout that was changed in memory.
fn is_in_place(one: &Move, before: Option<&Allocation>) -> bool {
    let is_changed = |held: &Allocation| held.configuration == one.to_configuration;
    match one.kind {
        MoveKind::Reconfigure(Tier::Layout) => before.is_some_and(is_changed),
        MoveKind::Reconfigure(tier) => tier.is_live(),
        MoveKind::Start | MoveKind::Preempt => false,
    }
}

fn state(one: &Move, Around { before, after, lives }: Around<'_>) -> MoveState {
    // Nobody decided on its end.
    let ended_by_itself = before.is_some_and(|held| held.stopping_at.is_none());
    match (one.kind, after) {
        _ if is_in_place(one, before) => match before {
            Some(held) if held.configuration == one.to_configuration => MoveState::Done,
            Some(held) if held.phase() == AllocationPhase::Running => MoveState::Waiting,
            _ => MoveState::Overtaken,
        },
        (MoveKind::Preempt, None) => match before.map(Allocation::phase) {
            Some(AllocationPhase::Stopping) => MoveState::Stopping,
            Some(AllocationPhase::Ended) if ended_by_itself => MoveState::Overtaken,
            Some(AllocationPhase::Ended) | None => MoveState::Done,
            Some(_) => MoveState::Waiting,
        },
        (MoveKind::Preempt, Some(_)) if ended_by_itself => MoveState::Overtaken,
        (MoveKind::Preempt, Some(_)) => MoveState::Done,
        (_, Some(got)) if got.placement.gpus() == one.to_gpus => match got.phase() {
            _ if got.training_at.is_some() => MoveState::Done,
            // A job that is not modelled never tells of its first step. What was done stays so when it ends.
            _ if got.configuration.is_none() && got.launched_at.is_some() => MoveState::Done,
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

#[cfg(test)]
mod tests;
