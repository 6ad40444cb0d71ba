//! Requests about projects: their rules. What the rules mean for a round is the planner's business.

use std::sync::Arc;

use headway_types::{GpuCount, GpuSeconds};

use crate::draft::Note;
use crate::engine::Engine;
use crate::event::Actor;
use crate::outcome::{Refusal, Reply};
use crate::record::{Project, ProjectAccess, ProjectRules, lineage};

const LONGEST_NAME: usize = 128;
const HEAVIEST: f64 = 1e6;

impl Engine {
    /// Creates a project or replaces its rules. `expected`: only if it is at this version now; 0: only if there is none.
    pub(super) fn put_project(
        &mut self,
        actor: &Actor,
        name: String,
        rules: ProjectRules,
        expected: Option<u64>,
    ) -> Result<Reply, Refusal> {
        let known = self.facts.projects.get(&name).cloned();
        let version = known.as_ref().map_or(0, |project| project.version);
        check_version(&name, expected, version)?;
        self.check_rules(&name, &rules)?;
        let new = Project {
            name: name.clone(),
            rules,
            access: known.as_ref().map(|known| known.access.clone()).unwrap_or_default(),
            used: GpuSeconds(0.0),
            used_at: self.facts.now,
            version: version + 1,
        };
        if let Some(same) = known.as_ref().filter(|known| known.rules == new.rules) {
            return Ok(Reply::Project(same.clone()));
        }
        self.facts.settle_all();
        let used = self.facts.projects.get(&name).map_or(GpuSeconds(0.0), |project| project.used);
        let project = Arc::new(Project { used, ..new });
        self.facts.projects.insert(name.clone(), project.clone());
        self.facts.draft.projects.insert(name.clone());
        let verb = if known.is_some() { "project.changed" } else { "project.created" };
        let message = format!("project {name} {}", in_words(&project.rules));
        self.facts
            .note(Note::new(verb, message).by(actor.clone()).with("project", &name).with("version", project.version));
        self.facts.ask_round_for_somebody(format!("the rules of project {name} were set"));
        Ok(Reply::Project(project))
    }

    /// Its jobs go on, bound by nothing.
    pub(super) fn delete_project(
        &mut self,
        actor: &Actor,
        name: &str,
        expected: Option<u64>,
    ) -> Result<Reply, Refusal> {
        let project = self.facts.projects.get(name).cloned().ok_or_else(|| Refusal::NoSuchProject(name.into()))?;
        check_version(name, expected, project.version)?;
        let child = self.facts.projects.values().find(|other| other.rules.parent.as_deref() == Some(name));
        if let Some(child) = child {
            return Err(Refusal::WrongState(format!("project {} is part of it", child.name)));
        }
        if project.access != ProjectAccess::default() {
            let open = "what they alone may see would be everybody's; remove them and make it open first";
            return Err(Refusal::WrongState(format!("project {name} has members or is private: {open}")));
        }
        self.facts.settle_all();
        self.facts.projects.remove(name);
        self.facts.draft.projects.insert(name.into());
        let note = Note::new("project.deleted", format!("project {name} is gone; its jobs are bound by nothing"));
        self.facts.note(note.by(actor.clone()).with("project", name));
        self.facts.ask_round_for_somebody(format!("project {name} is gone"));
        Ok(Reply::Project(project))
    }

    fn check_rules(&self, name: &str, rules: &ProjectRules) -> Result<(), Refusal> {
        let invalid = |what: String| Err(Refusal::Invalid(format!("project {name}: {what}")));
        if !is_name(name) {
            let what =
                format!("a name has 1 to {LONGEST_NAME} letters, digits, '-', '_' or '.', a letter or digit first");
            return invalid(what);
        }
        if !(rules.weight.is_finite() && (0.0..=HEAVIEST).contains(&rules.weight)) {
            return invalid(format!("weight must be between 0 and {HEAVIEST}"));
        }
        if let Some(quota) = rules.quota.filter(|quota| rules.floor > *quota) {
            return invalid(format!("a floor of {} GPUs is above the quota of {quota}", rules.floor));
        }
        if rules.quota.is_none() && rules.borrow > GpuCount(0) {
            return invalid("without a quota there is nothing to borrow beyond".into());
        }
        let Some(parent) = &rules.parent else { return Ok(()) };
        if !self.facts.projects.contains_key(parent) {
            return invalid(format!("there is no project {parent} to be part of"));
        }
        if parent == name || lineage(&self.facts.projects, parent).contains(&name) {
            return invalid(format!("it cannot be part of {parent}, which is part of it"));
        }
        Ok(())
    }
}

pub(super) fn check_version(name: &str, expected: Option<u64>, now: u64) -> Result<(), Refusal> {
    match expected {
        Some(0) if now > 0 => Err(Refusal::WrongState(format!("there is a project {name} already"))),
        Some(expected) if expected != now => Err(Refusal::VersionChanged { what: format!("project {name}"), now }),
        _ => Ok(()),
    }
}

/// A name that is safe in paths, URLs and on command lines.
pub(super) fn is_name(text: &str) -> bool {
    let begins_well = text.chars().next().is_some_and(|first| first.is_ascii_alphanumeric());
    let reads_well = text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'));
    begins_well && reads_well && text.len() <= LONGEST_NAME
}

/// "has a quota of 64 GPUs, may borrow 16, is sure of 8, weighs 2".
fn in_words(rules: &ProjectRules) -> String {
    let part = rules.parent.as_ref().map(|parent| format!("is part of {parent}"));
    let quota = match rules.quota {
        Some(quota) => format!("has a quota of {}", quota.words()),
        None => "has no quota".into(),
    };
    let borrow = (rules.borrow > GpuCount(0)).then(|| format!("may borrow {}", rules.borrow));
    let floor = (rules.floor > GpuCount(0)).then(|| format!("is sure of {}", rules.floor));
    let per_user = rules.max_per_user.map(|most| format!("gives a user {most} at most"));
    let weight = format!("weighs {}", rules.weight);
    let words = [part, Some(quota), borrow, floor, per_user, Some(weight)];
    words.into_iter().flatten().collect::<Vec<_>>().join(", ")
}
