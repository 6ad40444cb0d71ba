//! The memory of the engine is bounded by what lives: nothing keyed by a job or a generation outlives the job, beside
//! what is kept for a stated time.

use headway_engine::event::Request;
use headway_engine::{EngineConfig, Reply};
use headway_types::spec::{ArraySpec, Limits};
use headway_types::{Fault, GroupOutcome, JobId, JobSpec, JobStateKind, Seconds};

use crate::harness::{Cluster, elastic, follow, rigid, spec, training};

const NODES: [u64; 2] = [0, 1];

fn array(name: &str) -> JobSpec {
    let array = ArraySpec { indices: "0-2".parse().unwrap(), parallel: Some(1) };
    JobSpec { array: Some(array), ..rigid(name, 1) }
}

fn submit_all(cluster: &mut Cluster, jobs: Vec<JobSpec>) -> Vec<JobId> {
    let known = cluster.known();
    match cluster.request(Request::Submit { jobs, idempotency: None, known }) {
        Reply::Submitted { jobs } => jobs.iter().map(|job| job.id).collect(),
        other => panic!("{other:?}"),
    }
}

/// Every kind of life that a job can have: steps, a checkpoint, a resize, a failure that is tried again, a hold, a
/// cancellation while it waits and while it runs, an array, and an end.
fn live_through(cluster: &mut Cluster, round: u32) {
    let once = Limits { max_restarts: 1, ..Limits::default() };
    let name = |kind: &str| format!("{kind}-{round}");
    let trained = submit_all(cluster, vec![spec(&name("trained"), 2, 8, Some(training(true)))])[0];
    cluster.submit_keyed(rigid(&name("keyed"), 1), &name("hash"));
    let failing = submit_all(cluster, vec![JobSpec { limits: once, ..rigid(&name("failing"), 2) }])[0];
    let held = submit_all(cluster, vec![rigid(&name("held"), 1)])[0];
    let grown = submit_all(cluster, vec![elastic(&name("elastic"), 8)])[0];
    submit_all(cluster, vec![array(&name("sweep"))]);
    follow(cluster, &NODES);
    if cluster.jobs[&trained].state.kind() == JobStateKind::Running {
        cluster.declare(trained);
        cluster.steps(trained, 4_096, None);
        cluster.rank_times(cluster.nodes_of(trained)[0], trained, &[(0, 1.0)]);
    }
    if cluster.jobs[&failing].state.kind() == JobStateKind::Running {
        let fault = Fault::of_job("exit code 1");
        cluster.end(failing, &GroupOutcome::Failed { exit_code: Some(1), fault });
    }
    cluster.request(Request::Hold { job: held, reason: None });
    follow(cluster, &NODES);
    cluster.pass_beating(120.0, &NODES);
    cluster.request(Request::Release { job: held });
    follow(cluster, &NODES);
    cluster.request(Request::Cancel { job: grown, reason: Some("enough".into()), grace: None });
    end_all(cluster);
}

/// Ends whatever lives, until nothing does.
fn end_all(cluster: &mut Cluster) {
    for _ in 0..40 {
        follow(cluster, &NODES);
        let live: Vec<(JobId, JobStateKind)> = cluster
            .jobs
            .iter()
            .map(|(id, job)| (*id, job.state.kind()))
            .filter(|(_, state)| !state.is_final())
            .collect();
        if live.is_empty() {
            return;
        }
        for (job, state) in live {
            if state == JobStateKind::Running {
                cluster.end(job, &GroupOutcome::Succeeded);
            }
        }
    }
    panic!("some jobs never end");
}

#[test]
fn nothing_in_memory_names_a_job_that_ended_longer_ago_than_anything_is_kept() {
    let config = EngineConfig { idempotency_kept: Seconds(600.0), ..EngineConfig::default() };
    let mut cluster = Cluster::of(config, &[8, 8]);
    live_through(&mut cluster, 0);
    let jobs: Vec<JobId> = cluster.jobs.keys().copied().collect();
    assert!(jobs.len() >= 8, "{}", jobs.len());
    let told = format!("{:?}", cluster.engine);
    assert!(told.contains(&jobs[0].to_string()), "the text of the engine shows ids");

    // Keys, and rows that were let go a moment ago, have a time; rounds and plans are replaced by the next.
    cluster.pass_beating(700.0, &NODES);
    let last = submit_all(&mut cluster, vec![rigid("last", 1)])[0];
    follow(&mut cluster, &NODES);
    let told = format!("{:?}", cluster.engine);
    assert!(told.contains(&last.to_string()));
    for job in &jobs {
        let id = job.to_string();
        if let Some(at) = told.find(&id) {
            let around = &told[at.saturating_sub(600)..at + id.len()];
            panic!("{} is still named: …{around}", cluster.jobs[job].spec.name);
        }
    }
    let arrays: Vec<String> = cluster.arrays.keys().map(ToString::to_string).collect();
    assert!(arrays.iter().all(|array| !told.contains(array)), "no array is named");
}

#[test]
fn the_memory_of_a_cluster_that_has_had_many_jobs_is_that_of_one_that_has_had_few() {
    let config = || EngineConfig { idempotency_kept: Seconds(600.0), ..EngineConfig::default() };
    let size = |rounds: u32| {
        let mut cluster = Cluster::of(config(), &[8, 8]);
        for round in 0..rounds {
            // The harness submits with one key: it has to be free again.
            cluster.pass_beating(700.0, &NODES);
            live_through(&mut cluster, round);
        }
        cluster.pass_beating(700.0, &NODES);
        submit_all(&mut cluster, vec![rigid("last", 1)]);
        follow(&mut cluster, &NODES);
        format!("{:?}", cluster.engine).len()
    };
    let (few, many) = (size(1), size(4));
    assert!(many < few + few / 20, "{few} characters after one round of jobs, {many} after four");
}
