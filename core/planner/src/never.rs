//! Whether a job can ever run on the cluster as built: what a submission is refused for, in the words of explanations, with what comes
//! closest. Asked by people only; what is broken, drained, full or reserved now keeps nobody from waiting.

use std::collections::BTreeMap;

use headway_types::{JobId, ReasonCode};

use crate::candidate;
use crate::check::check_job;
use crate::closest::closest;
use crate::cluster::Cluster;
use crate::curves::{CurveCache, Lack};
use crate::explain;
use crate::input::{PlanInput, PlanJob};
use crate::obstacle::{self, Obstacle};
use crate::project::Tree;
use crate::round::Round;

/// Why a job cannot run on this cluster, and what of its specification says so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Never {
    pub code: ReasonCode,
    /// "resources.gpus".
    pub field: &'static str,
    /// "it needs 1000 GPUs of one node class, and the largest has 64".
    pub detail: String,
    /// What comes closest, as far as anything does.
    pub closest: Option<String>,
}

/// The jobs of a round that can never run, of some; those that are alike are looked at once. `go_on` is asked before each that is like none
/// before it; at its first no the rest are taken for ones that can. Returned besides: how many were looked at.
#[must_use]
pub fn never_while(
    input: &PlanInput,
    of: &[JobId],
    curves: &mut CurveCache,
    mut go_on: impl FnMut() -> bool,
) -> (BTreeMap<JobId, Never>, usize) {
    let (cluster, tree) = (Cluster::new(input), Tree::new(&input.projects));
    let round = Round::new(input, &cluster, &tree);
    let mut known: Vec<(PlanJob, Option<Never>)> = Vec::new();
    let (mut told, mut looked_at) = (BTreeMap::new(), 0);
    for job in of.iter().filter_map(|job| input.job(*job)) {
        let alike = PlanJob { name: String::new(), job: of[0], ..job.clone() };
        let never = match known.iter().find(|(one, _)| *one == alike) {
            Some((_, never)) => never.clone(),
            None if go_on() => {
                let never = of_job(&round, job, curves);
                known.push((alike, never.clone()));
                never
            }
            None => break,
        };
        looked_at += 1;
        told.extend(never.map(|never| (job.job, never)));
    }
    (told, looked_at)
}

pub(crate) fn of_job(round: &Round<'_>, job: &PlanJob, curves: &mut CurveCache) -> Option<Never> {
    if round.cluster.classes.is_empty() || check_job(job).is_err() {
        return None;
    }
    let model = job.work.model().map(|model| candidate::effective_model(round, job, model));
    let obstacle = obstacle::never(round, job, model.as_ref(), curves)?;
    let (_, reasons) = explain::obstructed(round, job, &obstacle);
    let reason = reasons.into_iter().find(|reason| reason.code != ReasonCode::Never)?;
    let closest = closest(round, job, &obstacle);
    Some(Never { code: reason.code, field: field(&obstacle), detail: reason.detail, closest })
}

fn field(of: &Obstacle) -> &'static str {
    match of {
        Obstacle::WrongType => "resources.gpus.type",
        Obstacle::HostTooSmall { .. } => "resources.per_node",
        Obstacle::NotAskedFor => "resources.nodes",
        Obstacle::Infeasible { refusal, .. } => match refusal.lacks {
            Lack::Layout => "training.layouts",
            Lack::Batch => "training.batch",
            Lack::Known => "resources.gpus.type",
            Lack::Memory => "resources.gpus",
        },
        _ => "resources.gpus",
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use headway_types::spec::{LayoutLimits, NodeResources, Topology, Work};
    use headway_types::{Bytes, GpuType, JobSpec, ModelShape, Seconds, Sequences, example};

    use super::*;
    use crate::builder::{NOW, node, reservation, round};
    use crate::input::{PlanInput, PlanNode};

    fn real(number: u32, gpu_type: &str) -> PlanNode {
        let mut node = node(number, gpu_type, 8);
        node.class.emulated = None;
        node.host = NodeResources { memory: Some(Bytes(512 << 30)), ..NodeResources::default() };
        node
    }

    /// Eight nodes of eight H100, and one of eight L40S.
    fn cluster() -> Vec<PlanNode> {
        (1..=8).map(|number| real(number, "H100-80G")).chain([real(9, "L40S")]).collect()
    }

    fn asking(gpus: u32) -> JobSpec {
        example::spec("a", example::gpus(gpus, gpus), None)
    }

    /// Of one tensor and pipeline degree.
    fn training(shape: ModelShape, gpus: u32, tp: u32, batch: u64) -> JobSpec {
        let mut training = example::training(Work::Model(shape));
        training.layouts = LayoutLimits::degrees(vec![tp], vec![1], Sequences(1));
        training.batch.min = Sequences(batch);
        training.batch.max = Sequences(batch);
        training.reference_batch = Sequences(batch);
        example::spec("a", example::gpus(gpus, gpus), Some(training))
    }

    fn told_on(nodes: Vec<PlanNode>, spec: &JobSpec) -> Option<Never> {
        let input = round(nodes, Vec::new());
        let job = input.submitted([spec].into_iter(), "ada").remove(0);
        let id = job.job;
        never_while(&input.with([job]), &[id], &mut CurveCache::new(), || true).0.remove(&id)
    }

    fn told(spec: &JobSpec) -> Option<Never> {
        told_on(cluster(), spec)
    }

    #[test]
    fn nodes_that_are_reserved_count_as_built() {
        for (from, until) in [(NOW, NOW + Seconds(3_600.0)), (NOW + Seconds(60.0), NOW + Seconds(3_600.0))] {
            let input = round(cluster(), Vec::new());
            let input = PlanInput { reservations: vec![reservation("service", &[1], from, until)], ..input };
            let job = input.submitted([&asking(64)].into_iter(), "ada").remove(0);
            let id = job.job;
            let input = input.with([job]);
            assert_eq!(never_while(&input, &[id], &mut CurveCache::new(), || true).0.remove(&id), None);
            let plan = crate::plan(&input, &mut CurveCache::new()).unwrap();
            let told = &plan.report.jobs[&id];
            assert!(told.reasons.iter().any(|reason| reason.detail.contains("service")), "{told:?}");
        }
    }

    fn words(spec: &JobSpec) -> String {
        let never = told(spec).unwrap();
        format!("{:?} ({}): {}\n  {}", never.code, never.field, never.detail, never.closest.unwrap_or_default())
    }

    #[test]
    fn what_can_never_run_is_told_with_what_comes_closest() {
        let mut of_type = asking(8);
        of_type.roles[0].gpus.types = vec![GpuType("A100-80G".into())];
        let mut hungry = asking(8);
        hungry.roles[0].per_node.memory = Some(Bytes(99 << 40));
        let mut in_one_rack = asking(128);
        in_one_rack.roles[0].nodes.topology = Topology::RequireRack;
        let (mut of_label, mut unknown, mut named) = (asking(8), asking(8), asking(16));
        of_label.roles[0].nodes.only.labels = [("disk".into(), "nvme".into())].into();
        unknown.roles[0].nodes.only.include = ["n99".into()].into();
        named.roles[0].nodes.only.include = ["n1".into(), "n9".into()].into();
        let all = [
            words(&of_label),
            words(&unknown),
            words(&named),
            words(&of_type),
            words(&asking(1_000)),
            words(&in_one_rack),
            words(&hungry),
            words(&training(example::llama2_7b(), 8, 3, 64)),
            words(&training(example::tiny(), 8, 1, 4)),
        ];
        insta::assert_snapshot!(all.join("\n"));
    }

    #[test]
    fn what_can_run_once_nodes_are_back_is_no_never() {
        let mut nodes = cluster();
        nodes.iter_mut().for_each(|node| node.draining = true);
        nodes[0].gpus.clear();
        assert_eq!(told_on(nodes, &asking(64)), None);
    }

    #[test]
    fn what_is_set_aside_for_others_now_is_no_never() {
        let mut input = round(vec![real(1, "H100-80G")], Vec::new());
        input.reservations = vec![reservation("exam", &[1], NOW, headway_types::Timestamp(NOW.0 + 1))];
        let job = input.submitted([&asking(8)].into_iter(), "ada").remove(0);
        let id = job.job;
        assert!(never_while(&input.with([job]), &[id], &mut CurveCache::new(), || true).0.is_empty());
    }

    #[test]
    fn of_a_cluster_without_nodes_nobody_says_never() {
        assert_eq!(told_on(Vec::new(), &asking(1_000)), None);
    }

    #[test]
    fn a_rack_as_large_as_the_job_is_enough() {
        let mut job = asking(64);
        job.roles[0].nodes.topology = Topology::RequireRack;
        assert_eq!(told(&job), None);
        let mut nodes = cluster();
        nodes.iter_mut().skip(4).for_each(|node| node.class.fabric.domain = "other".into());
        assert_eq!(told_on(nodes, &job).unwrap().detail, "it needs 64 GPUs of one rack, and the largest has 32");
    }

    #[test]
    fn whoever_has_no_patience_takes_the_rest_for_possible() {
        let input = round(cluster(), Vec::new());
        let jobs = input.submitted([&asking(1_000), &asking(2_000)].into_iter(), "ada");
        let ids: Vec<JobId> = jobs.iter().map(|job| job.job).collect();
        let mut patience = [true, false].into_iter();
        let (never, looked_at) =
            never_while(&input.with(jobs), &ids, &mut CurveCache::new(), || patience.next().unwrap());
        assert_eq!((never.len(), looked_at), (1, 1));
    }
}
