//! Nodes that run every job as one Unix user: jobs of other owners do not go there unless it is said that they may.

use headway_engine::record::JobState;
use headway_types::{NodeAccount, NodeInventory};

use crate::harness::{Cluster, inventory, rigid};

fn of_ada(index: u64, takes_others: bool) -> NodeInventory {
    let account = NodeAccount { user: "ada".into(), takes_others };
    NodeInventory { account: Some(account), ..inventory(index, 4) }
}

#[test]
fn a_job_of_another_owner_waits_for_a_node_that_does_not_run_it_as_somebody_else() {
    let mut cluster = Cluster::new(&[]);
    cluster.register(of_ada(0, false), Vec::new());
    let bobs = cluster.submit_as("bob", rigid("bobs", 2));
    let adas = cluster.submit_as("ada", rigid("adas", 2));
    assert_eq!(cluster.nodes_of(adas), [0]);
    assert!(matches!(cluster.state(bobs), JobState::Queued { .. }), "{:?}", cluster.state(bobs));
    cluster.register(inventory(1, 4), Vec::new());
    cluster.pass_beating(30.0, &[0, 1]);
    assert_eq!(cluster.nodes_of(bobs), [1], "{:#?}", cluster.messages);
}

#[test]
fn where_it_is_said_the_account_takes_jobs_of_all_owners() {
    let mut cluster = Cluster::new(&[]);
    cluster.register(of_ada(0, true), Vec::new());
    let bobs = cluster.submit_as("bob", rigid("bobs", 2));
    assert_eq!(cluster.nodes_of(bobs), [0]);
}
