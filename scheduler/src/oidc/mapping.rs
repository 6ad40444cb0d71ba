//! What a person's groups give here. Pure: the settings and the groups say it all.

use std::collections::{BTreeMap, BTreeSet};

use headway_types::{ProjectRole, TokenScope};

use super::OidcSettings;
use crate::store::GroupMembership;

/// A person's rights by groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grants {
    pub role: TokenScope,
    pub projects: BTreeMap<String, ProjectRole>,
    /// The groups that count here, for the audit.
    pub groups: BTreeSet<String>,
}

impl Grants {
    /// `None`: none of the groups lets the person in.
    pub fn of(settings: &OidcSettings, groups: &BTreeSet<String>) -> Option<Self> {
        if !settings.required_groups.is_empty() && settings.required_groups.is_disjoint(groups) {
            return None;
        }
        let role = settings.roles.iter().filter(|(group, _)| groups.contains(*group)).map(|(_, role)| *role).max();
        let mut projects = BTreeMap::new();
        for (project, roles) in &settings.projects {
            let best = roles.iter().filter(|(group, _)| groups.contains(*group)).map(|(_, role)| *role).max();
            projects.extend(best.map(|role| (project.clone(), role)));
        }
        let counts = |group: &&String| {
            settings.required_groups.contains(*group)
                || settings.roles.contains_key(*group)
                || settings.projects.values().any(|roles| roles.contains_key(*group))
        };
        Some(Self {
            role: role.unwrap_or(settings.default_role),
            projects,
            groups: groups.iter().filter(counts).cloned().collect(),
        })
    }

    /// Why, for the audit.
    pub fn reason(&self, issuer: &str) -> String {
        match self.groups.len() {
            0 => format!("login by {issuer}, without a group that counts"),
            _ => format!("login by {issuer}; groups {}", self.groups.iter().cloned().collect::<Vec<_>>().join(", ")),
        }
    }
}

/// What is to be done about one membership.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Leave,
    /// It is a hand's now, or gone: groups have no part in it.
    Forget,
    Set(ProjectRole),
    Remove,
}

/// `noted`: what groups gave; `present`: what the project says; `wanted`: what groups give now. What a hand gave stays.
pub fn step(noted: Option<GroupMembership>, present: Option<ProjectRole>, wanted: Option<ProjectRole>) -> Step {
    let by_groups = |present| noted.is_some_and(|noted| noted.role == present || noted.former == Some(present));
    match (present, wanted) {
        (Some(present), _) if !by_groups(present) => {
            if noted.is_some() {
                Step::Forget
            } else {
                Step::Leave
            }
        }
        (Some(present), Some(wanted)) if present == wanted => Step::Leave,
        (_, Some(wanted)) => Step::Set(wanted),
        (Some(_), None) => Step::Remove,
        (None, None) if noted.is_some() => Step::Forget,
        (None, None) => Step::Leave,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;

    fn settings(text: &str) -> OidcSettings {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("oidc.toml");
        std::fs::write(&file, format!("issuer = \"https://sso.example\"\nclient_id = \"a\"\n{text}")).unwrap();
        OidcSettings::read(&file).unwrap()
    }

    fn groups(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn the_best_role_of_all_groups_counts_and_none_lets_nobody_in() {
        let settings = settings(
            "required_groups = [\"staff\", \"guests\"]\n[roles]\nops = \"operator\"\nnlp = \"user\"\n\
             [projects.nlp]\nnlp = \"user\"\nleads = \"admin\"\n[projects.vision]\nvision = \"viewer\"\n",
        );
        assert_eq!(Grants::of(&settings, &groups(&["ops"])), None);
        let plain = Grants::of(&settings, &groups(&["staff", "chess"])).unwrap();
        assert_eq!((plain.role, plain.projects.len()), (TokenScope::Viewer, 0));
        assert_eq!(plain.groups, groups(&["staff"]), "no other tells of the person");
        let lead = Grants::of(&settings, &groups(&["guests", "ops", "nlp", "leads"])).unwrap();
        assert_eq!(lead.role, TokenScope::Operator);
        assert_eq!(lead.projects, BTreeMap::from([("nlp".to_owned(), ProjectRole::Admin)]));
        assert_eq!(lead.reason("https://i"), "login by https://i; groups guests, leads, nlp, ops");
    }

    fn role() -> impl Strategy<Value = Option<ProjectRole>> {
        proptest::option::of(proptest::sample::select(
            &[ProjectRole::Viewer, ProjectRole::User, ProjectRole::Admin][..],
        ))
    }

    /// What the note and the project say after the step.
    fn after(
        step: Step,
        noted: Option<GroupMembership>,
        present: Option<ProjectRole>,
    ) -> (Option<GroupMembership>, Option<ProjectRole>) {
        match step {
            Step::Leave => (noted, present),
            Step::Forget => (None, present),
            Step::Set(role) => (Some(GroupMembership { role, former: present }), Some(role)),
            Step::Remove => (None, None),
        }
    }

    proptest! {
        #[test]
        fn what_a_hand_gave_stays_and_what_groups_gave_follows_them(
            present in role(), noted in role(), former in role(), wanted in role(), next in role(), crash in any::<bool>(),
        ) {
            let noted = noted.map(|role| GroupMembership { role, former });
            let by_hand = present.is_some_and(|one| noted.is_none_or(|note| note.role != one && note.former != Some(one)));
            let first = step(noted, present, wanted);
            let (noted, then) = after(first, noted, present);
            if by_hand {
                prop_assert_eq!(then, present);
                prop_assert_eq!(step(noted, then, next), Step::Leave);
            } else {
                prop_assert_eq!(then, wanted);
                // A crash after the note was written and before the project was.
                let now = if crash && matches!(first, Step::Set(_)) { present } else { then };
                prop_assert_eq!(after(step(noted, now, next), noted, now).1, next);
            }
        }
    }
}
