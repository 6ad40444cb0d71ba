//! One round for a caller outside the cluster: from the wire document to the planner's input, and from its plan to
//! the reply. Pure: no clock, no file, no server. A document means the same whatever was solved before it.

mod allocation;
mod check;
mod jobs;
mod names;
mod nodes;
mod policy;
mod print;
mod projects;
mod reply;
mod site;
mod ways;

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use headway_api::solve::{Document, SolveError};
use headway_planner::{PlanInput, Policy};
use headway_types::{PlanId, Timestamp};
use uuid::Uuid;

use check::Findings;

pub use names::Names;
pub use print::table;
pub use reply::reply;

/// The moment of every round: ages lie before it, deadlines after it.
const NOW: Timestamp = Timestamp(1_000_000_000_000_000);

/// Converts a document, or says everything that is wrong with it.
pub fn input(document: Document, names: &mut Names) -> Result<PlanInput, SolveError> {
    let mut findings = Findings::default();
    let mut nodes = nodes::nodes(document.nodes, &mut findings);
    let ids = names.of(document.jobs.iter().map(|job| job.name.as_str()));
    let projects = projects::projects(document.projects, &mut findings);
    let jobs = jobs::jobs(document.jobs, &ids, &nodes, &projects, &mut findings);
    let reservations = projects::reservations(document.reservations, &nodes, &jobs, &projects, &mut findings);
    let rows = site::rows(document.policy.rows.clone(), &nodes, &jobs, &projects, &mut findings);
    let policy = Policy { rows, ..policy::policy(document.policy, &mut findings) };
    findings.into_result()?;
    nodes.offer_what_draining_nodes_may_keep(&jobs);
    Ok(PlanInput {
        plan: PlanId(Uuid::from_u128(1)),
        parent: None,
        now: NOW,
        trigger: document.trigger.unwrap_or_else(|| "a round was asked for".into()),
        policy,
        nodes: nodes.into_list(),
        jobs,
        projects,
        reservations,
        lessons: std::sync::Arc::default(),
        deferred: BTreeSet::new(),
        forced: Vec::new(),
    })
}
