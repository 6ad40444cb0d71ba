//! Requests about who has access to a project's jobs. What a role means is for the shell that people talk to.

use std::sync::Arc;

use headway_types::ProjectRole;

use super::projects::check_version;
use crate::draft::Note;
use crate::engine::Engine;
use crate::event::Actor;
use crate::outcome::{Refusal, Reply};
use crate::record::{Project, ProjectAccess};

impl Engine {
    /// `None`: the user is a member no longer. `by_groups`: nobody has said that the project may open.
    pub(super) fn set_member(
        &mut self,
        actor: &Actor,
        name: &str,
        (user, role): (String, Option<ProjectRole>),
        expected: Option<u64>,
        by_groups: bool,
    ) -> Result<Reply, Refusal> {
        let access = &self.known_project(name, expected)?.access;
        let mut after = access.clone();
        let (verb, message) = match role {
            Some(role) => {
                let first = access.members.is_empty();
                after.members.insert(user.clone(), role);
                let closed = if first { "; it is its members' now" } else { "" };
                ("project.member_named", format!("{user} has the role {role} in project {name}{closed}"))
            }
            None => {
                if after.members.remove(&user).is_none() {
                    return Err(Refusal::WrongState(format!("{user} is no member of project {name} itself")));
                }
                let left = match after.members.is_empty() && !after.private {
                    true if by_groups => {
                        after.private = true;
                        "; it names no members and is private now: groups open no project to everybody"
                    }
                    true => "; it names no members and is everybody's now",
                    false => "",
                };
                ("project.member_removed", format!("{user} is no member of project {name}{left}"))
            }
        };
        self.set_access(name, after, Note::new(verb, message).by(actor.clone()).with("user", user))
    }

    pub(super) fn set_private(
        &mut self,
        actor: &Actor,
        name: &str,
        private: bool,
        expected: Option<u64>,
    ) -> Result<Reply, Refusal> {
        let after = ProjectAccess { private, ..self.known_project(name, expected)?.access.clone() };
        let message = match private {
            true => format!("only members see that jobs of project {name} exist"),
            false => format!("everybody sees that jobs of project {name} exist"),
        };
        self.set_access(name, after, Note::new("project.privacy_changed", message).by(actor.clone()))
    }

    fn known_project(&self, name: &str, expected: Option<u64>) -> Result<&Arc<Project>, Refusal> {
        let project = self.facts.projects.get(name).ok_or_else(|| Refusal::NoSuchProject(name.into()))?;
        check_version(name, expected, project.version)?;
        Ok(project)
    }

    fn set_access(&mut self, name: &str, access: ProjectAccess, note: Note) -> Result<Reply, Refusal> {
        let project = self.facts.projects.get_mut(name).ok_or_else(|| Refusal::NoSuchProject(name.into()))?;
        if project.access != access {
            let changed = Arc::make_mut(project);
            changed.access = access;
            changed.version += 1;
            let version = changed.version;
            self.facts.draft.projects.insert(name.into());
            self.facts.note(note.with("project", name).with("version", version));
        }
        Ok(Reply::Project(self.facts.projects[name].clone()))
    }
}
