//! What of a plan still holds once it comes back: the cluster went on meanwhile. A job whose planned GPUs were lost, or
//! that has taken another course, keeps what it holds; so does, in turn, whoever was to get those GPUs. The rest is
//! adopted, so that churn never stops planning.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use headway_planner::{Freedom, PlanInput, PlanJob, verify_rest};
use headway_types::{Assignment, GpuUuid, JobId, Plan};

use super::RoundKind;
use super::input::take_down;
use crate::situation::Situation;

/// The part of a plan that could be made from the cluster as it is now, or nothing if even that does not verify. A job that has nothing and
/// is given nothing breaks no rule and keeps nobody from anything, so the queue is not looked at.
pub(super) fn what_still_fits(at: Situation<'_>, kind: &RoundKind, plan: &Arc<Plan>) -> Option<Arc<Plan>> {
    let round = take_down(at, kind);
    let fresh = round.part(&round.lots.keys().chain(plan.assignments.keys()).copied().collect());
    let known = |job: &PlanJob| plan.report.jobs.contains_key(&job.job);
    if fresh.jobs.iter().all(|job| known(job) || job.current.is_none()) && verify_rest(&fresh, plan).is_ok() {
        return Some(Arc::clone(plan));
    }
    let kept = keep(&fresh, plan);
    let mut rest = Plan::clone(plan);
    rest.report.moves.retain(|one| kept.get(&one.job) == plan.assignments.get(&one.job));
    rest.assignments = kept;
    verify_rest(&fresh, &rest).is_ok().then(|| Arc::new(rest))
}

fn keep(fresh: &PlanInput, plan: &Plan) -> BTreeMap<JobId, Assignment> {
    let usable: BTreeSet<&GpuUuid> = fresh.nodes.iter().flat_map(|node| node.gpus.iter()).collect();
    let mut staying: BTreeSet<JobId> =
        fresh.jobs.iter().filter(|job| must_stay(job, plan, &usable)).map(|job| job.job).collect();
    // Each round of the loop keeps at least one more job in place, so it ends.
    loop {
        let kept_gpus: BTreeSet<&GpuUuid> = fresh
            .jobs
            .iter()
            .filter(|job| staying.contains(&job.job))
            .filter_map(|job| job.current.as_ref())
            .flat_map(gpus)
            .collect();
        let displaced: Vec<JobId> = fresh
            .jobs
            .iter()
            .filter(|job| {
                let planned = plan.assignments.get(&job.job);
                !staying.contains(&job.job) && planned.is_some_and(|one| gpus(one).any(|gpu| kept_gpus.contains(gpu)))
            })
            .map(|job| job.job)
            .collect();
        if displaced.is_empty() {
            break;
        }
        staying.extend(displaced);
    }
    let assignment = |job: &PlanJob| {
        let planned = plan.assignments.get(&job.job);
        let same = |one: &&Assignment| job.current.as_ref().is_some_and(|now| now.placement == one.placement);
        // A job that must leave cannot fall back on what it holds.
        let kept = |one: &&Assignment| must_keep(job) || gpus(one).all(|gpu| usable.contains(gpu));
        let own = || job.current.as_ref().filter(kept);
        let chosen = if staying.contains(&job.job) { planned.filter(same).or_else(own) } else { planned };
        Some((job.job, chosen?.clone()))
    };
    fresh.jobs.iter().filter_map(assignment).collect()
}

/// Jobs that may not move, jobs the plan knows nothing of, and jobs whose planned GPUs cannot be used any more.
fn must_stay(job: &PlanJob, plan: &Plan, usable: &BTreeSet<&GpuUuid>) -> bool {
    let lost = |one: &Assignment| !gpus(one).all(|gpu| usable.contains(gpu));
    must_keep(job) || !plan.report.jobs.contains_key(&job.job) || plan.assignments.get(&job.job).is_some_and(lost)
}

fn must_keep(job: &PlanJob) -> bool {
    matches!(job.freedom, Freedom::Fixed { .. })
}

fn gpus(assignment: &Assignment) -> impl Iterator<Item = &GpuUuid> {
    assignment.placement.ranks().map(|(_, gpu)| gpu)
}
