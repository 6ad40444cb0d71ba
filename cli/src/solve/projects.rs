//! Projects and reservations: rights that bind by name.

use std::collections::BTreeSet;

use headway_api::solve::{Project, Reservation as WireReservation};
use headway_planner::{PlanJob, PlanProject, Reservation};
use headway_types::{GpuCount, Seconds};

use super::NOW;
use super::check::{Findings, LARGEST};
use super::nodes::Nodes;

/// Ascending by name.
pub fn projects(of: Vec<Project>, findings: &mut Findings) -> Vec<PlanProject> {
    let names: BTreeSet<String> = of.iter().map(|project| project.name.clone()).collect();
    let mut seen = BTreeSet::new();
    let mut projects: Vec<PlanProject> = of
        .into_iter()
        .enumerate()
        .map(|(at, project)| {
            let field = format!("projects[{at}]");
            if project.name.is_empty() {
                findings.add(format_args!("{field}.name"), "is empty");
            } else if !seen.insert(project.name.clone()) {
                findings.add(format_args!("{field}.name"), format!("a second project is called \"{}\"", project.name));
            }
            if let Some(parent) = project.parent.as_ref().filter(|parent| !names.contains(*parent)) {
                findings.add(format_args!("{field}.parent"), format!("no project is called \"{parent}\""));
            }
            let weight = project.weight.unwrap_or(1.0);
            PlanProject {
                quota: project.quota.map(GpuCount),
                borrow: GpuCount(project.borrow),
                floor: GpuCount(project.floor),
                weight: findings.number(weight, 1e-6..=1e6, format_args!("{field}.weight")),
                usage: findings.number(project.usage, 0.0..=LARGEST, format_args!("{field}.usage")),
                max_per_user: project.max_per_user.map(GpuCount),
                name: project.name,
                parent: project.parent,
            }
        })
        .collect();
    projects.sort_by(|a, b| a.name.cmp(&b.name));
    report_circles(&projects, findings);
    projects
}

/// A project that is part of itself bounds nothing.
fn report_circles(projects: &[PlanProject], findings: &mut Findings) {
    let parent = |name: &str| {
        let at = projects.binary_search_by(|project| project.name.as_str().cmp(name)).ok()?;
        projects[at].parent.as_deref()
    };
    for project in projects {
        let mut above = parent(&project.name);
        let mut steps = 0;
        while let Some(name) = above.filter(|_| steps <= projects.len()) {
            if name == project.name {
                findings.add("projects", format!("\"{name}\" is part of itself"));
                break;
            }
            above = parent(name);
            steps += 1;
        }
    }
}

/// Those that are not over.
pub fn reservations(
    of: Vec<WireReservation>,
    nodes: &Nodes,
    jobs: &[PlanJob],
    projects: &[PlanProject],
    findings: &mut Findings,
) -> Vec<Reservation> {
    let mut kept = Vec::new();
    for (at, reservation) in of.into_iter().enumerate() {
        let field = format!("reservations[{at}]");
        let from = findings.moment(reservation.from_seconds, format_args!("{field}.from_seconds"));
        let until = findings.moment(reservation.until_seconds, format_args!("{field}.until_seconds"));
        if until <= from {
            findings.add(format_args!("{field}.until_seconds"), "must lie after from_seconds");
        }
        let unknown = |name: &&String| !projects.is_empty() && !projects.iter().any(|project| project.name == **name);
        if let Some(name) = reservation.projects.iter().find(unknown) {
            findings.add(format_args!("{field}.projects"), format!("no project is called \"{name}\""));
        }
        let names = reservation.nodes.iter().enumerate();
        let on = names.filter_map(|(at, name)| nodes.known(name, format_args!("{field}.nodes[{at}]"), findings));
        let on = on.map(|number| nodes.get(number).node).collect();
        if until <= 0.0 {
            continue;
        }
        let members: BTreeSet<&String> = reservation.jobs.iter().collect();
        kept.push(Reservation {
            name: reservation.name,
            reason: None,
            nodes: on,
            from: NOW + Seconds(from),
            until: NOW + Seconds(until),
            projects: reservation.projects.into_iter().collect(),
            users: reservation.users.into_iter().collect(),
            jobs: jobs.iter().filter(|job| members.contains(&job.name)).map(|job| job.job).collect(),
        });
    }
    kept
}
