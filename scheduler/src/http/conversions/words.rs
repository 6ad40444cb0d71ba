//! What ends a generation, and what a user wants of a job meanwhile, for people.

use headway_engine::record::{StopCause, Wish};

/// Why a generation is being stopped, for people.
pub fn stop_in_words(cause: &StopCause) -> String {
    match cause {
        StopCause::Rescale => "goes on with other GPUs or another layout".into(),
        StopCause::Preempt => "other jobs need its GPUs more".into(),
        StopCause::Drain => "its node is drained, broken or reserved for others".into(),
        StopCause::Requeue => "put back into the queue".into(),
        StopCause::Cancel => "cancelled".into(),
        StopCause::Hold => "put on hold".into(),
        StopCause::GangBroken { message } => format!("part of its gang failed: {message}"),
        StopCause::Mistaken { message } => format!("cannot run as it is specified: {message}"),
        StopCause::Hung { message } => format!("hangs: {message}"),
        StopCause::NodeLost { node } => format!("node {node} does not answer"),
        StopCause::TargetReached => "target reached".into(),
        StopCause::TimeLimit => "time limit reached".into(),
        StopCause::BudgetSpent => "budget of GPU-hours spent".into(),
        StopCause::IdleGpus { message } => message.clone(),
    }
}

/// What a user wants of a job that still runs, for people.
pub fn wish_in_words(wish: &Wish) -> String {
    let because = |reason: &Option<String>| reason.as_ref().map_or_else(String::new, |reason| format!(": {reason}"));
    match wish {
        Wish::Held { reason } => format!("saves and stops, then is held{}", because(reason)),
        Wish::Cancelled { by, reason, .. } => format!("stops, cancelled by {by}{}", because(reason)),
    }
}
