#![allow(clippy::unwrap_used)]
use std::collections::BTreeMap;
use std::sync::Arc;

use headway_goodput::JobModel;
use headway_types::report::Flexibility;
use headway_types::spec::{BatchRange, LayoutLimits, Work};
use headway_types::{
    Configuration, Generation, NodeSlice, Plan, Seconds, Sequences, Sharding, Shares, StatedDevice, StepReport, Tokens,
    example,
};

use super::*;
use crate::builder::{after, bare, job, job_id, node, rigid, round};
use crate::curves::CurveCache;
use crate::input::{Freedom, PlanInput, PlanJob, PlanNode, PlanWork};
use crate::laws::rounds::{AnyRound, any_round};
use crate::{never_while, plan, verify};
use proptest::prelude::*;

fn real(number: u32, gpu_type: &str) -> PlanNode {
    let mut node = node(number, gpu_type, 8);
    node.class.emulated = None;
    node
}

/// Nodes of each type, numbered on.
fn nodes(kinds: &[(&str, u32)]) -> Vec<PlanNode> {
    let types = kinds.iter().flat_map(|&(gpu_type, nodes)| (0..nodes).map(move |_| gpu_type));
    types.enumerate().map(|(number, gpu_type)| real(number as u32 + 1, gpu_type)).collect()
}

/// A model that data parallelism does not tire, on whole nodes.
fn training_job(number: u32, most: u32) -> PlanJob {
    let mut training = example::training(Work::Model(example::llama2_7b()));
    training.layouts = LayoutLimits::degrees(vec![1, 2, 4, 8], vec![1], Sequences(4));
    training.reference_batch = Sequences(1_152);
    training.batch = BatchRange { min: Sequences(1_152), max: Sequences(1_152) };
    let mut job = job(number, 8, most);
    job.range.sizes = (1..=most / 8).map(|nodes| GpuCount(8 * nodes)).collect();
    job.range.mixed = true;
    PlanJob { work: PlanWork::Model(Arc::new(JobModel::new(training))), ..job }
}

fn planned(input: &PlanInput) -> Plan {
    let plan = plan(input, &mut CurveCache::new()).unwrap();
    assert_eq!(verify(input, &plan), Ok(()));
    plan
}

/// GPUs by type that a job is given.
fn given(input: &PlanInput, plan: &Plan, number: u32) -> BTreeMap<String, usize> {
    let mut gpus = BTreeMap::new();
    for slice in plan.assignments.get(&job_id(number)).iter().flat_map(|at| at.placement.slices()) {
        let node = input.nodes.iter().find(|node| node.node == slice.node).unwrap();
        *gpus.entry(node.class.gpu_type.0.clone()).or_default() += slice.gpus.len();
    }
    gpus
}

fn of(types: &[(&str, usize)]) -> BTreeMap<String, usize> {
    types.iter().map(|&(name, gpus)| (name.to_owned(), gpus)).collect()
}

#[test]
fn a_gang_spans_classes_where_that_beats_staying_in_one() {
    let input = round(nodes(&[("H100-80G", 2), ("H200", 2)]), vec![training_job(1, 64)]);
    let plan = planned(&input);
    assert_eq!(given(&input, &plan, 1), of(&[("H100-80G", 16), ("H200", 16)]));
    let next = after(&input, &plan);
    assert_eq!(planned(&next).assignments[&job_id(1)].placement, plan.assignments[&job_id(1)].placement);
}

#[test]
fn nobody_waits_for_a_slower_member_whose_help_is_less_than_that() {
    let input = round(nodes(&[("B200", 2), ("A100-80G", 2)]), vec![training_job(1, 64)]);
    assert_eq!(given(&input, &planned(&input), 1), of(&[("B200", 16)]));
}

#[test]
fn a_job_that_did_not_say_so_stays_in_one_class() {
    let mut one = training_job(1, 64);
    one.range.mixed = false;
    let input = round(nodes(&[("H100-80G", 2), ("H200", 2)]), vec![one]);
    assert_eq!(given(&input, &planned(&input), 1), of(&[("H200", 16)]));
}

#[test]
fn it_is_valued_by_the_slower_member() {
    let input = round(nodes(&[("A100-40G", 1), ("A100-80G", 1)]), vec![training_job(1, 16)]);
    let plan = planned(&input);
    assert_eq!(given(&input, &plan, 1), of(&[("A100-40G", 8), ("A100-80G", 8)]));
    let all_slow = round(nodes(&[("A100-40G", 2)]), vec![training_job(1, 16)]);
    let (mixed, slow) = (plan.assignments[&job_id(1)].predicted, planned(&all_slow).assignments[&job_id(1)].predicted);
    assert!(mixed.goodput.0 <= slow.goodput.0 * 1.001, "{mixed:?} {slow:?}");
}

/// The same script where its replicas may do unequal shares of a step.
fn sharing_job(number: u32, most: u32) -> PlanJob {
    let mut job = training_job(number, most);
    let PlanWork::Model(model) = &mut job.work else { panic!("it is modelled") };
    let training = &mut Arc::make_mut(model).training;
    training.layouts.execution.uneven_shares = true;
    training.layouts.execution.sharding = vec![Sharding::None, Sharding::Optimizer];
    job
}

#[test]
fn faster_nodes_that_may_take_more_of_a_step_make_a_mix_worth_while() {
    let cluster = nodes(&[("H100-80G", 2), ("A100-80G", 2)]);
    let even = round(cluster.clone(), vec![training_job(1, 64)]);
    assert_eq!(given(&even, &planned(&even), 1), of(&[("H100-80G", 16)]), "its slower half would hold it up");
    let input = round(cluster, vec![sharing_job(1, 64)]);
    let plan = planned(&input);
    let at = &plan.assignments[&job_id(1)];
    assert_eq!(given(&input, &plan, 1), of(&[("A100-80G", 16), ("H100-80G", 16)]));
    let shares = at.configuration.unwrap().layout.execution.shares;
    assert!(shares.slower < shares.faster, "{}", at.configuration.unwrap());
    let types = at
        .placement
        .slices()
        .iter()
        .map(|slice| input.nodes.iter().find(|node| node.node == slice.node).unwrap().class.gpu_type.0.clone());
    assert_eq!(types.collect::<Vec<_>>(), ["A100-80G", "A100-80G", "H100-80G", "H100-80G"], "slower ranks come first");
    let next = after(&input, &plan);
    let again = planned(&next);
    assert_eq!(again.assignments[&job_id(1)].placement, at.placement);
    assert_eq!(again.assignments[&job_id(1)].configuration, at.configuration);
}

/// Nodes of one kind are twice as fast, and every modelled job may share unevenly.
fn sharing(mut input: PlanInput) -> PlanInput {
    let faster = input.nodes.iter_mut().filter(|node| node.class.gpu_type.0 == "beta");
    faster.filter_map(|node| node.class.emulated.as_mut()).for_each(|device| device.flop_per_second *= 2);
    for job in &mut input.jobs {
        if let PlanWork::Model(model) = &mut job.work {
            Arc::make_mut(model).training.layouts.execution.uneven_shares = true;
        }
    }
    input
}

proptest! {
    #![proptest_config(crate::laws::config())]

    #[test]
    fn whatever_is_shared_out_is_sound_and_found_again(AnyRound(input) in any_round(6)) {
        let mut input = sharing(input);
        let mut kept = CurveCache::new();
        for _ in 0..3 {
            let Ok(plan) = plan(&input, &mut kept) else { return Ok(()) };
            prop_assert_eq!(verify(&input, &plan), Ok(()));
            let fresh = crate::plan(&input, &mut CurveCache::new());
            prop_assert_eq!(Ok(&plan), fresh.as_ref());
            input = after(&input, &plan);
        }
    }
}

/// What is open may have changed since it was placed.
#[test]
fn a_script_that_cannot_leave_its_uneven_shares_finds_the_same_division_again() {
    let input = round(nodes(&[("H100-80G", 1), ("A100-80G", 3)]), vec![sharing_job(1, 32)]);
    let layout = planned(&input).assignments[&job_id(1)].configuration.unwrap().layout;
    assert_eq!(layout.execution.shares.of_faster * layout.tp * layout.execution.cp, 8, "{layout}");
    let mut bound = sharing_job(1, 32);
    bound.capabilities.layout = Flexibility::Never;
    bound.needs.layout = Some(layout);
    bound.range.sizes = vec![GpuCount(32)];
    let wider = round(nodes(&[("H100-80G", 4), ("A100-80G", 4)]), vec![bound]);
    let plan = planned(&wider);
    assert_eq!(plan.assignments[&job_id(1)].configuration.unwrap().layout, layout);
    assert_eq!(given(&wider, &plan, 1), of(&[("A100-80G", 24), ("H100-80G", 8)]));
}

#[test]
fn agents_of_a_former_release_are_asked_for_even_shares() {
    let mut input = round(nodes(&[("H100-80G", 2), ("A100-80G", 2)]), vec![sharing_job(1, 64)]);
    input.nodes[3].tells_shares = false;
    assert_eq!(given(&input, &planned(&input), 1), of(&[("H100-80G", 16)]));
}

/// In whichever order the classes come.
#[test]
fn of_one_type_the_nodes_that_state_less_are_the_slower() {
    for first in [true, false] {
        let mut nodes = nodes(&[("H100-80G", 2)]);
        let stated = headway_goodput::catalog::Catalog::built_in().stated("H100-80G").unwrap().clone();
        let slow =
            StatedDevice { matmul_flops: stated.matmul_flops / 2, peak_flops: stated.peak_flops / 2, ..stated.clone() };
        nodes[0].class.stated = Some(if first { slow.clone() } else { stated.clone() });
        nodes[1].class.stated = Some(if first { stated } else { slow });
        let input = round(nodes, vec![sharing_job(1, 16)]);
        let plan = planned(&input);
        let at = &plan.assignments[&job_id(1)];
        let shares = at.configuration.unwrap().layout.execution.shares;
        assert_eq!((shares.slower, shares.faster), (1, 2), "{}", at.configuration.unwrap());
        assert_eq!(at.placement.first_node(), input.nodes[if first { 0 } else { 1 }].node);
    }
}

#[test]
fn a_plan_that_gives_the_larger_share_to_the_slower_nodes_is_refused() {
    let input = round(nodes(&[("H100-80G", 1), ("A100-80G", 1)]), vec![sharing_job(1, 16)]);
    let plan = planned(&input);
    let shares = plan.assignments[&job_id(1)].configuration.unwrap().layout.execution.shares;
    assert!(!shares.are_even());
    for running in [false, true] {
        let input = if running { after(&input, &plan) } else { input.clone() };
        let mut wrong = plan.clone();
        let at = wrong.assignments.get_mut(&job_id(1)).unwrap();
        let mut slices = at.placement.slices().to_vec();
        slices.reverse();
        at.placement = Placement::try_new(slices).unwrap();
        assert!(verify(&input, &wrong).is_err());
    }
}

#[test]
fn a_gang_from_before_ranks_were_in_order_takes_no_uneven_shares_where_it_stays() {
    let input = round(nodes(&[("H100-80G", 1), ("A100-80G", 1)]), vec![sharing_job(1, 16)]);
    let mut next = after(&input, &planned(&input));
    // The same GPUs in another order gain a fifth.
    (next.policy.min_gain, next.policy.fresh_gain) = (0.1, 0.1);
    let current = next.jobs[0].current.as_mut().unwrap();
    let mut slices = current.placement.slices().to_vec();
    slices.reverse();
    current.placement = Placement::try_new(slices).unwrap();
    let layout = current.configuration.unwrap().layout;
    let even = Layout { execution: Execution { shares: Shares::EVEN, ..layout.execution }, ..layout };
    current.configuration = Some(Configuration { layout: even, ..current.configuration.unwrap() });
    for layout in [Flexibility::Restart, Flexibility::Live] {
        next.jobs[0].capabilities.layout = layout;
        let plan = planned(&next);
        let at = &plan.assignments[&job_id(1)];
        let ordered = at.placement != next.jobs[0].current.as_ref().unwrap().placement;
        assert_eq!(at.configuration.unwrap().layout.execution.shares != Shares::EVEN, ordered);
    }
}

#[test]
fn what_runs_on_one_class_leaves_it_the_rest_of_the_other() {
    let mut input = round(nodes(&[("H100-80G", 2), ("H200", 2)]), vec![training_job(1, 64), rigid(2, 8)]);
    let held = NodeSlice { node: input.nodes[2].node, gpus: input.nodes[2].gpus.clone() };
    input.jobs[1].current = Some(bare(Placement::try_new(vec![held]).unwrap()));
    input.jobs[1].freedom = Freedom::Fixed { reason: "saving".into() };
    let plan = planned(&input);
    assert_eq!(given(&input, &plan, 2), of(&[("H200", 8)]));
    assert_eq!(given(&input, &plan, 1), of(&[("H100-80G", 16), ("H200", 8)]));
}

#[test]
fn a_job_larger_than_any_class_can_run_on_two_and_is_told_so() {
    let mut one = training_job(1, 32);
    one.range.min = GpuCount(32);
    one.range.sizes = vec![GpuCount(32)];
    let input = round(nodes(&[("H100-80G", 2), ("H200", 2)]), vec![one.clone()]);
    let never =
        |input: &PlanInput| never_while(input, &[job_id(1)], &mut CurveCache::new(), || true).0.remove(&job_id(1));
    assert!(never(&input).is_none());
    assert_eq!(given(&input, &planned(&input), 1), of(&[("H100-80G", 16), ("H200", 16)]));
    one.range.mixed = false;
    assert_eq!(
        never(&round(input.nodes.clone(), vec![one])).unwrap().detail,
        "it needs 32 GPUs of one node class, and the largest has 16"
    );
}

#[test]
fn who_waits_for_two_classes_is_told_what_both_have_free() {
    let mut waits = training_job(1, 32);
    (waits.range.min, waits.range.sizes) = (GpuCount(32), vec![GpuCount(32)]);
    let mut input = round(nodes(&[("H100-80G", 2), ("H200", 2)]), vec![waits, rigid(2, 8)]);
    let held = NodeSlice { node: input.nodes[2].node, gpus: input.nodes[2].gpus.clone() };
    input.jobs[1].current = Some(bare(Placement::try_new(vec![held]).unwrap()));
    input.jobs[1].freedom = Freedom::Fixed { reason: "saving".into() };
    let plan = planned(&input);
    let headline = &plan.report.jobs[&job_id(1)].headline;
    assert!(headline.starts_with("Needs 32 GPUs; 24 are free"), "{headline}");
}

/// Rank 0 is on the faster node, and what was learnt is of the slower.
#[test]
fn nothing_keeps_a_mixed_gang_in_a_batch_that_its_steps_contradicted() {
    let mut one = training_job(1, 16);
    (one.range.min, one.range.sizes) = (GpuCount(16), vec![GpuCount(16)]);
    let mut input = round(nodes(&[("H200", 1), ("H100-80G", 1)]), vec![one]);
    let mut next = after(&input, &planned(&input));
    let classes: Vec<NodeClass> = input.nodes.drain(..).map(|node| node.class).collect();
    let class = headway_goodput::slowest(&classes).unwrap();
    let job = &mut next.jobs[0];
    let PlanWork::Model(model) = &mut job.work else { panic!("it is modelled") };
    let (model, current) = (Arc::make_mut(model), job.current.as_mut().unwrap());
    let sound = current.configuration.unwrap();
    let other = if sound.micro_batch.0 == 1 { 2 } else { sound.micro_batch.0 / 2 };
    let ruined = Configuration { micro_batch: Sequences(other), ..sound };
    let expected = |model: &JobModel, at| model.step_time(&class, GpuCount(16), NodeCount(2), at).unwrap().time.0;
    for _ in 0..5 {
        let seconds = expected(&JobModel::new(model.training.clone()), &sound);
        model.observe(&class, NodeCount(2), &report(sound, seconds));
    }
    for _ in 0..2 {
        let seconds = 10.0 * expected(&JobModel::new(model.training.clone()), &ruined);
        model.observe(&class, NodeCount(2), &report(ruined, seconds));
    }
    assert!(model.contradiction(&class, NodeCount(2), &ruined).is_some());
    current.configuration = Some(ruined);
    job.batch_bound = Some("its batch was changed 6 times within the hour".into());
    let left = planned(&next).assignments[&job_id(1)].configuration.unwrap();
    assert_eq!(left.layout, ruined.layout, "on the same GPUs");
    assert_ne!(left.micro_batch, ruined.micro_batch, "whatever the bound");
}

fn report(configuration: Configuration, seconds: f64) -> StepReport {
    StepReport {
        job: job_id(1),
        generation: Generation(1),
        step: 1,
        steps: 1,
        samples_seen: configuration.global_batch,
        tokens: Tokens(0.0),
        duration: Seconds(seconds),
        configuration,
        loss: None,
        noise: None,
        preconditioned: None,
        memory_peak: None,
    }
}

#[test]
fn the_report_names_both_types() {
    let start = round(nodes(&[("H100-80G", 2)]), vec![training_job(1, 64)]);
    let mut grown = after(&start, &planned(&start));
    grown.nodes = nodes(&[("H100-80G", 2), ("H200", 2)]);
    let plan = planned(&grown);
    insta::assert_snapshot!(plan.report.moves[0].reason, @"job job-1 arrived: job-1 grows from 16 GPUs of H100-80G (dp8 tp2 pp1, batch 1152) to 32 GPUs of H100-80G+H200 (dp16 tp2 pp1, batch 1152), speed-up 0.51 to 1.00");
}
