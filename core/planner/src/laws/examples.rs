//! Small rounds with what they must come to.

use headway_types::example::llama2_7b;
use headway_types::plan::MoveKind;
use headway_types::spec::{Priority, Work};
use headway_types::{GpuCount, GpuType, ReasonCode, Seconds, Tier};

use super::planned;
use crate::builder::{after, job, job_id, model_of, node, project, rigid, round, table};
use crate::input::{PlanInput, PlanJob, PlanWork};
use crate::policy::PowerCap;
use crate::project::PlanProject;

#[test]
fn an_empty_cluster_has_an_empty_plan_with_reasons() {
    let plan = planned(&round(Vec::new(), vec![job(1, 1, 8)]));
    assert!(plan.assignments.is_empty());
    assert!(plan.report.jobs[&job_id(1)].headline.contains("no node offers GPUs yet"));
}

#[test]
fn a_job_larger_than_the_cluster_never_runs() {
    let plan = planned(&round(vec![node(1, "alpha", 4)], vec![rigid(1, 8)]));
    let verdict = &plan.report.jobs[&job_id(1)];
    assert_eq!(verdict.reasons[0].code, ReasonCode::Never);
    assert_eq!(
        verdict.headline,
        "Cannot run on this cluster: it needs 8 GPUs of one node class, and the largest has 4"
    );
}

#[test]
fn a_job_for_absent_gpus_never_runs() {
    let mut job = job(1, 1, 2);
    job.range.types = vec![GpuType("gamma".into())];
    let plan = planned(&round(vec![node(1, "alpha", 4)], vec![job]));
    assert_eq!(plan.report.jobs[&job_id(1)].reasons[1].code, ReasonCode::WrongGpuType);
}

#[test]
fn an_arrival_takes_gpus_from_a_running_job() {
    let alone = round(vec![node(1, "alpha", 8)], vec![job(1, 1, 8)]);
    let running = after(&alone, &planned(&alone));
    assert_eq!(running.jobs[0].current.as_ref().unwrap().placement.gpus(), GpuCount(8));
    let mut both = running;
    both.jobs.push(job(2, 1, 8));
    let plan = planned(&both);
    assert_eq!(plan.assignments.len(), 2);
    assert_eq!(plan.report.moves.len(), 2);
    assert_eq!(plan.report.moves[0].kind, MoveKind::Reconfigure(Tier::Migration));
    assert_eq!(plan.report.moves[1].kind, MoveKind::Start);
    assert_eq!(plan.report.jobs[&job_id(2)].reasons[0].code, ReasonCode::GpusBeingFreed);
}

#[test]
fn a_better_batch_is_a_live_change() {
    let start = round(vec![node(1, "alpha", 2)], vec![job(1, 2, 2)]);
    let mut input = after(&start, &planned(&start));
    let configuration = input.jobs[0].current.as_mut().unwrap().configuration.as_mut().unwrap();
    let best = configuration.global_batch;
    configuration.global_batch = headway_types::Sequences(128);
    let plan = planned(&input);
    assert_eq!(plan.report.moves.len(), 1);
    assert_eq!(plan.report.moves[0].kind, MoveKind::Reconfigure(Tier::Batch));
    assert_eq!(plan.report.moves[0].to_configuration.unwrap().global_batch, best);
    assert!(plan.report.moves[0].goodput_after.0 > plan.report.moves[0].goodput_before.0);
}

#[test]
fn a_model_that_does_not_fit_is_refused_with_numbers() {
    let mut node = node(1, "A100-40G", 1);
    node.class.emulated = None;
    let shape = headway_types::ModelShape { seq_len: 2048, ..llama2_7b() };
    let mut job = job(1, 1, 1);
    job.work = PlanWork::Model(model_of(Work::Model(shape)));
    let plan = planned(&round(vec![node], vec![job]));
    let verdict = &plan.report.jobs[&job_id(1)];
    assert_eq!(verdict.reasons[1].code, ReasonCode::MemoryInfeasible);
    assert!(verdict.headline.contains("MiB per GPU"), "{}", verdict.headline);
}

#[test]
fn a_measured_curve_needs_no_configuration() {
    let points = [(1, 1.0), (2, 1.9), (4, 2.5)].map(|(gpus, goodput)| (GpuCount(gpus), goodput)).into();
    let mut job = job(1, 1, 4);
    job.work = PlanWork::Model(model_of(Work::Curve { points, seq_len: 64 }));
    let plan = planned(&round(vec![node(1, "alpha", 4)], vec![job]));
    assert_eq!(plan.assignments[&job_id(1)].placement.gpus(), GpuCount(4));
    assert_eq!(plan.assignments[&job_id(1)].configuration, None);
}

#[test]
fn a_draining_node_is_left() {
    let start = round(vec![node(1, "alpha", 4), node(2, "alpha", 4)], vec![rigid(1, 2)]);
    let first = planned(&start);
    let mut drained = after(&start, &first);
    let held = first.assignments[&job_id(1)].placement.first_node();
    for node in &mut drained.nodes {
        node.draining = node.node == held;
    }
    let plan = planned(&drained);
    assert_ne!(plan.assignments[&job_id(1)].placement.first_node(), held);
    assert!(plan.report.moves[0].reason.contains("drains"), "{}", plan.report.moves[0].reason);
}

#[test]
fn a_rigid_job_waits_for_room_and_names_who_has_it() {
    let start = round(vec![node(1, "alpha", 8)], vec![rigid(1, 6)]);
    let mut both = after(&start, &planned(&start));
    both.jobs.push(rigid(2, 4));
    let plan = planned(&both);
    assert_eq!(
        plan.report.jobs[&job_id(2)].headline,
        "Needs 4 GPUs; 2 are free and taking 2 from job-1 would lose more than it gains"
    );
}

#[test]
fn a_neighbour_moves_to_make_room_on_one_node() {
    // Two jobs of two GPUs on two nodes of four; a third needs four on one node, worth far more than their restart.
    let start = round(vec![node(1, "alpha", 4), node(2, "alpha", 4)], vec![rigid(1, 2), rigid(2, 2)]);
    let mut input = after(&start, &planned(&start));
    let ids: Vec<_> = input.nodes.iter().map(|node| (node.node, node.gpus.clone())).collect();
    for (job, (node, gpus)) in input.jobs.iter_mut().zip(ids) {
        let slice = headway_types::NodeSlice { node, gpus: gpus[..2].to_vec() };
        job.current.as_mut().unwrap().placement = headway_types::Placement::try_new(vec![slice]).unwrap();
    }
    let mut third = rigid(3, 4);
    third.priority = Priority(100);
    input.jobs.push(third);
    let plan = planned(&input);
    assert_eq!(plan.assignments.len(), 3);
}

#[test]
fn a_job_that_stays_draws_what_its_own_row_says() {
    // Two rows of one name: half the power at a third of the speed is no way to run at full speed.
    let mut told = rigid(1, 4);
    let mut rows = table("alpha", &[(4, 1.0, Some("x")), (4, 3.0, Some("x"))]);
    rows.rows[0].watts_per_gpu = Some(350.0);
    told.work = PlanWork::Table(std::sync::Arc::new(rows));
    let mut input = round(vec![node(1, "alpha", 4), node(2, "alpha", 4)], vec![told, rigid(2, 4)]);
    input.jobs[0].priority = Priority(100);
    input.jobs[1].priority = Priority(1);
    input.policy.power_cap = Some(PowerCap { watts: 4_300.0, busy: Default::default(), idle: 0.0 });
    let first = planned(&input);
    assert_eq!(first.assignments.keys().collect::<Vec<_>>(), [&job_id(1)]);
    let second = planned(&after(&input, &first));
    assert!(second.report.moves.is_empty(), "{:?}", second.report.moves);
}

#[test]
fn the_account_of_a_small_round_reads_well() {
    let start = round(vec![node(1, "alpha", 4), node(2, "alpha", 4)], vec![job(1, 1, 8), rigid(2, 2)]);
    let mut input = after(&start, &planned(&start));
    input.jobs.push(job(3, 2, 4));
    input.jobs.push(rigid(4, 16));
    insta::assert_json_snapshot!(planned(&input).report);
}

#[test]
fn of_equal_jobs_none_is_stopped_for_another_however_long_it_waits() {
    let running: Vec<PlanJob> = (1..=8).map(|number| rigid(number, 8)).collect();
    let start = round((1..=8).map(|number| node(number, "alpha", 8)).collect(), running);
    let mut input = after(&start, &planned(&start));
    for job in &mut input.jobs {
        job.bounds.time_left = Some(Seconds(1_200.0));
        job.claim.ran = Seconds(600.0);
    }
    for number in 9..=48 {
        let mut waiting = rigid(number, 8);
        waiting.bounds.time_left = Some(Seconds(1_800.0));
        waiting.claim.waited = Seconds(1e5);
        input.jobs.push(waiting);
    }
    assert!(planned(&input).report.moves.is_empty());
}

#[test]
fn of_equals_the_faster_gpus_are_taken() {
    for (fast, slow) in [("H100-80G", "A100-80G"), ("A100-80G", "T4")] {
        let mut nodes = vec![node(0, slow, 4), node(1, fast, 4)];
        nodes.iter_mut().for_each(|node| node.class.emulated = None);
        let plan = planned(&round(nodes.clone(), vec![rigid(1, 4)]));
        assert_eq!(plan.assignments[&job_id(1)].placement.first_node(), nodes[1].node, "{fast} before {slow}");
        let ends_in = |number: u32| {
            let mut job = rigid(number, 1);
            job.bounds.time_left = Some(Seconds(1e4 * f64::from(number)));
            job
        };
        let plan = planned(&round(nodes.clone(), (1..=4).map(ends_in).collect()));
        let on_fast = plan.assignments.values().filter(|one| one.placement.first_node() == nodes[1].node);
        assert_eq!(on_fast.count(), 4, "also those that little hangs on");
    }
}

#[test]
fn what_comes_free_is_kept_for_who_waited_long() {
    // Four GPUs are free; the one that has waited long needs eight, which come free in ten minutes.
    let start = round(vec![node(1, "alpha", 8)], vec![rigid(1, 4)]);
    let mut input = after(&start, &planned(&start));
    input.jobs[0].bounds.time_left = Some(Seconds(600.0));
    let mut large = rigid(2, 8);
    large.claim.waited = Seconds(1e5);
    let mut short = rigid(3, 4);
    short.bounds.time_left = Some(Seconds(500.0));
    let mut long = rigid(4, 4);
    long.bounds.time_left = Some(Seconds(5_000.0));
    input.jobs.extend([large, short, long.clone()]);
    let plan = planned(&input);
    assert!(plan.assignments.contains_key(&job_id(3)), "what ends by then may start: {:#?}", plan.report);
    assert!(!plan.assignments.contains_key(&job_id(4)), "what does not may not");
    let verdict = &plan.report.jobs[&job_id(2)];
    assert!(verdict.reasons.iter().any(|one| one.detail.contains("kept for it")), "{:?}", verdict.reasons);
    // A job that no end makes room for has waited longer still: it takes the promise from nobody.
    let mut never = rigid(5, 8);
    never.claim.waited = Seconds(2e5);
    never.claim.project = "nlp".into();
    input.projects = vec![PlanProject { quota: Some(GpuCount(4)), ..project("nlp", None) }];
    input.jobs.push(never);
    assert!(!planned(&input).assignments.contains_key(&job_id(4)));
    input.jobs.pop();
    input.jobs[1].claim.waited = Seconds(60.0);
    input.jobs.remove(2);
    assert!(planned(&input).assignments.contains_key(&job_id(4)), "nobody is promised anything yet");
}

#[test]
fn work_that_would_be_lost_is_weighed_before_a_job_is_stopped() {
    let mut both = round(vec![node(1, "alpha", 4)], vec![rigid(1, 4)]);
    both = after(&both, &planned(&both));
    both.jobs[0].bounds.time_left = Some(Seconds(20_000.0));
    let mut short = rigid(2, 4);
    short.bounds.time_left = Some(Seconds(600.0));
    both.jobs.push(short);
    let stopped = |input: &PlanInput| !planned(input).assignments.contains_key(&job_id(1));
    assert!(stopped(&both), "thirty seconds are lost, and the short one ends five hours sooner");
    both.jobs[0].rework = Seconds(7_200.0);
    assert!(!stopped(&both), "two hours of work would be done again");
}

#[test]
fn gpus_that_bring_little_are_left_to_others() {
    let points = [(1, 1.0), (2, 1.9), (4, 3.6), (8, 4.0)].map(|(gpus, goodput)| (GpuCount(gpus), goodput)).into();
    let mut job = job(1, 1, 8);
    job.work = PlanWork::Model(model_of(Work::Curve { points, seq_len: 64 }));
    let mut input = round(vec![node(1, "alpha", 8)], vec![job]);
    input.policy.min_return = 0.2;
    let plan = planned(&input);
    assert_eq!(plan.assignments[&job_id(1)].placement.gpus(), GpuCount(4));
    let told = &plan.report.jobs[&job_id(1)].reasons;
    assert!(told.iter().any(|one| one.detail.contains("10 % per further GPU")), "{told:?}");
    input.policy.min_return = 0.0;
    assert_eq!(planned(&input).assignments[&job_id(1)].placement.gpus(), GpuCount(8));
}
