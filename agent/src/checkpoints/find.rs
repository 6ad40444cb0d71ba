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

/// Lists what may be a checkpoint of the job whose directory is `$1`. The directory itself must be none by a link.
const LIST: &str = r#"
[ -d "$1" ] && [ ! -L "$1" ] && cd -P -- "$1" || exit 0
find . -mindepth 2 -maxdepth 2 -type d -path './g[0-9]*/step-*' -print0
"#;

/// A complete checkpoint of the job.
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

/// Returns the complete checkpoints of the job. A directory without a manifest that can be read, or with one of another
/// job or step, is none.
pub(super) async fn find_checkpoints(prefix: &[String], directory: &Path, job: JobId) -> Result<Vec<Found>, String> {
    let view = View(prefix.to_vec());
    let mut found = Vec::new();
    for name in split_names(&run_in(prefix, LIST, directory, None, &[]).await?) {
        let path = directory.join(name.trim_start_matches("./"));
        let Ok(text) = view.read(&path.join("manifest.json")).await else { continue };
        let Ok(manifest) = serde_json::from_slice::<Manifest>(&text) else { continue };
        if manifest.job == job && path == directory.join(name_of(manifest.generation, manifest.step)) {
            found.push(Found { path, manifest, manifest_sha256: hex::encode(Sha256::digest(&text)) });
        }
    }
    Ok(found)
}

/// Returns the newest checkpoint of the job whose files are all there, as far as their sizes tell.
pub(super) async fn find_newest_whole(
    prefix: &[String],
    directory: &Path,
    job: JobId,
) -> Result<Option<CheckpointRef>, String> {
    let view = View(prefix.to_vec());
    let mut found = find_checkpoints(prefix, directory, job).await?;
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
