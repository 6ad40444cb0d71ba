//! The cluster as it was at a past moment (`?at=`): what was in which state, from the history of transitions, joined with
//! what never changes of a job, an allocation or a plan. What the past does not tell is absent.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use chrono::{DateTime, Utc};
use headway_api::v1;
use headway_engine::record::{Allocation, Job, PlanRecord, PlanSummary};
use headway_engine::view::View;
use headway_types::{
    AvailabilityKind, Generation, JobId, JobStateKind, NodeId, NodeSlice, PlanId, PlanStateKind, Timestamp,
};
use serde::{Deserialize, Serialize};

use super::conversions::{self, time};
use super::problem::Problem;
use super::{cursor, lookup};
use crate::cluster::Cluster;
use crate::store::{JobFilter, OutOfSight, StatesAt};

#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub struct Moment {
    /// A past moment (RFC 3339) instead of the present.
    pub at: Option<DateTime<Utc>>,
}

/// The present, or what is known of a past moment.
#[derive(Serialize)]
#[serde(untagged)]
pub enum Reply<N, P> {
    Now(N),
    Then(P),
}

/// A moment of which something is known.
async fn known(cluster: &Cluster, at: DateTime<Utc>) -> Result<Timestamp, Problem> {
    let (at, now) = (conversions::timestamp(at), cluster.now());
    let wrong = |detail: String| Problem::bad_request(detail).field("at");
    if at > now {
        return Err(wrong(format!("{} is in the future: the cluster's clock says {}", written(at), written(now))));
    }
    let kept = now - cluster.retention().history;
    let begins = cluster.store().first_moment().await?.unwrap_or(now).max(kept);
    if at < begins {
        return Err(wrong(format!("nothing is known of {}: history begins at {}", written(at), written(begins)))
            .hint(format!("the past is kept for {} days", cluster.retention().history.0 / 86_400.0)));
    }
    Ok(at)
}

fn written(at: Timestamp) -> String {
    time(at).to_rfc3339_opts(chrono::SecondsFormat::AutoSi, true)
}

/// One page of the jobs that had not ended. The states of the filter are those of that moment.
pub async fn jobs(cluster: &Cluster, filter: JobFilter, at: DateTime<Utc>) -> Result<v1::PastJobList, Problem> {
    if filter.states.iter().any(|state| state.is_final()) {
        return Err(Problem::bad_request("a past moment shows jobs that had not ended").field("state"));
    }
    let at = known(cluster, at).await?;
    let states = cluster.store().states_at(at).await?;
    let wanted = |state: JobStateKind| filter.states.is_empty() || filter.states.contains(&state);
    let among = states.jobs.iter().filter(|(_, then)| wanted(then.state)).map(|(id, _)| *id).collect();
    let page = cluster.store().jobs(&JobFilter { states: Vec::new(), among: Some(among), ..filter }).await?;
    let shown: BTreeSet<JobId> = page.items.iter().map(|record| record.id).collect();
    let held = allocations(cluster, &states, |job| shown.contains(&job)).await?;
    let names = NodeNames::of(cluster, held_nodes(&held)).await?;
    let items = page.items.iter().filter_map(|record| job_as_it_was(record, &states, &held, at, &names));
    Ok(v1::PastJobList { at: time(at), items: items.collect(), next_cursor: page.next.map(cursor::bind) })
}

/// One job, also where it had ended.
pub async fn job(cluster: &Cluster, record: &Job, at: DateTime<Utc>) -> Result<v1::PastJob, Problem> {
    let at = known(cluster, at).await?;
    let states = cluster.store().job_at(record.id, at).await?;
    let held = allocations(cluster, &states, |_| true).await?;
    let names = NodeNames::of(cluster, held_nodes(&held)).await?;
    job_as_it_was(record, &states, &held, at, &names)
        .ok_or_else(|| Problem::not_found(format!("nothing is known of job {} at {}", record.id, written(at))))
}

/// All nodes that had registered and had not been deleted.
pub async fn nodes(cluster: &Cluster, at: DateTime<Utc>) -> Result<v1::PastNodeList, Problem> {
    let at = known(cluster, at).await?;
    let states = cluster.store().states_at(at).await?;
    let held = allocations(cluster, &states, |_| true).await?;
    let jobs: Vec<JobId> = held.iter().map(|one| one.job).collect();
    let names = cluster.store().job_names(&jobs).await?;
    let nodes = NodeNames::of(cluster, states.nodes.keys().copied()).await?;
    let mut by_node = held_by_node(&states, &held, at, &names);
    let items = states.nodes.iter().map(|(id, then)| v1::PastNode {
        id: id.0,
        name: nodes.of_node(*id),
        availability: then.availability,
        policy: then.policy,
        standing: then.standing,
        since: time(then.since),
        gpus: then.gpus,
        gpus_healthy: then.healthy_gpus,
        held: by_node.remove(id).unwrap_or_default(),
    });
    Ok(v1::PastNodeList { at: time(at), items: items.collect() })
}

/// The cluster at a glance.
pub async fn overview(
    cluster: &Cluster,
    at: DateTime<Utc>,
    out_of_sight: Option<&OutOfSight>,
) -> Result<v1::PastOverview, Problem> {
    let at = known(cluster, at).await?;
    let states = cluster.store().states_at(at).await?;
    let plans =
        |state: PlanStateKind| states.plans.iter().filter(move |(_, then)| then.state == state).map(|(id, _)| id.0);
    let mut jobs_by_state = BTreeMap::new();
    let whose = match out_of_sight {
        None => BTreeMap::new(),
        Some(_) => cluster.store().jobs_whose(&states.jobs.keys().copied().collect::<Vec<_>>()).await?,
    };
    let hides = |job: &JobId| {
        let (hidden, (project, owner)) = out_of_sight.zip(whose.get(job))?;
        hidden.hides(project, owner).then_some(())
    };
    for (_, then) in states.jobs.iter().filter(|(job, _)| hides(job).is_none()) {
        *jobs_by_state.entry(then.state.to_string()).or_default() += 1;
    }
    Ok(v1::PastOverview {
        at: time(at),
        nodes_total: states.nodes.len() as u32,
        nodes_available: states.nodes.values().filter(|then| then.availability == AvailabilityKind::Available).count()
            as u32,
        gpus_total: states.nodes.values().map(|then| then.gpus).sum(),
        gpus_healthy: states.nodes.values().map(|then| then.healthy_gpus).sum(),
        gpus_busy: states.allocations.values().map(|then| then.gpus).sum(),
        jobs_by_state,
        plan_id: plans(PlanStateKind::Adopted).next(),
        plans_waiting: plans(PlanStateKind::Proposed).collect(),
    })
}

/// The plan that was being carried out, and since when.
pub async fn plan_in_force(cluster: &Cluster, at: DateTime<Utc>) -> Result<(Arc<PlanRecord>, Timestamp), Problem> {
    let at = known(cluster, at).await?;
    let states = cluster.store().states_at(at).await?;
    let in_force = states.plans.iter().find(|(_, then)| then.state == PlanStateKind::Adopted);
    let none = || Problem::not_found(format!("no plan was being carried out at {}", written(at)));
    let (id, then) = in_force.ok_or_else(none)?;
    Ok((lookup::plan(cluster, *id).await?, then.since))
}

/// The plan that was being carried out and those that waited for approval, newest first.
pub async fn plans(
    cluster: &Cluster,
    before: Option<PlanId>,
    limit: u32,
    at: DateTime<Utc>,
) -> Result<v1::PlanList, Problem> {
    let at = known(cluster, at).await?;
    let states = cluster.store().states_at(at).await?;
    let among: Vec<_> = states.plans.keys().copied().collect();
    let page = cluster.store().plans(Some(&among), before, limit).await?;
    let as_it_was = |line: &PlanSummary| {
        let then = &states.plans[&line.id];
        v1::PlanSummary {
            state: then.state,
            state_reason: None,
            decided_at: (then.state == PlanStateKind::Adopted).then(|| time(then.since)),
            decided_by: None,
            ..conversions::plan_summary(line)
        }
    };
    let next_cursor = page.next.map(|plan| plan.to_string());
    Ok(v1::PlanList { items: page.items.iter().map(as_it_was).collect(), next_cursor })
}

/// What nodes are called, those that have been deleted since included.
struct NodeNames {
    view: Arc<View>,
    former: BTreeMap<NodeId, String>,
}

impl NodeNames {
    async fn of(cluster: &Cluster, nodes: impl Iterator<Item = NodeId>) -> Result<Self, Problem> {
        Ok(Self { view: cluster.view(), former: lookup::former_names(cluster, nodes).await? })
    }

    fn of_node(&self, node: NodeId) -> String {
        self.former.get(&node).cloned().unwrap_or_else(|| conversions::node_name(node, &self.view))
    }
}

fn held_nodes(held: &[Allocation]) -> impl Iterator<Item = NodeId> {
    held.iter().flat_map(|one| one.placement.slices()).map(|slice| slice.node)
}

/// The records of what was held, of the jobs asked for.
async fn allocations(
    cluster: &Cluster,
    states: &StatesAt,
    wanted: impl Fn(JobId) -> bool,
) -> Result<Vec<Allocation>, Problem> {
    let keys: Vec<(JobId, Generation)> = states.allocations.keys().copied().filter(|(job, _)| wanted(*job)).collect();
    Ok(cluster.store().allocations_of(&keys).await?)
}

fn job_as_it_was(
    record: &Job,
    states: &StatesAt,
    held: &[Allocation],
    at: Timestamp,
    names: &NodeNames,
) -> Option<v1::PastJob> {
    let then = states.jobs.get(&record.id)?;
    let key = (record.id, then.generation);
    let allocation = held.iter().find(|one| (one.job, one.generation) == key);
    let slices = allocation.into_iter().flat_map(|one| held_slices(one, at));
    Some(v1::PastJob {
        id: record.id.0,
        name: record.spec.name.clone(),
        project: record.spec.project.clone(),
        owner: record.owner.clone(),
        submitted_at: time(record.submitted_at),
        state: then.state,
        state_since: time(then.since),
        generation: then.generation.0,
        gpus: states.allocations.get(&key).map_or(0, |one| one.gpus),
        nodes: slices.map(|slice| names.of_node(slice.node)).collect(),
    })
}

fn held_by_node(
    states: &StatesAt,
    held: &[Allocation],
    at: Timestamp,
    names: &BTreeMap<JobId, String>,
) -> BTreeMap<NodeId, Vec<v1::HeldGpus>> {
    let mut by_node: BTreeMap<NodeId, Vec<v1::HeldGpus>> = BTreeMap::new();
    for one in held {
        let Some(then) = states.allocations.get(&(one.job, one.generation)) else { continue };
        for slice in held_slices(one, at) {
            by_node.entry(slice.node).or_default().push(v1::HeldGpus {
                job_id: one.job.0,
                job_name: names.get(&one.job).cloned().unwrap_or_else(|| one.job.to_string()),
                generation: one.generation.0,
                phase: then.phase.to_string(),
                gpu_uuids: slice.gpus.iter().map(|gpu| gpu.0.clone()).collect(),
            });
        }
    }
    by_node
}

/// What an allocation had not released by then.
fn held_slices(of: &Allocation, at: Timestamp) -> impl Iterator<Item = &NodeSlice> {
    let released = move |node: &NodeId| of.released.get(node).is_some_and(|release| release.at <= at);
    of.placement.slices().iter().filter(move |slice| !released(&slice.node))
}
