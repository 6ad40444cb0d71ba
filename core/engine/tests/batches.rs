//! What a job's noise does to its batch and its learning rate, and how the script hears of it.
#![allow(clippy::unwrap_used)]

mod harness;

use harness::{Cluster, spec, training};
use headway_types::spec::{BatchPolicy, Training};
use headway_types::{JobId, NoiseSample, Seconds, Sequences};

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
    for _ in 0..40 {
        *samples += 4096;
        cluster.now = cluster.now + Seconds(1.0);
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
