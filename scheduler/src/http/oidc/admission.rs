//! From whom the provider vouches for to a user of ours: who it is here, with which role, and in which projects. Each login sets anew what groups gave; what
//! somebody gave by hand stays.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;

use axum::http::StatusCode;
use headway_engine::event::{Actor, Request};
use headway_engine::record::Origin;
use headway_types::{ProjectRole, TokenScope};
use uuid::Uuid;

use super::super::HttpState;
use super::super::limits::REQUEST_ID_HERE;
use super::super::problem::Problem;
use super::super::users::check_name;
use super::Stranger;
use crate::audit;
use crate::oidc::{Claims, Grants, Provider, Step, step};
use crate::store::{AuditEntry, AuditResult, Entered, GroupMembership, Person};

/// The server makes users of these names itself, with whatever role their tokens' files say.
const OURS: [&str; 3] = ["admin", "agent", "headway"];

/// A person who was let in.
#[derive(Clone, Debug)]
pub struct Admitted {
    pub identity: Uuid,
    pub user: String,
    pub role: TokenScope,
    origin: Origin,
}

impl Admitted {
    /// Does something as the person, for the audit.
    pub async fn in_its_name<F: Future>(&self, deed: F) -> F::Output {
        audit::coming_from(self.origin.clone(), deed).await
    }
}

/// Lets in whom the provider vouches for, or says why not.
pub async fn admit(
    state: &HttpState,
    provider: &Provider,
    claims: &Claims,
    Stranger(address): Stranger,
    action: &'static str,
) -> Result<Admitted, Problem> {
    let settings = provider.settings();
    let person = Person { issuer: settings.issuer.clone(), subject: claims.subject.clone() };
    let known = state.cluster.store().user_of(&person).await?;
    let named = claims.text(&settings.user_claim).map(str::to_owned);
    let name = known.as_ref().map(|known| known.user.clone()).or(named).unwrap_or_default();
    let origin = Origin {
        action: action.into(),
        user: if name.is_empty() { format!("({})", person.subject) } else { name.clone() },
        // It has none yet.
        token: Uuid::nil(),
        address,
        request: REQUEST_ID_HERE.try_with(String::clone).unwrap_or_default(),
        subject: None,
    };
    let refuse = |problem: Problem, person: &Person| {
        let entry = AuditEntry::of(&origin, state.cluster.now(), AuditResult::Refused);
        let actor = format!("identity:{}", person.subject);
        state.refusals.note(AuditEntry { actor, code: Some(problem.code().to_owned()), ..entry });
        Err(problem)
    };
    let groups = claims.groups(&settings.groups_claim).unwrap_or_default();
    let Some(grants) = Grants::of(settings, &groups) else {
        if let Some(known) = known {
            let reason = format!("login by {}, in no group that may log in", person.issuer);
            let out = async {
                let deed = state.deed().map(|deed| AuditEntry { reason: Some(reason.clone()), ..deed });
                state.cluster.store().shut_out(&known, state.cluster.now(), deed).await?;
                state.tokens_changed();
                settle(state, &known.user, &BTreeMap::new(), &reason).await
            };
            audit::coming_from(origin.clone(), out).await?;
        }
        let problem = Problem::new(StatusCode::FORBIDDEN, "login_refused", "you are in no group that may log in here")
            .hint(format!(
                "ask whoever keeps the groups of {} for one of: {}",
                settings.issuer,
                settings.required_groups.iter().cloned().collect::<Vec<_>>().join(", ")
            ));
        return refuse(problem, &person);
    };
    if known.is_none()
        && let Err(problem) = check_new(&name, &settings.user_claim)
    {
        return refuse(problem, &person);
    }
    let reason = grants.reason(&person.issuer);
    let entered = audit::coming_from(origin.clone(), async {
        let deed = state.deed().map(|deed| AuditEntry { reason: Some(reason.clone()), ..deed });
        state.cluster.store().enter(&person, &name, grants.role, state.cluster.now(), deed).await
    });
    match entered.await? {
        Entered::NameTaken => refuse(taken(&name, &person), &person),
        Entered::As { identity, user, role, changed } => {
            if changed {
                state.tokens_changed();
            }
            audit::coming_from(origin.clone(), settle(state, &user, &grants.projects, &reason)).await?;
            Ok(Admitted { identity, role, origin: Origin { user: user.clone(), ..origin }, user })
        }
    }
}

/// Whether a person may be called so here.
fn check_new(name: &str, claim: &str) -> Result<(), Problem> {
    let refused = |detail: String| {
        Problem::new(StatusCode::FORBIDDEN, "login_refused", detail).hint(
            "an admin links you to a user of another name (`headway user link`), or names another claim (user_claim)",
        )
    };
    if name.is_empty() {
        return Err(refused(format!("the identity provider does not say what you are called (claim {claim})")));
    }
    if OURS.contains(&name) {
        return Err(refused(format!("{name} is a name that this server keeps for itself")));
    }
    check_name(name, claim).map_err(|_| {
        refused("what the identity provider calls you can be no user's name here: letters, digits and - _ . + @".into())
    })
}

fn taken(name: &str, person: &Person) -> Problem {
    let detail = format!(
        "there is a user {name} here who is not linked to you at {}; your subject there is {}",
        person.issuer, person.subject
    );
    Problem::new(StatusCode::CONFLICT, "name_taken", detail).hint(format!(
        "if that user is you, an admin links you: headway user link {name} --subject '{}'",
        person.subject
    ))
}

/// Sets memberships that groups gave anew; those that somebody gave by hand stay.
pub async fn settle(
    state: &HttpState,
    user: &str,
    wanted: &BTreeMap<String, ProjectRole>,
    reason: &str,
) -> Result<(), Problem> {
    let store = state.cluster.store();
    let noted = store.group_memberships(user).await?;
    let projects: BTreeSet<&String> = noted.keys().chain(wanted.keys()).collect();
    for project in projects {
        let view = state.cluster.view();
        let (noted, wanted) = (noted.get(project).copied(), wanted.get(project).copied());
        let Some(rules) = view.projects.get(project) else {
            if wanted.is_some() {
                tracing::warn!(project, "groups give a role in a project that there is not");
            }
            store.forget_group_membership(user, project).await?;
            continue;
        };
        let present = rules.access.members.get(user).copied();
        let set = |role| Request::SetMember {
            project: project.clone(),
            user: user.to_owned(),
            role,
            expected: None,
            groups: Some(reason.to_owned()),
        };
        // Whoever logs in, or the admin who unlinks.
        let actor = Actor::User(audit::origin().map_or_else(|| user.to_owned(), |origin| origin.user));
        match step(noted, present, wanted) {
            Step::Leave => {}
            Step::Forget => store.forget_group_membership(user, project).await?,
            Step::Set(role) => {
                // First, or a crash here would make it somebody's by hand.
                store.note_group_membership(user, project, GroupMembership { role, former: present }).await?;
                state.ask(actor, set(Some(role))).await?;
            }
            Step::Remove => {
                state.ask(actor, set(None)).await?;
                store.forget_group_membership(user, project).await?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_called_what_the_server_keeps_for_itself() {
        assert!(check_new("ada", "preferred_username").is_ok());
        assert!(check_new("ada@example.org", "email").is_ok());
        for wrong in ["", "admin", "agent", "headway", "Ada Lovelace", "../x", "-x", "a\u{202e}b"] {
            assert!(check_new(wrong, "preferred_username").is_err(), "{wrong}");
        }
    }
}
