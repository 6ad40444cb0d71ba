//! What must be true on disk of a checkpoint that a worker offers, or that is found where another is missing. Reads,
//! never writes.

use std::path::{Component, Path, PathBuf};

use headway_types::{CheckpointRef, JobId};
use sha2::{Digest, Sha256};

use crate::manifest::{Manifest, ManifestFile};
use crate::view::View;

/// Accepts an offer that lies below `home`, the directory of its generation, whose manifest is the one named and says
/// the same, and whose files have their size. Their contents are checked by who resumes: hashing terabytes here would
/// hold up training.
pub(crate) async fn verify(
    view: &View,
    home: &Path,
    job: JobId,
    offer: CheckpointRef,
) -> Result<CheckpointRef, String> {
    let (home, path) = (view.real(home).await?, view.real(Path::new(&offer.path)).await?);
    if path == home || !path.starts_with(&home) {
        return Err(format!("{} is not below {}", path.display(), home.display()));
    }
    let file = path.join("manifest.json");
    let manifest = view.read(&file).await?;
    let manifest_sha256 = hex::encode(Sha256::digest(&manifest));
    if !manifest_sha256.eq_ignore_ascii_case(&offer.manifest_sha256) {
        return Err(format!("the manifest in {} has another SHA-256 than was said", offer.path));
    }
    let manifest: Manifest =
        serde_json::from_slice(&manifest).map_err(|error| format!("{}: {error}", file.display()))?;
    let said = (job, offer.generation, offer.step, offer.samples_seen);
    if (manifest.job, manifest.generation, manifest.step, manifest.samples_seen) != said {
        return Err(format!("the manifest in {} is of another checkpoint than was said", offer.path));
    }
    let plain =
        |entry: &ManifestFile| Path::new(&entry.name).components().all(|part| matches!(part, Component::Normal(_)));
    if let Some(entry) = manifest.files.iter().find(|entry| !plain(entry)) {
        return Err(format!("{} is not below {}", entry.name, offer.path));
    }
    let paths: Vec<PathBuf> = manifest.files.iter().map(|entry| path.join(&entry.name)).collect();
    for (size, entry) in view.sizes(&paths).await?.into_iter().zip(&manifest.files) {
        if size != entry.bytes {
            return Err(format!("{} in {} is no file of {} bytes", entry.name, offer.path, entry.bytes));
        }
    }
    Ok(CheckpointRef { manifest_sha256, ..offer })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::fs;

    use headway_types::{Generation, Sequences};
    use serde_json::json;

    use super::*;

    fn job() -> JobId {
        JobId(uuid::Uuid::from_u128(7))
    }

    /// An offer of step 4 with 64 samples whose manifest is as given.
    fn offer(home: &Path, manifest: &serde_json::Value) -> CheckpointRef {
        let path = home.join("step-000000004");
        fs::create_dir_all(&path).unwrap();
        fs::write(path.join("model.pt"), "12345").unwrap();
        fs::write(path.join("manifest.json"), manifest.to_string()).unwrap();
        CheckpointRef {
            generation: Generation(3),
            path: path.display().to_string(),
            step: 4,
            samples_seen: Sequences(64),
            manifest_sha256: hex::encode(Sha256::digest(manifest.to_string())),
        }
    }

    #[tokio::test]
    async fn an_offer_is_believed_only_as_far_as_its_manifest_and_files_agree() {
        let dir = tempfile::tempdir().unwrap();
        let check = async |manifest: &serde_json::Value| {
            let offer = offer(dir.path(), manifest);
            verify(&View::default(), dir.path(), job(), offer).await.map(|checkpoint| checkpoint.step)
        };
        let good = json!({"job": job(), "generation": 3, "step": 4, "samples_seen": 64,
            "files": [{"name": "model.pt", "bytes": 5, "sha256": "ab"}]});
        assert_eq!(check(&good).await, Ok(4));
        for (field, wrong) in [
            ("job", json!(JobId(uuid::Uuid::from_u128(8)))),
            ("generation", json!(2)),
            ("step", json!(5)),
            ("samples_seen", json!(65)),
            ("files", json!([{"name": "model.pt", "bytes": 6}])),
            ("files", json!([{"name": "optimizer.pt", "bytes": 5}])),
            ("files", json!([{"name": "../step-000000004/model.pt", "bytes": 5}])),
        ] {
            let mut manifest = good.clone();
            manifest[field] = wrong;
            assert!(check(&manifest).await.is_err(), "{manifest}");
        }
        let elsewhere = tempfile::tempdir().unwrap();
        let offer = offer(dir.path(), &good);
        assert!(verify(&View::default(), elsewhere.path(), job(), offer).await.is_err());
    }
}
