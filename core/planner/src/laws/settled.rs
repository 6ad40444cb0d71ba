//! Jobs that keep their GPUs from other jobs, because they could not resume: only what is owed stops them.

use headway_types::spec::Priority;
use headway_types::{GpuCount, JobId, NodeSlice, Placement, Plan, Seconds};
use proptest::prelude::*;

use super::planned;
use super::rounds::{AnyRound, any_round};
use crate::builder::{bare, job_id, node, project, rigid, round};
use crate::input::{Freedom, PlanInput, PlanJob};

fn settle(job: &mut PlanJob) {
    if job.current.is_some() && job.freedom == Freedom::Free {
        job.freedom = Freedom::Settled { reason: "it cannot resume".into() };
    }
}

/// The round without anything that is owed to anybody: no quotas, floors of projects, reservations or caps.
fn without_debts(input: PlanInput) -> PlanInput {
    let mut input = PlanInput { projects: Vec::new(), reservations: Vec::new(), forced: Vec::new(), ..input };
    (input.policy.power_cap, input.policy.rows) = (None, Vec::new());
    input
}

fn is_usable(input: &PlanInput, job: &PlanJob) -> bool {
    let slices = job.current.iter().flat_map(|current| current.placement.slices());
    slices.into_iter().all(|slice| {
        let node = input.nodes.iter().find(|node| node.node == slice.node);
        node.is_some_and(|node| !node.draining && slice.gpus.iter().all(|gpu| node.gpus.contains(gpu)))
    })
}

fn placement_of(plan: &Plan, job: JobId) -> Option<&Placement> {
    plan.assignments.get(&job).map(|assignment| &assignment.placement)
}

/// One node of 8 GPUs with eight jobs of one GPU on it, of this project.
fn full_of(project: &str) -> PlanInput {
    let node = node(1, "alpha", 8);
    let jobs = node.gpus.iter().enumerate().map(|(at, gpu)| {
        let mut job = rigid(at as u32 + 1, 1);
        let slice = NodeSlice { node: node.node, gpus: vec![gpu.clone()] };
        job.current = Some(bare(Placement::try_new(vec![slice]).unwrap()));
        job.claim.project = project.into();
        job
    });
    let jobs = jobs.collect();
    round(vec![node], jobs)
}

proptest! {
    #![proptest_config(super::config())]

    #[test]
    fn no_plan_for_other_jobs_stops_or_moves_a_settled_one(
        AnyRound(input) in any_round(7), settled in proptest::collection::vec(any::<bool>(), 7),
    ) {
        let mut input = without_debts(input);
        input.jobs.iter_mut().zip(settled).filter(|(_, settled)| *settled).for_each(|(job, _)| settle(job));
        let plan = planned(&input);
        let is_settled = |job: &&PlanJob| matches!(job.freedom, Freedom::Settled { .. }) && is_usable(&input, job);
        for job in input.jobs.iter().filter(is_settled) {
            let held = job.current.as_ref().map(|current| &current.placement);
            prop_assert_eq!(placement_of(&plan, job.job), held, "{} lost its GPUs", &job.name);
        }
    }

    #[test]
    fn neither_priority_nor_a_long_wait_nor_a_floor_stops_a_settled_job(
        wanted in 1u32..9, priority in 0u8..101, waited in 0.0..1e6f64, floor in any::<bool>(),
    ) {
        let mut input = full_of("");
        for job in &mut input.jobs {
            job.claim.ran = Seconds(1e6);
            settle(job);
        }
        let mut urgent = rigid(99, wanted);
        urgent.priority = Priority(priority);
        urgent.claim.waited = Seconds(waited);
        urgent.claim.floor = GpuCount(if floor { wanted } else { 0 });
        input.jobs.push(urgent);
        prop_assert_eq!(planned(&input).assignments.len(), 8);
    }

    #[test]
    fn what_is_reclaimed_comes_from_settled_jobs_last(settled in 0u32..9, wanted in 1u32..9) {
        let mut input = full_of("borrower");
        input.jobs.iter_mut().take(settled as usize).for_each(settle);
        input.projects = vec![project("borrower", None), project("lender", None)];
        for project in &mut input.projects {
            let own = if project.name == "lender" { 8 } else { 0 };
            (project.quota, project.borrow) = (Some(GpuCount(own)), GpuCount(8 - own));
        }
        let mut lender = rigid(99, wanted);
        lender.claim.project = "lender".into();
        input.jobs.push(lender);
        let plan = planned(&input);
        prop_assert!(plan.assignments.contains_key(&job_id(99)));
        let kept = (1..=settled).filter(|number| plan.assignments.contains_key(&job_id(*number))).count() as u32;
        prop_assert_eq!(kept, settled.min(8 - wanted));
    }
}
