//! What was decided stands while it comes about, and what comes together is decided together.

use headway_engine::event::{Known, Request};
use headway_engine::record::JobState;
use headway_types::{GpuCount, GroupOutcome, GroupPhase, JobId, JobSpec, NodeReport, Seconds};

use crate::harness::{Cluster, answer, elastic, gpus, resize, rigid, spec, training};

/// A job on 2 of 8 GPUs that is being stopped for 4.
fn growing(cluster: &mut Cluster) -> JobId {
    let job = cluster.submit(spec("grows", 2, 2, Some(training(true))));
    cluster.start(job);
    cluster.steps(job, 16, None);
    resize(cluster, job, 4);
    cluster.pass_beating(4.0, &[0]);
    assert!(matches!(cluster.state(job), JobState::Stopping { .. }));
    job
}

#[test]
fn a_job_that_stops_for_a_move_is_shown_where_it_goes() {
    let mut cluster = Cluster::new(&[8]);
    let job = growing(&mut cluster);
    let (_, input) = cluster.submit_unplanned(vec![rigid("other", 2)]);
    let shown = |input: &headway_planner::PlanInput| {
        let of = input.jobs.iter().find(|one| one.job == job).unwrap();
        of.current.as_ref().map(|current| current.placement.clone())
    };
    let goes_to = shown(&input).unwrap();
    assert_eq!(goes_to.gpus(), GpuCount(4));
    let plan = cluster.plan(&input);
    assert_eq!(plan.assignments[&job].placement, goes_to);
    cluster.feed(answer(&input, plan));

    cluster.request(Request::Cordon { node: crate::harness::node_id(0), reason: None });
    cluster.pass_beating(2.0, &[0]);
    let (_, input) = cluster.submit_unplanned(vec![rigid("another", 2)]);
    assert_eq!(shown(&input), None, "it can no longer go there");
}

#[test]
fn a_stop_that_leads_back_to_the_old_shape_is_told() {
    let mut cluster = Cluster::new(&[8]);
    let job = growing(&mut cluster);
    resize(&mut cluster, job, 2);
    // The target still says 4: what its owner took back is not granted.
    cluster.end(job, &GroupOutcome::Stopped);
    assert_eq!(gpus(&cluster, job), 0);
    cluster.pass_beating(2.0, &[0]);
    assert_eq!((gpus(&cluster, job), cluster.count("job.returned"), cluster.count("job.moved")), (2, 1, 0));

    let mut cluster = Cluster::new(&[8]);
    let job = growing(&mut cluster);
    cluster.end(job, &GroupOutcome::Stopped);
    cluster.pass_beating(2.0, &[0]);
    assert_eq!((gpus(&cluster, job), cluster.count("job.returned"), cluster.count("job.moved")), (4, 0, 1));
    cluster.start(job);
    let most: Vec<GpuCount> = cluster.jobs[&job].most_gpus.values().copied().collect();
    assert_eq!(most, [GpuCount(4)], "it had 2 before");
}

#[test]
fn jobs_that_come_one_after_another_are_decided_together() {
    let mut cluster = Cluster::new(&[8]);
    let submit = |cluster: &mut Cluster, spec: JobSpec| {
        cluster.request(Request::Submit { jobs: vec![spec], idempotency: None, known: Known::default() });
    };
    for name in ["first", "second", "third"] {
        submit(&mut cluster, elastic(name, 8));
        cluster.now = cluster.now + Seconds(0.4);
        assert_eq!(cluster.plans.len(), 0, "the next may be on its way");
    }
    cluster.pass(1.0);
    assert_eq!((cluster.plans.len(), cluster.count("job.granted")), (1, 3));
}

#[test]
fn what_a_gang_leaves_is_decided_once_whatever_node_lets_go_first() {
    let mut cluster = Cluster::new(&[8, 8]);
    let gang = cluster.submit(rigid("gang", 16));
    cluster.start(gang);
    let waits = cluster.submit(elastic("waits", 16));
    let plans = cluster.plans.len();
    let generation = cluster.jobs[&gang].generation;
    for node in cluster.nodes_of(gang) {
        let ended = GroupPhase::Ended { outcome: GroupOutcome::Succeeded };
        let status = cluster.status(gang, generation, ended);
        cluster.report(node, NodeReport::Group { status });
        cluster.pass_beating(0.6, &[0, 1]);
    }
    assert_eq!(gpus(&cluster, waits), 0);
    cluster.pass_beating(1.0, &[0, 1]);
    assert_eq!((cluster.plans.len(), cluster.count("job.granted")), (plans + 1, 2));
}

#[test]
fn arrivals_without_end_hold_no_round_up() {
    let mut cluster = Cluster::new(&[8]);
    for number in 0..12 {
        cluster.request(Request::Submit {
            jobs: vec![rigid(&format!("job-{number}"), 1)],
            idempotency: None,
            known: Known::default(),
        });
        cluster.now = cluster.now + Seconds(0.5);
    }
    assert!(cluster.count("job.granted") >= 8, "{}", cluster.count("job.granted"));
}

#[test]
fn why_a_job_moves_is_still_told_when_another_plan_came_while_it_stopped() {
    let mut cluster = Cluster::new(&[8]);
    let job = growing(&mut cluster);
    let why = cluster.jobs[&job].last_change.clone().unwrap().reason;
    cluster.submit(rigid("other", 2));
    assert_eq!(cluster.count("plan.adopted"), 3, "{:?}", cluster.messages);
    cluster.end(job, &GroupOutcome::Stopped);
    cluster.pass_beating(2.0, &[0]);
    assert_eq!(gpus(&cluster, job), 4);
    assert_eq!(cluster.jobs[&job].last_change.clone().unwrap().reason, why);
    assert_eq!(cluster.allocation(job).cause, why);
    let told = cluster.messages.iter().find(|told| told.contains("goes from 2 to")).unwrap();
    assert!(told.ends_with(&why), "{told}");
}

#[test]
fn what_calls_for_a_round_is_told_before_what_the_scheduler_does_by_itself_with_how_much_more_came() {
    let mut cluster = Cluster::new(&[8]);
    cluster.restart();
    cluster.register(crate::harness::inventory(0, 8), vec![]);
    for name in ["first", "second", "third"] {
        cluster.request(Request::Submit { jobs: vec![rigid(name, 2)], idempotency: None, known: Known::default() });
    }
    cluster.pass_beating(2.0, &[0]);
    let told = cluster.messages.iter().find(|told| told.contains("becomes the target")).unwrap();
    assert!(told.contains("(job first arrived, and 3 more)"), "{told}");
}
