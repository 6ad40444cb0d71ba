//! `headway project …`: who may have how much.

use clap::{Args, Subcommand};
use headway_api::client::Client;
use headway_api::v1::{Project as ProjectReply, ProjectRequest};

use crate::failure::{Failure, Kind};
use crate::output::{Printer, si};

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
    },
    /// Delete a project's rules; its jobs go on, bound by nothing.
    Delete { name: String },
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
        Project::List => print.list(&client.projects().await?, HEADERS, row, |one| one.name.clone()),
        Project::Get { name } => show(print, &client.project(&name).await?),
        Project::Create { name, rules } => {
            let request = with(ProjectRequest::default(), &rules);
            show(print, &client.create_project(&name, &request).await?)
        }
        Project::Set { name, rules } => {
            let now = client.project(&name).await?;
            let request = with(now.rules.clone().into(), &rules);
            if request == now.rules.clone().into() {
                return Err(Failure::new(Kind::Usage, "nothing to change").hint("see `headway project set --help`"));
            }
            show(print, &client.set_project(&name, &request, now.version).await?)
        }
        Project::Delete { name } => {
            let gone = client.delete_project(&name).await?;
            if print.structured() {
                return print.value(&gone);
            }
            say!("project {name} is gone; its jobs are bound by nothing")?;
            Ok(())
        }
    }
}

const HEADERS: &[&str] =
    &["NAME", "PARENT", "QUOTA", "BORROW", "FLOOR", "WEIGHT", "PER USER", "GPUS", "USED (DECAYED)"];

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
    print.list(std::slice::from_ref(project), HEADERS, row, |one| one.name.clone())
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
