//! A token budget is kept: no theory of what small batches are worth ends a job before it has seen its tokens.

use headway_engine::record::JobState;
use headway_types::spec::{BatchRange, Target, TargetCount, Training};
use headway_types::{Generation, GroupOutcome, JobId, Sequences, Tokens};

use crate::harness::{Cluster, spec, training};

const BUDGET: f64 = 1_024_000.0;
/// Sequences of 256 tokens that are the budget.
const WHOLE: u64 = 4_000;

/// On four GPUs at a batch of one half of the reference: before the noise is known a token counts as 4/3 to the theory.
fn below_the_reference(count: TargetCount) -> (Cluster, JobId) {
    let mut cluster = Cluster::new(&[4]);
    let half = BatchRange { min: Sequences(8), max: Sequences(8) };
    let target = Some(Target { tokens: Tokens(BUDGET), count });
    let job = cluster.submit(spec("small", 4, 4, Some(Training { batch: half, target, ..training(true) })));
    cluster.start(job);
    (cluster, job)
}

fn is_stopped(cluster: &Cluster, job: JobId) -> bool {
    matches!(cluster.state(job), JobState::Stopping { .. })
}

#[test]
fn a_small_batch_ends_no_job_before_its_token_budget_unless_the_target_says_so() {
    for (count, ends_at) in [(TargetCount::Both, WHOLE), (TargetCount::Raw, WHOLE), (TargetCount::Reference, 3_000)] {
        let (mut cluster, job) = below_the_reference(count);
        cluster.steps(job, ends_at - 8, None);
        assert!(!is_stopped(&cluster, job), "{count}: {:#?}", cluster.messages);
        cluster.steps(job, ends_at + 8, None);
        assert!(is_stopped(&cluster, job), "{count}: {:#?}", cluster.messages);
        cluster.checkpoint(job, Generation(1), ends_at + 8);
        cluster.end(job, &GroupOutcome::Stopped);
        assert!(matches!(cluster.state(job), JobState::Succeeded { .. }));
        let told = cluster.messages.iter().any(|message| message.contains("25 % of it credited"));
        assert_eq!(told, count == TargetCount::Reference, "{:#?}", cluster.messages);
    }
}

#[test]
fn a_large_batch_makes_up_for_its_efficiency_unless_only_tokens_count() {
    for (count, ends_at) in [(TargetCount::Both, 6_000), (TargetCount::Raw, WHOLE), (TargetCount::Reference, 6_000)] {
        let mut cluster = Cluster::new(&[4]);
        let twice = BatchRange { min: Sequences(32), max: Sequences(32) };
        let target = Some(Target { tokens: Tokens(BUDGET), count });
        let job = cluster.submit(spec("large", 4, 4, Some(Training { batch: twice, target, ..training(true) })));
        cluster.start(job);
        cluster.steps(job, ends_at - 32, None);
        assert!(!is_stopped(&cluster, job), "{count}");
        cluster.steps(job, ends_at + 32, None);
        assert!(is_stopped(&cluster, job), "{count}");
    }
}

#[test]
fn progress_of_former_releases_does_not_end_a_job_that_has_not_seen_its_tokens() {
    let (mut cluster, job) = below_the_reference(TargetCount::Both);
    cluster.steps(job, 2_000, None);
    cluster.checkpoint(job, Generation(1), 2_000);
    // As a release wrote it that took what small batches are credited with for work.
    cluster.jobs.get_mut(&job).unwrap().progress = Tokens(BUDGET);
    cluster.restart();
    cluster.register(
        crate::harness::inventory(0, 4),
        vec![cluster.status(job, Generation(1), headway_types::GroupPhase::Running)],
    );
    cluster.steps(job, 3_000, None);
    assert!(!is_stopped(&cluster, job), "{:#?}", cluster.messages);
    cluster.end(job, &GroupOutcome::Stopped);
    assert!(!cluster.jobs[&job].state.is_final(), "{:#?}", cluster.messages);
}

#[test]
fn what_shrinking_earned_is_kept_apart_and_survives_a_change_of_leader() {
    let (mut cluster, job) = below_the_reference(TargetCount::Reference);
    cluster.steps(job, 1_500, None);
    cluster.checkpoint(job, Generation(1), 1_500);
    let stored = &cluster.jobs[&job];
    assert_eq!((stored.seen(), stored.progress), (Tokens(384_000.0), Tokens(512_000.0)));
    assert!((stored.credit.0 - 128_000.0).abs() < 1.0, "{:?}", stored.credit);
    cluster.restart();
    let live = &cluster.engine.view().jobs[&job].live;
    assert!((live.credit.0 - 128_000.0).abs() < 1.0, "{:?}", live.credit);
    let (cluster, job) = below_the_reference(TargetCount::Both);
    assert_eq!(cluster.jobs[&job].credit, Tokens(0.0), "where tokens count nothing is credited");
}
