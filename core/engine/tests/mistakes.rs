//! What a specification names that is not there, or cannot be run: the job's own mistake, once another node says so too.

use headway_engine::record::JobState;
use headway_types::{Fault, GroupOutcome, GroupPhase};

use crate::harness::{Cluster, rigid, spec, training};

fn ended(fault: Fault) -> GroupPhase {
    GroupPhase::Ended { outcome: GroupOutcome::Failed { exit_code: Some(1), fault } }
}

fn not_started(fault: Fault) -> GroupPhase {
    GroupPhase::Ended { outcome: GroupOutcome::NotStarted { fault } }
}

fn mistake() -> Fault {
    Fault::of_mistake("there is no working directory /hom/ada")
}

#[test]
fn a_path_that_two_nodes_lack_ends_the_job_and_blames_no_node() {
    let mut cluster = Cluster::new(&[4, 4]);
    let job = cluster.submit(rigid("typo", 4));
    let first = cluster.nodes_of(job)[0];
    cluster.group(first, job, not_started(mistake()));
    cluster.pass_beating(40.0, &[0, 1]);
    let second = cluster.nodes_of(job)[0];
    assert_ne!(second, first, "a node that lacks a file system is not the word of all: {:#?}", cluster.messages);
    cluster.group(second, job, not_started(mistake()));
    let JobState::Failed { message, .. } = cluster.state(job) else { panic!("{:?}", cluster.state(job)) };
    let node = &cluster.node(second).inventory.name;
    assert!(message.contains("/hom/ada") && message.contains(node.as_str()), "{message}");
    for node in 0..2 {
        assert_eq!(cluster.node(node).health, Default::default(), "no node is blamed");
    }
}

#[test]
fn a_prolog_that_two_nodes_cannot_run_ends_the_job_and_blames_no_node() {
    let not_run = || not_started(Fault::of_mistake("the prolog exited with code 127: ./chek.sh: not found"));
    let mut cluster = Cluster::new(&[4, 4]);
    let mut typo = rigid("typo", 4);
    typo.roles[0].run.hooks.prolog = Some("./chek.sh".into());
    assert!(typo.checkpoint_policy().dir.is_none(), "it is not the checkpoints' directory that is meant");
    let job = cluster.submit(typo);
    for _ in 0..2 {
        let node = cluster.nodes_of(job)[0];
        cluster.group(node, job, not_run());
        cluster.pass_beating(40.0, &[0, 1]);
    }
    assert!(matches!(cluster.state(job), JobState::Failed { .. }), "{:?}", cluster.state(job));
    assert_eq!((cluster.count("job.mistaken"), cluster.count("node.quarantined")), (1, 0));
    for node in 0..2 {
        assert_eq!(cluster.node(node).health, Default::default(), "no node is blamed");
    }
}

#[test]
fn a_path_that_the_only_node_lacks_ends_the_job_at_once() {
    let mut cluster = Cluster::new(&[4]);
    let job = cluster.submit(rigid("typo", 4));
    cluster.group(0, job, not_started(mistake()));
    assert!(matches!(cluster.state(job), JobState::Failed { .. }), "{:?}", cluster.state(job));
    assert_eq!((cluster.count("job.mistaken"), cluster.count("job.failed")), (1, 1));
}

#[test]
fn a_path_that_was_there_when_the_job_ran_is_missing_on_the_node() {
    let mut cluster = Cluster::new(&[4]);
    let job = cluster.submit(spec("one", 4, 4, Some(training(true))));
    cluster.start(job);
    cluster.steps(job, 64, None);
    cluster.checkpoint(job, cluster.jobs[&job].generation, 64);
    cluster.group(0, job, ended(Fault::of_infrastructure("the agent restarted")));
    cluster.pass_beating(40.0, &[0]);
    cluster.group(0, job, not_started(mistake()));
    assert!(!cluster.state(job).is_final(), "{:?}", cluster.state(job));
    assert_eq!(cluster.jobs[&job].failures, 0);
}

#[test]
fn a_checkpoint_directory_that_nobody_named_is_the_sites() {
    let mut cluster = Cluster::new(&[4]);
    let job = cluster.submit(rigid("one", 4));
    let fault = Fault { mistake: true, ..Fault::of_node("checkpoint directory /srv/ckpt cannot be written") };
    cluster.group(0, job, not_started(fault));
    assert!(!cluster.state(job).is_final(), "{:?}", cluster.state(job));
}

#[test]
fn a_command_that_cannot_be_run_at_once_ends_the_job() {
    let not_found = || ended(Fault::of_mistake("rank 0 exited with code 127: its command was not found"));
    let mut cluster = Cluster::new(&[4, 4]);
    let job = cluster.submit(rigid("typo", 4));
    cluster.start(job);
    let node = cluster.nodes_of(job)[0];
    cluster.group(node, job, not_found());
    assert!(matches!(cluster.state(job), JobState::Failed { .. }), "{:?}", cluster.state(job));
    let later = cluster.submit(rigid("later", 4));
    cluster.start(later);
    cluster.pass_beating(20.0, &[0, 1]);
    let node = cluster.nodes_of(later)[0];
    cluster.group(node, later, not_found());
    assert!(!cluster.state(later).is_final(), "what a command's own children end with is not final");
}
