//! The rules: who may do what. One table, from which the checks, the refusals and the documents come; nothing else decides it.

use headway_engine::record::Openness;
use headway_types::{ProjectRole, TokenScope};
use strum::VariantArray;

/// What a request does, as far as permission goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, strum::IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Act {
    Look,
    SeeJob,
    ReadJob,
    ReadEnvironment,
    ChangeJob,
    RunInJob,
    Submit,
    RaisePriority,
    SeeMembers,
    NameMembers,
    Operate,
    SetRules,
    NamePeople,
    ReadAudit,
    LogIn,
    KeepTokens,
    KeepTokensOfOthers,
    KeepSecrets,
    UseProjectSecrets,
    KeepProjectSecrets,
    KeepAuthorities,
}

/// Whom an act is open to. Whoever has the scope may, if one of the other members admits them as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The least scope, without which nothing helps.
    pub scope: TokenScope,
    /// Everybody where the project is no more closed than this.
    pub everybody: Option<Openness>,
    /// The job's owner.
    pub owner: bool,
    /// Members of the project with this role, there or in a project it is part of.
    pub member: Option<ProjectRole>,
    /// From this scope on, wherever it is.
    pub anywhere: TokenScope,
}

/// Who asks, as a rule sees them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    pub scope: TokenScope,
    /// Whether the job is the caller's.
    pub owner: bool,
    /// The caller's role in the project.
    pub role: Option<ProjectRole>,
    pub openness: Openness,
}

impl Standing {
    /// Of whoever has this scope and is nothing to a project that is open.
    pub fn of(scope: TokenScope) -> Self {
        Self { scope, owner: false, role: None, openness: Openness::Open }
    }
}

impl Rule {
    pub fn admits(&self, who: Standing) -> bool {
        let admitted = self.everybody.is_some_and(|most| who.openness <= most)
            || self.owner && who.owner
            || self.member.is_some_and(|least| who.role >= Some(least))
            || who.scope >= self.anywhere;
        who.scope >= self.scope && admitted
    }

    /// "its owner, members of the project with the role admin, operators and admins".
    pub fn in_words(&self) -> String {
        let everybody = self.everybody.map(|most| match most {
            Openness::Open => "everybody where the project names no members",
            Openness::Closed => "everybody where the project is not private",
            Openness::Private => "everybody",
        });
        let owner = self.owner.then_some("its owner");
        let member = self.member.map(|role| match role {
            ProjectRole::Viewer => "members of the project".to_owned(),
            role => format!("members of the project from the role {role} on"),
        });
        let anywhere = match self.anywhere {
            _ if self.everybody == Some(Openness::Private) => None,
            TokenScope::Admin => Some("admins"),
            TokenScope::Operator => Some("operators, admins"),
            _ => Some("everybody"),
        };
        let words =
            [everybody.map(ToOwned::to_owned), owner.map(ToOwned::to_owned), member, anywhere.map(ToOwned::to_owned)];
        let who = words.into_iter().flatten().collect::<Vec<_>>().join(", ");
        match self.scope {
            TokenScope::Agent | TokenScope::Viewer => who,
            scope if scope >= self.anywhere => who,
            scope => format!("{who}; with the scope {scope} or more"),
        }
    }
}

impl Act {
    pub fn rule(self) -> Rule {
        use Openness as O;
        use ProjectRole as P;
        use TokenScope::{Admin, Operator, User, Viewer};
        let rule = |scope, everybody, owner, member, anywhere| Rule { scope, everybody, owner, member, anywhere };
        match self {
            Self::Look | Self::LogIn | Self::KeepTokens => rule(Viewer, Some(O::Private), false, None, Operator),
            Self::SeeJob => rule(Viewer, Some(O::Closed), true, Some(P::Viewer), Operator),
            Self::ReadJob => rule(Viewer, Some(O::Open), true, Some(P::Viewer), Operator),
            Self::ReadEnvironment => rule(Viewer, None, true, Some(P::Admin), Operator),
            Self::ChangeJob => rule(User, None, true, Some(P::Admin), Operator),
            // As its user: nobody else's business, whatever he may change.
            Self::RunInJob => rule(User, None, true, None, Admin),
            Self::Submit => rule(User, Some(O::Open), false, Some(P::User), Operator),
            Self::KeepSecrets => rule(User, Some(O::Private), false, None, Operator),
            Self::UseProjectSecrets => rule(User, None, false, Some(P::User), Admin),
            Self::KeepProjectSecrets => rule(User, None, false, Some(P::Admin), Admin),
            Self::SeeMembers => rule(Viewer, Some(O::Closed), false, Some(P::Viewer), Operator),
            Self::NameMembers => rule(User, None, false, Some(P::Admin), Admin),
            Self::Operate | Self::ReadAudit => rule(Operator, None, false, None, Operator),
            Self::RaisePriority
            | Self::SetRules
            | Self::NamePeople
            | Self::KeepTokensOfOthers
            | Self::KeepAuthorities => rule(Admin, None, false, None, Admin),
        }
    }

    /// Whether it is done with the job that the path names.
    pub fn is_of_job(self) -> bool {
        matches!(self, Self::SeeJob | Self::ReadJob | Self::ReadEnvironment | Self::ChangeJob | Self::RunInJob)
    }

    /// What it is, for people.
    pub fn in_words(self) -> &'static str {
        match self {
            Self::Look => "look at the cluster: nodes, plans, policy, projects, users; ask what would happen",
            Self::SeeJob => "see that a job exists: name, owner, size, state",
            Self::ReadJob => "read a job: specification, logs, events, measurements, explanation",
            Self::ReadEnvironment => "read the values of a job's environment",
            Self::ChangeJob => {
                "change, resize, cancel, hold, release, requeue, save, pin a job or an array, test its webhooks"
            }
            Self::RunInJob => "run a command beside a running job, as its user",
            Self::Submit => "submit a job to a project",
            Self::RaisePriority => "give a job a priority above 75 (high)",
            Self::SeeMembers => "see who is a member of a project",
            Self::NameMembers => "name a project's members, make it private or open",
            Self::Operate => {
                "act on nodes, plans, reservations and the policy; admit nodes and revoke their certificates"
            }
            Self::SetRules => "set a project's quota, share and place in the tree",
            Self::NamePeople => "make users, give them roles, say who they are at the identity provider",
            Self::ReadAudit => "read the audit",
            Self::LogIn => "log in through the identity provider, without a token",
            Self::KeepTokens => {
                "make, list and revoke one's own tokens, which open no more than the caller's; log in, list one's browsers, log out"
            }
            Self::KeepTokensOfOthers => "make, list and revoke tokens of others and of agents; log others out",
            Self::KeepSecrets => "set, list and delete one's own secrets, and have one's jobs given them",
            Self::UseProjectSecrets => "list a project's secrets, and have one's jobs in it given them",
            Self::KeepProjectSecrets => "set and delete a project's secrets",
            Self::KeepAuthorities => "replace and retire what signs nodes' certificates",
        }
    }
}

/// What a route does, by the id of its operation. A route that is not here is refused to all, and fails a test.
pub const ROUTES: &[(&str, Act)] = &[
    ("submit", Act::Submit),
    ("validate", Act::Look),
    ("simulate", Act::Look),
    ("list_jobs", Act::Look),
    ("get_job", Act::SeeJob),
    ("update_job", Act::ChangeJob),
    ("cancel_job", Act::ChangeJob),
    ("hold_job", Act::ChangeJob),
    ("release_job", Act::ChangeJob),
    ("requeue_job", Act::ChangeJob),
    ("checkpoint_job", Act::ChangeJob),
    ("pin_job", Act::ChangeJob),
    ("unpin_job", Act::ChangeJob),
    ("resize_job", Act::ChangeJob),
    ("test_delivery", Act::ChangeJob),
    ("list_arrays", Act::Look),
    ("get_array", Act::SeeJob),
    ("update_array", Act::ChangeJob),
    ("cancel_array", Act::ChangeJob),
    ("hold_array", Act::ChangeJob),
    ("release_array", Act::ChangeJob),
    ("explain_job", Act::ReadJob),
    ("curve", Act::ReadJob),
    ("gpu_time", Act::ReadJob),
    ("allocations", Act::ReadJob),
    ("series", Act::ReadJob),
    ("job_events", Act::ReadJob),
    ("checkpoints", Act::ReadJob),
    ("deliveries", Act::ReadJob),
    ("logs", Act::ReadJob),
    ("exec", Act::RunInJob),
    ("list_nodes", Act::Look),
    ("get_node", Act::Look),
    ("node_gpus", Act::Look),
    ("node_health", Act::Look),
    ("node_events", Act::Look),
    ("topology", Act::Look),
    ("gpus", Act::Look),
    ("update_node", Act::Operate),
    ("delete_node", Act::Operate),
    ("drain_node", Act::Operate),
    ("undrain_node", Act::Operate),
    ("cordon_node", Act::Operate),
    ("uncordon_node", Act::Operate),
    ("lose_node", Act::Operate),
    ("readmit_nodes", Act::Operate),
    ("create_join_token", Act::Operate),
    ("list_join_tokens", Act::Operate),
    ("revoke_join_token", Act::Operate),
    ("list_node_certificates", Act::Look),
    ("revoke_node_certificate", Act::Operate),
    ("list_node_authorities", Act::Look),
    ("replace_node_authority", Act::KeepAuthorities),
    ("retire_node_authority", Act::KeepAuthorities),
    ("list_plans", Act::Look),
    ("current_plan", Act::Look),
    ("get_plan", Act::Look),
    ("plan_input", Act::Look),
    ("plan_history", Act::Look),
    ("plan_diff", Act::Look),
    ("rebalance", Act::Operate),
    ("rollback_plan", Act::Operate),
    ("pause_plans", Act::Operate),
    ("resume_plans", Act::Operate),
    ("approve_plan", Act::Operate),
    ("reject_plan", Act::Operate),
    ("get_policy", Act::Look),
    ("put_policy", Act::Operate),
    ("patch_policy", Act::Operate),
    ("list_projects", Act::Look),
    ("get_project", Act::Look),
    ("put_project", Act::SetRules),
    ("delete_project", Act::SetRules),
    ("patch_project", Act::NameMembers),
    ("list_members", Act::SeeMembers),
    ("put_member", Act::NameMembers),
    ("delete_member", Act::NameMembers),
    ("list_reservations", Act::Look),
    ("get_reservation", Act::Look),
    ("create_reservation", Act::Operate),
    ("cancel_reservation", Act::Operate),
    ("overview", Act::Look),
    ("leader", Act::Look),
    ("space", Act::Operate),
    ("queue", Act::Look),
    ("goodput", Act::Look),
    ("calibration", Act::Look),
    ("events", Act::Look),
    ("event_chain", Act::Look),
    ("timeline", Act::Look),
    ("usage", Act::Look),
    ("stream", Act::Look),
    ("create_token", Act::KeepTokens),
    ("list_tokens", Act::KeepTokens),
    ("revoke_token", Act::KeepTokens),
    ("whoami", Act::Look),
    ("login_provider", Act::LogIn),
    ("oidc_login", Act::LogIn),
    ("oidc_callback", Act::LogIn),
    ("begin_device_login", Act::LogIn),
    ("end_device_login", Act::LogIn),
    ("end_code_login", Act::LogIn),
    ("create_session", Act::KeepTokens),
    ("list_sessions", Act::KeepTokens),
    ("end_sessions", Act::KeepTokens),
    ("end_session", Act::KeepTokens),
    ("log_out", Act::KeepTokens),
    ("list_secrets", Act::KeepSecrets),
    ("put_secret", Act::KeepSecrets),
    ("delete_secret", Act::KeepSecrets),
    ("list_users", Act::Look),
    ("get_user", Act::Look),
    ("put_user", Act::NamePeople),
    ("link_user", Act::NamePeople),
    ("unlink_user", Act::NamePeople),
    ("audit", Act::ReadAudit),
    ("audit_head", Act::ReadAudit),
    ("verify_audit", Act::ReadAudit),
    ("export_audit", Act::ReadAudit),
];

/// What the operation does; `None`: nobody has said it, so nobody may.
pub fn act_of(operation: &str) -> Option<Act> {
    ROUTES.iter().find(|(name, _)| *name == operation).map(|(_, act)| *act)
}

/// The table for `docs/people.md`.
#[cfg(test)]
pub fn rendered() -> String {
    let line = |act: &Act| format!("| {} | {} |\n", act.in_words(), act.rule().in_words());
    let lines: String = Act::VARIANTS.iter().map(line).collect();
    format!("| to | may |\n|---|---|\n{lines}")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn scope() -> impl Strategy<Value = TokenScope> {
        proptest::sample::select(TokenScope::VARIANTS)
    }

    fn standing() -> impl Strategy<Value = Standing> {
        let openness = proptest::sample::select(&[Openness::Open, Openness::Closed, Openness::Private][..]);
        let role = proptest::option::of(proptest::sample::select(ProjectRole::VARIANTS));
        (scope(), any::<bool>(), role, openness).prop_map(|(scope, owner, role, openness)| Standing {
            scope,
            owner,
            role,
            openness,
        })
    }

    fn act() -> impl Strategy<Value = Act> {
        proptest::sample::select(Act::VARIANTS)
    }

    proptest! {
        #[test]
        fn more_rights_never_forbid(act in act(), who in standing(), scope in scope()) {
            let rule = act.rule();
            if rule.admits(who) {
                let with = [
                    Standing { scope: who.scope.max(scope), ..who },
                    Standing { owner: true, ..who },
                    Standing { role: Some(ProjectRole::Admin), ..who },
                    Standing { openness: Openness::Open, ..who },
                ];
                for who in with {
                    prop_assert!(rule.admits(who));
                }
            }
        }

        #[test]
        fn an_agent_may_nothing_and_an_admin_everything(act in act(), who in standing()) {
            let [agent, admin] = [TokenScope::Agent, TokenScope::Admin].map(|scope| Standing { scope, ..who });
            prop_assert!(!act.rule().admits(agent));
            prop_assert!(act.rule().admits(admin));
        }

        #[test]
        fn whoever_may_change_or_read_a_job_sees_it(who in standing()) {
            for (more, less) in [
                (Act::ChangeJob, Act::ReadEnvironment),
                (Act::ReadEnvironment, Act::ReadJob),
                (Act::ReadJob, Act::SeeJob),
                (Act::NameMembers, Act::SeeMembers),
            ] {
                prop_assert!(!more.rule().admits(who) || less.rule().admits(who), "{more:?} without {less:?}");
            }
        }

        #[test]
        fn a_viewers_token_changes_nothing(act in act(), who in standing()) {
            let changes = !matches!(
                act,
                Act::Look
                    | Act::LogIn
                    | Act::SeeJob
                    | Act::ReadJob
                    | Act::ReadEnvironment
                    | Act::SeeMembers
                    | Act::KeepTokens
            );
            let viewer = Standing { scope: TokenScope::Viewer, ..who };
            prop_assert!(!(changes && act.rule().admits(viewer)));
        }
    }

    #[test]
    fn no_route_is_named_twice() {
        let names: std::collections::BTreeSet<_> = ROUTES.iter().map(|(name, _)| name).collect();
        assert_eq!(names.len(), ROUTES.len());
    }

    /// `UPDATE_DOCS=1 cargo test -p headway-scheduler table` writes it anew.
    #[test]
    fn the_documents_say_what_the_table_says() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/people.md");
        let page = std::fs::read_to_string(path).unwrap_or_default();
        let (begin, end) = ("<!-- rules -->\n", "<!-- end of rules -->");
        let (before, rest) = page.split_once(begin).unwrap_or_default();
        let (told, after) = rest.split_once(end).unwrap_or_default();
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(path, format!("{before}{begin}{}{end}{after}", rendered())).expect("docs are writable");
        } else {
            assert!(told == rendered(), "docs/people.md has drifted; run with UPDATE_DOCS=1 and review the diff");
        }
    }
}
