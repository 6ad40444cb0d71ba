//! Jobs that keep only some of their checkpoints: who is told to remove older ones, and when.

use std::num::NonZeroU32;

use headway_types::{AgentCommand, Generation, GroupOutcome, JobSpec, NodeId};

use crate::harness::{Cluster, node_id, spec, training};

fn keeping(keep: Option<u32>) -> JobSpec {
    let mut training = training(true);
    training.checkpoint.keep = keep.and_then(NonZeroU32::new);
    spec("one", 4, 4, Some(training))
}

/// Samples of the checkpoints that nodes were told to prune by, and how many are kept.
fn told(cluster: &Cluster) -> Vec<(NodeId, u64, u32)> {
    let prune = |(node, command): &(NodeId, AgentCommand)| match command {
        AgentCommand::Prune { committed, keep, .. } => Some((*node, committed.samples_seen.0, keep.get())),
        _ => None,
    };
    cluster.commands.iter().filter_map(prune).collect()
}

#[test]
fn a_node_is_told_of_each_commit_and_again_when_it_repeats_its_offer() {
    let mut cluster = Cluster::new(&[4]);
    let job = cluster.submit(keeping(Some(2)));
    cluster.start(job);
    cluster.checkpoint(job, Generation(1), 160);
    assert_eq!(told(&cluster), [(node_id(0), 160, 2)]);
    cluster.checkpoint(job, Generation(1), 320);
    assert_eq!(told(&cluster).last(), Some(&(node_id(0), 320, 2)));
    // As the ledger repeats it in another session.
    cluster.checkpoint(job, Generation(1), 320);
    assert_eq!(told(&cluster).len(), 3);
    // What was not committed prunes nothing: it is older, or of another generation.
    cluster.checkpoint(job, Generation(1), 160);
    cluster.checkpoint(job, Generation(2), 480);
    assert_eq!(told(&cluster).len(), 3);
    // The last one, saved for a stop.
    cluster.checkpoint(job, Generation(1), 640);
    cluster.end(job, &GroupOutcome::Succeeded);
    assert_eq!(told(&cluster).last(), Some(&(node_id(0), 640, 2)));
}

#[test]
fn a_job_that_keeps_all_is_never_pruned() {
    let mut cluster = Cluster::new(&[4]);
    let job = cluster.submit(keeping(None));
    cluster.start(job);
    cluster.checkpoint(job, Generation(1), 160);
    cluster.checkpoint(job, Generation(1), 320);
    assert_eq!(told(&cluster), []);
}
