//! Jobs learn from their like what they have not shown themselves.

use headway_types::{GpuCount, JobId, NodeCount, Seconds, StepReport};

use crate::harness::{Cluster, elastic, follow, node_id};

/// Seconds that the engine expects of a job's step where another job trains.
fn expected(cluster: &Cluster, job: JobId, at: JobId) -> f64 {
    let view = cluster.engine.view();
    let held = view.jobs[&at].allocation.as_ref().unwrap();
    let class = view.nodes[&node_id(0)].node.inventory.class();
    let gpus = held.placement.gpus();
    let model = view.jobs[&job].model.as_ref().unwrap();
    model.step_time(&class, gpus, NodeCount(1), &held.configuration.unwrap()).unwrap().time.0
}

/// A job that trains and has reported its steps to take three times what was thought, on all GPUs.
fn measured() -> (Cluster, JobId) {
    let mut cluster = Cluster::new(&[2]);
    let job = cluster.submit(elastic("first", 2));
    cluster.pass_beating(5.0, &[0]);
    follow(&mut cluster, &[0]);
    let slow = 3.0 * expected(&cluster, job, job);
    for number in 1..6 {
        let report = StepReport { duration: Seconds(slow), ..cluster.report_of(job, 100 * number) };
        cluster.report(0, headway_types::NodeReport::Steps { report: Box::new(report) });
    }
    cluster.pass_beating(120.0, &[0]);
    assert_eq!(cluster.allocation(job).placement.gpus(), GpuCount(2));
    (cluster, job)
}

#[test]
fn who_waits_learns_from_who_runs_and_who_comes_later_too() {
    let (mut cluster, first) = measured();
    let own = expected(&cluster, first, first);
    let second = cluster.submit(elastic("second", 2));
    let near = |cluster: &Cluster, job: JobId| (expected(cluster, job, first) / own - 1.0).abs() < 0.05;
    assert!(near(&cluster, second), "{} {own}", expected(&cluster, second, first));
    let third = cluster.submit(elastic("third", 2));
    assert!(near(&cluster, third));
    let round = cluster.engine.view().round();
    let spec = elastic("imagined", 2);
    let imagined = round.submitted([spec].iter(), "ada").remove(0);
    let model = imagined.work.model().unwrap();
    assert_eq!(model.kind(), cluster.engine.view().jobs[&first].model.as_ref().unwrap().kind());
    assert!(model.news(&round.lessons).is_none(), "an imagined job knows what there is to know");
}

#[test]
fn another_leader_knows_what_ended_jobs_have_shown() {
    let (mut cluster, first) = measured();
    let own = expected(&cluster, first, first);
    let held = cluster.engine.view().jobs[&first].allocation.clone().unwrap();
    cluster.end(first, &headway_types::GroupOutcome::Succeeded);
    cluster.pass_beating(5.0, &[0]);
    cluster.restart_knowing();
    cluster.register(crate::harness::inventory(0, 2), Vec::new());
    let second = cluster.submit(elastic("second", 2));
    let view = cluster.engine.view();
    let class = view.nodes[&node_id(0)].node.inventory.class();
    let model = view.jobs[&second].model.as_ref().unwrap();
    let step = model.step_time(&class, held.placement.gpus(), NodeCount(1), &held.configuration.unwrap()).unwrap();
    assert!((step.time.0 / own - 1.0).abs() < 0.05, "{} {own}", step.time.0);
    assert!(!view.round().lessons.is_empty());
}
