//! The machine of the database dies: its synchronous replica is promoted, and the schedulers go on there with all that was acknowledged.
#![allow(clippy::unwrap_used)]

use std::time::Instant;

use headway_tests::cluster::LEASE_SECONDS;
use headway_tests::leading::writes_resume;
use headway_tests::submitters::Submitters;
use headway_tests::{Cluster, Expected};

/// Submitters at a time.
const CLIENTS: usize = 4;

#[tokio::test(flavor = "multi_thread")]
async fn nothing_acknowledged_is_lost_with_the_machine_of_the_database() {
    let mut cluster = Cluster::start_wired(1, LEASE_SECONDS).await;
    let submitters = Submitters::start(&cluster.client, CLIENTS);
    submitters.go_on(100).await;
    let term = cluster.client.leadership().await.unwrap().term;

    // Without a checkpoint, and without a word to the replica.
    let died = Instant::now();
    let network = cluster.network.as_mut().unwrap();
    network.databases.kill_primary().await;
    network.fail_over().await;
    let promoted = Instant::now();
    writes_resume(&cluster.client, "after").await;
    println!("writes resumed {:?} after the promotion, {:?} after the death", promoted.elapsed(), died.elapsed());
    let tally = submitters.tally(&cluster.client).await;
    println!("{tally:?}");
    assert!(cluster.client.leadership().await.unwrap().term >= term, "a term is never begun twice");
    assert_eq!((tally.lost, tally.doubled), (0, 0));
    cluster.stop(Expected::OUTAGE).await;
}
