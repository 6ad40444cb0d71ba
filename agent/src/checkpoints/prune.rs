//! Removes a job's older checkpoints (`training.checkpoint.keep`; docs/decisions/0025-pruned-checkpoints.md). The
//! scheduler names the checkpoint that it has committed. What else there is, the disk says: a directory directly
//! below `<job>/g<generation>` is a checkpoint of the job if its `manifest.json` says so. The newest ones up to the
//! committed one stay. Of the others only the files that their manifests name are removed, the manifest last, and
//! then the directories that are empty.
//!
//! It must never remove the committed checkpoint, a newer one, or what no manifest of this job names. Where the
//! committed one is not found as it was committed, nothing is removed.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use headway_types::{CheckpointRef, Generation, JobId, LaunchOrder, Sequences};
use sha2::{Digest, Sha256};
use tokio::sync::Mutex;

use crate::manifest::Manifest;
use crate::site::Site;
use crate::user_program::run_script;
use crate::view::View;

/// How long a file system may take to list a job's checkpoints, and to remove one of them.
const PATIENCE: Duration = Duration::from_secs(600);

/// Lists what may be a checkpoint of the job whose directory is `$1`. The directory itself must be none by a link.
const LIST: &str = r#"
[ -d "$1" ] && [ ! -L "$1" ] && cd -P -- "$1" || exit 0
find . -mindepth 2 -maxdepth 2 -type d -path './g[0-9]*/*' -print0
"#;
/// Lists what is in the checkpoint `$1` and no directory; no link is followed.
const CONTENT: &str = r#"cd -P -- "$1" && find . ! -type d -print0"#;
/// Removes the files whose names come in from the checkpoint `$1`, then its manifest, then each directory that is
/// empty, the generation's included. Nothing is removed where the manifest is not the one with the SHA-256 `$2`: a
/// script may have put another checkpoint there since.
const REMOVE: &str = r#"
cd -P -- "$1" && now=$(sha256sum manifest.json) || exit 1
[ "${now%% *}" = "$2" ] || { echo 'another checkpoint has come in its place' >&2; exit 1; }
xargs -0 rm -f -- && rm -f -- manifest.json || exit 1
find . -mindepth 1 -depth -type d -exec rmdir -- {} + 2>/dev/null
cd / && rmdir -- "$1" "${1%/*}" 2>/dev/null
exit 0
"#;

/// One job of removing after the other: two at once would stand in each other's way, and in the way of those who save.
pub(crate) type Pruner = Arc<Mutex<()>>;

/// A complete checkpoint of the job.
struct Found {
    path: PathBuf,
    manifest: Manifest,
    manifest_sha256: String,
}

impl Found {
    /// The newest has seen the most samples. Where two have seen as many, the later generation has saved them again.
    fn order(&self) -> (Sequences, Generation, u64) {
        (self.manifest.samples_seen, self.manifest.generation, self.manifest.step)
    }
}

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
    let found = find_checkpoints(&prefix, directory, order.job).await?;
    let (mut removed, mut failed) = (0, None);
    for old in older_than_kept(found, committed, keep) {
        match remove_checkpoint(&prefix, &old).await {
            Ok(()) => removed += 1,
            Err(why) => failed = failed.or(Some(why)),
        }
    }
    failed.map_or(Ok(removed), Err)
}

/// Returns the complete checkpoints of the job. A directory without a manifest that can be read, or with one of another
/// job, is none.
async fn find_checkpoints(prefix: &[String], directory: &Path, job: JobId) -> Result<Vec<Found>, String> {
    let view = View(prefix.to_vec());
    let mut found = Vec::new();
    for name in split_names(&run_in(prefix, LIST, directory, None, &[]).await?) {
        let path = directory.join(name.trim_start_matches("./"));
        let Ok(text) = view.read(&path.join("manifest.json")).await else { continue };
        let Ok(manifest) = serde_json::from_slice::<Manifest>(&text) else { continue };
        let home = format!("{}", manifest.generation);
        let at_home = path.parent().and_then(Path::file_name).is_some_and(|name| name == home.as_str());
        if manifest.job == job && at_home {
            found.push(Found { path, manifest, manifest_sha256: hex::encode(Sha256::digest(&text)) });
        }
    }
    Ok(found)
}

/// Returns the checkpoints that are older than the newest `keep` up to the committed one; none where that is not there
/// as it was committed.
fn older_than_kept(mut found: Vec<Found>, committed: &CheckpointRef, keep: NonZeroU32) -> Vec<Found> {
    let is_committed = |one: &Found| one.manifest_sha256.eq_ignore_ascii_case(&committed.manifest_sha256);
    if !found.iter().any(is_committed) {
        return Vec::new();
    }
    found.retain(|one| !is_committed(one) && one.manifest.samples_seen <= committed.samples_seen);
    found.sort_by_key(|one| std::cmp::Reverse(one.order()));
    let beside = keep.get() as usize - 1;
    found.split_off(beside.min(found.len()))
}

async fn remove_checkpoint(prefix: &[String], old: &Found) -> Result<(), String> {
    let named: BTreeSet<String> = old.manifest.files.iter().map(|entry| format!("./{}", entry.name)).collect();
    let there = run_in(prefix, CONTENT, &old.path, None, &[]).await?;
    let mut files = Vec::new();
    for name in split_names(&there).into_iter().filter(|name| named.contains(name) && name != "./manifest.json") {
        files.extend_from_slice(name.as_bytes());
        files.push(0);
    }
    run_in(prefix, REMOVE, &old.path, Some(&old.manifest_sha256), &files).await.map(drop)
}

/// Splits names with a NUL behind each. A name that is no text was not written by a manifest.
fn split_names(text: &[u8]) -> Vec<String> {
    let parts = text.split(|byte| *byte == 0).filter(|part| !part.is_empty());
    parts.filter_map(|part| String::from_utf8(part.to_vec()).ok()).collect()
}

/// Runs a script about a directory as the job's user, and returns what it prints.
async fn run_in(
    prefix: &[String],
    script: &str,
    directory: &Path,
    argument: Option<&str>,
    input: &[u8],
) -> Result<Vec<u8>, String> {
    let arguments: Vec<&OsStr> = [directory.as_os_str()].into_iter().chain(argument.map(OsStr::new)).collect();
    let output = run_script(prefix, script, &arguments, input, PATIENCE).await;
    let output = output.map_err(|why| format!("looking at {}: {why}", directory.display()))?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    Err(format!("{}: {}", directory.display(), String::from_utf8_lossy(&output.stderr).trim()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::fs;
    use std::os::unix::fs::symlink;

    use serde_json::json;

    use super::*;
    use crate::checkpoints::tests::{Scratch, make_scratch};

    impl Scratch {
        /// A complete checkpoint with two files, one of them below a directory.
        fn save(&self, generation: u64, samples: u64) -> CheckpointRef {
            self.save_as(self.order.job, generation, samples)
        }

        fn save_as(&self, job: JobId, generation: u64, samples: u64) -> CheckpointRef {
            let path = self.job.join(format!("g{generation}/step-{samples:09}"));
            fs::create_dir_all(path.join("parts")).unwrap();
            for name in ["model.pt", "parts/a b.pt"] {
                fs::write(path.join(name), "x").unwrap();
            }
            let files = json!([{"name": "model.pt", "bytes": 1, "sha256": ""}, {"name": "parts/a b.pt", "bytes": 1, "sha256": ""}]);
            let text =
                json!({"job": job, "generation": generation, "step": samples, "samples_seen": samples, "files": files});
            fs::write(path.join("manifest.json"), text.to_string()).unwrap();
            CheckpointRef {
                generation: Generation(generation),
                path: path.display().to_string(),
                step: samples,
                samples_seen: Sequences(samples),
                manifest_sha256: hex::encode(Sha256::digest(text.to_string())),
            }
        }

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
        let found = find_checkpoints(&prefix, &scratch.job, scratch.order.job).await.unwrap();
        let newer = scratch.save(2, 40);
        fs::remove_dir_all(&replaced.path).unwrap();
        fs::rename(&newer.path, &replaced.path).unwrap();
        let keep = NonZeroU32::MIN;
        for one in older_than_kept(found, &committed, keep) {
            let removed = remove_checkpoint(&prefix, &one).await;
            assert_eq!(removed.is_ok(), one.path == Path::new(&old.path), "{removed:?}");
        }
        assert!(exists(&replaced) && Path::new(&replaced.path).join("model.pt").exists(), "it is the newer one");
        assert!(!exists(&old) && exists(&committed));
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
