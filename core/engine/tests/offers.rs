//! Nodes that say of themselves what cannot be: nobody else is worse off for it.

use headway_engine::record::JobState;
use headway_types::command::GroupStatus;
use headway_types::{
    Generation, GpuUuid, GroupPhase, JobId, NodeInventory, NodeReport, Seconds, Sequences, StepReport, Tokens,
};

use crate::harness::{Cluster, inventory, rigid, spec, training};

#[test]
fn a_node_that_offers_what_no_machine_has_is_refused_and_nobody_else_notices() {
    let mut cluster = Cluster::new(&[4]);
    let job = cluster.submit(rigid("one", 4));
    cluster.start(job);
    for _ in 0..3 {
        cluster.register(inventory(1, 5_000), Vec::new());
        cluster.pass_beating(10.0, &[0]);
    }
    assert_eq!((cluster.node_count(), cluster.refused.len()), (1, 3));
    assert_eq!(cluster.count("node.refused"), 1, "one that tries again is told of once");
    // A node that is known may not come to that either.
    cluster.report(0, NodeReport::Inventory { inventory: Box::new(inventory(0, 5_000)) });
    assert_eq!((cluster.refused.len(), cluster.node(0).inventory.gpus.len()), (4, 4));
    cluster.register(inventory(0, 4), vec![cluster.status(job, Generation(1), GroupPhase::Running)]);
    cluster.pass_beating(10.0, &[0]);
    assert!(matches!(cluster.state(job), JobState::Running { .. }), "{:?}", cluster.state(job));
    assert_eq!((cluster.count("plan.failed"), cluster.count("node.left_out")), (0, 0));
}

#[test]
fn whoever_makes_up_node_ids_fills_neither_the_log_nor_the_memory() {
    let mut cluster = Cluster::new(&[4]);
    (1..500).for_each(|node| cluster.register(NodeInventory { name: String::new(), ..inventory(node, 1) }, Vec::new()));
    assert_eq!((cluster.node_count(), cluster.refused.len(), cluster.count("node.refused")), (1, 499, 64));
}

/// A group that nobody has assigned.
fn stray(number: u128) -> GroupStatus {
    GroupStatus {
        job: JobId(uuid::Uuid::from_u128(number)),
        generation: Generation(1),
        gpus: Vec::new(),
        phase: GroupPhase::Running,
        revision: 0,
        notice: 0,
    }
}

#[test]
fn a_node_that_speaks_of_groups_without_end_is_not_heard() {
    let mut cluster = Cluster::new(&[4, 4]);
    let job = cluster.submit(rigid("one", 8));
    cluster.start(job);
    // What it was assigned, and 64 + 16 for each of its GPUs.
    for number in 0..64 + 16 * 4 {
        cluster.report(1, NodeReport::Group { status: stray(number) });
    }
    assert_eq!(cluster.refused.len(), 0);
    cluster.report(1, NodeReport::Group { status: stray(3) });
    assert_eq!(cluster.refused.len(), 0, "of a group that is known it may speak again");
    for number in 0..10 {
        cluster.report(1, NodeReport::Group { status: stray(1_000 + number) });
    }
    assert!(
        cluster.refused[0].contains("node node-1 is not heard: its groups are 130, at most 129"),
        "{:?}",
        cluster.refused
    );
    assert_eq!(cluster.count("node.refused"), 1);
    let ledger = (0..200).map(stray).collect();
    cluster.register(inventory(1, 4), ledger);
    assert!(cluster.refused.last().unwrap().contains("its groups are 200"), "{:?}", cluster.refused);
    cluster.pass_beating(10.0, &[0]);
    assert!(matches!(cluster.state(job), JobState::Running { .. }), "{:?}", cluster.state(job));

    let long = GroupStatus { gpus: vec![GpuUuid("x".repeat(1 << 20))], ..stray(1) };
    cluster.report(0, NodeReport::Group { status: long });
    assert!(
        cluster.refused.last().unwrap().contains("groups.gpus is 1048576 characters long"),
        "{:?}",
        cluster.refused
    );
}

#[test]
fn two_nodes_that_are_connected_have_two_names() {
    let mut cluster = Cluster::new(&[4]);
    let twin = || NodeInventory { name: "node-0".into(), ..inventory(1, 4) };
    cluster.register(twin(), Vec::new());
    assert!(cluster.refused[0].contains("another node is called node-0"), "{:?}", cluster.refused);
    assert_eq!(cluster.node_count(), 1);
    // A machine that was installed anew comes back under another id, when its former self has gone.
    cluster.disconnect(0);
    cluster.register(twin(), Vec::new());
    assert_eq!(cluster.node_count(), 2);
    // And who had the name first is not locked out by whoever took it.
    cluster.register(inventory(0, 4), Vec::new());
    assert_eq!((cluster.node_count(), cluster.refused.len()), (2, 1));
}

#[test]
fn no_worker_reports_a_job_done_that_its_gpus_cannot_have_done() {
    let mut cluster = Cluster::new(&[4]);
    let job = cluster.submit(spec("one", 4, 4, Some(training(true))));
    cluster.start(job);
    let honest = cluster.report_of(job, 16);
    let lies = [
        StepReport { samples_seen: Sequences(u64::MAX), ..honest.clone() },
        StepReport { step: (1 << 63) - 1, ..honest.clone() },
        StepReport { tokens: Tokens(1e30), ..honest.clone() },
        StepReport { tokens: Tokens(-1.0), ..honest.clone() },
        StepReport { duration: Seconds(1e-300), ..honest },
    ];
    for report in lies {
        cluster.report(0, NodeReport::Steps { report: Box::new(report) });
    }
    cluster.checkpoint(job, Generation(1), u64::MAX);
    cluster.pass_beating(5.0, &[0]);
    assert!(matches!(cluster.state(job), JobState::Running { .. }), "{:?}", cluster.state(job));
    assert_eq!(cluster.jobs[&job].checkpoint, None);
    assert_eq!(cluster.count("job.report_refused"), 1, "it is told once a minute");
    // What it does say truly counts all the same.
    cluster.steps(job, 32, None);
    assert_eq!((cluster.count("job.training"), cluster.count("job.report_refused")), (1, 1));
}

/// Its own checkpoint is far ahead of what GPUs could have done since the grant.
#[test]
fn a_script_that_goes_on_from_a_checkpoint_of_its_own_is_believed_and_one_that_is_not_believed_lives() {
    let mut cluster = Cluster::new(&[4]);
    let mut endless = training(false);
    endless.target = None;
    let job = cluster.submit(spec("own", 4, 4, Some(endless)));
    cluster.start(job);
    cluster.declare(job);
    cluster.steps(job, 1 << 40, None);
    assert_eq!((cluster.count("job.training"), cluster.count("job.report_refused")), (1, 0));
    cluster.pass_beating(30.0, &[0]);
    cluster.steps(job, (1 << 40) + 16, None);
    assert_eq!(cluster.count("job.report_refused"), 0);
    for _ in 0..400 {
        cluster.pass_beating(10.0, &[0]);
        cluster.steps(job, 1 << 50, None);
    }
    assert!(cluster.count("job.report_refused") > 1);
    assert!(matches!(cluster.state(job), JobState::Running { .. }), "{:?}", cluster.state(job));
}
