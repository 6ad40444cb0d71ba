//! Planning that does not go on by itself.

use headway_types::{GpuCount, PlanId, PolicyMode, Seconds};

use super::{Finding, Kind, Subject, elapsed, lasting, standing};
use crate::account::Activity;
use crate::record::PlanRecord;
use crate::view::View;

pub(super) fn findings(view: &View) -> Vec<Finding<'_>> {
    let stopped = given_up(view).or_else(|| late(view));
    let waiting = view.proposals.iter().map(|(id, record)| waits(view, *id, record));
    stopped.into_iter().chain(paused(view)).chain(waiting).collect()
}

impl View {
    /// How long a round has been under way that takes longer than the policy lets pass between two.
    #[must_use]
    pub fn late_round(&self) -> Option<Seconds> {
        self.round_since.map(|since| elapsed(self, since)).filter(|took| took.0 > self.policy.round_every.0)
    }
}

/// GPUs that nobody has although jobs wait.
fn idle(view: &View) -> GpuCount {
    view.census().get(&Activity::IdleWaiting).copied().unwrap_or_default()
}

fn idly(idle: GpuCount) -> String {
    match idle.0 {
        0 => String::new(),
        1 => ", and 1 GPU stands idle".into(),
        _ => format!(", and {} stand idle", idle.words()),
    }
}

fn given_up(view: &View) -> Option<Finding<'_>> {
    let trouble = view.trouble.as_ref().filter(|trouble| trouble.is_open())?;
    let idle = idle(view);
    Some(Finding {
        kind: Kind::RoundsGivenUp,
        subject: Subject::Planning,
        since: Some(trouble.since),
        at_stake: Some(standing(view, idle, trouble.since)),
        told: Box::new(move || {
            let rounds = if trouble.rounds == 1 { "1 round".into() } else { format!("{} rounds", trouble.rounds) };
            let lately = elapsed(view, trouble.since).words();
            let headline = format!("{rounds} of the last {lately} gave no plan{}: {}", idly(idle), trouble.message);
            (headline, "The next rounds plan for fewer jobs; the scheduler's log says what went wrong".into())
        }),
    })
}

fn late(view: &View) -> Option<Finding<'_>> {
    view.late_round()?;
    let since = view.round_since?;
    Some(Finding {
        kind: Kind::RoundLate,
        subject: Subject::Planning,
        since: Some(since),
        at_stake: Some(standing(view, idle(view), since)),
        told: Box::new(move || {
            let headline = format!("A round has been under way {}", lasting(view, since));
            (headline, "It is given up by itself; if that goes on, fewer sizes per job make rounds shorter".into())
        }),
    })
}

fn paused(view: &View) -> Option<Finding<'_>> {
    (view.policy.mode == PolicyMode::Paused).then(|| Finding {
        kind: Kind::PlanningPaused,
        subject: Subject::Planning,
        since: None,
        at_stake: None,
        told: Box::new(|| {
            let why = view.policy.last_change.as_ref().map_or(String::new(), |change| format!(" ({change})"));
            let headline = format!("Planning is paused{why}: nothing starts{}", idly(idle(view)));
            (headline, "headway plan resume".into())
        }),
    })
}

fn waits<'v>(view: &'v View, id: PlanId, record: &'v PlanRecord) -> Finding<'v> {
    let plan = &record.plan;
    Finding {
        kind: Kind::PlanWaitsApproval,
        subject: Subject::Plan(id),
        since: Some(plan.made_at),
        at_stake: None,
        told: Box::new(move || {
            let moves = match plan.report.moves.len() {
                1 => "1 move".into(),
                many => format!("{many} moves"),
            };
            let headline = format!("A plan with {moves} waits for approval {}", lasting(view, plan.made_at));
            (headline, format!("headway plan approve {id}, or headway plan reject {id}"))
        }),
    }
}
