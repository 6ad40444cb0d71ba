//! The policy as operators set it.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::draft::Note;
use crate::engine::Engine;
use crate::event::Actor;
use crate::outcome::{Refusal, Reply};
use crate::record::PolicySettings;

impl Engine {
    /// `expected`: only if the policy is at this version now.
    pub(super) fn set_policy(
        &mut self,
        actor: &Actor,
        settings: PolicySettings,
        expected: Option<u64>,
    ) -> Result<Reply, Refusal> {
        let former = &self.facts.policy;
        if expected.is_some_and(|expected| expected != former.version) {
            let last = former.last_change.as_ref().map_or(String::new(), |last| format!(" ({last})"));
            return Err(Refusal::VersionChanged { what: format!("the policy{last}"), now: former.version });
        }
        headway_planner::check_settings(&settings.objective)
            .map_err(|wrong| Refusal::Invalid(format!("objective: {wrong}")))?;
        if !(settings.usage_half_life.0.is_finite() && settings.usage_half_life.0 >= 60.0) {
            return Err(Refusal::Invalid("usage_half_life must be at least 60 s".into()));
        }
        if !(settings.round_pause.0 >= 0.0 && settings.round_every.0 >= 1.0) {
            return Err(Refusal::Invalid("round_every must be at least 1 s and round_pause not negative".into()));
        }
        let what = differences(former, &settings).join(", ");
        if what.is_empty() {
            return Ok(Reply::Policy(Box::new(former.clone())));
        }
        let (version, last_change) = (former.version + 1, Some(format!("{actor}: {what}")));
        let settings = PolicySettings { version, last_change, ..settings };
        if settings.usage_half_life != self.facts.policy.usage_half_life {
            // What was used until now decayed by the former half-life.
            self.facts.settle_all();
        }
        self.facts.policy = settings.clone();
        self.facts.draft.policy = true;
        let note = Note::new("policy.changed", format!("the policy: {what}")).by(actor.clone());
        self.facts.note(note.with("version", version));
        self.facts.ask_round_for_somebody("the policy was changed".into());
        Ok(Reply::Policy(Box::new(settings)))
    }
}

/// "min_gain 0.02 becomes 0.05" of every setting that is another.
fn differences(before: &PolicySettings, after: &PolicySettings) -> Vec<String> {
    let (before, after) = (settings_of(before), settings_of(after));
    let absent = Value::Null;
    // A setting that is as by default may be written by neither.
    let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let of = |all: &'_ BTreeMap<String, Value>, name: &String| all.get(name).unwrap_or(&absent).clone();
    let changed = names.into_iter().map(|name| (name, of(&before, name), of(&after, name)));
    changed.filter(|(_, from, to)| from != to).map(|(name, from, to)| format!("{name} {from} becomes {to}")).collect()
}

/// All settings by name, those of the objective beside the others.
fn settings_of(policy: &PolicySettings) -> BTreeMap<String, Value> {
    let mut all = BTreeMap::new();
    let Ok(Value::Object(settings)) = serde_json::to_value(policy) else { return all };
    for (name, value) in settings {
        match value {
            Value::Object(objective) if name == "objective" => all.extend(objective),
            _ if name == "version" || name == "last_change" => {}
            value => drop(all.insert(name, value)),
        }
    }
    all
}
