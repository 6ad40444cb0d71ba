//! What a job is told of GPUs that others took from it.

use headway_engine::GpuTime;
use headway_engine::event::Request;
use headway_engine::record::{JobState, ProjectRules, StopCause};
use headway_types::{Fault, Generation, GpuCount, GpuSeconds, GroupOutcome, JobId};

use crate::harness::{Cluster, follow, gpus, of, rigid};

/// A job on all four GPUs, and one of a project that is sure of them, for which the first is stopped.
fn displaced() -> (Cluster, JobId, JobId) {
    let mut cluster = Cluster::new(&[4]);
    let rules = ProjectRules { floor: GpuCount(4), ..ProjectRules::default() };
    cluster.request(Request::PutProject { name: "prod".into(), rules, expected: None });
    let first = cluster.submit(rigid("first", 4));
    follow(&mut cluster, &[0]);
    cluster.pass_beating(100.0, &[0]);
    let urgent = cluster.submit(of("prod", rigid("urgent", 4)));
    (cluster, first, urgent)
}

#[test]
fn a_displaced_job_counts_it_and_knows_by_whom_and_what_it_lost() {
    let (mut cluster, first, urgent) = displaced();
    assert!(matches!(cluster.state(first), JobState::Stopping { cause: StopCause::Preempt, .. }));
    let trained = cluster.now.since(cluster.allocation(first).launched_at.unwrap());
    assert!(trained.0 > 100.0);
    follow(&mut cluster, &[0]);
    assert_eq!((gpus(&cluster, first), gpus(&cluster, urgent)), (0, 4));
    let job = &cluster.jobs[&first];
    assert_eq!(job.preemptions, 1);
    let [one] = job.displaced.as_slice() else { panic!("{:?}", job.displaced) };
    let by: Vec<_> = one.by.iter().map(|by| (by.job, by.name.as_str(), by.owner.as_str(), by.gpus.0)).collect();
    assert_eq!(by, [(urgent, "urgent", "ada", 4)]);
    assert!(job.spent.rework.0 > 4.0 * 100.0, "{:?}", job.spent);
    let allocation = &cluster.allocations[&(first, Generation(1))];
    assert_eq!(allocation.stopped_for, Some(StopCause::Preempt));
    assert_eq!((job.spent, one.lost), (GpuTime::of(allocation, cluster.now), job.spent.rework));
    assert_eq!(job.spent.total(), job.attained);
}

#[test]
fn the_next_round_knows_for_whom_a_job_is_being_stopped() {
    let (mut cluster, first, urgent) = displaced();
    let (_, input) = cluster.submit_unplanned(vec![rigid("third", 4)]);
    let of = |job: JobId| input.jobs.iter().find(|one| one.job == job).unwrap();
    let (stopped, served) = (of(first), of(urgent));
    let gpus = served.current.as_ref().map(|one| one.placement.gpus());
    assert_eq!(gpus, Some(GpuCount(4)), "a third job has to gain more than this one loses");
    assert_eq!(stopped.current, None);
    assert_eq!(stopped.claim.restarts, 1, "a preemption is a move in all that bounds moves");
    assert!(stopped.claim.since_move.is_some());
    assert_eq!(cluster.jobs[&first].moved_at.len(), 1);
}

#[test]
fn what_a_failure_loses_is_counted_and_nobody_is_named() {
    let mut cluster = Cluster::new(&[4]);
    let job = cluster.submit(rigid("first", 4));
    follow(&mut cluster, &[0]);
    cluster.pass_beating(100.0, &[0]);
    cluster.end(job, &GroupOutcome::Failed { exit_code: Some(1), fault: Fault::unstated() });
    follow(&mut cluster, &[0]);
    let row = &cluster.jobs[&job];
    assert!(row.spent.rework.0 > 4.0 * 100.0, "{:?}", row.spent);
    assert_eq!((row.preemptions, row.displaced.len()), (0, 0));
    let failure = row.last_failure.as_ref().unwrap();
    assert_eq!((failure.generation, failure.exit_code), (Generation(1), Some(1)));
    assert!(failure.message.starts_with("on node "), "{}", failure.message);
}

#[test]
fn a_job_that_succeeds_has_lost_nothing() {
    let mut cluster = Cluster::new(&[4]);
    let job = cluster.submit(of("nlp", rigid("first", 4)));
    follow(&mut cluster, &[0]);
    cluster.pass_beating(100.0, &[0]);
    cluster.end(job, &GroupOutcome::Succeeded);
    cluster.pass(1.0);
    assert!(matches!(cluster.state(job), JobState::Succeeded { .. }));
    let row = &cluster.jobs[&job];
    assert_eq!((row.spent.rework, row.spent.total()), (GpuSeconds(0.0), row.attained));
    assert_eq!(cluster.count("job.report"), 1);
    assert!(cluster.messages.iter().any(|message| message.starts_with("first used ")), "{:#?}", cluster.messages);
}
