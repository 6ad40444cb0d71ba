//! Checkpoints of the emulated worker: small, but written and verified as the protocol demands of real ones.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::time::Instant;

use headway_types::{Generation, JobId, Sequences};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::Settings;

#[derive(Serialize, Deserialize)]
struct Manifest {
    job: JobId,
    generation: Generation,
    step: u64,
    samples_seen: Sequences,
    files: Vec<Entry>,
}

#[derive(Serialize, Deserialize)]
struct Entry {
    name: String,
    bytes: u64,
    sha256: String,
}

/// Writes a checkpoint under a temporary name, syncs, renames; returns the message that offers it.
pub(super) fn write(settings: &Settings, step: u64, samples_seen: Sequences) -> Result<Value, String> {
    let began = Instant::now();
    let name = format!("step-{step:09}");
    let directory = settings.directory();
    let (temporary, path) = (directory.join(format!(".{name}.tmp")), directory.join(&name));
    let state = json!({"step": step, "samples_seen": samples_seen}).to_string();
    let manifest = Manifest {
        job: settings.job,
        generation: settings.generation,
        step,
        samples_seen,
        files: vec![Entry { name: "state.json".into(), bytes: state.len() as u64, sha256: sha256(state.as_bytes()) }],
    };
    let manifest = serde_json::to_vec(&manifest).map_err(|error| error.to_string())?;
    if !path.exists() {
        place(&directory, &temporary, &path, state.as_bytes(), &manifest)
            .map_err(|error| format!("writing checkpoint {}: {error}", path.display()))?;
    }
    Ok(json!({
        "type": "checkpoint",
        "step": step,
        "samples_seen": samples_seen,
        "path": path,
        "manifest_sha256": sha256(&manifest),
        "duration_s": began.elapsed().as_secs_f64(),
    }))
}

fn place(directory: &Path, temporary: &Path, path: &Path, state: &[u8], manifest: &[u8]) -> std::io::Result<()> {
    fs::create_dir_all(temporary)?;
    for (name, content) in [("state.json", state), ("manifest.json", manifest)] {
        let mut file = File::create(temporary.join(name))?;
        file.write_all(content)?;
        file.sync_all()?;
    }
    File::open(temporary)?.sync_all()?;
    fs::rename(temporary, path)?;
    File::open(directory)?.sync_all()
}

/// Step and samples of a checkpoint, after checking its files and that it is the one that was meant.
pub(super) fn read(path: &Path, expected: Sequences) -> Result<(u64, Sequences), String> {
    let wrong = |what: String| format!("checkpoint {}: {what}", path.display());
    let load = |name: &str| fs::read(path.join(name)).map_err(|error| wrong(format!("{name}: {error}")));
    let manifest: Manifest =
        serde_json::from_slice(&load("manifest.json")?).map_err(|error| wrong(format!("manifest: {error}")))?;
    for file in &manifest.files {
        if sha256(&load(&file.name)?) != file.sha256 {
            return Err(wrong(format!("{} has another SHA-256 than its manifest says", file.name)));
        }
    }
    if manifest.samples_seen != expected {
        return Err(wrong(format!("holds {} samples, not {expected}", manifest.samples_seen)));
    }
    Ok((manifest.step, manifest.samples_seen))
}

fn sha256(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::emulated::tests::settings;

    #[test]
    fn a_checkpoint_comes_back_whole_or_not_at_all() {
        let dir = tempfile::tempdir().unwrap();
        let settings = settings(dir.path());
        let offer = write(&settings, 120, Sequences(7680)).unwrap();
        let path = Path::new(offer["path"].as_str().unwrap());
        assert!(path.ends_with("g2/step-000000120"));
        assert_eq!(read(path, Sequences(7680)).unwrap(), (120, Sequences(7680)));
        assert!(read(path, Sequences(1)).is_err());
        fs::write(path.join("state.json"), "{}").unwrap();
        assert!(read(path, Sequences(7680)).unwrap_err().contains("SHA-256"));
    }
}
