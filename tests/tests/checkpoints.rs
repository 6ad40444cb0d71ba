//! Checkpoint directories on disk: a job keeps as many checkpoints as it says, and one that saves nothing leaves no
//! directory.
#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::time::Duration;

use headway_api::v1::JobStateKind as State;
use headway_tests::job::EmulatedJob;
use headway_tests::{Cluster, until};

const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread")]
async fn the_newest_checkpoints_stay_and_a_job_without_any_leaves_no_directory() {
    let cluster = Cluster::start(1, 2).await;
    let yaml = EmulatedJob { max_gpus: 2, checkpoint_seconds: 1.0, ..EmulatedJob::named("keeper") }.yaml();
    let id = submit(&cluster, &yaml.replace("grace: 10s}", "grace: 10s, keep: 2}")).await;
    until("several commits", PATIENCE, || async {
        let committed = cluster.client.checkpoints(&id).await.ok()?;
        (committed.len() >= 5).then_some(())
    })
    .await;
    cluster.command(&["cancel", "keeper"]);
    ended(&cluster, &id, State::Cancelled).await;
    let home = cluster.dir().join("checkpoints").join(&id);
    let left = until("the newest two to stay", PATIENCE, || async {
        let left = complete(&home);
        (left.len() == 2).then_some(left)
    })
    .await;
    let committed = cluster.client.checkpoints(&id).await.unwrap();
    let newest: Vec<PathBuf> = committed.iter().take(2).map(|one| PathBuf::from(&one.path)).collect();
    assert!(newest.iter().all(|path| left.contains(path)), "{left:?} instead of {newest:?}");

    let plain = "version: 1\nname: plain\nresources: {gpus: 1}\nrun: {command: 'test -d $HEADWAY_CHECKPOINT_DIR/g1'}\n";
    let id = submit(&cluster, plain).await;
    ended(&cluster, &id, State::Succeeded).await;
    let home = cluster.dir().join("checkpoints").join(&id);
    until("its empty directory to go", PATIENCE, || async { (!home.exists()).then_some(()) }).await;
    cluster.stop(&[]).await;
}

async fn submit(cluster: &Cluster, yaml: &str) -> String {
    cluster.client.submit_yaml(yaml, None).await.unwrap().jobs[0].id.to_string()
}

async fn ended(cluster: &Cluster, job: &str, state: State) {
    until("the job to end", PATIENCE, || async {
        let job = cluster.client.job(job).await.ok()?.job;
        (job.state == state).then_some(())
    })
    .await;
}

/// Complete checkpoints below a job's directory.
fn complete(job: &Path) -> Vec<PathBuf> {
    let below = |path: &Path| std::fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path());
    let generations: Vec<PathBuf> = below(job).collect();
    let all = generations.iter().flat_map(|generation| below(generation).collect::<Vec<_>>());
    all.filter(|path| path.join("manifest.json").exists()).collect()
}
