//! Finds a job's checkpoints on disk, as the job's user. A directory directly below `<job>/g<generation>` is a
//! checkpoint of the job if it is called as the worker calls one, and its `manifest.json` says that it is one. A copy
//! under another name belongs to whoever made it.

use std::cmp::Reverse;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use headway_types::{CheckpointRef, Generation, JobId, Sequences};
use sha2::{Digest, Sha256};

use super::verify::verify;
use crate::manifest::Manifest;
use crate::user_program::run_script;
use crate::view::View;

/// How long a file system may take to list a job's checkpoints, and to remove one of them.
const PATIENCE: Duration = Duration::from_secs(600);

/// Lists what may be a checkpoint of the job whose directory is `$1`. The directory itself must be none by a link. A
/// directory in it that is closed to the job's user, or vanishes meanwhile, is passed over. Any other failure is one of the
/// search.
const LIST: &str = r#"
[ -d "$1" ] && [ ! -L "$1" ] && cd -P -- "$1" || exit 0
for each in ./g[0-9]*; do
    [ -d "$each" ] && [ ! -L "$each" ] && [ -r "$each" ] && [ -x "$each" ] || continue
    find "$each" -mindepth 1 -maxdepth 1 -type d -name 'step-*' -print0 || [ ! -d "$each" ] || exit 1
done
exit 0
"#;

/// The manifest of a complete checkpoint.
const MANIFEST: &str = "manifest.json";
/// What a manifest is called from the moment in which the removal of its checkpoint begins (`prune.rs`).
pub(super) const REMOVED_MANIFEST: &str = "manifest.json.removed";

/// A checkpoint of the job: complete, or with a removal that has begun.
pub(super) struct Found {
    pub(super) path: PathBuf,
    pub(super) manifest: Manifest,
    pub(super) manifest_sha256: String,
}

impl Found {
    /// The newest has seen the most samples. Where two have seen as many, the later generation has saved them again.
    pub(super) fn recency(&self) -> (Sequences, Generation, u64) {
        (self.manifest.samples_seen, self.manifest.generation, self.manifest.step)
    }

    /// Returns whether it is the checkpoint that the scheduler names.
    pub(super) fn is(&self, named: &CheckpointRef) -> bool {
        self.manifest_sha256.eq_ignore_ascii_case(&named.manifest_sha256)
    }

    /// Returns it as a worker would offer it; nothing where its path is no text.
    fn to_offer(&self) -> Option<CheckpointRef> {
        Some(CheckpointRef {
            generation: self.manifest.generation,
            path: self.path.to_str()?.to_owned(),
            step: self.manifest.step,
            samples_seen: self.manifest.samples_seen,
            manifest_sha256: self.manifest_sha256.clone(),
        })
    }
}

/// Returns the path of a checkpoint within its job's directory, as the worker makes it.
fn name_of(generation: Generation, step: u64) -> String {
    format!("{generation}/step-{step:09}")
}

/// Checkpoints of a job on disk.
#[derive(Default)]
pub(super) struct OnDisk {
    pub(super) complete: Vec<Found>,
    /// Checkpoints whose removal began and was cut short.
    pub(super) half_removed: Vec<Found>,
}

/// Returns the checkpoints of the job. A directory without a manifest that can be read, or with one of another job or
/// step, is none.
pub(super) async fn find_checkpoints(prefix: &[String], directory: &Path, job: JobId) -> Result<OnDisk, String> {
    let mut on_disk = OnDisk::default();
    for name in split_names(&run_in(prefix, LIST, directory, &[], &[]).await?) {
        let path = directory.join(name.trim_start_matches("./"));
        if let Some(complete) = read_checkpoint(prefix, directory, job, &path, MANIFEST).await {
            on_disk.complete.push(complete);
        } else if let Some(half) = read_checkpoint(prefix, directory, job, &path, REMOVED_MANIFEST).await {
            on_disk.half_removed.push(half);
        }
    }
    Ok(on_disk)
}

/// Returns the checkpoint of the job at a path, by its manifest.
async fn read_checkpoint(
    prefix: &[String],
    directory: &Path,
    job: JobId,
    path: &Path,
    manifest: &str,
) -> Option<Found> {
    let text = View(prefix.to_vec()).read(&path.join(manifest)).await.ok()?;
    let manifest: Manifest = serde_json::from_slice(&text).ok()?;
    let is_own = manifest.job == job && path == directory.join(name_of(manifest.generation, manifest.step));
    let manifest_sha256 = hex::encode(Sha256::digest(&text));
    is_own.then(|| Found { path: path.to_owned(), manifest, manifest_sha256 })
}

/// Returns the newest checkpoint of the job whose files are all there, as far as their sizes tell.
pub(super) async fn find_newest_whole(
    prefix: &[String],
    directory: &Path,
    job: JobId,
) -> Result<Option<CheckpointRef>, String> {
    let view = View(prefix.to_vec());
    let mut found = find_checkpoints(prefix, directory, job).await?.complete;
    found.sort_by_key(|one| Reverse(one.recency()));
    for offer in found.iter().filter_map(Found::to_offer) {
        let home = directory.join(offer.generation.to_string());
        match verify(&view, &home, job, offer).await {
            Ok(whole) => return Ok(Some(whole)),
            Err(why) => tracing::info!(job_id = %job, why, "a checkpoint is not whole"),
        }
    }
    Ok(None)
}

/// Splits names with a NUL behind each. A name that is no text was not written by a manifest.
pub(super) fn split_names(text: &[u8]) -> Vec<String> {
    let parts = text.split(|byte| *byte == 0).filter(|part| !part.is_empty());
    parts.filter_map(|part| String::from_utf8(part.to_vec()).ok()).collect()
}

/// Runs a script about a directory as the job's user, and returns what it prints.
pub(super) async fn run_in(
    prefix: &[String],
    script: &str,
    directory: &Path,
    arguments: &[&str],
    input: &[u8],
) -> Result<Vec<u8>, String> {
    let arguments: Vec<&OsStr> = [directory.as_os_str()].into_iter().chain(arguments.iter().map(OsStr::new)).collect();
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

    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::checkpoints::tests::make_scratch;

    /// Runs programs as a user to whom closed directories are closed.
    fn as_plain_user() -> Vec<String> {
        let words: &[&str] = match nix::unistd::geteuid().is_root() {
            true => &["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"],
            false => &[],
        };
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    #[tokio::test]
    async fn a_directory_that_is_closed_to_the_jobs_user_hides_no_checkpoint() {
        let scratch = make_scratch();
        let permit = |path: &Path, mode| fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        permit(scratch.job.parent().unwrap().parent().unwrap(), 0o755);
        let saved = scratch.save(1, 10);
        let closed = ["own", "g9"].map(|name| scratch.job.join(name));
        for directory in &closed {
            fs::create_dir(directory).unwrap();
            permit(directory, 0o000);
        }
        let found = find_checkpoints(&as_plain_user(), &scratch.job, scratch.order.job).await;
        closed.iter().for_each(|directory| permit(directory, 0o700));
        assert!(found.unwrap().complete.iter().map(|one| &*one.path).eq([Path::new(&saved.path)]));
    }
}
