//! The policy as operators set it.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::draft::Note;
use crate::engine::Engine;
use crate::event::Actor;
use crate::outcome::{Refusal, Reply};
use crate::record::{PolicyMode, PolicySettings};

/// Users with a quota of their own.
const MOST_OWN_QUOTAS: usize = 1_000;

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
        if !(settings.proposals_last.0.is_finite() && settings.proposals_last.0 >= 60.0) {
            return Err(Refusal::Invalid("proposals_last must be at least 60 s".into()));
        }
        if !(settings.round_pause.0 >= 0.0 && settings.round_every.0 >= 1.0) {
            return Err(Refusal::Invalid("round_every must be at least 1 s and round_pause not negative".into()));
        }
        let quotas = settings.user_quotas.keys().map(|user| settings.quota_of(user)).chain([settings.user_quota]);
        if quotas.into_iter().any(|quota| quota.requests_per_second == 0 || quota.request_burst == 0) {
            let what = "requests_per_second and request_burst of a quota must be at least 1";
            return Err(Refusal::Invalid(what.into()));
        }
        if settings.user_quotas.len() > MOST_OWN_QUOTAS {
            let what = format!("user_quotas names more than {MOST_OWN_QUOTAS} users: raise user_quota instead");
            return Err(Refusal::Invalid(what));
        }
        let what = differences(former, &settings).join(", ");
        let resumes = match (settings.mode, former.mode) {
            (PolicyMode::Paused, PolicyMode::Paused) => former.resumes,
            (PolicyMode::Paused, before) => Some(before),
            _ => None,
        };
        if what.is_empty() {
            return Ok(Reply::Policy(Box::new(former.clone())));
        }
        let (version, last_change) = (former.version + 1, Some(format!("{actor}: {what}")));
        let settings = PolicySettings { version, last_change, resumes, ..settings };
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

impl Engine {
    pub(super) fn pause(&mut self, actor: &Actor, reason: Option<String>) -> Result<Reply, Refusal> {
        if self.facts.policy.mode == PolicyMode::Paused {
            return Err(Refusal::WrongState("planning is paused already".into()));
        }
        let reply = self.turn_to(actor, PolicyMode::Paused)?;
        self.tell_of_planning(
            actor,
            "plan.paused",
            "nothing starts and nothing moves until planning is resumed",
            reason,
        );
        Ok(reply)
    }

    pub(super) fn resume(&mut self, actor: &Actor, reason: Option<String>) -> Result<Reply, Refusal> {
        if self.facts.policy.mode != PolicyMode::Paused {
            return Err(Refusal::WrongState(format!("planning is not paused; its mode is {}", self.facts.policy.mode)));
        }
        let reply = self.turn_to(actor, self.facts.policy.resumes.unwrap_or(PolicyMode::Auto))?;
        self.tell_of_planning(actor, "plan.resumed", "planning goes on", reason);
        Ok(reply)
    }

    fn turn_to(&mut self, actor: &Actor, mode: PolicyMode) -> Result<Reply, Refusal> {
        let settings = PolicySettings { mode, ..self.facts.policy.clone() };
        self.set_policy(actor, settings, None)
    }

    fn tell_of_planning(&mut self, actor: &Actor, verb: &'static str, what: &str, reason: Option<String>) {
        let why = reason.map_or(String::new(), |reason| format!(": {reason}"));
        self.facts.note(Note::new(verb, format!("{what}{why}")).by(actor.clone()));
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
            Value::Object(of) if ["user_quota", "user_quotas"].contains(&name.as_str()) => {
                all.extend(of.into_iter().map(|(of, value)| (format!("{name}.{of}"), value)));
            }
            _ if ["version", "last_change", "resumes"].contains(&name.as_str()) => {}
            value => drop(all.insert(name, value)),
        }
    }
    all
}
