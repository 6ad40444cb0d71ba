//! Removes a job's older checkpoints (`training.checkpoint.keep`; docs/decisions/0025-pruned-checkpoints.md). The
//! scheduler names the checkpoint that it has committed. What else there is, the disk says (`find.rs`). The newest ones
//! up to the committed one stay, the one that the attempt has resumed from, and those that symbolic links in the job's
//! directory lead to (`links.rs`). Of the others only the files that their manifests name are removed, and then the
//! directories that are empty.
//!
//! A removal renames the manifest before it removes a file, so that a checkpoint with a manifest is complete whenever
//! the agent is killed. The renamed manifest goes last: by it the next removal finishes one that was cut short.
//!
//! It must never remove the committed checkpoint, a newer one, one that a rank of this attempt may still read, or what
//! no manifest of this job names. Where the committed one is not found as it was committed, nothing is removed.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::path::Path;
use std::sync::Arc;

use headway_types::{CheckpointRef, LaunchOrder};
use tokio::sync::Mutex;

use super::find::{Found, OnDisk, REMOVED_MANIFEST, find_checkpoints, run_in, split_names};
use super::links::{find_links, keep_linked};
use crate::site::Site;

/// Lists what is in the checkpoint `$1` and no directory; no link is followed.
const CONTENT: &str = r#"cd -P -- "$1" && find . ! -type d -print0"#;
/// Removes the files whose names come in from the checkpoint `$1`, then each directory that is empty, the generation's
/// included. First it renames the manifest to `$3`, unless a removal that was cut short has done so. Nothing is removed
/// where the manifest is not the one with the SHA-256 `$2`: a script may have put another checkpoint there since.
const REMOVE: &str = r#"
cd -P -- "$1" || exit 1
manifest=manifest.json
[ -e manifest.json ] || manifest=$3
now=$(sha256sum "$manifest") || exit 1
[ "${now%% *}" = "$2" ] || { echo 'another checkpoint has come in its place' >&2; exit 1; }
[ "$manifest" = "$3" ] || mv -fT -- manifest.json "$3" || exit 1
sync -- . 2>/dev/null
xargs -0 rm -f -- && rm -f -- "$3" || exit 1
find . -mindepth 1 -depth -type d -exec rmdir -- {} + 2>/dev/null
cd / && rmdir -- "$1" "${1%/*}" 2>/dev/null
exit 0
"#;

/// One job of removing after the other: two at once would stand in each other's way, and in the way of those who save.
pub(crate) type Pruner = Arc<Mutex<()>>;

/// Removes what the job does not keep, once `committed` is its committed checkpoint.
pub(crate) async fn prune(
    pruner: &Pruner,
    order: &LaunchOrder,
    committed: &CheckpointRef,
    keep: NonZeroU32,
    site: &Site,
) {
    let _turn = pruner.lock().await;
    let job = order.job;
    match remove_older(order, committed, keep, site).await {
        Ok(0) => {}
        Ok(removed) => tracing::info!(job_id = %job, removed, kept = keep, step = committed.step, "pruned checkpoints"),
        Err(why) => tracing::warn!(job_id = %job, why, "older checkpoints of a job stay"),
    }
}

/// Returns how many it has removed; an error where at least one of those to remove is still there.
async fn remove_older(
    order: &LaunchOrder,
    committed: &CheckpointRef,
    keep: NonZeroU32,
    site: &Site,
) -> Result<usize, String> {
    let directory = Path::new(&order.checkpoint_dir);
    if !directory.ends_with(order.job.to_string()) {
        return Err(format!("{} is not called by the job", directory.display()));
    }
    let user = site.user_of_started(&order.owner).await.map_err(|fault| fault.message)?;
    let prefix = site.users.prefix(user.as_ref());
    let OnDisk { complete, half_removed } = find_checkpoints(&prefix, directory, order.job).await?;
    let Some(mut older) = older_than_kept(complete, committed, keep) else { return Ok(0) };
    older.retain(|one| !order.resume.as_ref().is_some_and(|resumed| one.is(resumed)));
    if !older.is_empty() {
        keep_linked(&mut older, &find_links(&prefix, directory).await?);
    }
    older.extend(half_removed);
    remove_all(&prefix, &older).await
}

/// Removes each of these checkpoints, whatever becomes of the others. Returns how many are gone; an error where at least
/// one is still there.
async fn remove_all(prefix: &[String], checkpoints: &[Found]) -> Result<usize, String> {
    let mut failed = None;
    for checkpoint in checkpoints {
        if let Err(why) = remove_checkpoint(prefix, checkpoint).await {
            failed = failed.or(Some(why));
        }
    }
    failed.map_or(Ok(checkpoints.len()), Err)
}

/// Returns the checkpoints that are older than the newest `keep` up to the committed one; `None` where that is not there
/// as it was committed.
fn older_than_kept(mut found: Vec<Found>, committed: &CheckpointRef, keep: NonZeroU32) -> Option<Vec<Found>> {
    if !found.iter().any(|one| one.is(committed)) {
        return None;
    }
    found.retain(|one| !one.is(committed) && one.manifest.samples_seen <= committed.samples_seen);
    found.sort_by_key(|one| Reverse(one.recency()));
    let beside = keep.get() as usize - 1;
    Some(found.split_off(beside.min(found.len())))
}

async fn remove_checkpoint(prefix: &[String], old: &Found) -> Result<(), String> {
    let named: BTreeSet<String> = old.manifest.files.iter().map(|entry| format!("./{}", entry.name)).collect();
    let there = run_in(prefix, CONTENT, &old.path, &[], &[]).await?;
    let mut files = Vec::new();
    let manifests = ["./manifest.json".to_owned(), format!("./{REMOVED_MANIFEST}")];
    for name in split_names(&there).into_iter().filter(|name| named.contains(name) && !manifests.contains(name)) {
        files.extend_from_slice(name.as_bytes());
        files.push(0);
    }
    run_in(prefix, REMOVE, &old.path, &[&old.manifest_sha256, REMOVED_MANIFEST], &files).await.map(drop)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::fs;
    use std::os::unix::fs::symlink;

    use headway_types::JobId;

    use super::*;
    use crate::checkpoints::tests::{Scratch, make_scratch};

    impl Scratch {
        async fn prune(&self, committed: &CheckpointRef, keep: u32) -> Result<usize, String> {
            remove_older(&self.order, committed, NonZeroU32::new(keep).unwrap(), &self.site).await
        }
    }

    fn exists(checkpoint: &CheckpointRef) -> bool {
        Path::new(&checkpoint.path).join("manifest.json").exists()
    }

    #[tokio::test]
    async fn the_newest_stay_with_the_committed_one_and_older_ones_go_with_their_directories() {
        let scratch = make_scratch();
        let old: Vec<_> =
            [(1, 10), (1, 20), (2, 30), (2, 40)].map(|(generation, seen)| scratch.save(generation, seen)).into();
        // Offered since, and not committed yet.
        let newer = scratch.save(2, 50);
        assert_eq!(scratch.prune(&old[3], 2).await, Ok(2));
        assert_eq!(old.iter().map(exists).collect::<Vec<_>>(), [false, false, true, true]);
        assert!(exists(&newer) && !scratch.job.join("g1").exists());
        assert_eq!(scratch.prune(&old[3], 2).await, Ok(0), "once more changes nothing");
        assert_eq!(scratch.prune(&old[3], 1).await, Ok(1));
        assert!(exists(&old[3]) && exists(&newer));
        assert_eq!(scratch.prune(&old[3], 9).await, Ok(0));
    }

    #[tokio::test]
    async fn a_checkpoint_that_came_in_the_place_of_another_stays_and_the_others_go() {
        let scratch = make_scratch();
        let [replaced, old] = [scratch.save(1, 10), scratch.save(1, 20)];
        let committed = scratch.save(2, 30);
        let prefix = scratch.site.users.prefix(None);
        let found = find_checkpoints(&prefix, &scratch.job, scratch.order.job).await.unwrap().complete;
        let newer = scratch.save(2, 40);
        fs::remove_dir_all(&replaced.path).unwrap();
        fs::rename(&newer.path, &replaced.path).unwrap();
        let keep = NonZeroU32::MIN;
        for one in older_than_kept(found, &committed, keep).unwrap() {
            let removed = remove_checkpoint(&prefix, &one).await;
            assert_eq!(removed.is_ok(), one.path == Path::new(&old.path), "{removed:?}");
        }
        assert!(exists(&replaced) && Path::new(&replaced.path).join("model.pt").exists(), "it is the newer one");
        assert!(!exists(&old) && exists(&committed));
    }

    /// Runs programs with an `rm` that does something before.
    fn with_rm(dir: &Path, before: &str) -> Vec<String> {
        use std::os::unix::fs::PermissionsExt;
        let rm = dir.join("rm");
        fs::write(&rm, format!("#!/bin/sh\nPATH=/usr/bin:/bin\n{before}\nexec rm \"$@\"\n")).unwrap();
        fs::set_permissions(&rm, fs::Permissions::from_mode(0o755)).unwrap();
        vec!["env".to_owned(), format!("PATH={}:/usr/bin:/bin", dir.display())]
    }

    /// Runs programs with an `rm` that dies after it has removed the first file.
    fn cut_short(dir: &Path) -> Vec<String> {
        with_rm(dir, "rm -f -- \"$3\"; exit 255")
    }

    #[tokio::test]
    async fn a_removal_that_is_cut_short_leaves_no_manifest_and_is_finished_by_the_next() {
        let scratch = make_scratch();
        let (old, committed) = (scratch.save(1, 10), scratch.save(2, 20));
        let (programs, prefix) = (tempfile::tempdir().unwrap(), scratch.site.users.prefix(None));
        let found = find_checkpoints(&prefix, &scratch.job, scratch.order.job).await.unwrap().complete;
        let one = found.iter().find(|one| one.path == Path::new(&old.path)).unwrap();
        remove_checkpoint(&cut_short(programs.path()), one).await.unwrap_err();
        let files = ["model.pt", "parts/a b.pt"].map(|name| Path::new(&old.path).join(name).exists());
        assert_ne!(files[0], files[1], "one of two files is gone");
        assert!(!exists(&old), "it no longer passes for a checkpoint");
        let another = CheckpointRef { manifest_sha256: "00".into(), ..committed.clone() };
        assert_eq!(scratch.prune(&another, 9).await, Ok(0), "nothing is removed without the committed one");
        assert_eq!(scratch.prune(&committed, 9).await, Ok(1), "it is finished, however many are kept");
        assert!(!scratch.job.join("g1").exists() && exists(&committed));
    }

    #[tokio::test]
    async fn a_checkpoint_that_cannot_be_removed_keeps_no_other() {
        let scratch = make_scratch();
        let old = [10, 20, 30].map(|samples| scratch.save(1, samples));
        let committed = scratch.save(2, 40);
        let programs = tempfile::tempdir().unwrap();
        // As on a file system with a damaged directory.
        let refuse = "case $PWD in */step-000000010) echo 'Input/output error' >&2; exit 1 ;; esac";
        let prefix = with_rm(programs.path(), refuse);
        let found = find_checkpoints(&prefix, &scratch.job, scratch.order.job).await.unwrap().complete;
        let older = older_than_kept(found, &committed, NonZeroU32::MIN).unwrap();
        let why = remove_all(&prefix, &older).await.unwrap_err();
        assert!(why.contains("step-000000010") && why.contains("Input/output error"), "{why}");
        assert_eq!(old.each_ref().map(|one| Path::new(&one.path).exists()), [true, false, false]);
        assert!(!exists(&old[0]) && exists(&committed), "it no longer passes for a checkpoint");
        assert_eq!(scratch.prune(&committed, 1).await, Ok(1), "the next removal finishes it");
        assert!(!Path::new(&old[0].path).exists());
    }

    #[tokio::test]
    async fn a_checkpoint_that_was_saved_where_a_removal_was_cut_short_stays() {
        let scratch = make_scratch();
        let (old, committed) = (scratch.save(1, 10), scratch.save(2, 20));
        let manifest = Path::new(&old.path).join("manifest.json");
        fs::rename(&manifest, Path::new(&old.path).join(REMOVED_MANIFEST)).unwrap();
        let saved = scratch.save(1, 10);
        assert_eq!(scratch.prune(&committed, 2).await, Ok(0));
        assert!(exists(&saved) && Path::new(&saved.path).join("model.pt").exists());
    }

    #[tokio::test]
    async fn the_one_that_the_attempt_has_resumed_from_stays() {
        let mut scratch = make_scratch();
        let [old, resumed] = [scratch.save(1, 10), scratch.save(1, 20)];
        let [newer, committed] = [scratch.save(2, 30), scratch.save(2, 40)];
        scratch.order.resume = Some(resumed.clone());
        assert_eq!(scratch.prune(&committed, 1).await, Ok(2));
        assert_eq!([&old, &resumed, &newer, &committed].map(exists), [false, true, false, true]);
        // The next attempt resumes from another.
        scratch.order.resume = Some(committed.clone());
        assert_eq!(scratch.prune(&committed, 1).await, Ok(1));
        assert!(!exists(&resumed) && exists(&committed));
    }

    #[tokio::test]
    async fn a_copy_under_another_name_belongs_to_its_maker() {
        let scratch = make_scratch();
        let old = scratch.save(1, 10);
        let committed = scratch.save(2, 20);
        let copies = ["g1/best", "g1/step-10", "g1/step-000000010.copy", "g1/step-000000011"];
        for copy in copies {
            let copy = scratch.job.join(copy);
            fs::create_dir(&copy).unwrap();
            fs::copy(Path::new(&old.path).join("manifest.json"), copy.join("manifest.json")).unwrap();
            fs::copy(Path::new(&old.path).join("model.pt"), copy.join("model.pt")).unwrap();
        }
        assert_eq!(scratch.prune(&committed, 2).await, Ok(0), "copies are not counted");
        assert_eq!(scratch.prune(&committed, 1).await, Ok(1));
        assert!(!exists(&old));
        for copy in copies {
            assert!(scratch.job.join(copy).join("model.pt").exists(), "{copy}");
        }
    }

    #[tokio::test]
    async fn what_symbolic_links_lead_to_stays() {
        let scratch = make_scratch();
        let old: Vec<_> = [10, 20, 30, 40, 50].map(|samples| scratch.save(1, samples)).into();
        let committed = scratch.save(2, 60);
        let link = |from: &str, to: &str| symlink(to, scratch.job.join(from)).unwrap();
        // The committed one consists of parts of an older one, which consists of parts of one before.
        link("g2/step-000000060/shard", "../../g1/step-000000030/parts/a b.pt");
        fs::remove_file(scratch.job.join("g1/step-000000030/model.pt")).unwrap();
        link("g1/step-000000030/model.pt", "../step-000000010/model.pt");
        link("best", "g1/step-000000040");
        // A removed checkpoint keeps nothing, and neither does a link to elsewhere, to nothing or to itself.
        link("g1/step-000000020/of the last", "../step-000000050");
        link("g2/elsewhere", "/etc/passwd");
        link("g2/nowhere", "/no/such/place");
        link("g2/itself", "itself");
        assert_eq!(scratch.prune(&committed, 1).await, Ok(2));
        assert_eq!(old.iter().map(exists).collect::<Vec<_>>(), [true, false, true, true, false]);
        assert!(fs::read(scratch.job.join("g2/step-000000060/shard")).is_ok());
        fs::remove_file(scratch.job.join("best")).unwrap();
        link("whole", "g1");
        assert_eq!(scratch.prune(&committed, 1).await, Ok(0));
    }

    #[tokio::test]
    async fn without_the_committed_one_nothing_is_removed() {
        let scratch = make_scratch();
        let (old, committed) = (scratch.save(1, 10), scratch.save(2, 20));
        let another = CheckpointRef { manifest_sha256: "00".into(), ..committed.clone() };
        assert_eq!(scratch.prune(&another, 1).await, Ok(0));
        assert!(exists(&old) && exists(&committed));
    }

    #[tokio::test]
    async fn what_the_job_has_not_written_as_a_checkpoint_stays() {
        let scratch = make_scratch();
        let other = JobId(uuid::Uuid::from_u128(99));
        let foreign = scratch.save_as(other, 1, 5);
        let (noted, linked) = (scratch.save(1, 10), scratch.save(1, 11));
        let job = &scratch.job;
        fs::write(Path::new(&noted.path).join("evaluation.json"), "mine").unwrap();
        // A directory of files that a link stands for, and a checkpoint that is one.
        let elsewhere = job.parent().unwrap().join("elsewhere");
        fs::rename(Path::new(&linked.path).join("parts"), &elsewhere).unwrap();
        symlink(&elsewhere, Path::new(&linked.path).join("parts")).unwrap();
        fs::rename(&foreign.path, job.parent().unwrap().join("moved")).unwrap();
        symlink(job.parent().unwrap().join("moved"), &foreign.path).unwrap();
        fs::create_dir_all(job.join("g1/own")).unwrap();
        fs::write(job.join("g1/own/data"), "mine").unwrap();
        fs::write(job.join("g1/notes.txt"), "mine").unwrap();
        fs::create_dir_all(job.join("g1/.step-000000012")).unwrap();
        let committed = scratch.save(2, 20);

        assert_eq!(scratch.prune(&committed, 1).await, Ok(2));
        assert_eq!(fs::read_to_string(Path::new(&noted.path).join("evaluation.json")).unwrap(), "mine");
        assert!(!Path::new(&noted.path).join("model.pt").exists() && !exists(&noted));
        assert!(elsewhere.join("a b.pt").exists(), "a link is not followed");
        assert!(job.parent().unwrap().join("moved/model.pt").exists());
        for kept in ["g1/own/data", "g1/notes.txt", "g1/.step-000000012"] {
            assert!(job.join(kept).exists(), "{kept}");
        }
        assert!(exists(&committed));
    }
}
