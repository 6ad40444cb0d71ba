//! What a job's noise does to its batch and its learning rate, and how the script hears of it.

use headway_engine::event::Request;
use headway_engine::record::{PolicyMode, PolicySettings};
use headway_goodput::efficiency::learning_rate_factor;
use headway_types::command::GroupStatus;
use headway_types::spec::{BatchPolicy, LrScaling, Training};
use headway_types::{
    AgentCommand, Generation, GroupOutcome, GroupPhase, JobId, LaunchOrder, NodeReport, NoiseSample, ReasonCode,
    Seconds, Sequences, Tokens,
};

use crate::harness::{Cluster, inventory, spec, training};

/// A noise scale in sequences.
fn noise(phi: f64) -> NoiseSample {
    NoiseSample { small_sqr: 1.0 + phi / 4.0, big_sqr: 1.0 + phi / 16.0, small_batch: 4.0, big_batch: 16.0 }
}

/// A job on four GPUs that trains.
fn started(training: Training) -> (Cluster, JobId) {
    let mut cluster = Cluster::new(&[4]);
    let job = cluster.submit(spec("noisy", 4, 4, Some(training)));
    cluster.start(job);
    (cluster, job)
}

/// Trains on until the estimate has followed and a round has been made of it.
fn hear(cluster: &mut Cluster, job: JobId, samples: &mut u64, phi: f64) {
    hear_reports(cluster, job, samples, phi, 40);
}

/// So many reports within 40 s.
fn hear_reports(cluster: &mut Cluster, job: JobId, samples: &mut u64, phi: f64, reports: u32) {
    for _ in 0..reports {
        *samples += 4096;
        cluster.now = cluster.now + Seconds(40.0 / f64::from(reports));
        cluster.steps(job, *samples, Some(noise(phi)));
    }
    cluster.pass_beating(61.0, &[0]);
}

fn batch(cluster: &Cluster, job: JobId) -> Sequences {
    cluster.allocation(job).configuration.unwrap().global_batch
}

#[test]
fn under_the_norm_test_rising_noise_raises_the_batch_and_falling_noise_leaves_it() {
    let policy = BatchPolicy::NormTest { eta: 0.5.try_into().unwrap() };
    let (mut cluster, job) = started(Training { batch_policy: policy, target: None, ..training(true) });
    let mut samples = 0;
    assert_eq!(batch(&cluster, job), Sequences(16), "the reference batch, before the noise is known");
    let mut seen = Vec::new();
    for phi in [4.0, 8.0, 32.0, 8.0, 2.0] {
        hear(&mut cluster, job, &mut samples, phi);
        seen.push(batch(&cluster, job).0);
    }
    assert_eq!(seen, [16, 32, 128, 128, 128], "{:#?}", cluster.messages);
    assert!(cluster.messages.iter().any(|message| message.contains("the norm test asks for a batch of 128")));
}

/// What the script's node was last told of its learning rate.
fn told(cluster: &Cluster) -> Option<(u64, f64)> {
    cluster.commands.iter().rev().find_map(|(_, command)| match command {
        AgentCommand::Configure { revision, lr_scale, .. } => Some((*revision, *lr_scale)),
        _ => None,
    })
}

fn rounds(cluster: &mut Cluster, mode: PolicyMode) {
    let settings = PolicySettings { mode, ..PolicySettings::default() };
    cluster.request(Request::SetPolicy { settings: settings.into(), expected: None });
}

fn prepared(cluster: &Cluster) -> &LaunchOrder {
    let order = |(_, command): &'_ (_, AgentCommand)| matches!(command, AgentCommand::Prepare { .. });
    match cluster.commands.iter().rfind(|one| order(one)) {
        Some((_, AgentCommand::Prepare { order })) => order,
        _ => panic!("nothing was prepared"),
    }
}

fn by_rule(rule: LrScaling, batch: Sequences, phi: f64) -> f64 {
    let tokens = |sequences: f64| Tokens(256.0 * sequences);
    learning_rate_factor(rule, tokens(phi), tokens(16.0), tokens(batch.0 as f64))
}

#[test]
fn every_rule_reaches_the_script_with_a_batch_change_a_restart_and_a_new_scheduler() {
    for rule in [LrScaling::None, LrScaling::Sqrt, LrScaling::Linear, LrScaling::Adascale] {
        let (mut cluster, job) = started(Training { lr_scaling: rule, target: None, ..training(true) });
        // Before the noise is known it is assumed to be the reference batch.
        assert_eq!(prepared(&cluster).lr_scale, by_rule(rule, batch(&cluster, job), 16.0), "{rule:?}");
        let mut samples = 0;
        hear(&mut cluster, job, &mut samples, 400.0);
        let at = batch(&cluster, job);
        assert!(at > Sequences(16), "{rule:?}");
        let (revision, live) = told(&cluster).unwrap();
        assert!((live / by_rule(rule, at, 400.0) - 1.0).abs() < 0.01, "{rule:?}: {live}");
        // The node has not heard: whoever leads says it again, to the digit.
        rounds(&mut cluster, PolicyMode::Paused);
        cluster.restart();
        let unaware = GroupStatus { revision: 0, ..cluster.status(job, Generation(1), GroupPhase::Running) };
        cluster.register(inventory(0, 4), vec![unaware]);
        assert_eq!(told(&cluster), Some((revision, live)), "{rule:?}");
        // Once it has, nobody says it again.
        let aware = cluster.status(job, Generation(1), GroupPhase::Running);
        cluster.report(0, NodeReport::Group { status: aware });
        cluster.commands.clear();
        cluster.pass_beating(20.0, &[0]);
        assert_eq!(told(&cluster), None, "{rule:?}");
        rounds(&mut cluster, PolicyMode::Auto);

        hear(&mut cluster, job, &mut samples, 400.0);
        cluster.checkpoint(job, Generation(1), samples);
        cluster.end(job, &GroupOutcome::Stopped);
        cluster.pass_beating(400.0, &[0]);
        let order = prepared(&cluster);
        assert_eq!((order.generation, order.lr_scaling), (Generation(2), rule));
        let at = order.configuration.unwrap().global_batch;
        assert!((order.lr_scale / by_rule(rule, at, 400.0) - 1.0).abs() < 0.01, "{rule:?}: {}", order.lr_scale);
    }
}

#[test]
fn adascale_follows_the_noise_between_batch_changes_and_not_each_report() {
    let rule = Training { lr_scaling: LrScaling::Adascale, target: None, ..training(true) };
    let (mut cluster, job) = started(rule);
    let mut samples = 0;
    hear(&mut cluster, job, &mut samples, 100.0);
    let (at, before) = (cluster.allocation(job).configuration.unwrap(), cluster.allocation(job).lr_scale);
    // Rounds are off: the batch stays from here on.
    rounds(&mut cluster, PolicyMode::Paused);
    for _ in 0..4 {
        hear(&mut cluster, job, &mut samples, 15.0);
    }
    let allocation = cluster.allocation(job);
    assert_eq!(allocation.configuration, Some(at));
    let wanted = by_rule(LrScaling::Adascale, at.global_batch, 15.0);
    assert!((allocation.lr_scale / wanted - 1.0).abs() < 0.06, "{} for {wanted}", allocation.lr_scale);
    assert!(allocation.lr_scale < 0.9 * before);
    assert_eq!(told(&cluster), Some((allocation.revision, allocation.lr_scale)));
    let changes = cluster.count("job.learning_rate_changed");
    let steps = std::iter::successors(Some(wanted), |at| Some(at * 1.05)).take_while(|at| *at < before).count();
    assert!((1..=steps + 1).contains(&changes), "{changes} changes in 160 reports, {steps} steps of 5 % between");
}

#[test]
fn a_batch_changes_so_often_within_the_hour_and_is_told_why_it_stays() {
    let (mut cluster, job) = started(Training { target: None, ..training(true) });
    let (mut samples, began) = (0, cluster.now);
    let swing = |cluster: &mut Cluster, samples: &mut u64| {
        for phi in [400.0, 2.0] {
            hear_reports(cluster, job, samples, phi, 200);
        }
    };
    while cluster.now.since(began).0 < 3000.0 {
        swing(&mut cluster, &mut samples);
    }
    assert_eq!(cluster.count("job.batch_changed"), 6, "{:#?}", cluster.messages);
    assert_eq!(cluster.count("job.batch_held"), 1, "{:#?}", cluster.messages);
    let said = |cluster: &Cluster| {
        let view = cluster.engine.view();
        let reasons = view.verdict(job).unwrap().reasons.clone();
        reasons.into_iter().find(|reason| reason.code == ReasonCode::BatchBound).map(|reason| reason.detail)
    };
    let mut told = None;
    for phi in [400.0, 2.0] {
        hear_reports(&mut cluster, job, &mut samples, phi, 200);
        told = told.or(said(&cluster));
    }
    let told = told.expect("one of both asks for another batch");
    assert!(told.ends_with("its batch was changed 6 times within the hour, as often as it may be"), "{told}");
    for _ in 0..15 {
        swing(&mut cluster, &mut samples);
    }
    let changes = cluster.count("job.batch_changed");
    assert!((8..=12).contains(&changes), "an hour later there are others: {changes}");
}
