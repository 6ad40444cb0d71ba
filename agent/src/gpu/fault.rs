//! Faults on demand: `faults.json` in the agent's data directory breaks GPUs of any kind until they are taken out of it
//! again, as `{"gpus": {"<index>": "<cause>"}}`. For tests and drills.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;

#[derive(Deserialize)]
struct Faults {
    #[serde(default)]
    gpus: BTreeMap<u32, String>,
}

/// Causes by GPU index; none without the file. A file that cannot be read injects nothing.
pub(super) fn injected(path: &Path) -> BTreeMap<u32, String> {
    let Ok(text) = std::fs::read(path) else { return BTreeMap::new() };
    match serde_json::from_slice(&text) {
        Ok(Faults { gpus }) => gpus,
        Err(error) => {
            tracing::warn!(path = %path.display(), %error, "injected faults cannot be read");
            BTreeMap::new()
        }
    }
}
