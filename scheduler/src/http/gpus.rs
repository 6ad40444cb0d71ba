//! Every GPU of the cluster in columns: what a map of sixteen thousand needs, in a tenth of what as many objects would take. Read off the snapshot and off what
//! nodes measured last.

use std::collections::BTreeMap;

use axum::extract::State;
use headway_api::v1;
use headway_engine::view::{NodeView, View};
use headway_types::{Gpu, GpuHealth, JobId, NodeId};

use super::HttpState;
use super::access::ANOTHER;
use super::auth::Principal;
use super::conversions::{job_name, time};
use super::extract::Json;
use super::problem::Problem;
use crate::grpc::Measured;
use crate::store::OutOfSight;

/// Every GPU once, in columns of one length, in the order of nodes' names and of their own indices. Jobs that the reader may not know of are one that has no id.
#[utoipa::path(get, path = "/gpus", tag = "nodes",
    responses((status = 200, body = v1::GpuColumns), (status = "4XX", body = v1::Problem, content_type = "application/problem+json")))]
pub async fn gpus(State(state): State<HttpState>, caller: Principal) -> Result<Json<v1::GpuColumns>, Problem> {
    let view = state.cluster.view();
    let out_of_sight = caller.out_of_sight(&view);
    let cluster = state.cluster.clone();
    // All GPUs are looked at.
    let told =
        tokio::task::spawn_blocking(move || of(&view, out_of_sight.as_ref(), |node| cluster.last_measured(node)));
    told.await.map(Json).map_err(|error| {
        tracing::error!(error = &error as &dyn std::error::Error, "telling the GPUs broke down");
        Problem::internal()
    })
}

fn of(view: &View, hidden: Option<&OutOfSight>, measured: impl Fn(NodeId) -> Option<Measured>) -> v1::GpuColumns {
    let mut nodes: Vec<&NodeView> = view.nodes.values().map(|node| &**node).collect();
    nodes.sort_by_key(|node| (&node.node.inventory.name, node.node.inventory.node));
    let context = view.idle_context();
    let mut told = v1::GpuColumns { at: time(view.at), ..v1::GpuColumns::default() };
    let mut holders = Holders { view, hidden, places: BTreeMap::new() };
    let mut activities: BTreeMap<&'static str, u32> = BTreeMap::new();
    for (place, node) in (0..).zip(nodes) {
        let inventory = &node.node.inventory;
        let readings = measured(inventory.node);
        let mut gpus: Vec<&Gpu> = inventory.gpus.iter().collect();
        gpus.sort_by_key(|gpu| gpu.index);
        told.nodes.push(v1::GpusNode { id: inventory.node.0, name: inventory.name.clone() });
        for gpu in gpus {
            let known = activities.len() as u32;
            let activity = *activities.entry(view.activity(node, gpu, &context).into()).or_insert(known);
            let reading = readings.iter().flat_map(|all| all.gpus.iter()).find(|one| one.gpu == gpu.uuid);
            told.node.push(place);
            told.index.push(gpu.index);
            told.activity.push(activity);
            told.job.push(node.held.get(&gpu.uuid).map(|(job, _)| holders.place(*job, &mut told.jobs)));
            told.healthy.push(gpu.health == GpuHealth::Healthy);
            told.utilisation_pct.push(reading.and_then(|one| one.busy).map(|share| (share * 1_000.0).round() / 10.0));
        }
    }
    let mut words: Vec<(&str, u32)> = activities.into_iter().collect();
    words.sort_by_key(|(_, place)| *place);
    told.activities = words.into_iter().map(|(word, _)| word.to_owned()).collect();
    told
}

/// Places of jobs in the list of those who hold GPUs.
struct Holders<'v> {
    view: &'v View,
    hidden: Option<&'v OutOfSight>,
    /// `None`: all that are hidden.
    places: BTreeMap<Option<JobId>, u32>,
}

impl Holders<'_> {
    fn place(&mut self, job: JobId, list: &mut Vec<v1::GpusJob>) -> u32 {
        let hides = |hidden: &OutOfSight| {
            let live = self.view.jobs.get(&job);
            live.is_none_or(|live| hidden.hides(&live.job.spec.project, &live.job.owner))
        };
        let shown = (!self.hidden.is_some_and(hides)).then_some(job);
        *self.places.entry(shown).or_insert_with(|| {
            let name = shown.map_or_else(|| ANOTHER.to_owned(), |job| job_name(job, self.view));
            list.push(v1::GpusJob { job_id: shown.map(|job| job.0), job_name: name });
            list.len() as u32 - 1
        })
    }
}

#[cfg(test)]
mod tests {
    use headway_api::agent::GpuReading;

    use super::*;
    use crate::http::fixtures;

    #[test]
    fn columns_have_a_row_for_each_gpu() {
        let view = fixtures::running();
        let told = of(&view, None, |_| None);
        assert_eq!(
            (told.nodes.len(), told.node.as_slice(), told.index.as_slice()),
            (1, &[0; 4][..], &[0, 1, 2, 3][..])
        );
        assert_eq!(told.job, [Some(0), Some(0), None, None]);
        assert_eq!(told.jobs[0].job_id, Some(fixtures::job_id().0));
        let words: Vec<&str> = told.activity.iter().map(|place| told.activities[*place as usize].as_str()).collect();
        assert_eq!(words, ["training", "training", "idle_no_demand", "broken"]);
        assert_eq!((told.healthy, told.utilisation_pct), (vec![true, true, true, false], vec![None; 4]));
    }

    #[test]
    fn what_a_gpu_measured_stands_in_its_own_row() {
        let view = fixtures::running();
        let node = view.nodes.values().next().expect("a node");
        let second = node.node.inventory.gpus.iter().find(|gpu| gpu.index == 1).expect("a second GPU").uuid.clone();
        let reading = GpuReading { gpu: second, busy: Some(0.505), celsius: None, watts: None, memory_used: None };
        let measured = Measured { at: view.at, gpus: [reading].into() };
        let told = of(&view, None, |_| Some(measured.clone()));
        assert_eq!(told.utilisation_pct, [None, Some(50.5), None, None]);
    }

    #[test]
    fn hidden_jobs_are_one_without_a_face() {
        let hidden = OutOfSight { projects: ["nlp".to_owned()].into(), but_of: "eve".into() };
        let told = of(&fixtures::running(), Some(&hidden), |_| None);
        assert_eq!(told.jobs, [v1::GpusJob { job_id: None, job_name: ANOTHER.into() }]);
        assert_eq!(told.job, [Some(0), Some(0), None, None], "that somebody has them is told");
    }
}
