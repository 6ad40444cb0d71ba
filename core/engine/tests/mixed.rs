//! A gang over nodes of two classes is granted, believed and learnt of as what it is valued by.

use headway_goodput::of_gang;
use headway_types::spec::{LayoutLimits, Precision, Work};
use headway_types::{
    GpuCount, GpuType, JobId, NodeCount, NodeInventory, NodeReport, Seconds, Sequences, StepReport, preset,
};

use crate::harness::{Cluster, follow, gpus, inventory, spec, training};

fn real(index: u64, gpu_type: &str) -> NodeInventory {
    NodeInventory { gpu_type: GpuType(gpu_type.into()), emulated: None, ..inventory(index, 8) }
}

/// One node of eight H100 and one of eight H200, and a job on all of them, if it may.
fn training_on_two(mixed: bool) -> (Cluster, JobId) {
    let mut cluster = Cluster::new(&[]);
    cluster.register(real(0, "H100-80G"), Vec::new());
    cluster.register(real(1, "H200"), Vec::new());
    let mut recipe = training(true);
    recipe.work = Work::Model(preset::named("llama-3.2-1b").unwrap().shape());
    (recipe.precision, recipe.target) = (Precision::Bf16, None);
    recipe.layouts = LayoutLimits::degrees(vec![], vec![], Sequences(8));
    let mut wanted = spec("wide", 8, 16, Some(recipe));
    wanted.roles[0].gpus.mixed = mixed;
    let job = cluster.submit(wanted);
    cluster.pass_beating(5.0, &[0, 1]);
    (cluster, job)
}

#[test]
fn it_is_granted_both_and_its_reports_teach_what_it_is_valued_by() {
    let (mut cluster, job) = training_on_two(true);
    follow(&mut cluster, &[0, 1]);
    assert_eq!(gpus(&cluster, job), 16);
    assert_eq!(cluster.allocation(job).gpu_type, Some(GpuType("H100-80G+H200".into())));
    assert!(!cluster.engine.view().unsure(job).is_empty(), "nobody has measured it yet");
    let at = cluster.allocation(job).configuration.unwrap();
    let model = cluster.engine.view().jobs[&job].model.clone().unwrap();
    let (gpus_held, nodes) = (GpuCount(16), NodeCount(2));
    let step = model.step_time(&real(0, "H100-80G").class(), gpus_held, nodes, &at).unwrap().time;
    for number in 1..20 {
        let report =
            StepReport { duration: Seconds(10.0 * step.0), steps: 10, ..cluster.report_of(job, 2_560 * number) };
        // Whichever node says it.
        cluster.report(number % 2, NodeReport::Steps { report: Box::new(report) });
    }
    assert_eq!(cluster.engine.view().unsure(job), [], "its own reports say how long a step takes");
    let learnt = cluster.engine.view().jobs[&job].model.clone().unwrap();
    let at = cluster.allocation(job).configuration.unwrap();
    let sure =
        |of: &str| learnt.step_time(&real(0, of).class(), GpuCount(16), NodeCount(2), &at).unwrap().relative_error;
    assert!(sure("H200") > 3.0 * sure("H100-80G"), "as of the slower member: {} {}", sure("H100-80G"), sure("H200"));
    cluster.pass_beating(60.0, &[0, 1]);
    follow(&mut cluster, &[0, 1]);
    assert_eq!(gpus(&cluster, job), 16, "it stays: {:#?}", cluster.messages);
}

#[test]
fn a_job_that_did_not_say_so_has_one_of_them() {
    let (mut cluster, job) = training_on_two(false);
    follow(&mut cluster, &[0, 1]);
    assert_eq!((gpus(&cluster, job), cluster.allocation(job).placement.nodes().0), (8, 1));
}

/// The faster node comes last in the order of ranks, whichever registered first, and does more of each step.
#[test]
fn faster_nodes_may_do_more_of_a_step_and_reports_of_that_are_believed() {
    let mut cluster = Cluster::new(&[]);
    cluster.register(real(0, "H100-80G"), Vec::new());
    cluster.register(real(1, "A100-80G"), Vec::new());
    let mut recipe = training(true);
    recipe.work = Work::Model(preset::named("llama-3.2-1b").unwrap().shape());
    (recipe.precision, recipe.target) = (Precision::Bf16, None);
    recipe.layouts = LayoutLimits::degrees(vec![], vec![], Sequences(8));
    recipe.layouts.execution.uneven_shares = true;
    let mut wanted = spec("wide", 8, 16, Some(recipe));
    wanted.roles[0].gpus.mixed = true;
    let job = cluster.submit(wanted);
    cluster.pass_beating(5.0, &[0, 1]);
    follow(&mut cluster, &[0, 1]);
    let allocation = cluster.allocation(job);
    let (at, placement) = (allocation.configuration.unwrap(), allocation.placement.clone());
    let shares = at.layout.execution.shares;
    assert!(shares.slower < shares.faster && shares.are_sound(at.layout.dp), "{at}");
    assert_eq!(placement.first_node(), real(1, "A100-80G").node);
    assert_eq!(allocation.gpu_type, Some(GpuType("A100-80G+H100-80G".into())));
    let gang = of_gang([(&real(1, "A100-80G").class(), NodeCount(1)), (&real(0, "H100-80G").class(), NodeCount(1))]);
    let step = |cluster: &Cluster| {
        let model = cluster.engine.view().jobs[&job].model.clone().unwrap();
        model.step_time(gang.as_ref().unwrap(), GpuCount(16), NodeCount(2), &at).unwrap()
    };
    let before = step(&cluster);
    for number in 1..20 {
        let duration = Seconds(10.0 * 1.3 * before.time.0);
        let report = StepReport { duration, steps: 10, ..cluster.report_of(job, 2_560 * number) };
        cluster.report(number % 2, NodeReport::Steps { report: Box::new(report) });
    }
    let after = step(&cluster);
    assert!(after.relative_error < before.relative_error, "{before:?} {after:?}");
    assert!((after.time.0 / before.time.0 / 1.3 - 1.0).abs() < 0.1, "{before:?} {after:?}");
}

/// The slower half works longer on its share, or the faster one on its larger: neither ails.
#[test]
fn ranks_are_held_against_those_of_their_kind_alone() {
    let (mut cluster, job) = training_on_two(true);
    follow(&mut cluster, &[0, 1]);
    let home = |cluster: &Cluster, at: usize| {
        let node = cluster.allocation(job).placement.slices()[at].node;
        u64::from(node != real(0, "H100-80G").node)
    };
    let halves = [home(&cluster, 0), home(&cluster, 1)];
    let busy = |ranks: std::ops::Range<u32>, slow: u32, seconds: f64| -> Vec<(u32, f64)> {
        ranks.map(|rank| (rank, if rank == slow { 2.0 * seconds } else { seconds })).collect()
    };
    for _ in 0..8 {
        cluster.rank_times(halves[0], job, &busy(0..8, 99, 3.0));
        cluster.rank_times(halves[1], job, &busy(8..16, 99, 1.0));
    }
    assert_eq!(cluster.count("job.straggler"), 0);
    for _ in 0..8 {
        cluster.rank_times(halves[1], job, &busy(8..16, 11, 1.0));
    }
    assert_eq!(cluster.count("job.straggler"), 1, "it is slow for a node of its kind");
}
