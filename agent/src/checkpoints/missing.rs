//! The checkpoint to resume from is not on disk, as after the restore of a backup that names one which has been removed
//! since. Newer ones may be there: the agent names the newest, and the scheduler decides whether the job goes on from
//! it. The directory is the job's owner's, so what is found is believed as far as a worker's offer (`verify.rs`).

use std::path::Path;
use std::time::Duration;

use headway_types::{CheckpointRef, Fault, LaunchOrder};

use super::find::find_newest_whole;

/// How long the file system may take to show the job's checkpoints: the scheduler waits for the checks of a start.
const PATIENCE: Duration = Duration::from_secs(45);

/// Describes that a checkpoint is missing, and names the newest whole one of the job that is there.
pub(crate) async fn describe_missing(order: &LaunchOrder, missing: &CheckpointRef, prefix: &[String]) -> Fault {
    let (directory, path) = (&order.checkpoint_dir, &missing.path);
    let searching = find_newest_whole(prefix, Path::new(directory), order.job);
    let found = match tokio::time::timeout(PATIENCE, searching).await {
        Ok(Ok(found)) => found,
        Ok(Err(why)) => return Fault::of_node(format!("checkpoint {path} is missing, and a search failed: {why}")),
        Err(_) => {
            let seconds = PATIENCE.as_secs();
            return Fault::of_node(format!(
                "checkpoint {path} is missing, and {directory} did not answer in {seconds} s"
            ));
        }
    };
    match found {
        // A file system may show a file late.
        Some(newest) if newest == *missing => Fault::of_infrastructure(format!("checkpoint {path} was not visible")),
        newest => Fault::of_missing_checkpoint(format!("checkpoint {path} is missing"), newest),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::fs;
    use std::os::unix::fs::symlink;

    use headway_types::{Blame, JobId, MissingCheckpoint};

    use super::*;
    use crate::checkpoints::tests::make_scratch;

    #[tokio::test]
    async fn the_newest_whole_checkpoint_of_the_job_is_named() {
        let scratch = make_scratch();
        let gone = scratch.save(1, 10);
        fs::remove_dir_all(&gone.path).unwrap();
        let describe = async || describe_missing(&scratch.order, &gone, &scratch.site.users.prefix(None)).await;
        let missing = |newest| Some(MissingCheckpoint { newest });
        let fault = describe().await;
        assert_eq!((fault.blame, &fault.missing_checkpoint), (Blame::Node, &missing(None)), "{fault:?}");
        assert!(fault.message.contains(&gone.path), "{}", fault.message);

        let (older, newest) = (scratch.save(1, 20), scratch.save(9, 30));
        // Checkpoints of another job, cut short, put there by a link, and a copy.
        scratch.save_as(JobId(uuid::Uuid::from_u128(99)), 9, 40);
        let broken = scratch.save(9, 50);
        fs::write(Path::new(&broken.path).join("model.pt"), "").unwrap();
        let moved = scratch.save(9, 60);
        let elsewhere = scratch.job.parent().unwrap().join("elsewhere");
        fs::rename(&moved.path, &elsewhere).unwrap();
        symlink(&elsewhere, &moved.path).unwrap();
        let copied = scratch.save(9, 70);
        fs::rename(&copied.path, scratch.job.join("g9/best")).unwrap();
        assert_eq!(describe().await.missing_checkpoint, missing(Some(newest.clone())));
        fs::remove_dir_all(&newest.path).unwrap();
        assert_eq!(describe().await.missing_checkpoint, missing(Some(older)));
    }

    #[tokio::test]
    async fn a_checkpoint_that_shows_late_is_waited_for() {
        let scratch = make_scratch();
        let late = scratch.save(1, 10);
        let fault = describe_missing(&scratch.order, &late, &scratch.site.users.prefix(None)).await;
        assert_eq!((fault.blame, fault.missing_checkpoint), (Blame::Infrastructure, None));
    }
}
