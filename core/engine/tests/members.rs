//! Who has access to a project's jobs, by itself and by what it is part of.

use headway_engine::event::Request;
use headway_engine::record::{Openness, Project, ProjectRules};
use headway_engine::{Refusal, Reply};
use headway_types::ProjectRole;

use crate::harness::Cluster;

fn project(cluster: &mut Cluster, name: &str, parent: Option<&str>) {
    let rules = ProjectRules { parent: parent.map(Into::into), ..ProjectRules::default() };
    let reply = cluster.request(Request::PutProject { name: name.into(), rules, expected: None });
    assert!(matches!(reply, Reply::Project(_)), "{reply:?}");
}

fn set(cluster: &mut Cluster, project: &str, user: &str, role: Option<ProjectRole>) -> Reply {
    cluster.request(Request::SetMember {
        project: project.into(),
        user: user.into(),
        role,
        expected: None,
        groups: None,
    })
}

fn made(reply: Reply) -> Project {
    let Reply::Project(project) = reply else { panic!("{reply:?}") };
    Project::clone(&project)
}

#[test]
fn a_project_is_closed_by_its_first_member_and_open_again_without_any() {
    let mut cluster = Cluster::new(&[1]);
    project(&mut cluster, "lab", None);
    project(&mut cluster, "nlp", Some("lab"));
    let at = |cluster: &Cluster, name: &str| cluster.engine.view().openness(name);
    assert_eq!(at(&cluster, "nlp"), Openness::Open);
    assert_eq!(made(set(&mut cluster, "lab", "ada", Some(ProjectRole::User))).version, 2);
    assert_eq!((at(&cluster, "lab"), at(&cluster, "nlp")), (Openness::Closed, Openness::Closed));
    assert_eq!(at(&cluster, "unknown"), Openness::Open);
    assert_eq!(made(set(&mut cluster, "lab", "ada", Some(ProjectRole::User))).version, 2, "nothing changed");
    cluster.request(Request::SetPrivate { project: "nlp".into(), private: true, expected: None });
    assert_eq!((at(&cluster, "lab"), at(&cluster, "nlp")), (Openness::Closed, Openness::Private));
    made(set(&mut cluster, "lab", "ada", None));
    assert_eq!(at(&cluster, "lab"), Openness::Open);
    assert!(matches!(set(&mut cluster, "lab", "ada", None), Reply::Refused(Refusal::WrongState(_))));
    assert!(matches!(set(&mut cluster, "none", "ada", None), Reply::Refused(Refusal::NoSuchProject(_))));
}

/// Nobody has said so: the last of a team goes to another.
#[test]
fn a_project_does_not_open_because_groups_took_its_last_member() {
    let mut cluster = Cluster::new(&[1]);
    project(&mut cluster, "nlp", None);
    let by_groups = |user: &str, role| Request::SetMember {
        project: "nlp".into(),
        user: user.into(),
        role,
        expected: None,
        groups: Some("login".into()),
    };
    for user in ["ada", "bob"] {
        made(cluster.request(by_groups(user, Some(ProjectRole::User))));
    }
    made(cluster.request(by_groups("ada", None)));
    assert_eq!(cluster.engine.view().openness("nlp"), Openness::Closed);
    made(cluster.request(by_groups("bob", None)));
    assert_eq!(cluster.engine.view().openness("nlp"), Openness::Private);
    made(cluster.request(Request::SetPrivate { project: "nlp".into(), private: false, expected: None }));
    assert_eq!(cluster.engine.view().openness("nlp"), Openness::Open, "somebody has said so");
}

#[test]
fn the_highest_role_on_the_way_up_counts() {
    let mut cluster = Cluster::new(&[1]);
    project(&mut cluster, "lab", None);
    project(&mut cluster, "nlp", Some("lab"));
    set(&mut cluster, "lab", "ada", Some(ProjectRole::Admin));
    set(&mut cluster, "nlp", "ada", Some(ProjectRole::Viewer));
    set(&mut cluster, "nlp", "bob", Some(ProjectRole::User));
    let role = |name: &str, user: &str| cluster.engine.view().role_in(name, user);
    assert_eq!(role("nlp", "ada"), Some(ProjectRole::Admin));
    assert_eq!((role("nlp", "bob"), role("lab", "bob")), (Some(ProjectRole::User), None));
}

#[test]
fn new_rules_leave_members_and_a_project_with_members_is_not_deleted() {
    let mut cluster = Cluster::new(&[1]);
    project(&mut cluster, "nlp", None);
    set(&mut cluster, "nlp", "ada", Some(ProjectRole::Viewer));
    let rules = ProjectRules { weight: 2.0, ..ProjectRules::default() };
    let put = made(cluster.request(Request::PutProject { name: "nlp".into(), rules, expected: None }));
    assert_eq!(put.access.members.len(), 1);
    let delete = |cluster: &mut Cluster| cluster.request(Request::DeleteProject { name: "nlp".into(), expected: None });
    assert!(matches!(delete(&mut cluster), Reply::Refused(Refusal::WrongState(_))));
    let stale =
        Request::SetMember { project: "nlp".into(), user: "ada".into(), role: None, expected: Some(1), groups: None };
    assert!(matches!(cluster.request(stale), Reply::Refused(Refusal::VersionChanged { .. })));
    set(&mut cluster, "nlp", "ada", None);
    assert!(matches!(delete(&mut cluster), Reply::Project(_)));
}
