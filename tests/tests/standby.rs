//! Several schedulers: whoever leads may be killed or stopped, and another goes on within seconds with all that was acknowledged.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use headway_api::client::{Client, ClientError, EventQuery};
use headway_api::v1::JobStateKind as State;
use headway_tests::complaint::Expected;
use headway_tests::job::EmulatedJob;
use headway_tests::{Cluster, until};
use nix::sys::signal::Signal;

const PATIENCE: Duration = Duration::from_secs(60);
/// From the end of a leader to the first write that another acknowledges.
const TAKEOVER: Duration = Duration::from_secs(6);

/// A job that asks for more than there is, so that nothing but the queue changes.
async fn submit(client: &Client, name: &str) -> Result<String, ClientError> {
    let yaml = EmulatedJob { min_gpus: 64, max_gpus: 64, ..EmulatedJob::named(name) }.yaml();
    client.submit_yaml_for(&yaml, Some(&format!("key-{name}")), true).await.map(|done| done.jobs[0].id.to_string())
}

/// How long it takes until a server acknowledges a write.
async fn writes_resume(client: &Client, name: &str) -> Duration {
    let began = Instant::now();
    until("a write to be acknowledged", PATIENCE, || async { submit(client, name).await.ok() }).await;
    began.elapsed()
}

fn pids(cluster: &Cluster, job: &str) -> BTreeSet<i32> {
    cluster.processes_of(job)
}

async fn reports_again(client: &Client, job: &str) {
    let before = until("the job", PATIENCE, || async { Some(client.job(job).await.ok()?.job.samples_seen) }).await;
    until("the job to report to the new leader", PATIENCE, || async {
        (client.job(job).await.ok()?.job.samples_seen > before).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_standby_goes_on_where_a_leader_is_killed_or_stopped() {
    let mut cluster = Cluster::start_several(2, 2, 2).await;
    let long = EmulatedJob { samples: 1_000_000, ..EmulatedJob::named("long") };
    let job = cluster.client.submit_yaml(&long.yaml(), None).await.unwrap().jobs[0].id.to_string();
    until("the job to train", PATIENCE, || async {
        let job = cluster.client.job(&job).await.ok()?.job;
        (job.state == State::Running && job.samples_seen > Some(0)).then_some(())
    })
    .await;
    let workers = pids(&cluster, &job);
    let mut acknowledged = BTreeSet::new();
    for n in 0..10 {
        acknowledged.insert(submit(&cluster.client, &format!("queued-{n}")).await.unwrap());
    }

    // The standby reads, and sends whatever changes something to the leader.
    let standby = cluster.client_of(1);
    until("the standby to know the jobs", PATIENCE, || async {
        (standby.all_jobs().await.ok()?.len() == 11).then_some(())
    })
    .await;
    let Err(ClientError::Problem(refused)) = submit(&standby, "refused").await else { panic!("a standby took a job") };
    assert_eq!((refused.code.as_str(), refused.leader.as_deref()), ("not_leading", Some(cluster.url.as_str())));

    cluster.kill_server_at(0);
    let killed = writes_resume(&cluster.client, "after-the-kill").await;
    assert!(killed < TAKEOVER, "writes resumed {killed:?} after the kill");
    let stored: BTreeSet<String> =
        cluster.client.all_jobs().await.unwrap().iter().map(|job| job.id.to_string()).collect();
    assert!(acknowledged.is_subset(&stored), "an acknowledged job is missing");
    reports_again(&cluster.client, &job).await;
    assert_eq!(pids(&cluster, &job), workers, "the workers go on");

    // A leader that hangs keeps its connections, and is nobody's leader any more.
    cluster.start_server_at(0).await;
    let (stopped, next) = (cluster.client_of(1), cluster.client_of(0));
    until("the restarted server to stand by", PATIENCE, || async {
        (next.leadership().await.ok()?.standbys.len() == 1).then_some(())
    })
    .await;
    cluster.signal_server_at(1, Signal::SIGSTOP);
    let hung = writes_resume(&next, "after-the-stop").await;
    reports_again(&next, &job).await;
    cluster.signal_server_at(1, Signal::SIGCONT);
    until("the stopped server to stand by", PATIENCE, || async {
        match submit(&stopped, "too-late").await {
            Err(ClientError::Problem(refused)) => (refused.code == "not_leading").then_some(()),
            Err(_) => None,
            Ok(_) => panic!("two servers lead"),
        }
    })
    .await;
    assert!(hung < TAKEOVER, "writes resumed {hung:?} after the stop");
    assert_eq!(pids(&cluster, &job), workers, "the workers go on");
    let told = EventQuery { verb: Some("scheduler.took_over".into()), ..EventQuery::default() };
    assert_eq!(next.search_events(&told).await.unwrap().items.len(), 2, "each takeover is told of");
    println!("writes resumed {:.2} s after a kill, {:.2} s after a stop", killed.as_secs_f64(), hung.as_secs_f64());
    cluster
        .stop(&[
            Expected::warning("headway_scheduler::driver", "this server has taken over"),
            Expected::warning("headway_scheduler::driver", "the lead is lost"),
            Expected::warning("headway_scheduler::leader", "Postgres does not answer"),
        ])
        .await;
}
