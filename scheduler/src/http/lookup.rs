//! Finding one thing by id: live ones in the snapshot, ended ones in the store.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use axum::http::StatusCode;
use headway_api::v1;
use headway_engine::record::{Array, EventRecord, Job, PlanRecord};
use headway_types::{ArrayId, JobId, NodeId, PlanId, Seconds, Timestamp};
use uuid::Uuid;

use super::problem::Problem;
use super::{conversions, waiting};
use crate::asking::Foretold;
use crate::cluster::Cluster;
use crate::store::StoreError;

/// A job with its newest numbers.
pub async fn job(cluster: &Cluster, foretold: &Foretold, id: JobId) -> Result<v1::Job, Problem> {
    let view = cluster.view();
    if let Some(live) = view.jobs.get(&id) {
        return Ok(waiting::live_job(live, &view, foretold));
    }
    stored(cluster, id).await.map(|job| conversions::stored_job(&job))
}

/// A job as the engine or the store knows it.
pub async fn record(cluster: &Cluster, id: JobId) -> Result<Arc<Job>, Problem> {
    if let Some(live) = cluster.view().jobs.get(&id) {
        return Ok(live.job.clone());
    }
    stored(cluster, id).await.map(Arc::new)
}

/// An array as the engine or the store knows it.
pub async fn array(cluster: &Cluster, id: ArrayId) -> Result<Arc<Array>, Problem> {
    if let Some(live) = cluster.view().arrays.get(&id) {
        return Ok(Arc::clone(&live.array));
    }
    let stored = cluster.store().arrays_among(&[id]).await?.into_iter().next();
    stored.map(Arc::new).ok_or_else(|| no_array(id))
}

pub fn no_array(id: ArrayId) -> Problem {
    Problem::not_found(format!("no array {id}"))
}

async fn stored(cluster: &Cluster, id: JobId) -> Result<Job, Problem> {
    cluster.store().job(id).await?.ok_or_else(|| no_job(id))
}

/// Takes as long as a look-up of a job that there is not.
pub async fn look_in_vain_for_job(cluster: &Cluster) -> Result<(), StoreError> {
    cluster.store().job(JobId(Uuid::nil())).await.map(|_| ())
}

/// Takes as long as a look-up of an array that there is not.
pub async fn look_in_vain_for_array(cluster: &Cluster) -> Result<(), StoreError> {
    cluster.store().arrays_among(&[ArrayId(Uuid::nil())]).await.map(|_| ())
}

/// Project and owner of jobs, live and ended; of one that is not known nothing.
pub async fn whose(
    cluster: &Cluster,
    jobs: impl Iterator<Item = JobId>,
) -> Result<BTreeMap<JobId, (String, String)>, StoreError> {
    let view = cluster.view();
    let (mut whose, mut ended) = (BTreeMap::new(), Vec::new());
    for job in jobs {
        match view.jobs.get(&job) {
            Some(live) => whose.extend([(job, (live.job.spec.project.clone(), live.job.owner.clone()))]),
            None => ended.push(job),
        }
    }
    whose.extend(cluster.store().jobs_whose(&ended).await?);
    Ok(whose)
}

/// What jobs and nodes are called.
#[derive(Debug, Default)]
pub struct Names {
    pub jobs: BTreeMap<JobId, String>,
    pub nodes: BTreeMap<NodeId, String>,
}

/// Of all that some events name: what lives from the snapshot, the rest with a query a kind.
pub async fn names(cluster: &Cluster, events: &[EventRecord]) -> Result<Names, StoreError> {
    let view = cluster.view();
    let mut names = Names::default();
    let (mut ended, mut deleted) = (BTreeSet::new(), BTreeSet::new());
    for event in events {
        if let Some(job) = event.job {
            match view.jobs.get(&job) {
                Some(live) => {
                    names.jobs.insert(job, live.job.spec.name.clone());
                }
                None => {
                    ended.insert(job);
                }
            }
        }
        if let Some(node) = event.node {
            match view.nodes.get(&node) {
                Some(seen) => {
                    names.nodes.insert(node, seen.node.inventory.name.clone());
                }
                None => {
                    deleted.insert(node);
                }
            }
        }
    }
    let store = cluster.store();
    names.jobs.extend(store.job_names(&ended.into_iter().collect::<Vec<_>>()).await?);
    names.nodes.extend(store.former_names(&deleted.into_iter().collect::<Vec<_>>()).await?);
    Ok(names)
}

pub fn no_job(id: JobId) -> Problem {
    Problem::not_found(format!("no job {id}"))
}

/// A plan: the target, a proposal, or one of the past.
pub async fn plan(cluster: &Cluster, id: PlanId) -> Result<Arc<PlanRecord>, Problem> {
    let view = cluster.view();
    if let Some(target) = view.target.as_ref().filter(|target| target.plan.id == id) {
        return Ok(target.clone());
    }
    if let Some(proposal) = view.proposals.get(&id) {
        return Ok(proposal.clone());
    }
    let stored = cluster.store().plan(id).await?;
    stored.map(Arc::new).ok_or_else(|| no_plan(id, cluster.retention().plans, cluster.now()))
}

/// The id of a plan tells when it was made.
fn no_plan(id: PlanId, kept: Seconds, now: Timestamp) -> Problem {
    let made_at = id.0.get_timestamp().map(|made| made.to_unix());
    if made_at.is_some_and(|(seconds, _)| (seconds as f64) < (now - kept).0 as f64 / 1e6) {
        let days = kept.0 / 86_400.0;
        return Problem::new(
            StatusCode::GONE,
            "gone",
            format!("plan {id} is not kept: plans are kept for {days} days"),
        );
    }
    Problem::not_found(format!("no plan {id}"))
}

pub fn no_node(name: &str) -> Problem {
    Problem::not_found(format!("no node {name}")).hint("see `headway node list`")
}

/// A node by id or by name; a name that several have is refused, since it would be chance which of them is meant.
pub fn node(cluster: &Cluster, text: &str) -> Result<NodeId, Problem> {
    let view = cluster.view();
    if let Ok(id) = text.parse::<NodeId>()
        && view.nodes.contains_key(&id)
    {
        return Ok(id);
    }
    let named = view.nodes.iter().filter(|(_, node)| node.node.inventory.name == text);
    only(text, named.map(|(id, node)| (*id, node.node.availability.kind().to_string())).collect())
}

/// Also one that was deleted, for those who ask about the past.
pub async fn node_ever(cluster: &Cluster, text: &str) -> Result<NodeId, Problem> {
    let known = match node(cluster, text) {
        Err(problem) if problem.status() == StatusCode::NOT_FOUND => problem,
        known => return known,
    };
    let store = cluster.store();
    if let Ok(id) = text.parse::<NodeId>() {
        return if store.former_names(&[id]).await?.is_empty() { Err(known) } else { Ok(id) };
    }
    let former = store.formerly_named(text).await?;
    only(text, former.into_iter().map(|id| (id, "deleted".to_owned())).collect())
}

/// The only one that is meant; each comes with what tells it from the others.
fn only(name: &str, meant: Vec<(NodeId, String)>) -> Result<NodeId, Problem> {
    match meant.as_slice() {
        [] => Err(no_node(name)),
        [(id, _)] => Ok(*id),
        several => {
            let each: Vec<String> = several.iter().map(|(id, what)| format!("{id} ({what})")).collect();
            let detail = format!("{} nodes have the name {name}", several.len());
            Err(Problem::new(StatusCode::CONFLICT, "ambiguous", detail)
                .hint(format!("name it by its id: {}", each.join(", "))))
        }
    }
}

/// Names that nodes known now do not tell: those of nodes that were deleted.
pub async fn former_names(
    cluster: &Cluster,
    nodes: impl Iterator<Item = NodeId>,
) -> Result<BTreeMap<NodeId, String>, Problem> {
    let view = cluster.view();
    let unknown: BTreeSet<NodeId> = nodes.filter(|node| !view.nodes.contains_key(node)).collect();
    Ok(cluster.store().former_names(&unknown.into_iter().collect::<Vec<_>>()).await?)
}
