//! Faults in which other schedulers were seen to run work twice or to forget it.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use headway_api::v1::JobStateKind as State;
use headway_tests::job::EmulatedJob;
use headway_tests::{Cluster, Expected, until};
use nix::sys::signal::Signal;

const PATIENCE: Duration = Duration::from_secs(120);

#[tokio::test(flavor = "multi_thread")]
async fn orphans_of_an_agent_that_lost_its_disk_end_before_the_job_runs_again() {
    let mut cluster = Cluster::start(1, 2).await;
    let id = start(&cluster, EmulatedJob::named("orphaned")).await;
    cluster.kill_agent(0);
    assert!(!cluster.workers_of(&id).is_empty(), "workers outlive their agent");
    std::fs::remove_file(cluster.dir().join("node-1/ledger.json")).unwrap();
    cluster.start_agent(0);
    until("the job to train under a new generation", PATIENCE, || async {
        cluster.check_use();
        let job = cluster.client.job(&id).await.ok()?.job;
        (job.generation > 1 && job.state == State::Running).then_some(())
    })
    .await;
    cluster.stop(&[Expected::warning("headway_agent::orphans", "killing workers that the ledger does not know")]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_ends_while_the_scheduler_is_away_has_succeeded_and_does_not_run_again() {
    let mut cluster = Cluster::start(1, 2).await;
    let brief = EmulatedJob { min_gpus: 2, max_gpus: 2, samples: 4_000, speed: 20.0, ..EmulatedJob::named("brief") };
    let id = start(&cluster, brief).await;
    cluster.kill_server();
    until("the workers to end by themselves", PATIENCE, || async { cluster.workers_of(&id).is_empty().then_some(()) })
        .await;
    cluster.start_server().await;
    let job = ended(&cluster, &id).await;
    assert_eq!((job.state, job.generation), (State::Succeeded, 1));
    cluster.stop(&[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_whose_end_nobody_heard_is_reported_again_until_it_is() {
    let mut cluster = Cluster::start(1, 2).await;
    let brief = EmulatedJob { min_gpus: 2, max_gpus: 2, samples: 4_000, speed: 20.0, ..EmulatedJob::named("unheard") };
    let id = start(&cluster, brief).await;
    // The scheduler hears nothing, and the agent that saw the end is killed before it can tell.
    cluster.signal_server(Signal::SIGSTOP);
    until("the workers to end by themselves", PATIENCE, || async { cluster.workers_of(&id).is_empty().then_some(()) })
        .await;
    cluster.kill_agent(0);
    cluster.signal_server(Signal::SIGCONT);
    cluster.start_agent(0);
    let job = ended(&cluster, &id).await;
    assert_eq!((job.state, job.generation), (State::Succeeded, 1));
    cluster.stop(Expected::STOPPED).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_state_file_half_written_at_the_kill_changes_nothing() {
    let mut cluster = Cluster::start(1, 2).await;
    let id = start(&cluster, EmulatedJob::named("steady")).await;
    cluster.kill_agent(0);
    std::fs::write(cluster.dir().join("node-1/ledger.tmp"), "{\"node\": \"0192").unwrap();
    let mut ledger = std::fs::OpenOptions::new().append(true).open(cluster.dir().join("node-1/ledger.json")).unwrap();
    std::io::Write::write_all(&mut ledger, b"[\"0123abcd\",{\"change\":{\"boot").unwrap();
    let before = cluster.client.job(&id).await.unwrap().job;
    cluster.start_agent(0);
    let after = until("the job to report again", PATIENCE, || async {
        let job = cluster.client.job(&id).await.ok()?.job;
        (job.samples_seen > before.samples_seen).then_some(job)
    })
    .await;
    assert_eq!(after.generation, before.generation);
    cluster.stop(&[Expected::warning("headway_agent::journal", "left out the last line of the ledger")]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_stopped_for_three_leases_does_no_harm_when_it_goes_on() {
    let cluster = Cluster::start(2, 2).await;
    let id = start(&cluster, EmulatedJob { max_gpus: 2, ..EmulatedJob::named("moved") }).await;
    until("a committed checkpoint", PATIENCE, || async {
        cluster.client.job(&id).await.ok()?.job.checkpoint.is_some().then_some(())
    })
    .await;
    let home = cluster.workers_of(&id)[0].node.clone();
    let index = if home == "node-1" { 0 } else { 1 };
    cluster.signal_agent(index, Signal::SIGSTOP);
    until("the job to train elsewhere", PATIENCE, || async {
        cluster.check_use();
        let job = cluster.client.job(&id).await.ok()?.job;
        (job.generation > 1 && job.state == State::Running).then_some(())
    })
    .await;
    cluster.signal_agent(index, Signal::SIGCONT);
    until("the former generation to end", PATIENCE, || async {
        cluster.check_use();
        cluster.workers_of(&id).iter().all(|worker| worker.node != home || worker.generation > 1).then_some(())
    })
    .await;
    let moves = cluster.client.allocations(&id).await.unwrap();
    assert!(moves.iter().all(|one| one.generation == 1 || one.resumed_from_step.is_some()), "{moves:#?}");
    // What a worker says while nobody listens may be lost with its connection.
    cluster.stop(&[Expected::warning("headway_agent::worker_socket", "a worker's line cannot be read")]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scheduler_stopped_for_three_leases_loses_no_node_and_moves_no_job() {
    let cluster = Cluster::start(2, 2).await;
    let id = start(&cluster, EmulatedJob::named("untouched")).await;
    let before = cluster.client.job(&id).await.unwrap().job;
    cluster.signal_server(Signal::SIGSTOP);
    let paused = std::time::Instant::now();
    until("three leases to pass", PATIENCE, || async {
        cluster.check_use();
        (paused.elapsed() > Duration::from_secs(7)).then_some(())
    })
    .await;
    cluster.signal_server(Signal::SIGCONT);
    let after = until("the job to report again", PATIENCE, || async {
        let job = cluster.client.job(&id).await.ok()?.job;
        (job.samples_seen > before.samples_seen).then_some(job)
    })
    .await;
    assert_eq!(after.generation, before.generation);
    let events = cluster.client.events(200).await.unwrap();
    assert!(events.iter().all(|event| event.verb != "node.unreachable"), "{events:#?}");
    cluster.stop(Expected::STOPPED).await;
}

/// Submits a job and waits until it trains and has a committed checkpoint.
async fn start(cluster: &Cluster, job: EmulatedJob) -> String {
    let id = cluster.client.submit_yaml(&job.yaml(), None).await.unwrap().jobs[0].id.to_string();
    until("the job to train", PATIENCE, || async {
        let job = cluster.client.job(&id).await.ok()?.job;
        (job.state == State::Running && job.samples_seen > Some(0)).then_some(())
    })
    .await;
    id
}

async fn ended(cluster: &Cluster, id: &str) -> headway_api::v1::Job {
    until("the job to end", PATIENCE, || async {
        cluster.check_use();
        let job = cluster.client.job(id).await.ok()?.job;
        job.state.is_final().then_some(job)
    })
    .await
}
