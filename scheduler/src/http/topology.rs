//! Where GPUs are and what they do: fabric domains, their nodes, their GPUs. Read off the snapshot.

use std::collections::BTreeMap;

use axum::extract::State;
use headway_api::v1;
use headway_engine::Activity;
use headway_engine::record::Availability;
use headway_engine::view::{IdleContext, NodeView, View};
use headway_types::{Gpu, GpuHealth};

use super::HttpState;
use super::auth::Principal;
use super::conversions::{self, job_name, time};
use super::extract::Json;
use super::problem::Problem;

/// Fabric domains with their nodes and GPUs: what each GPU does and who holds it. Nodes know of the network the name of their domain alone, so there is one level.
#[utoipa::path(get, path = "/topology", tag = "nodes",
    responses((status = 200, body = v1::Topology), (status = "4XX", body = v1::Problem, content_type = "application/problem+json")))]
pub async fn topology(State(state): State<HttpState>, _caller: Principal) -> Result<Json<v1::Topology>, Problem> {
    let view = state.cluster.view();
    // All GPUs are looked at.
    let told = tokio::task::spawn_blocking(move || of(&view)).await;
    told.map(Json).map_err(|error| {
        tracing::error!(error = &error as &dyn std::error::Error, "telling the topology broke down");
        Problem::internal()
    })
}

fn of(view: &View) -> v1::Topology {
    let mut domains: BTreeMap<&str, Vec<&NodeView>> = BTreeMap::new();
    for node in view.nodes.values() {
        domains.entry(&node.node.inventory.fabric.domain).or_default().push(node);
    }
    let context = view.idle_context();
    let domains = domains.into_iter().map(|(name, nodes)| domain(name, nodes, view, &context)).collect();
    v1::Topology { at: time(view.at), domains }
}

fn domain(name: &str, mut nodes: Vec<&NodeView>, view: &View, context: &IdleContext) -> v1::TopologyDomain {
    nodes.sort_by_key(|node| (&node.node.inventory.name, node.node.inventory.node));
    let count_on = |node: &NodeView, counted: &[Activity]| {
        let gpus = node.node.inventory.gpus.iter();
        gpus.filter(|gpu| counted.contains(&view.activity(node, gpu, context))).count() as u32
    };
    let free_on = |node: &&NodeView| count_on(node, &[Activity::IdleNoDemand, Activity::IdleWaiting]);
    let gpus = || nodes.iter().flat_map(|node| &node.node.inventory.gpus);
    v1::TopologyDomain {
        name: name.to_owned(),
        nodes_total: nodes.len() as u32,
        nodes_available: nodes.iter().filter(|node| node.node.availability == Availability::Available).count() as u32,
        gpus_total: gpus().count() as u32,
        gpus_healthy: gpus().filter(|gpu| gpu.health == GpuHealth::Healthy).count() as u32,
        gpus_busy: nodes.iter().map(|node| node.held.len() as u32).sum(),
        gpus_free: nodes.iter().map(free_on).sum(),
        gpus_reserved: nodes.iter().map(|node| count_on(node, &[Activity::Reserved])).sum(),
        gpus_free_on_one_node: nodes.iter().map(free_on).max().unwrap_or(0),
        nodes: nodes.iter().map(|one| node(one, view, context)).collect(),
    }
}

fn node(of: &NodeView, view: &View, context: &IdleContext) -> v1::TopologyNode {
    let record = &of.node;
    let inventory = &record.inventory;
    let mut gpus: Vec<&Gpu> = inventory.gpus.iter().collect();
    gpus.sort_by_key(|gpu| gpu.index);
    let gpu = |gpu: &Gpu| {
        let holder = of.held.get(&gpu.uuid).map(|(job, _)| *job);
        v1::TopologyGpu {
            uuid: gpu.uuid.0.clone(),
            index: gpu.index,
            activity: <&str>::from(view.activity(of, gpu, context)).into(),
            job_id: holder.map(|job| job.0),
            job_name: holder.map(|job| job_name(job, view)),
        }
    };
    v1::TopologyNode {
        id: inventory.node.0,
        name: inventory.name.clone(),
        gpu_type: inventory.gpu_type.0.clone(),
        availability: record.availability.kind(),
        policy: record.policy.kind(),
        standing: record.health.standing.kind(),
        reservation: conversions::active_reservation(inventory.node, view),
        gpus: gpus.into_iter().map(gpu).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::fixtures;

    #[test]
    fn a_domain_counts_its_gpus_and_each_says_what_it_does() {
        let view = fixtures::running();
        let told = of(&view);
        let [domain] = told.domains.as_slice() else { panic!("{told:?}") };
        let counts = (domain.gpus_total, domain.gpus_healthy, domain.gpus_busy, domain.gpus_free);
        assert_eq!((counts, domain.gpus_free_on_one_node), ((4, 3, 2, 1), 1));
        let gpus: Vec<_> =
            domain.nodes[0].gpus.iter().map(|gpu| (gpu.activity.as_str(), gpu.job_name.as_deref())).collect();
        let busy = ("training", Some("llama"));
        assert_eq!(gpus, [busy, busy, ("idle_no_demand", None), ("broken", None)]);
        assert_eq!(domain.nodes[0].reservation, None);
    }

    #[test]
    fn idle_gpus_of_a_reserved_node_are_not_free() {
        let told = of(&fixtures::reserved());
        let [domain] = told.domains.as_slice() else { panic!("{told:?}") };
        assert_eq!((domain.gpus_free, domain.gpus_reserved, domain.gpus_free_on_one_node), (0, 1, 0));
        let node = &domain.nodes[0];
        let activities: Vec<&str> = node.gpus.iter().map(|gpu| gpu.activity.as_str()).collect();
        assert_eq!(activities, ["training", "training", "reserved", "broken"]);
        let reservation = node.reservation.as_ref().expect("a reservation that has begun");
        assert_eq!((reservation.name.as_str(), reservation.until), ("demo", time(fixtures::RESERVED_UNTIL)));
    }
}
