//! The policy as operators set it.

use crate::draft::Note;
use crate::engine::Engine;
use crate::event::Actor;
use crate::outcome::{Refusal, Reply};
use crate::record::PolicySettings;

impl Engine {
    pub(super) fn set_policy(&mut self, actor: &Actor, settings: PolicySettings) -> Result<Reply, Refusal> {
        headway_planner::check_settings(&settings.objective)
            .map_err(|wrong| Refusal::Invalid(format!("objective: {wrong}")))?;
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
        self.facts.ask_round_for_somebody("the policy was changed".into());
        Ok(Reply::Policy(Box::new(settings)))
    }
}
