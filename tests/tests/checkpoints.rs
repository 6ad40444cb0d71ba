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

#[tokio::test(flavor = "multi_thread")]
async fn a_job_whose_checkpoint_was_removed_after_the_backup_goes_on_from_the_newest_one() {
    let mut cluster = Cluster::start(1, 2).await;
    let yaml = EmulatedJob { max_gpus: 2, checkpoint_seconds: 1.0, ..EmulatedJob::named("keeper") }.yaml();
    let id = submit(&cluster, &yaml.replace("grace: 10s}", "grace: 10s, keep: 1}")).await;
    let newest = async |cluster: &Cluster| {
        let committed = cluster.client.checkpoints(&id).await.ok()?;
        committed.first().map(|one| (one.step, PathBuf::from(&one.path)))
    };
    until("a commit", PATIENCE, || async { newest(&cluster).await }).await;
    let file = cluster.dir().join("cluster.backup").display().to_string();
    cluster.command(&["admin", "backup", &file, "--database-url", &cluster.database_url()]);
    let (_, backed_up) = newest(&cluster).await.unwrap();
    until("the checkpoint of the backup to go", PATIENCE, || async { (!backed_up.exists()).then_some(()) }).await;
    // It runs no more, so it cannot simply go on.
    cluster.command(&["job", "hold", "keeper"]);
    ended(&cluster, &id, State::Held).await;
    let (step, _) = newest(&cluster).await.unwrap();

    cluster.lose_the_database().await;
    cluster.command(&["admin", "restore", &file, "--database-url", &cluster.database_url()]);
    cluster.start_server().await;
    cluster.wait_for_nodes(1).await;
    until("the job to save again", PATIENCE, || async {
        let job = cluster.client.job(&id).await.ok()?.job;
        assert_ne!(job.state, State::Failed);
        newest(&cluster).await.filter(|one| one.0 > step)
    })
    .await;
    let events = cluster.client.events(200).await.unwrap();
    let told: Vec<&str> = events.iter().map(|event| event.verb.as_str()).collect();
    assert_eq!(told.iter().filter(|verb| **verb == "checkpoint.adopted").count(), 1, "{told:?}");
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
