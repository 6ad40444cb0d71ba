//! The site's own rows are kept whatever the round and whatever the policy, and change nothing where they do not bind.

use std::collections::BTreeSet;

use headway_types::plan::MoveKind;
use headway_types::spec::{NodeResources, Priority};
use headway_types::{Assignment, Bytes, GpuCount, GpuType, NodeId, Objective, Plan, ReasonCode, Solver};
use proptest::prelude::*;

use super::rounds::{AnyRound, any_round, any_ruled_round};
use super::{borrows, planned};
use crate::builder::{after, job, job_id, node, node_id, project, rigid, round};
use crate::cluster::Cluster;
use crate::curves::CurveCache;
use crate::input::{Freedom, PlanInput, PlanJob, PlanNode};
use crate::plan;
use crate::policies::laws::ALL;
use crate::project::Tree;
use crate::rows::{RowKind, Rows};
use crate::site::{Amount, Label, SiteRow};

pub(crate) fn row(name: &str, at_most: u32, amount: Amount) -> SiteRow {
    SiteRow { name: name.into(), amount, at_most: GpuCount(at_most) }
}

pub(crate) fn labelled(key: &str, value: &str) -> Amount {
    Amount { label: Some(Label { key: key.into(), value: value.into() }), ..Amount::default() }
}

pub(crate) fn of_project(project: &str) -> Amount {
    Amount { project: Some(project.into()), ..Amount::default() }
}

pub(crate) fn on_node(node: &str) -> Amount {
    Amount { node: Some(node.into()), ..Amount::default() }
}

/// What a row counts, job by job, of what they are given.
fn counted<'a>(
    input: &'a PlanInput,
    row: &'a SiteRow,
    given: impl Fn(&'a PlanJob) -> Option<&'a Assignment>,
) -> Vec<u32> {
    let amount = &row.amount;
    let tree = Tree::new(&input.projects);
    let of_job = |job: &PlanJob| {
        let lineage: Vec<&str> = tree.lineage(&job.claim.project).collect();
        amount.project.as_ref().is_none_or(|of| lineage.contains(&of.as_str()))
            && amount.label.as_ref().is_none_or(|of| job.claim.labels.get(&of.key) == Some(&of.value))
    };
    let of_node = |id: NodeId| {
        let node = input.nodes.iter().find(|node| node.node == id).unwrap();
        amount.gpu_type.as_ref().is_none_or(|of| node.class.gpu_type == *of)
            && amount.node.as_ref().is_none_or(|of| node.name == *of)
    };
    let held = |at: &Assignment| at.placement.ranks().filter(|(node, _)| of_node(*node)).count() as u32;
    input.jobs.iter().map(|job| given(job).filter(|_| of_job(job)).map_or(0, held)).collect()
}

/// Nothing is beyond a row but what was before, could not be moved, and is told.
fn within_rows(input: &PlanInput, plan: &Plan) {
    for row in &input.policy.rows {
        let after = counted(input, row, |job| plan.assignments.get(&job.job));
        if after.iter().sum::<u32>() <= row.at_most.0 {
            continue;
        }
        let rule = format!("the row {}", row.name);
        assert!(plan.report.relaxed.iter().any(|one| one.rule == rule), "{rule} is exceeded in silence: {after:?}");
        let before = counted(input, row, |job| job.current.as_ref());
        assert!(after.iter().zip(&before).all(|(after, before)| after <= before), "{rule}: {before:?} to {after:?}");
    }
}

proptest! {
    #![proptest_config(super::config())]

    #[test]
    fn no_plan_is_beyond_a_row(AnyRound(input) in any_ruled_round(7)) {
        within_rows(&input, &planned(&input));
    }

    #[test]
    fn a_row_binds_every_policy(AnyRound(input) in any_ruled_round(6), objective in proptest::sample::select(ALL.to_vec())) {
        let mut input = input;
        input.policy.objective = objective;
        within_rows(&input, &planned(&input));
    }

    #[test]
    fn a_row_binds_an_exact_backend(AnyRound(input) in any_ruled_round(6)) {
        let mut input = input;
        input.policy.solver = Solver::Milp;
        within_rows(&input, &planned(&input));
    }

    #[test]
    fn a_row_that_cannot_bind_changes_no_byte(AnyRound(input) in any_round(6), AnyRound(ruled) in any_ruled_round(1)) {
        let mut loose = input.clone();
        loose.policy.rows = ruled.policy.rows;
        let gpus: usize = input.nodes.iter().map(|node| node.gpus.len()).sum();
        let held = input.jobs.iter().flat_map(|job| &job.current).map(|at| at.placement.gpus().0).sum::<u32>();
        loose.policy.rows.iter_mut().for_each(|row| row.at_most = GpuCount(gpus as u32 + held));
        let [with, without] = [&loose, &input].map(|input| serde_json::to_vec(&planned(input)).unwrap());
        prop_assert_eq!(with, without);
    }

    #[test]
    fn what_a_row_leaves_of_a_class_holds_every_plan_within_the_row(AnyRound(input) in any_ruled_round(6)) {
        let mut without = input.clone();
        without.policy.rows.clear();
        let plan = planned(&without);
        let (cluster, tree) = (Cluster::new(&input), Tree::new(&input.projects));
        let rows = Rows::new(&input, &cluster, &tree);
        for (at, kind) in rows.kinds.iter().enumerate() {
            let (RowKind::Under { row, .. } | RowKind::Site { row }) = *kind else { continue };
            let of = &input.policy.rows[row];
            let used = counted(&input, of, |job| plan.assignments.get(&job.job)).iter().sum::<u32>();
            let taken = input.jobs.iter().filter_map(|job| {
                let uses = rows.of_placement(job, &plan.assignments.get(&job.job)?.placement, None);
                uses.iter().find(|part| part.row as usize == at).map(|part| part.amount)
            });
            if used <= of.at_most.0 {
                prop_assert!(taken.sum::<i64>() <= rows.capacity[at], "{}", rows.describe(at));
            }
        }
    }

    #[test]
    fn planning_again_within_rows_changes_nothing(AnyRound(input) in any_ruled_round(5)) {
        let first = planned(&input);
        let second = planned(&after(&input, &first));
        let moved = first.report.moves.iter().filter(|one| one.kind != MoveKind::Start).count();
        prop_assume!((input.policy.max_moves.is_none() || moved == 0) && !borrows(&input, &first));
        prop_assume!(first.report.gap.unwrap() <= input.policy.tolerance);
        prop_assume!(first.report.relaxed.is_empty() && second.report.relaxed.is_empty());
        let reasons = |plan: &Plan| plan.report.moves.iter().map(|one| one.reason.clone()).collect::<Vec<_>>();
        prop_assert!(second.report.moves.is_empty(), "{:?}\nthen {:?}", reasons(&first), reasons(&second));
    }
}

/// Nodes of 8 GPUs, and rigid jobs of these sizes with the label team=x, in the project `nlp`.
fn teamed(nodes: u32, sizes: &[u32]) -> PlanInput {
    let mut jobs: Vec<PlanJob> = sizes.iter().zip(1..).map(|(size, number)| rigid(number, *size)).collect();
    for job in &mut jobs {
        job.claim.project = "nlp".into();
        job.claim.labels = [("team".to_owned(), "x".to_owned())].into();
    }
    round((1..=nodes).map(|number| node(number, "alpha", 8)).collect(), jobs)
}

fn started(plan: &Plan) -> BTreeSet<u32> {
    (1..=9).filter(|number| plan.assignments.contains_key(&job_id(*number))).collect()
}

fn gpus_on(plan: &Plan, node: u32, jobs: &[u32]) -> usize {
    let of = |number: &u32| plan.assignments.get(&job_id(*number));
    let ranks = jobs.iter().filter_map(of).flat_map(|at| at.placement.ranks());
    ranks.filter(|(id, _)| *id == node_id(node)).count()
}

#[test]
fn a_label_holds_no_more_than_its_row_allows() {
    let mut input = teamed(2, &[4, 4, 4, 4]);
    input.policy.rows = vec![row("team-x", 8, labelled("team", "x"))];
    assert_eq!(planned(&input).assignments.len(), 2);
    input.jobs[3].claim.labels = [("team".to_owned(), "y".to_owned())].into();
    assert_eq!(planned(&input).assignments.len(), 3);
}

#[test]
fn all_that_an_amount_names_must_hold() {
    let mut input = teamed(1, &[4, 4]);
    input.nodes.push(node(2, "beta", 8));
    input.jobs.iter_mut().for_each(|job| job.range.types = vec![GpuType("alpha".into())]);
    let amount = Amount { gpu_type: Some(GpuType("alpha".into())), ..labelled("team", "x") };
    input.policy.rows = vec![row("few", 4, amount)];
    assert_eq!(planned(&input).assignments.len(), 1);
    input.jobs[1].range.types = vec![GpuType("beta".into())];
    assert_eq!(planned(&input).assignments.len(), 2);
}

#[test]
fn a_project_counts_with_those_below_it() {
    let mut input = teamed(2, &[4, 4]);
    input.projects = vec![project("nlp", Some("research")), project("research", None)];
    assert_eq!(planned(&input).assignments.len(), 2, "both fit without the row");
    input.policy.rows = vec![row("research", 4, of_project("research"))];
    assert_eq!(planned(&input).assignments.len(), 1);
}

#[test]
fn what_runs_beyond_a_new_row_gives_way_in_the_next_round() {
    let start = teamed(2, &[4, 4, 4, 4]);
    let mut input = after(&start, &planned(&start));
    input.policy.rows = vec![row("team-x", 8, labelled("team", "x"))];
    let plan = planned(&input);
    assert_eq!(plan.assignments.len(), 2);
    assert!(plan.report.relaxed.is_empty(), "{:?}", plan.report.relaxed);
}

#[test]
fn what_a_new_row_cannot_move_stays_and_is_told_and_nothing_is_added() {
    let start = teamed(2, &[4, 4]);
    let mut input = after(&start, &planned(&start));
    input.jobs.iter_mut().for_each(|job| job.freedom = Freedom::Fixed { reason: "it is pinned".into() });
    input.jobs.push(PlanJob { job: job_id(3), ..teamed(1, &[2]).jobs.remove(0) });
    input.policy.rows = vec![row("team-x", 6, labelled("team", "x"))];
    let plan = planned(&input);
    assert_eq!(started(&plan), [1, 2].into());
    assert_eq!(plan.report.relaxed[0].rule, "the row team-x");
    assert_eq!(plan.report.jobs[&job_id(3)].reasons[0].code, ReasonCode::SiteRow);
}

#[test]
fn a_floor_that_a_row_forbids_is_told_and_costs_nobody_else_anything() {
    let mut input = teamed(2, &[8, 4]);
    input.jobs[0].claim.floor = GpuCount(8);
    input.policy.rows = vec![row("team-x", 4, labelled("team", "x"))];
    let plan = planned(&input);
    assert_eq!(started(&plan), [2].into());
    let relaxed = &plan.report.relaxed[0];
    assert_eq!(relaxed.rule, "the floor of job job-1");
    assert_eq!(relaxed.reason, "8 GPUs: the row team-x allows 4 GPUs");
}

#[test]
fn a_row_of_a_node_holds_those_it_counts_and_nobody_else() {
    let mut input = teamed(2, &[2, 2, 2, 2, 2, 2, 2, 2]);
    let amount = Amount { node: Some("n1".into()), ..of_project("nlp") };
    input.policy.rows = vec![row("n1-of-nlp", 4, amount)];
    let plan = planned(&input);
    assert_eq!(plan.assignments.len(), 6);
    assert_eq!(gpus_on(&plan, 1, &[1, 2, 3, 4, 5, 6, 7, 8]), 4);
    // A gang of others spans both nodes: the row sets nothing apart.
    let mut gang = rigid(9, 16);
    gang.claim.project = "vision".into();
    input.jobs = vec![gang];
    assert_eq!(gpus_on(&planned(&input), 1, &[9]), 8);
}

#[test]
fn others_leave_the_nodes_that_a_row_leaves_to_whom_it_counts() {
    let mut input = teamed(2, &[8, 4]);
    input.jobs[0].claim.project = "vision".into();
    let amount = Amount { node: Some("n2".into()), ..of_project("nlp") };
    input.policy.rows = vec![row("guests", 2, amount)];
    assert_eq!(started(&planned(&input)), [1, 2].into());
    // Who serves in order places the first as it comes.
    input.policy.objective = Objective::Static;
    let plan = planned(&input);
    assert_eq!(started(&plan), [1].into());
    let told = &plan.report.jobs[&job_id(2)].headline;
    assert_eq!(told, "Needs 4 GPUs; nodes with enough GPUs left are closed to it by the row guests");
}

#[test]
fn a_node_is_named_by_its_id_as_well() {
    let mut input = teamed(2, &[8, 8]);
    input.policy.rows = vec![row("closed", 0, on_node(&node_id(1).to_string()))];
    let plan = planned(&input);
    assert_eq!((plan.assignments.len(), gpus_on(&plan, 1, &[1, 2])), (1, 0));
}

#[test]
fn what_runs_on_a_node_beyond_its_new_row_moves_to_another() {
    let start = teamed(1, &[4, 4]);
    let mut input = after(&start, &planned(&start));
    input.nodes.push(node(2, "alpha", 8));
    input.policy.rows = vec![row("n1", 4, on_node("n1"))];
    let plan = planned(&input);
    assert_eq!((gpus_on(&plan, 1, &[1, 2]), gpus_on(&plan, 2, &[1, 2])), (4, 4));
}

#[test]
fn who_may_not_leave_a_node_takes_nothing_from_who_is_on_another() {
    let start = teamed(2, &[8, 8]);
    let mut input = after(&start, &planned(&start));
    let on_first = gpus_on(&planned(&start), 1, &[1]) == 8;
    input.jobs[usize::from(!on_first)].freedom = Freedom::Fixed { reason: "it is pinned".into() };
    input.policy.rows = vec![row("n1", 4, on_node("n1"))];
    let plan = planned(&input);
    assert_eq!(plan.assignments.len(), 2);
    assert!(plan.report.moves.is_empty(), "{:?}", plan.report.moves);
    assert_eq!(plan.report.relaxed.len(), 1, "{:?}", plan.report.relaxed);
}

#[test]
fn nodes_of_one_name_count_together() {
    let mut input = teamed(2, &[4, 4, 4]);
    input.nodes[1].name = "n1".into();
    input.policy.rows = vec![row("n1", 8, on_node("n1"))];
    assert_eq!(planned(&input).assignments.len(), 2);
    input.jobs = vec![rigid(9, 16)];
    assert!(planned(&input).assignments.is_empty());
    input.nodes.push(node(3, "alpha", 8));
    assert_eq!(gpus_on(&planned(&input), 3, &[9]), 8);
}

#[test]
fn a_round_of_before_there_were_rows_is_read_and_one_with_rows_again() {
    let read = |text: &str| serde_json::from_str::<PlanInput>(text).unwrap();
    let mut input = teamed(1, &[1]);
    input.jobs[0].claim.labels.clear();
    let before = serde_json::to_string(&input).unwrap();
    assert!(!before.contains("\"rows\"") && !before.contains("\"labels\""), "{before}");
    assert_eq!(read(&before), input);
    let mut input = teamed(1, &[1]);
    let amount = Amount { gpu_type: Some(GpuType("alpha".into())), ..labelled("team", "x") };
    input.policy.rows = vec![row("few", 1, amount)];
    assert_eq!(read(&serde_json::to_string(&input).unwrap()), input);
}

#[test]
fn rows_that_contradict_themselves_are_refused_by_name() {
    let refused = |rows: Vec<SiteRow>| {
        let mut input = teamed(1, &[1]);
        input.policy.rows = rows;
        plan(&input, &mut CurveCache::new()).unwrap_err().to_string()
    };
    let x = || labelled("team", "x");
    let twice = refused(vec![row("a", 1, x()), row("a", 2, x())]);
    assert_eq!(twice, "rows.name is a, it must be another name for each row, of the policy");
    assert!(refused(vec![row("", 1, x())]).contains("rows.name"));
    assert!(refused(vec![row("a", 1, Amount::default())]).contains("rows.amount is empty in a"));
    assert!(refused(vec![row("a", 1, on_node("a\nb"))]).contains("rows.amount is a\\nb"));
    assert!(refused((0..65).map(|at| row(&at.to_string(), 1, x())).collect()).contains("rows is 65"));
}

#[test]
fn a_job_that_makes_room_for_another_stays_within_every_row() {
    // Without the row the second would make room on the faster node, which the first has to leave.
    let mut nodes = vec![node(1, "alpha", 4), node(2, "gamma", 4), node(3, "gamma", 4)];
    for slow in &mut nodes[1..] {
        slow.class.emulated.as_mut().unwrap().flop_per_second /= 4;
    }
    nodes[2].host.local_disk = Some(Bytes(1 << 24));
    let mut first = job(1, 3, 6);
    first.needs.per_node = NodeResources { local_disk: Some(Bytes(1 << 25)), ..NodeResources::default() };
    let mut second = job(2, 3, 3);
    second.priority = Priority(75);
    let runs_on = |node: &PlanNode, job: PlanJob| {
        let alone = round(vec![node.clone()], vec![job]);
        after(&alone, &planned(&alone)).jobs.remove(0)
    };
    let jobs = vec![runs_on(&nodes[0], first), runs_on(&nodes[1], second)];
    let mut input = round(nodes, jobs);
    let of_alpha = Amount { gpu_type: Some(GpuType("alpha".into())), ..Amount::default() };
    input.policy.rows = vec![row("no-alpha", 0, of_alpha)];
    (input.policy.min_gain, input.policy.fresh_gain) = (0.0, 0.0);
    let plan = planned(&input);
    assert_eq!(gpus_on(&plan, 1, &[1, 2]), 0, "{:?}", plan.report.moves);
    assert_eq!((gpus_on(&plan, 2, &[1]), gpus_on(&plan, 3, &[2])), (4, 3), "{:?}", plan.report.moves);
}
