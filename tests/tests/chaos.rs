//! The network fails: wires between clients, servers, nodes, the database and its replica stall, drip, carry one way only, end or are forgotten. What
//! clients were told and workers have done is judged afterwards as a history.
//!
//! `HEADWAY_CHAOS_SECONDS` sets how long (each kind of fault once by default, minutes in `make soak`), `HEADWAY_CHAOS_SEED` which wires and moments.
#![allow(clippy::unwrap_used)]

use std::time::{Duration, Instant};

use headway_tests::callers::{Callers, Habits};
use headway_tests::judge::{Breach, judge};
use headway_tests::leading::writes_resume;
use headway_tests::link::{FAULTS, Fault};
use headway_tests::verdict::{counts, load, require_kept};
use headway_tests::wait::pass;
use headway_tests::{Cluster, Expected};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

const NODES: usize = 3;
/// A start that was commanded before a cancel reaches its node when the wire is mended.
const IN_FLIGHT: Duration = Duration::from_secs(15);
/// After the last fault, until a write is acknowledged and all nodes are back.
const WELL_AGAIN: Duration = Duration::from_secs(30);
/// Until nobody waits for connections any more that will never say anything again.
const FORGOTTEN: Duration = Duration::from_secs(30);
/// What the network adds to what servers say of an outage.
const CUT_OFF: &[Expected] = &[
    Expected::warning("headway_scheduler", ""),
    Expected::warning("headway_scheduler::leader", ""),
    Expected::warning("headway_scheduler::grpc::gateway", ""),
    Expected::warning("headway_scheduler::grpc::sessions", ""),
    Expected::warning("headway_scheduler::store", "connections to Postgres that do not answer were left open"),
];

#[tokio::test(flavor = "multi_thread")]
async fn what_was_promised_is_kept_whatever_the_network_does() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let (seconds, seed) = (number("HEADWAY_CHAOS_SECONDS"), number("HEADWAY_CHAOS_SEED").unwrap_or(1));
    println!("seed {seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let cluster = Cluster::start_wired(NODES, headway_tests::cluster::LEASE_SECONDS).await;
    let network = cluster.network.as_ref().unwrap();
    let habits = Habits { count: 8, seed, pause: Duration::from_millis(250) };
    let callers = Callers::start(&cluster.urls(), cluster.token(), cluster.dir(), &habits);
    callers.go_on(4).await;
    let ends = seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let wires = network.wires();
    let mut order: Vec<usize> = Vec::new();
    for turn in 0.. {
        if ends.map_or(turn == FAULTS.len(), |ends| Instant::now() > ends) {
            break;
        }
        if order.is_empty() {
            order = (0..FAULTS.len()).collect();
        }
        let fault = FAULTS[order.swap_remove(random.random_range(0..order.len()))];
        let (wire, second) = (wires[random.random_range(0..wires.len())], wires[random.random_range(0..wires.len())]);
        let hold = Duration::from_millis(random.random_range(300..2_500));
        // Now and then two fail at once.
        let both = random.random_range(0..4) == 0;
        println!("{fault:?} of {wire:?}{} for {hold:?}", if both { format!(" and {second:?}") } else { String::new() });
        let links: Vec<_> =
            [Some(wire), both.then_some(second)].into_iter().flatten().map(|one| network.link(one)).collect();
        links.iter().for_each(|link| link.fail(fault));
        pass(hold).await;
        links.iter().for_each(|link| link.mend());
        pass(Duration::from_millis(random.random_range(0..1_500))).await;
    }
    let mended = Instant::now();
    let writes = writes_resume(&cluster.client_of_all(), "after").await;
    cluster.wait_for_nodes(NODES).await;
    let nodes = mended.elapsed();
    let history = callers.finish(&cluster.client_of_all()).await;
    println!("{}", counts(&history));
    println!("writes after {writes:.1?}, nodes after {nodes:.1?}, load {}", load());
    let mut breaches = judge(&history, IN_FLIGHT);
    // A node that is cut off for longer than its lease is given up, whatever its worker does until it hears of that.
    breaches.retain(|breach| !matches!(breach, Breach::RanAgainUnheard { .. }));
    require_kept(&history, &breaches, seed);
    assert!(nodes < WELL_AGAIN, "seed {seed}: all was well {nodes:?} after the last fault");
    cluster.stop(&[Expected::OUTAGE, CUT_OFF].concat()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_go_on_when_all_connections_to_the_database_are_forgotten() {
    let cluster = Cluster::start_wired(NODES, headway_tests::cluster::LEASE_SECONDS).await;
    let network = cluster.network.as_ref().unwrap();
    let habits = Habits { count: 8, seed: 1, pause: Duration::from_millis(100) };
    let callers = Callers::start(&cluster.urls(), cluster.token(), cluster.dir(), &habits);
    // As often as a server has connections to write by.
    for turn in 0..2 {
        callers.go_on(8).await;
        network.database.iter().for_each(|link| link.fail(Fault::HalfOpen));
        let took = writes_resume(&cluster.client_of_all(), &format!("after-{turn}")).await;
        println!("writes resumed after {took:.1?}, load {}", load());
        assert!(took < FORGOTTEN, "{took:?}");
    }
    let history = callers.finish(&cluster.client_of_all()).await;
    require_kept(&history, &judge(&history, IN_FLIGHT), 1);
    // Whatever waits for an answer by then keeps no server from stopping.
    network.database.iter().for_each(|link| link.fail(Fault::HalfOpen));
    cluster.stop(&[Expected::OUTAGE, CUT_OFF].concat()).await;
}
