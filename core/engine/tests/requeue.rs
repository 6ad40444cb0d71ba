//! Jobs put back into the queue, told by hand.

use headway_engine::event::{Known, Request};
use headway_engine::record::{DependencyStanding, JobState, StopCause};
use headway_engine::{Refusal, Reply};
use headway_types::spec::{After, Condition, Limits};
use headway_types::{Fault, GpuSeconds, GroupOutcome, JobId, JobSpec, StopMode};

use crate::harness::{Cluster, rigid};

fn one_try(name: &str, after: &[&str]) -> JobSpec {
    let after = after.iter().map(|job| After { job: (*job).into(), on: Condition::Success }).collect();
    JobSpec { after, limits: Limits { max_restarts: 0, ..Limits::default() }, ..rigid(name, 2) }
}

fn requeue(cluster: &mut Cluster, job: JobId) -> Result<(), Refusal> {
    let known = cluster.known();
    let reply = cluster.request(Request::Requeue { job, reason: Some("new data".into()), known });
    cluster.pass_beating(2.0, &[0]);
    match reply {
        Reply::Job(_) => Ok(()),
        Reply::Refused(refusal) => Err(refusal),
        other => panic!("{other:?}"),
    }
}

fn fail(cluster: &mut Cluster, job: JobId) {
    cluster.end(job, &GroupOutcome::Failed { exit_code: Some(1), fault: Fault::of_job("exit code 1") });
    cluster.pass_beating(1.0, &[0]);
}

#[test]
fn a_running_job_saves_and_waits_for_its_turn_again() {
    let mut cluster = Cluster::new(&[4]);
    let job = cluster.submit(rigid("one", 4));
    cluster.start(job);
    requeue(&mut cluster, job).unwrap();
    assert!(matches!(cluster.state(job), JobState::Stopping { cause: StopCause::Requeue, .. }));
    assert_eq!(cluster.stops(job)[0], StopMode::Checkpoint);
    assert_eq!(requeue(&mut cluster, job).unwrap_err().to_string(), "job is stopping; ask again once it has stopped");
    cluster.end(job, &GroupOutcome::Stopped);
    cluster.pass_beating(2.0, &[0]);
    assert!(matches!(cluster.state(job), JobState::Starting { .. }), "nobody else wants its GPUs");
    assert_eq!(cluster.jobs[&job].restarts, 0, "nothing has failed");
}

#[test]
fn a_job_that_has_failed_goes_on_with_its_history_and_a_fresh_count_of_attempts() {
    let mut cluster = Cluster::new(&[4]);
    let job = cluster.submit(one_try("one", &[]));
    cluster.start(job);
    let generation = cluster.jobs[&job].generation;
    cluster.checkpoint(job, generation, 320);
    fail(&mut cluster, job);
    assert!(matches!(cluster.state(job), JobState::Failed { .. }));
    requeue(&mut cluster, job).unwrap();
    let row = &cluster.jobs[&job];
    assert!(matches!(row.state, JobState::Starting { .. }), "{:?}", row.state);
    assert_eq!((row.failures, row.restarts), (0, 1), "all that failed in its life stays told");
    assert!(row.checkpoint.is_some() && row.generation > generation && row.last_failure.is_some());
    cluster.start(job);
    fail(&mut cluster, job);
    assert!(matches!(cluster.state(job), JobState::Failed { .. }), "its one attempt is over");
    requeue(&mut cluster, job).unwrap();
    cluster.restart();
    assert!(!cluster.state(job).is_final(), "another leader goes on with it");
}

#[test]
fn what_makes_no_sense_is_refused_in_words() {
    let mut cluster = Cluster::new(&[4]);
    let told = |cluster: &mut Cluster, job| requeue(cluster, job).unwrap_err().to_string();
    let job = cluster.submit(rigid("done", 4));
    let waits = cluster.submit(rigid("waits", 4));
    let queued = told(&mut cluster, waits);
    cluster.request(Request::Hold { job: waits, reason: None });
    let held = told(&mut cluster, waits);
    cluster.start(job);
    cluster.end(job, &GroupOutcome::Succeeded);
    let succeeded = told(&mut cluster, job);
    let mut poor = one_try("poor", &[]);
    poor.limits.budget = Some(GpuSeconds(3_600.0));
    let poor = cluster.submit(poor);
    cluster.start(poor);
    cluster.pass_beating(2_000.0, &[0]);
    cluster.end(poor, &GroupOutcome::Stopped);
    let spent = told(&mut cluster, poor);
    insta::assert_snapshot!([queued, held, succeeded, spent].join("\n"), @r"
    job is queued already
    job is held; release it instead
    job has succeeded; to run it again, submit it again
    its budget of 1 GPU-hours is spent; submit it again with a larger one
    ");
    let unknown = cluster.request(Request::Requeue { job, reason: None, known: Known::default() });
    assert!(matches!(unknown, Reply::Refused(Refusal::NoSuchJob(_))), "{unknown:?}");
}

#[test]
fn a_chain_is_put_back_from_its_beginning() {
    let mut cluster = Cluster::new(&[4]);
    let known = cluster.known();
    let jobs = vec![one_try("prep", &[]), one_try("train", &["prep"])];
    let Reply::Submitted { jobs } = cluster.request(Request::Submit { jobs, idempotency: None, known }) else {
        panic!()
    };
    let [prep, train] = [jobs[0].id, jobs[1].id];
    cluster.pass_beating(2.0, &[0]);
    cluster.start(prep);
    fail(&mut cluster, prep);
    assert!(matches!(cluster.state(train), JobState::Cancelled { .. }));
    let refused = requeue(&mut cluster, train).unwrap_err().to_string();
    assert_eq!(refused, "it waits for prep to succeed, and prep failed: put that one back first");
    requeue(&mut cluster, prep).unwrap();
    assert!(matches!(cluster.state(train), JobState::Cancelled { .. }), "dependents are left as they are");
    requeue(&mut cluster, train).unwrap();
    assert!(cluster.jobs[&train].is_blocked(), "it waits once more");
    cluster.start(prep);
    cluster.end(prep, &GroupOutcome::Succeeded);
    cluster.pass_beating(2.0, &[0]);
    assert!(matches!(cluster.state(train), JobState::Starting { .. }));
    assert!(matches!(cluster.jobs[&train].after[0].standing, DependencyStanding::Met { .. }));
}

#[test]
fn what_the_shell_read_before_it_came_back_and_ended_again_is_not_taken() {
    let mut cluster = Cluster::new(&[4]);
    let job = cluster.submit(one_try("one", &[]));
    cluster.start(job);
    fail(&mut cluster, job);
    let early = cluster.known();
    requeue(&mut cluster, job).unwrap();
    cluster.start(job);
    fail(&mut cluster, job);
    let generation = cluster.jobs[&job].generation;
    cluster.request(Request::Requeue { job, reason: None, known: early });
    assert_eq!(cluster.jobs[&job].generation, generation.next(), "its newest row goes on");
    assert!(!cluster.state(job).is_final());
}
