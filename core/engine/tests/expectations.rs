//! What a decision expects of a job's goodput is written down with what came of it, each time it is over.

use headway_engine::event::Request;
use headway_engine::record::ModelFamily;
use headway_types::{GroupOutcome, JobId, Seconds, Sequences};

use crate::harness::{Cluster, spec, training};

/// A job on four GPUs that trains for so many seconds.
fn trained(seconds: u64) -> (Cluster, JobId) {
    let mut cluster = Cluster::new(&[4]);
    let job = cluster.submit(spec("measured", 4, 4, Some(training(true))));
    cluster.start(job);
    let mut samples = 0;
    for _ in 0..seconds {
        samples += cluster.allocation(job).configuration.unwrap().global_batch.0;
        cluster.now = cluster.now + Seconds(1.0);
        cluster.steps(job, samples, None);
    }
    (cluster, job)
}

#[test]
fn the_end_of_a_generation_tells_what_came_of_its_grant() {
    let (mut cluster, job) = trained(100);
    let expected = cluster.allocation(job).expectation.clone().unwrap();
    assert!(expected.goodput.0 > 0.0 && expected.measured_from.is_some());
    let band = expected.band.expect("a model says how sure it is");
    assert!(band.0.0 < expected.goodput.0 && expected.goodput.0 < band.1.0);
    assert!(cluster.realised.is_empty(), "it is not over");
    cluster.end(job, &GroupOutcome::Succeeded);
    let [realised] = cluster.realised.as_slice() else { panic!("{:?}", cluster.realised) };
    let batch = Sequences(16).tokens(256);
    // One batch a second, in reference tokens, of which a batch below the reference makes more than it has seen.
    assert!((1.0..1.5).contains(&(realised.goodput.0 / batch.0)), "{realised:?}");
    assert!((realised.measured_for.0 - 100.0).abs() < 1.5, "{realised:?}");
    assert_eq!((realised.job, realised.gpus.0, realised.family), (job, 4, ModelFamily::Under1b));
    assert_eq!(realised.expectation, expected);
    assert_eq!(cluster.allocation(job).expectation, None, "it is told once");
}

#[test]
fn what_a_generation_made_is_kept_however_it_ends() {
    for stopped in [false, true] {
        let (mut cluster, job) = trained(100);
        assert_eq!(cluster.allocation(job).made, None, "it goes on");
        if stopped {
            cluster.request(Request::Hold { job, reason: None });
        }
        cluster.end(job, if stopped { &GroupOutcome::Stopped } else { &GroupOutcome::Succeeded });
        let made = cluster.allocation(job).made.expect("it trained");
        let batch = Sequences(16).tokens(256);
        assert!((1.0..1.5).contains(&(made.goodput().unwrap().0 / batch.0)), "{made:?}");
        assert!((made.within.0 - 100.0).abs() < 1.5, "{made:?}");
    }
}

#[test]
fn what_never_trained_tells_nothing() {
    let mut cluster = Cluster::new(&[4]);
    let job = cluster.submit(spec("idle", 4, 4, Some(training(true))));
    cluster.start(job);
    assert!(cluster.allocation(job).expectation.is_some());
    cluster.end(job, &GroupOutcome::Succeeded);
    assert_eq!((cluster.realised.as_slice(), cluster.allocation(job).made), ([].as_slice(), None));
}
