//! Finding one thing by id: live ones in the snapshot, ended ones in the store.

use std::sync::Arc;

use headway_api::v1;
use headway_engine::record::{Job, PlanRecord};
use headway_types::{JobId, NodeId, PlanId};

use super::conversions;
use super::problem::Problem;
use crate::cluster::Cluster;

/// A job with its newest numbers.
pub async fn job(cluster: &Cluster, id: JobId) -> Result<v1::Job, Problem> {
    let view = cluster.view();
    if let Some(live) = view.jobs.get(&id) {
        return Ok(conversions::live_job(live, &view));
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

async fn stored(cluster: &Cluster, id: JobId) -> Result<Job, Problem> {
    cluster.store().job(id).await?.ok_or_else(|| Problem::not_found(format!("no job {id}")))
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
    stored.map(Arc::new).ok_or_else(|| Problem::not_found(format!("no plan {id}")))
}

/// A node by id or by name.
pub fn node(cluster: &Cluster, text: &str) -> Result<NodeId, Problem> {
    let view = cluster.view();
    if let Ok(id) = text.parse::<NodeId>()
        && view.nodes.contains_key(&id)
    {
        return Ok(id);
    }
    let named = view.nodes.iter().find(|(_, node)| node.node.inventory.name == text);
    named.map(|(id, _)| *id).ok_or_else(|| Problem::not_found(format!("no node {text}")))
}
