//! The policy as operators set it.

use crate::draft::Note;
use crate::engine::Engine;
use crate::event::Actor;
use crate::outcome::{Refusal, Reply};
use crate::record::PolicySettings;

impl Engine {
    pub(super) fn set_policy(&mut self, actor: &Actor, settings: PolicySettings) -> Result<Reply, Refusal> {
        check_objective(&settings.objective)?;
        if !(settings.usage_half_life.0.is_finite() && settings.usage_half_life.0 >= 60.0) {
            return Err(Refusal::Invalid("usage_half_life must be at least 60 s".into()));
        }
        if !(settings.round_pause.0 >= 0.0 && settings.round_every.0 >= 1.0) {
            return Err(Refusal::Invalid("round_every must be at least 1 s and round_pause not negative".into()));
        }
        let message = format!("policy is now {:?}, a round at least every {} s", settings.mode, settings.round_every.0);
        if settings.usage_half_life != self.facts.policy.usage_half_life {
            // What was used until now decayed by the former half-life.
            self.facts.settle_all();
        }
        self.facts.policy = settings.clone();
        self.facts.draft.policy = true;
        self.facts.note(Note::new("policy.changed", message).by(actor.clone()));
        self.facts.ask_round("the policy was changed".into());
        Ok(Reply::Policy(settings))
    }
}

/// What the planner relies on.
fn check_objective(objective: &headway_planner::Policy) -> Result<(), Refusal> {
    let cap = objective.power_cap.as_ref();
    let watts = cap.into_iter().flat_map(|cap| [cap.watts, cap.idle].into_iter().chain(cap.busy.values().copied()));
    let not_negative = [
        objective.min_gain,
        objective.fresh_gain,
        objective.min_batch_gain,
        objective.service_exponent,
        objective.patience.map_or(0.0, |patience| patience.0),
        objective.domain_loss,
        objective.tolerance,
    ];
    let positive = [objective.epsilon, objective.horizon.0, objective.settling.0];
    let well = objective.power.is_finite()
        && not_negative.into_iter().chain(watts).all(|number| number.is_finite() && number >= 0.0)
        && positive.into_iter().all(|number| number.is_finite() && number > 0.0);
    if well {
        return Ok(());
    }
    let what = "objective: numbers must be finite, epsilon, horizon and settling positive, the others not negative";
    Err(Refusal::Invalid(what.into()))
}
