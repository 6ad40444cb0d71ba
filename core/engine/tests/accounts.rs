//! Nodes that run every job as one Unix user: jobs of other owners do not go there unless it is said that they may.

use headway_engine::record::JobState;
use headway_types::{NodeAccount, NodeInventory};

use crate::harness::{Cluster, answer, inventory, rigid};

fn of_ada(index: u64, takes_others: bool) -> NodeInventory {
    of_user("ada", index, takes_others)
}

fn of_user(user: &str, index: u64, takes_others: bool) -> NodeInventory {
    let account = NodeAccount { user: user.into(), takes_others };
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

#[test]
fn a_plan_that_is_older_than_a_nodes_account_grants_nothing_there_to_other_owners() {
    let mut cluster = Cluster::new(&[]);
    cluster.register(of_user("bob", 0, true), Vec::new());
    let (jobs, round) = cluster.submit_unplanned(vec![rigid("adas", 2)]);
    cluster.register(of_user("bob", 0, false), Vec::new());
    let plan = cluster.plan(&round);
    assert!(plan.assignments.contains_key(&jobs[0]), "the round knew the account as it was");
    cluster.feed(answer(&round, plan));
    cluster.pass_beating(5.0, &[0]);
    assert!(matches!(cluster.state(jobs[0]), JobState::Queued { .. }), "{:?}", cluster.state(jobs[0]));
}

#[test]
fn an_account_that_comes_to_take_other_owners_is_planned_for_at_once() {
    let mut cluster = Cluster::new(&[]);
    cluster.register(of_user("bob", 0, false), Vec::new());
    let adas = cluster.submit_as("ada", rigid("adas", 2));
    cluster.pass_beating(10.0, &[0]);
    assert!(matches!(cluster.state(adas), JobState::Queued { .. }));
    cluster.register(of_user("bob", 0, true), Vec::new());
    cluster.pass_beating(3.0, &[0]);
    assert_eq!(cluster.nodes_of(adas), [0], "{:#?}", cluster.messages);
}

#[test]
fn what_runs_on_a_node_stays_there_when_its_account_takes_only_one_owner_from_now_on() {
    let mut cluster = Cluster::new(&[]);
    cluster.register(of_user("bob", 0, true), Vec::new());
    let adas = cluster.submit_as("ada", rigid("adas", 2));
    cluster.start(adas);
    let generation = cluster.jobs[&adas].generation;
    let alive = cluster.status(adas, generation, headway_types::GroupPhase::Running);
    cluster.register(of_user("bob", 0, false), vec![alive]);
    cluster.pass_beating(120.0, &[0]);
    assert!(matches!(cluster.state(adas), JobState::Running { .. }), "{:?}", cluster.state(adas));
}
