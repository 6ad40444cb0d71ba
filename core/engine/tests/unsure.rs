//! What people are told of how sure a prediction is.

use headway_engine::record::JobState;
use headway_types::spec::{LayoutLimits, Precision, Work};
use headway_types::{
    Fault, GpuType, GroupOutcome, JobId, NodeInventory, ReasonCode, Seconds, Sequences, StepReport, preset,
};

use crate::harness::{Cluster, follow, inventory, spec, training};

/// Eight H100.
fn real() -> NodeInventory {
    NodeInventory { gpu_type: GpuType("H100-80G".into()), emulated: None, ..inventory(0, 8) }
}

/// A cluster of one real node, and a job of a model on some of its GPUs.
fn training_of(model: &str, gpus: u32) -> (Cluster, JobId) {
    let mut cluster = Cluster::new(&[]);
    cluster.register(real(), Vec::new());
    let mut recipe = training(true);
    recipe.work = Work::Model(preset::named(model).unwrap().shape());
    recipe.precision = Precision::Bf16;
    recipe.layouts = LayoutLimits::degrees(vec![], vec![], Sequences(8));
    let job = cluster.submit(spec("real", gpus, gpus, Some(recipe)));
    cluster.pass_beating(5.0, &[0]);
    (cluster, job)
}

fn told(cluster: &Cluster, job: JobId) -> Vec<(ReasonCode, String)> {
    cluster.engine.view().unsure(job).into_iter().map(|reason| (reason.code, reason.detail)).collect()
}

#[test]
fn what_nobody_has_confirmed_is_named_until_the_job_has_reported() {
    let (mut cluster, job) = training_of("llama-3.2-1b", 8);
    follow(&mut cluster, &[0]);
    let before = told(&cluster, job);
    assert_eq!(before.len(), 1, "{before:?}");
    assert_eq!(before[0].0, ReasonCode::Unconfirmed);
    assert!(before[0].1.contains("in four of five such cases takes"), "{before:?}");
    assert!(before[0].1.ends_with("no measured software named: constants are those of an average stack"), "{before:?}");
    for number in 1..20 {
        let report = StepReport { duration: Seconds(1.0), steps: 1, ..cluster.report_of(job, 100 * number) };
        cluster.report(0, headway_types::NodeReport::Steps { report: Box::new(report) });
    }
    assert_eq!(told(&cluster, job), [], "its own reports say how long a step takes");
}

#[test]
fn a_job_that_may_run_out_of_memory_is_told_so_when_nothing_else_is_possible() {
    let (cluster, job) = training_of("llama-3-8b", 2);
    let told = told(&cluster, job);
    assert_eq!(told[0].0, ReasonCode::UnlikelyToFit, "{told:?}");
    assert!(told[0].1.contains("GiB per GPU by the estimate"), "{told:?}");
    assert_eq!(cluster.allocation(job).placement.gpus().0, 2);
    let (cluster, job) = training_of("llama-3-8b", 8);
    assert!(cluster.engine.view().unsure(job).iter().all(|reason| reason.code != ReasonCode::UnlikelyToFit));
}

#[test]
fn the_planners_risk_costs_the_job_no_restart() {
    let (mut cluster, job) = training_of("llama-3-8b", 2);
    cluster.start(job);
    cluster.end(job, &GroupOutcome::Failed { exit_code: Some(1), fault: Fault::out_of_memory() });
    assert_eq!(cluster.jobs[&job].failures, 0);
    let last = cluster.jobs[&job].last_failure.clone().unwrap();
    assert!(last.message.ends_with("it was unlikely to fit, and nothing else was possible"), "{last:?}");
    cluster.pass_beating(120.0, &[0]);
    assert!(matches!(cluster.state(job), JobState::Queued { .. }), "it is not tried again: {:?}", cluster.state(job));
}
