//! The committed checkpoint is not on disk when a job starts again, as after the restore of an old backup.

use headway_engine::record::JobState;
use headway_types::{
    AgentCommand, CheckpointRef, Fault, Generation, GroupOutcome, GroupPhase, JobId, LaunchOrder, NodeReport,
    Sequences, StepReport,
};

use crate::harness::{Cluster, spec, training};

/// A job that has saved 640 samples and starts again, on nodes of four GPUs.
fn interrupted(nodes: u64) -> (Cluster, JobId) {
    let mut cluster = Cluster::new(&vec![4; nodes as usize]);
    let job = cluster.submit(spec("one", 4, 4, Some(training(true))));
    cluster.start(job);
    cluster.checkpoint(job, Generation(1), 640);
    let fault = Fault::of_infrastructure("the agent restarted");
    cluster.end(job, &GroupOutcome::Failed { exit_code: None, fault });
    pass(&mut cluster);
    (cluster, job)
}

fn pass(cluster: &mut Cluster) {
    let nodes: Vec<u64> = (0..cluster.node_count()).collect();
    cluster.pass_beating(45.0, &nodes);
}

fn found(generation: u64, samples: u64) -> CheckpointRef {
    CheckpointRef {
        generation: Generation(generation),
        path: format!("/c/g{generation}/{samples}"),
        step: samples / 16,
        samples_seen: Sequences(samples),
        manifest_sha256: "11".into(),
    }
}

/// The node that is to start the job does not find its checkpoint.
fn report_missing(cluster: &mut Cluster, job: JobId, newest: Option<CheckpointRef>) {
    assert!(matches!(cluster.state(job), JobState::Starting { .. }), "{:?}", cluster.state(job));
    let fault = Fault::of_missing_checkpoint("checkpoint /c/g1/640 is missing", newest);
    let node = cluster.nodes_of(job)[0];
    cluster.group(node, job, GroupPhase::Ended { outcome: GroupOutcome::NotStarted { fault } });
}

fn newest_order(cluster: &Cluster, job: JobId) -> &LaunchOrder {
    let mut orders = cluster.commands.iter().filter_map(|(_, command)| match command {
        AgentCommand::Prepare { order } if order.job == job => Some(&**order),
        _ => None,
    });
    orders.next_back().unwrap()
}

fn assert_no_node_is_blamed(cluster: &Cluster) {
    for node in 0..cluster.node_count() {
        assert_eq!(cluster.node(node).health, Default::default(), "no node is blamed");
    }
}

#[test]
fn a_job_goes_on_from_the_newest_checkpoint_that_a_node_finds() {
    let (mut cluster, job) = interrupted(1);
    let (before, failures) = (cluster.jobs[&job].progress, cluster.jobs[&job].failures);
    report_missing(&mut cluster, job, Some(found(2, 1_280)));
    assert_eq!(cluster.jobs[&job].checkpoint, Some(found(2, 1_280)));
    assert!(cluster.jobs[&job].progress > before);
    let told = "one goes on from step 80 (1280 sequences), which node node-0 found: its committed checkpoint of step 40 \
                is missing there";
    assert!(cluster.messages.contains(&told.to_owned()), "{:#?}", cluster.messages);
    assert_eq!((cluster.count("checkpoint.adopted"), cluster.count("job.mistaken")), (1, 0));
    pass(&mut cluster);
    assert_eq!(newest_order(&cluster, job).resume, Some(found(2, 1_280)));
    assert_eq!(cluster.jobs[&job].failures, failures, "it is not the job's fault either");
    assert_no_node_is_blamed(&cluster);
}

#[test]
fn generations_go_on_above_that_of_a_checkpoint_which_the_store_does_not_know() {
    let (mut cluster, job) = interrupted(1);
    let known = cluster.jobs[&job].generation;
    let saved = found(known.0 + 7, 1_280);
    report_missing(&mut cluster, job, Some(saved.clone()));
    assert_eq!(cluster.count("checkpoint.adopted"), 0);
    pass(&mut cluster);
    assert!(newest_order(&cluster, job).generation > saved.generation);
    report_missing(&mut cluster, job, Some(saved.clone()));
    pass(&mut cluster);
    assert!(newest_order(&cluster, job).resume == Some(saved), "{:#?}", cluster.messages);
    assert_no_node_is_blamed(&cluster);
}

#[test]
fn a_job_that_had_come_to_its_target_has_succeeded() {
    let (mut cluster, job) = interrupted(1);
    report_missing(&mut cluster, job, Some(found(2, 40_000)));
    assert!(matches!(cluster.state(job), JobState::Succeeded { .. }), "{:?}", cluster.state(job));
}

#[test]
fn a_job_without_any_checkpoint_fails_and_says_which_is_missing() {
    let (mut cluster, job) = interrupted(1);
    report_missing(&mut cluster, job, None);
    let JobState::Failed { message, .. } = cluster.state(job) else { panic!("{:?}", cluster.state(job)) };
    assert!(message.contains("/c/g1/640 is missing, and no other whole checkpoint"), "{message}");
    assert!(cluster.messages.iter().any(|one| one.starts_with("one cannot go on: ")), "{:#?}", cluster.messages);
    assert_no_node_is_blamed(&cluster);
}

#[test]
fn a_node_that_may_lack_the_file_system_is_not_the_word_of_all() {
    let (mut cluster, job) = interrupted(2);
    let first = cluster.nodes_of(job)[0];
    report_missing(&mut cluster, job, None);
    assert!(!cluster.state(job).is_final(), "{:?}", cluster.state(job));
    pass(&mut cluster);
    assert_ne!(cluster.nodes_of(job)[0], first);
    report_missing(&mut cluster, job, None);
    assert!(matches!(cluster.state(job), JobState::Failed { .. }), "{:?}", cluster.state(job));
    assert_eq!(cluster.count("node.quarantined"), 0);
    assert_no_node_is_blamed(&cluster);
}

#[test]
fn neither_an_older_checkpoint_is_taken_nor_one_that_cannot_be() {
    let late = CheckpointRef { step: 1 << 60, ..found(2, 1_280) };
    for (newest, why) in [
        (found(1, 320), "is older"),
        (found(2, 1 << 50), "could have seen"),
        (found(5_000, 1_280), "generation g5000"),
        (late, "2^53"),
    ] {
        let (mut cluster, job) = interrupted(1);
        report_missing(&mut cluster, job, Some(newest));
        let JobState::Failed { message, .. } = cluster.state(job) else { panic!("{why}: {:?}", cluster.state(job)) };
        assert!(message.contains(why) && message.contains("/c/g1/640 is missing"), "{message}");
        assert_eq!(cluster.jobs[&job].checkpoint.as_ref().map(|one| one.samples_seen), Some(Sequences(640)));
    }
}

/// A job that has saved 640 samples and has started again under its second generation.
fn restarted() -> (Cluster, JobId) {
    let (mut cluster, job) = interrupted(1);
    cluster.start(job);
    (cluster, job)
}

#[test]
fn a_start_that_passes_over_the_committed_checkpoint_is_told_and_kept_in_the_record() {
    let (mut cluster, job) = restarted();
    let batch = cluster.report_of(job, 0).configuration.global_batch.0;
    cluster.steps(job, 160 + batch, None);
    let fallback = cluster.jobs[&job].last_fallback.clone().expect("it is in the record");
    assert_eq!((fallback.generation, fallback.step), (cluster.jobs[&job].generation, 160 / batch));
    assert_eq!((fallback.samples_seen, fallback.lost()), (Sequences(160), Sequences(480)));
    assert_eq!(fallback.named.path, "/c/g1/640");
    assert_eq!(cluster.count("checkpoint.passed_over"), 1);

    cluster.steps(job, 160 + 2 * batch, None);
    assert_eq!(cluster.count("checkpoint.passed_over"), 1, "once a start");
    assert_eq!(
        cluster.jobs[&job].checkpoint.as_ref().unwrap().samples_seen,
        Sequences(640),
        "progress never goes back"
    );
}

#[test]
fn a_start_from_the_committed_checkpoint_is_no_fallback() {
    let (mut cluster, job) = restarted();
    let batch = cluster.report_of(job, 0).configuration.global_batch.0;
    cluster.steps(job, 640 + batch, None);
    assert_eq!((cluster.count("checkpoint.passed_over"), &cluster.jobs[&job].last_fallback), (0, &None));
}

#[test]
fn a_script_that_counts_its_steps_anew_has_not_fallen_back() {
    let (mut cluster, job) = restarted();
    let report = cluster.report_of(job, 640);
    let batch = report.configuration.global_batch;
    let report = StepReport { step: 1, samples_seen: Sequences(640 + batch.0), ..report };
    let node = cluster.nodes_of(job)[0];
    cluster.report(node, NodeReport::Steps { report: Box::new(report) });
    assert_eq!(cluster.jobs[&job].last_fallback, None);
}
