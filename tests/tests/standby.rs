//! Several schedulers: whoever leads may be killed or stopped, and another goes on within seconds with all that was acknowledged.
//!
//! `HEADWAY_TAKEOVERS` sets how many there are under submitters (3 by default, 45 in `make soak`).
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::time::Duration;

use headway_api::client::{Client, ClientError, EventQuery};
use headway_api::v1::{JobStateKind as State, NodePolicyKind};
use headway_tests::complaint::Expected;
use headway_tests::job::EmulatedJob;
use headway_tests::leading::{leader, stands_by, writes_resume};
use headway_tests::submitters::{Submitters, submit};
use headway_tests::verdict::spread;
use headway_tests::{Cluster, until};
use nix::sys::signal::Signal;

const PATIENCE: Duration = Duration::from_secs(60);
/// From the end of a leader to the first write that another acknowledges.
const TAKEOVER: Duration = Duration::from_secs(6);
/// Submitters at a time.
const CLIENTS: usize = 4;
const EXPECTED: &[Expected] = &[
    Expected::warning("headway_scheduler::driver", "this server has taken over"),
    Expected::warning("headway_scheduler::driver", "the lead is lost"),
    Expected::warning("headway_scheduler::leader", "Postgres does not answer"),
    Expected::warning("headway_scheduler::driver::standby", "the cluster cannot be shown"),
    Expected::warning("headway_scheduler::observer", "measurements lost"),
    // Postgres has ended a transaction that the process was stopped in.
    Expected::warning("sqlx_core::pool::connection", "error occurred while testing the connection"),
    Expected::SLOW_STATEMENT,
    Expected::SLOW_CONNECTION,
];

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
    let workers = cluster.processes_of(&job);
    let mut acknowledged = BTreeMap::new();
    for name in (0..10).map(|n| format!("queued-{n}")) {
        acknowledged.insert(name.clone(), submit(&cluster.client, &name).await.unwrap());
    }

    // The standby reads, says how old that is, and sends whatever changes something to the leader.
    let standby = cluster.client_of(1);
    until("the standby to know the jobs", PATIENCE, || async {
        (standby.all_jobs().await.ok()?.len() == 11).then_some(())
    })
    .await;
    let told = standby.overview().await.unwrap().standby.unwrap();
    assert_eq!(told.leader.as_deref(), Some(cluster.url.as_str()));
    assert!(told.age_seconds < 10.0, "{told:?}");
    let Err(ClientError::Problem(refused)) = submit(&standby, "refused").await else { panic!("a standby took a job") };
    assert_eq!((refused.code.as_str(), refused.leader.as_deref()), ("not_leading", Some(cluster.url.as_str())));

    // A client that is told of the standby first still reads its own last change.
    let first_of_standby = cluster.urls().into_iter().rev().collect::<Vec<_>>().join(",");
    let fresh = || Client::new(&first_of_standby, cluster.token()).expect("a client");
    for _ in 0..4 {
        fresh().cordon("node-1", None).await.unwrap();
        assert_eq!(fresh().node("node-1").await.unwrap().policy, NodePolicyKind::Cordoned);
        fresh().uncordon("node-1").await.unwrap();
        assert_eq!(fresh().node("node-1").await.unwrap().policy, NodePolicyKind::Schedulable);
    }

    cluster.kill_server_at(0);
    let killed = writes_resume(&cluster.client, "after-the-kill").await;
    assert!(killed < TAKEOVER, "writes resumed {killed:?} after the kill");
    for (name, id) in &acknowledged {
        assert_eq!(&submit(&cluster.client, name).await.unwrap(), id, "the new leader knows the key of {name}");
    }
    reports_again(&cluster.client, &job).await;
    assert_eq!(cluster.processes_of(&job), workers, "the workers go on");

    // A leader that hangs keeps its connections, and is nobody's leader any more.
    cluster.start_server_at(0).await;
    let (stopped, next) = (cluster.client_of(1), cluster.client_of(0));
    stands_by(&next).await;
    cluster.signal_server_at(1, Signal::SIGSTOP);
    let hung = writes_resume(&next, "after-the-stop").await;
    reports_again(&next, &job).await;
    cluster.signal_server_at(1, Signal::SIGCONT);
    stands_by(&stopped).await;
    assert!(hung < TAKEOVER, "writes resumed {hung:?} after the stop");
    assert_eq!(cluster.processes_of(&job), workers, "the workers go on");
    let told = EventQuery { verb: Some("scheduler.took_over".into()), ..EventQuery::default() };
    let told = next.search_events(&told).await.unwrap().items;
    let why = |at: usize| told[at].message.split_once(", ").map(|(_, why)| why.to_owned()).unwrap();
    assert_eq!(told.len(), 2, "each takeover is told of: {told:?}");
    assert!(why(0).contains("had been silent for") && why(1).contains("connection to the database ended"), "{told:?}");
    println!("writes resumed {:.2} s after a kill, {:.2} s after a stop", killed.as_secs_f64(), hung.as_secs_f64());
    cluster.stop(EXPECTED).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_acknowledged_submit_is_lost_or_doubled_however_often_the_lead_changes() {
    let takeovers: usize = std::env::var("HEADWAY_TAKEOVERS").ok().and_then(|text| text.parse().ok()).unwrap_or(3);
    let mut cluster = Cluster::start_several(2, 0, 0).await;
    let clients = [cluster.client_of(0), cluster.client_of(1)];
    let submitters = Submitters::start(&cluster.client, CLIENTS);
    let (mut killed, mut hung) = (Vec::new(), Vec::new());
    for n in 0..takeovers {
        let from = leader(&clients).await;
        // Under load, and with a standby that knows who leads.
        stands_by(&clients[1 - from]).await;
        submitters.go_on(5 * CLIENTS).await;
        // A client that has just begun, as far as it knows with the server that is gone.
        let client = cluster.client_of_all();
        if n % 3 == 2 {
            cluster.signal_server_at(from, Signal::SIGSTOP);
            hung.push(writes_resume(&client, &format!("takeover-{n}")).await);
            cluster.signal_server_at(from, Signal::SIGCONT);
        } else {
            cluster.kill_server_at(from);
            killed.push(writes_resume(&client, &format!("takeover-{n}")).await);
            cluster.start_server_at(from).await;
        }
    }
    let tally = submitters.tally(&cluster.client).await;
    println!("{tally:?}");
    println!("writes resumed after a kill: {}", spread(&killed));
    println!("writes resumed after a stop: {}", spread(&hung));
    assert_eq!((tally.lost, tally.doubled), (0, 0));
    let slowest = killed.iter().chain(&hung).max().copied().unwrap_or_default();
    assert!(slowest < TAKEOVER, "writes resumed after {slowest:?}");
    cluster.stop(EXPECTED).await;
}
