//! `headway project …`: who may have how much.

use clap::{Args, Subcommand};
use headway_api::client::Client;
use headway_api::v1::{Member as MemberReply, Project as ProjectReply, ProjectRequest, ProjectRole};

use crate::confirm::Yes;
use crate::failure::{Failure, Kind};
use crate::output::{Printer, si};
use crate::table::Column;

#[derive(Subcommand, Clone, Debug)]
pub enum Project {
    /// List projects that have rules.
    List,
    /// Show one.
    Get { name: String },
    /// Give a new project its rules.
    Create {
        name: String,
        #[command(flatten)]
        rules: Rules,
    },
    /// Change rules; what is not named stays.
    Set {
        name: String,
        #[command(flatten)]
        rules: Rules,
        /// Whether only members see that its jobs exist.
        #[arg(long)]
        private: Option<bool>,
    },
    /// Delete a project's rules; its jobs go on, bound by nothing.
    Delete {
        name: String,
        #[command(flatten)]
        yes: Yes,
    },
    /// Members: who has which role in a project and in all that is part of it.
    #[command(subcommand)]
    Member(Member),
}

#[derive(Subcommand, Clone, Debug)]
pub enum Member {
    /// List a project's members, those of what it is part of included.
    List { project: String },
    /// Give somebody a role. With its first member a project is its members' alone.
    Add {
        project: String,
        user: String,
        /// viewer: read its jobs; user: also submit; admin: also act on its jobs and name its members.
        #[arg(long, default_value = "user")]
        role: ProjectRole,
    },
    /// Take somebody's role away.
    Remove { project: String, user: String },
}

/// `none` takes a limit away.
#[derive(Args, Clone, Debug)]
pub struct Rules {
    /// The project it is part of, or `none`.
    #[arg(long)]
    pub parent: Option<String>,
    /// GPUs it may use of right, or `none`.
    #[arg(long, value_parser = limit)]
    pub quota: Option<Limit>,
    /// GPUs beyond the quota while nobody with a right to them waits.
    #[arg(long)]
    pub borrow: Option<u32>,
    /// GPUs its jobs are sure of while they ask for them.
    #[arg(long)]
    pub floor: Option<u32>,
    /// Share of the cluster relative to its siblings.
    #[arg(long)]
    pub weight: Option<f64>,
    /// Most GPUs one of its users may hold, or `none`.
    #[arg(long, value_parser = limit)]
    pub max_per_user: Option<Limit>,
}

/// A number of GPUs, or no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit(pub Option<u32>);

pub async fn run(client: &Client, print: &Printer, project: Project) -> Result<(), Failure> {
    match project {
        Project::List => print.list(&client.projects().await?, &COLUMNS, row, |one| one.name.clone()),
        Project::Get { name } => show(print, &client.project(&name).await?),
        Project::Create { name, rules } => {
            let request = with(ProjectRequest::default(), &rules);
            show(print, &client.create_project(&name, &request).await?)
        }
        Project::Set { name, rules, private } => {
            let mut now = client.project(&name).await?;
            let request = with(now.rules.clone().into(), &rules);
            let other_rules = request != now.rules.clone().into();
            if let Some(private) = private {
                now = client.set_private(&name, private).await?;
            }
            if private.is_some() && !other_rules {
                return show(print, &now);
            }
            if !other_rules {
                return Err(Failure::new(Kind::Usage, "nothing to change").hint("see `headway project set --help`"));
            }
            show(print, &client.set_project(&name, &request, now.version).await?)
        }
        Project::Delete { name, yes } => {
            yes.or_ask(client, &format!("delete the rules of project {name}?"))?;
            let gone = client.delete_project(&name).await?;
            if print.structured() {
                return print.value(&gone);
            }
            say!("project {name} is gone; its jobs are bound by nothing")?;
            Ok(())
        }
        Project::Member(member) => run_member(client, print, member).await,
    }
}

async fn run_member(client: &Client, print: &Printer, member: Member) -> Result<(), Failure> {
    match member {
        Member::List { project } => {
            let members = client.members(&project).await?;
            if members.is_empty() && !print.structured() {
                aside!("headway: project {project} names no members: it is everybody's");
            }
            print.list(&members, &MEMBERS, member_row, |one| one.user.clone())
        }
        Member::Add { project, user, role } => told(print, &client.set_member(&project, &user, role).await?, || {
            format!("{user} has the role {role} in project {project}")
        }),
        Member::Remove { project, user } => told(print, &client.remove_member(&project, &user).await?, || {
            format!("{user} is no member of project {project} itself")
        }),
    }
}

/// What was done, and for whom the project is now.
fn told(print: &Printer, project: &ProjectReply, done: impl Fn() -> String) -> Result<(), Failure> {
    if print.structured() {
        return print.value(project);
    }
    let whose = match (project.members, project.private) {
        (0, false) => "it names no members".to_owned(),
        (0, true) => "it is private and names no members".to_owned(),
        (1, _) => "it has one member".to_owned(),
        (several, _) => format!("it has {several} members"),
    };
    say!("{}; {whose}", done())?;
    Ok(())
}

const MEMBERS: [Column; 4] = [
    Column::new("USER").cut(12),
    Column::new("ROLE"),
    Column::new("NAMED BY").cut(12),
    Column::new("GIVEN BY").rank(1),
];

fn member_row(member: &MemberReply) -> Vec<String> {
    let by = if member.from_groups { "groups" } else { "hand" };
    vec![member.user.clone(), member.role.to_string(), member.project.clone(), by.to_owned()]
}

const COLUMNS: [Column; 9] = [
    Column::new("NAME").cut_late(12, 24),
    Column::new("PARENT").rank(4).cut(8),
    Column::new("QUOTA"),
    Column::new("BORROW").rank(5),
    Column::new("FLOOR").rank(6),
    Column::new("WEIGHT").rank(2),
    Column::new("PER USER").rank(1),
    Column::new("GPUS"),
    Column::new("USED (DECAYED)").rank(3),
];

fn row(project: &ProjectReply) -> Vec<String> {
    let limit = |limit: Option<u32>| limit.map_or_else(|| "-".into(), |gpus| gpus.to_string());
    let rules = &project.rules;
    vec![
        project.name.clone(),
        rules.parent.clone().unwrap_or_else(|| "-".into()),
        limit(rules.quota_gpus),
        rules.borrow_gpus.to_string(),
        rules.floor_gpus.to_string(),
        rules.weight.to_string(),
        limit(rules.max_per_user_gpus),
        project.gpus.to_string(),
        format!("{} GPU h", si(project.decayed_gpu_hours)),
    ]
}

fn show(print: &Printer, project: &ProjectReply) -> Result<(), Failure> {
    if print.structured() {
        return print.value(project);
    }
    print.list(std::slice::from_ref(project), &COLUMNS, row, |one| one.name.clone())
}

fn with(request: ProjectRequest, rules: &Rules) -> ProjectRequest {
    let parent = match rules.parent.as_deref() {
        None => request.parent,
        Some("none") => None,
        Some(name) => Some(name.to_owned()),
    };
    ProjectRequest {
        parent,
        quota_gpus: rules.quota.map_or(request.quota_gpus, |limit| limit.0),
        borrow_gpus: rules.borrow.unwrap_or(request.borrow_gpus),
        floor_gpus: rules.floor.unwrap_or(request.floor_gpus),
        weight: rules.weight.unwrap_or(request.weight),
        max_per_user_gpus: rules.max_per_user.map_or(request.max_per_user_gpus, |limit| limit.0),
    }
}

fn limit(text: &str) -> Result<Limit, String> {
    match text {
        "none" => Ok(Limit(None)),
        number => number.parse().map(|gpus| Limit(Some(gpus))).map_err(|_| "must be a number of GPUs or none".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn projects_and_members_fit_the_terminal() {
        let limits = ["512", "128", "64", "1.5", "32", "480", "12.3k GPU h"];
        let names = ["research-language-models-2026", "research-language-models"];
        let row: Vec<String> = names.iter().chain(&limits).map(|cell| (*cell).to_owned()).collect();
        let member = ["ada.lovelace@research.example", "viewer", names[0], "groups"].map(str::to_owned).to_vec();
        for width in [60, 80, 100, 120] {
            assert!(crate::table::widest(&COLUMNS, row.clone(), width) <= width, "{width}");
            assert!(crate::table::widest(&MEMBERS, member.clone(), width) <= width, "{width}");
        }
    }

    #[test]
    fn what_is_not_named_stays() {
        let now = ProjectRequest { quota_gpus: Some(8), borrow_gpus: 4, ..ProjectRequest::default() };
        let rules = Rules {
            parent: Some("research".into()),
            quota: Some(Limit(None)),
            borrow: None,
            floor: Some(2),
            weight: None,
            max_per_user: None,
        };
        let after = with(now, &rules);
        assert_eq!((after.parent.as_deref(), after.quota_gpus, after.borrow_gpus), (Some("research"), None, 4));
        assert_eq!((after.floor_gpus, after.weight), (2, 1.0));
    }
}
