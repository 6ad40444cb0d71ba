//! Every rule refuses the plan that breaks it, and nothing else.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use headway_types::plan::Relaxed;
use headway_types::report::Flexibility;
use headway_types::spec::NodeResources;
use headway_types::{Bytes, Configuration, GpuCount, GpuType, Layout, NodeCount, NodeSlice, Placement, Seconds};

use super::*;
use crate::builder::{
    NOW, after, bare, job, job_id, node, node_id, plan_id, project, reservation, rigid, round, table,
};
use crate::claim::Spread;
use crate::curves::CurveCache;
use crate::ending::Departure;
use crate::input::{Freedom, PlanWork};
use crate::laws::sites::{labelled, of_project, on_node, row};
use crate::policy::PowerCap;
use crate::site::Amount;

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

/// The first GPUs of nodes of [`crate::builder`].
fn first(nodes: &[(u32, u32)]) -> Placement {
    let slice = |&(node, gpus): &(u32, u32)| NodeSlice {
        node: node_id(node),
        gpus: (0..gpus).map(|gpu| GpuUuid(format!("n{node}-{gpu}"))).collect(),
    };
    Placement::try_new(nodes.iter().map(slice).collect()).unwrap()
}

/// A plan that gives jobs these GPUs and admits to nothing.
fn giving(input: &PlanInput, given: &[(u32, Placement)]) -> Plan {
    let mut plan = crate::plan(input, &mut CurveCache::new()).unwrap();
    plan.report.relaxed.clear();
    plan.assignments = given.iter().map(|(job, placement)| (job_id(*job), bare(placement.clone()))).collect();
    plan
}

fn holding(input: &mut PlanInput, job: usize, placement: Placement) {
    input.jobs[job].current = Some(bare(placement));
}

fn admit(plan: &mut Plan, rule: &str) {
    plan.report.relaxed.push(Relaxed { rule: rule.into(), reason: "a test says so".into() });
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
    let size = broken(|input, _| (input.jobs[0].range.min, input.jobs[0].range.max) = (GpuCount(3), GpuCount(3)));
    assert!(matches!(size, Violation::Size { .. }), "{size}");
    let wrong = broken(|input, _| input.jobs.iter_mut().for_each(|job| job.range.types = vec![GpuType("x".into())]));
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
    let wide = configure(|at| at.layout = Layout { dp: 8, tp: 1, pp: 1, ..Layout::single() });
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

#[test]
fn a_batch_that_has_changed_as_often_as_it_may_stays() {
    let (input, plan) = planned();
    let mut next = after(&input, &plan);
    let mut changed = Plan { id: next.plan, parent: next.parent, ..plan };
    let batch = &mut changed.assignments.get_mut(&job_id(1)).unwrap().configuration.as_mut().unwrap().global_batch;
    batch.0 = if batch.0 == 64 { 32 } else { 64 };
    assert_eq!(verify(&next, &changed), Ok(()));
    next.jobs[0].batch_bound = Some("its batch was changed 6 times within the hour".into());
    assert_eq!(verify(&next, &changed), Err(Violation::BatchBound { job: job_id(1) }));
}

#[test]
fn a_job_starts_on_no_node_it_avoids_but_may_stay_there() {
    let mut input = round(vec![node(1, "alpha", 4)], vec![rigid(1, 2)]);
    input.jobs[0].needs.avoid = [node_id(1)].into();
    let plan = giving(&input, &[(1, first(&[(1, 2)]))]);
    assert!(matches!(verify(&input, &plan), Err(Violation::Avoided { .. })));
    holding(&mut input, 0, first(&[(1, 2)]));
    assert_eq!(verify(&input, &plan), Ok(()));
}

#[test]
fn a_job_starts_only_on_nodes_it_asks_for_but_may_stay_elsewhere() {
    let mut input = round(vec![node(1, "alpha", 4)], vec![rigid(1, 2)]);
    input.jobs[0].needs.only.labels = [("disk".into(), "nvme".into())].into();
    let plan = giving(&input, &[(1, first(&[(1, 2)]))]);
    assert!(matches!(verify(&input, &plan), Err(Violation::NotAskedFor { .. })));
    holding(&mut input, 0, first(&[(1, 2)]));
    assert_eq!(verify(&input, &plan), Ok(()));
    let mut input = round(vec![node(1, "alpha", 4)], vec![rigid(1, 2)]);
    input.jobs[0].needs.only.labels = [("disk".into(), "nvme".into())].into();
    input.nodes[0].labels = input.jobs[0].needs.only.labels.clone();
    assert_eq!(verify(&input, &giving(&input, &[(1, first(&[(1, 2)]))])), Ok(()));
}

#[test]
fn a_gang_has_as_many_gpus_on_each_of_its_nodes() {
    let input = round(vec![node(1, "alpha", 4), node(2, "alpha", 4)], vec![rigid(1, 4)]);
    let uneven = giving(&input, &[(1, first(&[(1, 3), (2, 1)]))]);
    assert_eq!(verify(&input, &uneven), Err(Violation::Uneven { job: job_id(1) }));
    assert_eq!(verify(&input, &giving(&input, &[(1, first(&[(1, 2), (2, 2)]))])), Ok(()));
}

#[test]
fn one_fabric_domain_is_kept_where_it_is_required() {
    let mut input = round(vec![node(1, "alpha", 4), node(2, "alpha", 4)], vec![rigid(1, 8)]);
    input.nodes[1].class.fabric.domain = "other rack".into();
    let plan = giving(&input, &[(1, first(&[(1, 4), (2, 4)]))]);
    assert_eq!(verify(&input, &plan), Ok(()));
    input.jobs[0].needs.spread = Spread::Require;
    assert_eq!(verify(&input, &plan), Err(Violation::MixedDomains { job: job_id(1) }));
}

#[test]
fn reserved_nodes_are_for_members_and_for_jobs_that_leave_in_time() {
    let mut input = round(vec![node(1, "alpha", 4)], vec![rigid(1, 2)]);
    let plan = giving(&input, &[(1, first(&[(1, 2)]))]);
    let at = |from: f64| reservation("maintenance", &[1], NOW + Seconds(from), NOW + Seconds(1e7));
    let reserved = |input: &PlanInput| matches!(verify(input, &plan), Err(Violation::Reserved { .. }));
    input.reservations = vec![at(1_000.0)];
    assert!(reserved(&input), "it has no end and does not save");
    input.jobs[0].bounds.time_left = Some(Seconds(970.0));
    assert_eq!(verify(&input, &plan), Ok(()), "it ends as the reservation begins, 30 s for its start included");
    input.jobs[0].bounds.time_left = Some(Seconds(971.0));
    assert!(reserved(&input), "its limit is too late");
    input.jobs[0].departure = Departure { saves: true, never: false, takes: Seconds(100.0) };
    assert_eq!(verify(&input, &plan), Ok(()), "it saves and leaves");
    input.jobs[0].departure.never = true;
    assert!(reserved(&input), "it saves, but it never leaves");
    input.jobs[0].departure.never = false;
    input.reservations = vec![at(729.0)];
    assert!(reserved(&input), "what it does until then is not worth its start");
    (input.jobs[0].departure.saves, input.jobs[0].bounds.time_left) = (false, None);
    input.reservations = vec![at(6e5)];
    assert!(reserved(&input), "too near for a job that does not save");
    input.reservations = vec![at(7.0 * 86_400.0)];
    assert_eq!(verify(&input, &plan), Ok(()), "a week away");

    holding(&mut input, 0, first(&[(1, 2)]));
    let overstays = |input: &PlanInput| matches!(verify(input, &plan), Err(Violation::Overstays { .. }));
    input.reservations = vec![at(101.0)];
    assert_eq!(verify(&input, &plan), Ok(()), "it may stay until it has to begin to leave");
    input.reservations = vec![at(100.0)];
    assert!(overstays(&input));
    input.jobs[0].departure.never = true;
    assert_eq!(verify(&input, &plan), Ok(()), "it must not run twice, so it stays until it ends");
    input.jobs[0].departure.never = false;
    input.jobs[0].bounds.time_left = Some(Seconds(100.0));
    assert_eq!(verify(&input, &plan), Ok(()), "its limit ends it");
    input.reservations = vec![at(0.0)];
    assert!(overstays(&input));
    input.reservations[0].projects = ["group".into()].into();
    input.projects = vec![project("group", None), project("team", Some("group"))];
    input.jobs[0].claim.project = "team".into();
    assert_eq!(verify(&input, &plan), Ok(()), "a member through the project above");
}

#[test]
fn a_host_is_overdrawn_only_by_what_was_there() {
    let mut input = round(vec![node(1, "alpha", 4)], vec![rigid(1, 1), rigid(2, 1)]);
    input.nodes[0].host =
        NodeResources { cpus: Some(8), memory: Some(Bytes(100)), shm: Some(Bytes(100)), local_disk: Some(Bytes(100)) };
    let two = [(1, on(1, &["n1-0"])), (2, on(1, &["n1-1"]))];
    let none = NodeResources::default();
    for needs in [
        NodeResources { cpus: Some(5), ..none },
        NodeResources { memory: Some(Bytes(51)), ..none },
        NodeResources { shm: Some(Bytes(51)), ..none },
        NodeResources { local_disk: Some(Bytes(51)), ..none },
    ] {
        let mut input = input.clone();
        input.jobs.iter_mut().for_each(|job| job.needs.per_node = needs);
        assert_eq!(verify(&input, &giving(&input, &two[..1])), Ok(()));
        assert!(matches!(verify(&input, &giving(&input, &two)), Err(Violation::Host { .. })));
        holding(&mut input, 0, two[0].1.clone());
        assert!(matches!(verify(&input, &giving(&input, &two)), Err(Violation::Host { .. })));
        holding(&mut input, 1, two[1].1.clone());
        assert_eq!(verify(&input, &giving(&input, &two)), Ok(()));
    }
}

#[test]
fn a_table_names_every_way_to_run() {
    let rows = [(1, 1.0, Some("a")), (2, 1.5, None)];
    let mut input = round(vec![node(1, "alpha", 4)], vec![job(1, 1, 4)]);
    input.jobs[0].work = PlanWork::Table(Arc::new(table("alpha", &rows)));
    let mut plan = giving(&input, &[(1, first(&[(1, 1)]))]);
    assert!(matches!(verify(&input, &plan), Err(Violation::NoRow { .. })), "its row has a name");
    plan.assignments.get_mut(&job_id(1)).unwrap().label = Some("a".into());
    assert_eq!(verify(&input, &plan), Ok(()));
    assert_eq!(verify(&input, &giving(&input, &[(1, first(&[(1, 2)]))])), Ok(()));
    let three = giving(&input, &[(1, first(&[(1, 3)]))]);
    assert_eq!(
        verify(&input, &three),
        Err(Violation::NoRow {
            job: job_id(1),
            gpu_type: GpuType("alpha".into()),
            gpus: GpuCount(3),
            nodes: NodeCount(1),
            label: None
        })
    );
}

#[test]
fn a_bound_script_starts_in_the_layout_of_its_checkpoints() {
    let mut input = round(vec![node(1, "alpha", 4)], vec![job(1, 1, 4)]);
    input.jobs[0].capabilities.layout = Flexibility::Never;
    input.jobs[0].needs.layout = Some(Layout { dp: 2, tp: 1, pp: 1, ..Layout::single() });
    let plan = crate::plan(&input, &mut CurveCache::new()).unwrap();
    assert_eq!(plan.assignments[&job_id(1)].placement.gpus(), GpuCount(2));
    assert_eq!(verify(&input, &plan), Ok(()));
    input.jobs[0].needs.layout = Some(Layout { dp: 4, tp: 1, pp: 1, ..Layout::single() });
    assert_eq!(verify(&input, &plan), Err(Violation::LayoutChanged { job: job_id(1) }));
}

/// A project of two jobs of 2 GPUs each, below another one.
fn family() -> PlanInput {
    let mut input = round(vec![node(1, "alpha", 4)], vec![rigid(1, 2), rigid(2, 2)]);
    input.projects = vec![project("group", None), project("team", Some("group"))];
    for job in &mut input.jobs {
        job.claim.project = "team".into();
        job.claim.user = "ada".into();
    }
    input
}

fn both() -> [(u32, Placement); 2] {
    [(1, on(1, &["n1-0", "n1-1"])), (2, on(1, &["n1-2", "n1-3"]))]
}

#[test]
fn quotas_hold_for_all_projects_above_and_may_be_exceeded_only_by_what_is_there() {
    let mut input = family();
    input.projects[0].quota = Some(GpuCount(2));
    input.projects[0].borrow = GpuCount(1);
    let mut plan = giving(&input, &both());
    let rule = "the quota of project group".to_owned();
    assert_eq!(verify(&input, &plan), Err(Violation::Exceeded { rule: rule.clone(), used: 4.0, limit: 3.0 }));
    admit(&mut plan, &rule);
    let added = |job| Violation::AddedTo { rule: rule.clone(), used: 4.0, limit: 3.0, job: job_id(job) };
    assert_eq!(verify(&input, &plan), Err(added(1)));
    holding(&mut input, 0, both()[0].1.clone());
    assert_eq!(verify(&input, &plan), Err(added(2)));
    holding(&mut input, 1, both()[1].1.clone());
    assert_eq!(verify(&input, &plan), Ok(()));
}

#[test]
fn a_row_of_the_site_holds_for_all_it_names_and_may_be_exceeded_only_by_what_is_there() {
    let mut input = family();
    let plan = giving(&input, &both());
    let refused = |input: &PlanInput| match verify(input, &plan) {
        Err(Violation::Exceeded { rule, used, limit }) => (rule, used, limit),
        other => panic!("{other:?}"),
    };
    let ruled = |input: &mut PlanInput, at_most: u32, amount: Amount| {
        input.policy.rows = vec![row("few", at_most, amount)];
    };
    ruled(&mut input, 3, of_project("group"));
    assert_eq!(refused(&input), ("the row few".to_owned(), 4.0, 3.0));
    ruled(&mut input, 1, on_node("n1"));
    assert_eq!(refused(&input).1, 4.0);
    ruled(&mut input, 1, labelled("team", "x"));
    assert_eq!(verify(&input, &plan), Ok(()));
    input.jobs[0].claim.labels = [("team".to_owned(), "x".to_owned())].into();
    assert_eq!(refused(&input).1, 2.0);
    ruled(&mut input, 1, Amount { node: Some("n2".into()), ..labelled("team", "x") });
    assert_eq!(verify(&input, &plan), Ok(()));
    ruled(&mut input, 3, Amount { gpu_type: Some(GpuType("alpha".into())), ..Amount::default() });
    assert_eq!(refused(&input).1, 4.0);
    let mut admitted = plan.clone();
    admit(&mut admitted, "the row few");
    assert!(matches!(verify(&input, &admitted), Err(Violation::AddedTo { .. })));
    both().into_iter().enumerate().for_each(|(job, (_, placement))| holding(&mut input, job, placement));
    assert_eq!(verify(&input, &admitted), Ok(()));
}

#[test]
fn a_user_holds_no_more_than_a_project_lets_him() {
    let mut input = family();
    input.projects[0].max_per_user = Some(GpuCount(2));
    let plan = giving(&input, &both());
    let rule = "what user ada may hold in project group".to_owned();
    assert_eq!(verify(&input, &plan), Err(Violation::Exceeded { rule, used: 4.0, limit: 2.0 }));
    input.jobs[1].claim.user = "bob".into();
    assert_eq!(verify(&input, &plan), Ok(()));
}

#[test]
fn moves_are_counted_but_not_starts_and_forced_leaves() {
    let mut input = round(vec![node(1, "alpha", 4), node(2, "alpha", 4)], vec![rigid(1, 2), rigid(2, 2)]);
    input.policy.max_moves = Some(0);
    holding(&mut input, 0, first(&[(1, 2)]));
    let moved = giving(&input, &[(1, first(&[(2, 2)])), (2, first(&[(1, 2)]))]);
    assert_eq!(verify(&input, &moved), Err(Violation::TooManyMoves { moves: 1, allowed: 0 }));
    let gone = giving(&input, &[(2, first(&[(1, 2)]))]);
    assert_eq!(verify(&input, &gone), Err(Violation::TooManyMoves { moves: 1, allowed: 0 }));
    input.nodes[0].draining = true;
    let forced = giving(&input, &[(1, first(&[(2, 2)]))]);
    assert_eq!(verify(&input, &forced), Ok(()));
}

#[test]
fn power_is_counted_by_type_and_by_row() {
    let mut input = round(vec![node(1, "alpha", 4)], vec![rigid(1, 2), rigid(2, 1)]);
    input.policy.power_cap = Some(PowerCap {
        watts: 4.0 * 100.0 + 2.0 * 300.0,
        busy: [(GpuType("alpha".into()), 400.0)].into(),
        idle: 100.0,
    });
    let two = [(1, first(&[(1, 2)])), (2, on(1, &["n1-3"]))];
    assert_eq!(verify(&input, &giving(&input, &two[..1])), Ok(()));
    let rule = "the power cap".to_owned();
    assert_eq!(
        verify(&input, &giving(&input, &two)),
        Err(Violation::Exceeded { rule, used: 900.0, limit: 600.000_001 })
    );
    let mut frugal = table("alpha", &[(1, 1.0, None)]);
    frugal.rows[0].watts_per_gpu = Some(100.0);
    input.jobs[1].work = PlanWork::Table(Arc::new(frugal));
    assert_eq!(verify(&input, &giving(&input, &two)), Ok(()));
}

#[test]
fn floors_are_met_while_somebody_asks_for_more() {
    let mut input = family();
    input.projects[0].floor = GpuCount(3);
    let mut plan = giving(&input, &both()[..1]);
    let rule = "the floor of project group".to_owned();
    let below = Violation::BelowFloor { rule: rule.clone(), has: 2, floor: GpuCount(3), job: job_id(2) };
    assert_eq!(verify(&input, &plan), Err(below));
    assert_eq!(verify_rest(&input, &plan), Ok(()), "part of the plan may have fallen away");
    input.jobs[1].freedom = Freedom::Fixed { reason: "it stops".into() };
    assert_eq!(verify(&input, &plan), Ok(()), "it asks for nothing now");
    input.jobs[1].freedom = Freedom::Free;
    admit(&mut plan, &rule);
    assert_eq!(verify(&input, &plan), Ok(()));
    input.jobs[1].claim.floor = GpuCount(1);
    let rule = "the floor of job job-2".to_owned();
    assert_eq!(verify(&input, &plan), Err(Violation::BelowFloor { rule, has: 0, floor: GpuCount(1), job: job_id(2) }));
}
