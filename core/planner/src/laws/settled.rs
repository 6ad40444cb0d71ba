//! Jobs that keep their GPUs from other jobs, because they could not resume: only what is owed stops them.

use headway_types::spec::Priority;
use headway_types::{GpuCount, JobId, NodeSlice, Placement, Plan, Seconds};
use proptest::prelude::*;

use super::planned;
use super::rounds::{AnyRound, any_round};
use crate::builder::{NOW, bare, job, job_id, node, project, reservation, rigid, round};
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

fn is_on_reserved_nodes(input: &PlanInput, job: &PlanJob) -> bool {
    let mut slices = job.current.iter().flat_map(|current| current.placement.slices());
    slices.any(|slice| input.reservations.iter().any(|one| one.nodes.contains(&slice.node)))
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
    fn a_settled_job_that_can_stay_keeps_its_gpus_or_has_none(
        AnyRound(input) in any_round(7), settled in proptest::collection::vec(any::<bool>(), 7),
    ) {
        let mut input = PlanInput { forced: Vec::new(), ..input };
        input.jobs.iter_mut().zip(settled).filter(|(_, settled)| *settled).for_each(|(job, _)| settle(job));
        let plan = planned(&input);
        let can_stay = |job: &&PlanJob| {
            let is_settled = matches!(job.freedom, Freedom::Settled { .. });
            is_settled && is_usable(&input, job) && !is_on_reserved_nodes(&input, job)
        };
        for job in input.jobs.iter().filter(can_stay) {
            let now = placement_of(&plan, job.job);
            let held = job.current.as_ref().map(|current| &current.placement);
            prop_assert!(now.is_none() || now == held, "{} is moved and starts from zero", &job.name);
        }
    }

    #[test]
    fn a_settled_job_is_never_moved_to_give_back_what_its_project_borrowed(wanted in 1u32..9) {
        let (own, other) = (node(1, "alpha", 8), node(2, "beta", 8));
        let mut settled = job(1, 1, 8);
        let slice = NodeSlice { node: own.node, gpus: own.gpus.clone() };
        settled.current = Some(bare(Placement::try_new(vec![slice]).unwrap()));
        settled.claim.project = "borrower".into();
        settle(&mut settled);
        let held = settled.current.as_ref().map(|current| current.placement.clone());
        let mut lender = rigid(99, wanted);
        lender.claim.project = "lender".into();
        lender.range.types = vec![own.class.gpu_type.clone()];
        let mut input = round(vec![own, other], vec![settled, lender]);
        input.projects = vec![project("borrower", None), project("lender", None)];
        for project in &mut input.projects {
            let own = if project.name == "lender" { 8 } else { 0 };
            (project.quota, project.borrow) = (Some(GpuCount(own)), GpuCount(8));
        }
        let now = planned(&input).assignments.get(&job_id(1)).map(|one| one.placement.clone());
        prop_assert!(now.is_none() || now == held, "{now:?}");
    }

    #[test]
    fn a_settled_job_that_must_leave_gets_another_place_where_there_is_room(size in 1u32..9, drains in any::<bool>()) {
        let (mut left, free) = (node(1, "alpha", 8), node(2, "alpha", 8));
        left.draining = drains;
        let mut settled = rigid(1, size);
        let slice = NodeSlice { node: left.node, gpus: left.gpus[..size as usize].to_vec() };
        settled.current = Some(bare(Placement::try_new(vec![slice]).unwrap()));
        settle(&mut settled);
        let mut input = round(vec![left, free], vec![settled]);
        if !drains {
            input.reservations = vec![reservation("r9", &[1], NOW, NOW + Seconds(3_600.0))];
        }
        let plan = planned(&input);
        let to = placement_of(&plan, job_id(1)).map(Placement::first_node);
        prop_assert_eq!(to, Some(input.nodes[1].node));
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
