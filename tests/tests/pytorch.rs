//! The reference trainer on real text, under the real binaries. Skipped, and said so, without an interpreter that has PyTorch
//! (`HEADWAY_TEST_PYTHON`, set by `make test`).
#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::time::Duration;

use headway_api::v1::JobStateKind as State;
use headway_tests::job::tiny_training;
use headway_tests::{Cluster, until};

const PATIENCE: Duration = Duration::from_secs(240);

fn yaml(name: &str, gpus: u32, priority: u32, samples: u64) -> String {
    let worker = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("worker/src");
    format!("{}  env: {{PYTHONPATH: \"{}\"}}\n", tiny_training(name, gpus, priority, samples), worker.display())
}

#[tokio::test(flavor = "multi_thread")]
async fn real_training_moves_between_gpus_and_finishes() {
    if std::env::var_os("HEADWAY_TEST_PYTHON").is_none() {
        eprintln!("skipped: HEADWAY_TEST_PYTHON names no interpreter with PyTorch");
        return;
    }
    let cluster = Cluster::start(2, 2).await;
    let client = &cluster.client;
    let first = client.submit_yaml(&yaml("first", 1, 50, 6_000), None).await.unwrap().jobs[0].id.to_string();
    let before = until("a start on more than its minimum, alone on the cluster", PATIENCE, || async {
        let job = client.job(&first).await.ok()?.job;
        (job.gpus >= 2).then_some(job)
    })
    .await;
    // What it holds from here on is its model's affair: on a busy machine two ranks may be no faster than one.
    until("real training with a measured noise scale", PATIENCE, || async {
        let job = client.job(&first).await.ok()?.job;
        (job.loss.is_some() && job.noise_scale_tokens.is_some()).then_some(())
    })
    .await;

    let second = client.submit_yaml(&yaml("second", 2, 90, 600), None).await.unwrap().jobs[0].id.to_string();
    for (id, what) in [(&second, "the second job to finish"), (&first, "the first job to finish")] {
        let job = until(what, PATIENCE, || async {
            let job = client.job(id).await.ok()?.job;
            assert_ne!(job.state, State::Failed, "{:?}", job.state_cause);
            (job.state == State::Succeeded).then_some(job)
        })
        .await;
        assert!(job.loss.unwrap() < 5.0, "the loss fell below that of a uniform guess (ln 256 = 5.5)");
    }
    let after = client.job(&first).await.unwrap().job;
    assert!(after.generation > before.generation, "it was moved to make room and moved back or resumed");
    assert!(after.samples_seen >= Some(6_000));
    cluster.stop(&[]).await;
}
