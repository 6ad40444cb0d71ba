//! The check every plan passes before it is adopted. It shares no code with the planner's search: a bug there must not
//! hide here.

use std::collections::{BTreeMap, BTreeSet};

use headway_types::report::Flexibility;
use headway_types::{Assignment, Configuration, GpuCount, GpuType, GpuUuid, JobId, NodeId, Plan, PlanId, Tier};

use crate::curves;
use crate::input::{Freedom, PlanInput, PlanJob, PlanNode};

/// Why a plan must not be adopted.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Violation {
    #[error("the plan is {plan}, the round was for {expected}")]
    WrongPlan { plan: PlanId, expected: PlanId },
    #[error("the plan was made from {parent:?}, the round from {expected:?}")]
    WrongParent { parent: Option<PlanId>, expected: Option<PlanId> },
    #[error("job {0} is not part of the round")]
    UnknownJob(JobId),
    #[error("job {job} is given node {node}, which is not part of the round")]
    UnknownNode { job: JobId, node: NodeId },
    #[error("job {job} is given GPU {gpu}, which is not usable on node {node}")]
    UnusableGpu { job: JobId, node: NodeId, gpu: GpuUuid },
    #[error("GPU {gpu} is granted to job {first} and to job {second}")]
    GrantedTwice { gpu: GpuUuid, first: JobId, second: JobId },
    #[error("job {job} is given GPUs on node {node}, which is draining")]
    Draining { job: JobId, node: NodeId },
    #[error("job {job} does not run on {gpus} GPUs")]
    Size { job: JobId, gpus: GpuCount },
    #[error("job {job} does not run on {gpu_type}")]
    Type { job: JobId, gpu_type: GpuType },
    #[error("job {job} is spread over nodes of different classes")]
    MixedClasses { job: JobId },
    #[error("job {job} must keep its GPUs and layout in this round")]
    MovedFixed { job: JobId },
    #[error("job {job} has a configuration that does not fit its allocation: {reason}")]
    Configuration { job: JobId, reason: String },
    #[error("job {job} cannot change its layout")]
    LayoutChanged { job: JobId },
    #[error("job {job} cannot change its batch like that")]
    BatchChanged { job: JobId },
}

/// Whether a plan for this round may be adopted.
pub fn verify(input: &PlanInput, plan: &Plan) -> Result<(), Violation> {
    if plan.id != input.plan {
        return Err(Violation::WrongPlan { plan: plan.id, expected: input.plan });
    }
    if plan.parent != input.parent {
        return Err(Violation::WrongParent { parent: plan.parent, expected: input.parent });
    }
    let nodes: BTreeMap<NodeId, &PlanNode> = input.nodes.iter().map(|node| (node.node, node)).collect();
    let jobs: BTreeMap<JobId, &PlanJob> = input.jobs.iter().map(|job| (job.job, job)).collect();
    let mut granted: BTreeMap<&GpuUuid, JobId> = BTreeMap::new();
    for (&id, assignment) in &plan.assignments {
        let job = jobs.get(&id).ok_or(Violation::UnknownJob(id))?;
        for (_, gpu) in assignment.placement.ranks() {
            if let Some(first) = granted.insert(gpu, id) {
                return Err(Violation::GrantedTwice { gpu: gpu.clone(), first, second: id });
            }
        }
        check_assignment(&nodes, job, assignment)?;
    }
    for job in &input.jobs {
        let fixed = matches!(job.freedom, Freedom::Fixed { .. });
        if fixed && job.current.is_some() != plan.assignments.contains_key(&job.job) {
            return Err(Violation::MovedFixed { job: job.job });
        }
    }
    Ok(())
}

fn check_assignment(
    nodes: &BTreeMap<NodeId, &PlanNode>,
    job: &PlanJob,
    assignment: &Assignment,
) -> Result<(), Violation> {
    let current = job.current.as_ref();
    let same_gpus = current.is_some_and(|current| current.placement == assignment.placement);
    if matches!(job.freedom, Freedom::Fixed { .. }) {
        // Its GPUs are the engine's business while something is in flight; they only must not change.
        if !same_gpus {
            return Err(Violation::MovedFixed { job: job.job });
        }
    } else {
        check_gpus(nodes, job, assignment, same_gpus)?;
    }
    match (job.work.model(), &assignment.configuration) {
        (None, Some(_)) => {
            Err(Violation::Configuration { job: job.job, reason: "the job is opaque and takes none".into() })
        }
        (Some(_), Some(configuration)) => check_configuration(nodes, job, assignment, configuration, same_gpus),
        (_, None) => Ok(()),
    }
}

fn check_gpus(
    nodes: &BTreeMap<NodeId, &PlanNode>,
    job: &PlanJob,
    assignment: &Assignment,
    same_gpus: bool,
) -> Result<(), Violation> {
    let id = job.job;
    let held: BTreeSet<NodeId> = job
        .current
        .iter()
        .filter(|_| same_gpus)
        .flat_map(|current| current.placement.slices().iter().map(|slice| slice.node))
        .collect();
    let mut classes = BTreeSet::new();
    for slice in assignment.placement.slices() {
        let node = nodes.get(&slice.node).ok_or(Violation::UnknownNode { job: id, node: slice.node })?;
        if let Some(gpu) = slice.gpus.iter().find(|gpu| !node.gpus.contains(gpu)) {
            return Err(Violation::UnusableGpu { job: id, node: slice.node, gpu: gpu.clone() });
        }
        if node.draining && !held.contains(&slice.node) {
            return Err(Violation::Draining { job: id, node: slice.node });
        }
        if !same_gpus && !job.range.accepts(&node.class.gpu_type) {
            return Err(Violation::Type { job: id, gpu_type: node.class.gpu_type.clone() });
        }
        classes.insert((&node.class.gpu_type, node.class.gpus_per_node, node.class.emulated));
    }
    if !same_gpus && classes.len() > 1 {
        return Err(Violation::MixedClasses { job: id });
    }
    let gpus = assignment.placement.gpus();
    let size = if !job.work.is_opaque() { job.range.allows(gpus) } else { gpus == job.range.max };
    if !same_gpus && !size {
        return Err(Violation::Size { job: id, gpus });
    }
    Ok(())
}

fn check_configuration(
    nodes: &BTreeMap<NodeId, &PlanNode>,
    job: &PlanJob,
    assignment: &Assignment,
    configuration: &Configuration,
    same_gpus: bool,
) -> Result<(), Violation> {
    let id = job.job;
    let refuse = |reason: String| Err(Violation::Configuration { job: id, reason });
    let former = job.current.as_ref().and_then(|current| current.configuration);
    if same_gpus && former == Some(*configuration) {
        return Ok(());
    }
    let Some(model) = job.work.model() else { return Ok(()) };
    let placement = &assignment.placement;
    if configuration.layout.gpus() != placement.gpus() {
        return refuse(format!("{} does not occupy {} GPUs", configuration.layout, placement.gpus()));
    }
    if configuration.accumulation().is_none() {
        return refuse(format!("{configuration} does not divide into whole micro-batches"));
    }
    let least_per_node = placement.slices().iter().map(|slice| slice.gpus.len() as u32).min().unwrap_or(0);
    if configuration.layout.tp > least_per_node {
        return refuse(format!("{} spans nodes with its tensor parallelism", configuration.layout));
    }
    let batch = configuration.global_batch;
    let kept = former.is_some_and(|former| former.global_batch == batch);
    let unchanging = job.capabilities.batch == Flexibility::Never;
    let pinned = kept || (unchanging && batch == model.training.reference_batch);
    if !pinned && (batch < model.training.batch.min || model.training.batch.max < batch) {
        return refuse(format!("batch {batch} is outside the recipe's range"));
    }
    if let Some(former) = former {
        let tier = former.tier_to(configuration);
        if matches!(job.freedom, Freedom::Fixed { .. }) && tier == Some(Tier::Layout) {
            return Err(Violation::MovedFixed { job: id });
        }
        if job.capabilities.layout == Flexibility::Never && former.layout != configuration.layout {
            return Err(Violation::LayoutChanged { job: id });
        }
        let in_place = same_gpus && former.layout == configuration.layout;
        if (!kept && unchanging) || (in_place && tier.is_some() && job.capabilities.batch != Flexibility::Live) {
            return Err(Violation::BatchChanged { job: id });
        }
    }
    let moved = !same_gpus || former.is_none_or(|former| former.layout != configuration.layout);
    let Some(node) = nodes.get(&placement.first_node()).filter(|_| moved) else { return Ok(()) };
    let model = if pinned { &curves::with_batch(model, batch) } else { model };
    match curves::predict(model, &node.class, placement.gpus(), placement.nodes(), Some(configuration)) {
        Ok(_) => Ok(()),
        // What runs now is proof enough for a mere change of GPUs.
        Err(_) if former == Some(*configuration) => Ok(()),
        Err(why) => refuse(why.detail),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use headway_types::{Layout, NodeSlice, Placement};

    use super::*;
    use crate::builder::{after, job, job_id, node, node_id, plan_id, round};
    use crate::curves::CurveCache;

    /// Two jobs on two nodes, and the plan for them.
    fn planned() -> (PlanInput, Plan) {
        let nodes = vec![node(1, "alpha", 4), node(2, "beta", 4)];
        let input = round(nodes, vec![job(1, 1, 2), job(2, 1, 2)]);
        let plan = crate::plan(&input, &mut CurveCache::new()).unwrap();
        (input, plan)
    }

    fn on(node: u32, gpus: &[&str]) -> Placement {
        let gpus = gpus.iter().map(|gpu| GpuUuid((*gpu).into())).collect();
        Placement::try_new(vec![NodeSlice { node: node_id(node), gpus }]).unwrap()
    }

    fn broken(change: impl FnOnce(&mut PlanInput, &mut Plan)) -> Violation {
        let (mut input, mut plan) = planned();
        assert_eq!(verify(&input, &plan), Ok(()));
        change(&mut input, &mut plan);
        verify(&input, &plan).unwrap_err()
    }

    #[test]
    fn a_plan_for_another_round_is_refused() {
        assert!(matches!(broken(|_, plan| plan.id = plan_id(9)), Violation::WrongPlan { .. }));
        assert!(matches!(broken(|_, plan| plan.parent = Some(plan_id(9))), Violation::WrongParent { .. }));
        assert!(matches!(broken(|input, _| drop(input.jobs.pop())), Violation::UnknownJob(_)));
    }

    #[test]
    fn a_gpu_is_granted_once_and_only_where_it_is_usable() {
        let twice = broken(|_, plan| {
            let first = plan.assignments[&job_id(1)].placement.clone();
            plan.assignments.get_mut(&job_id(2)).unwrap().placement = first;
        });
        assert!(matches!(twice, Violation::GrantedTwice { .. }), "{twice}");
        let absent = broken(|input, _| input.nodes.iter_mut().for_each(|node| node.gpus.clear()));
        assert!(matches!(absent, Violation::UnusableGpu { .. }), "{absent}");
        let draining = broken(|input, _| input.nodes.iter_mut().for_each(|node| node.draining = true));
        assert!(matches!(draining, Violation::Draining { .. }), "{draining}");
    }

    #[test]
    fn size_type_and_class_are_the_jobs_own() {
        let size = broken(|input, _| input.jobs[0].range.min = GpuCount(3));
        assert!(matches!(size, Violation::Size { .. }), "{size}");
        let wrong =
            broken(|input, _| input.jobs.iter_mut().for_each(|job| job.range.types = vec![GpuType("x".into())]));
        assert!(matches!(wrong, Violation::Type { .. }), "{wrong}");
        let mixed = broken(|_, plan| {
            plan.assignments.remove(&job_id(2));
            let placement = [on(1, &["n1-0"]), on(2, &["n2-0"])].iter().flat_map(|at| at.slices().to_vec()).collect();
            plan.assignments.get_mut(&job_id(1)).unwrap().placement = Placement::try_new(placement).unwrap();
        });
        assert!(matches!(mixed, Violation::MixedClasses { .. }), "{mixed}");
    }

    #[test]
    fn a_configuration_fits_its_gpus_and_the_recipe() {
        let configure = |change: fn(&mut Configuration)| {
            broken(move |_, plan| {
                change(plan.assignments.get_mut(&job_id(1)).unwrap().configuration.as_mut().unwrap());
            })
        };
        let wide = configure(|at| at.layout = Layout { dp: 8, tp: 1, pp: 1 });
        assert!(matches!(wide, Violation::Configuration { .. }), "{wide}");
        let large = configure(|at| at.global_batch.0 *= 1_000);
        assert!(matches!(large, Violation::Configuration { .. }), "{large}");
    }

    #[test]
    fn a_fixed_job_keeps_what_it_has() {
        let (input, plan) = planned();
        let mut next = after(&input, &plan);
        next.jobs[0].freedom = Freedom::Fixed { reason: "it starts".into() };
        let mut kept = Plan { id: next.plan, parent: next.parent, ..plan };
        assert_eq!(verify(&next, &kept), Ok(()));
        kept.assignments.remove(&job_id(1));
        assert_eq!(verify(&next, &kept), Err(Violation::MovedFixed { job: job_id(1) }));
    }

    #[test]
    fn a_script_that_cannot_change_its_batch_keeps_it() {
        let (input, plan) = planned();
        let mut next = after(&input, &plan);
        next.jobs[0].capabilities.batch = Flexibility::Restart;
        let mut changed = Plan { id: next.plan, parent: next.parent, ..plan };
        let batch = &mut changed.assignments.get_mut(&job_id(1)).unwrap().configuration.as_mut().unwrap().global_batch;
        batch.0 = if batch.0 == 64 { 32 } else { 64 };
        assert_eq!(verify(&next, &changed), Err(Violation::BatchChanged { job: job_id(1) }));
    }
}
