#![allow(clippy::unwrap_used)]
//! Specifications that nobody should write, in each of the formats: read or refused, and what was read is written so that it is
//! read again as it was.

use headway_fuzz::Target;
use serde_json::Value;

use super::tests::FULL;
use super::{document_toml, read_json, read_submission_json, read_yaml, submission_yaml, to_json};
use crate::yaml::Lines;

/// Keys and values that mean something, and what stands in templates, quantities and names.
#[rustfmt::skip]
const WORDS: &[&str] = &[
    "version", "name", "project", "priority", "labels", "resources", "training", "elastic", "limits", "after",
    "array", "deadline", "budget", "notify", "run", "gpus", "min", "max", "sizes", "type", "mix", "per_node", "cpus",
    "memory", "shm", "local_disk", "nodes", "exclude", "include", "topology", "require", "prefer", "rack", "spread",
    "model", "curve", "precision", "bf16", "reference_batch", "batch", "policy", "norm_test", "eta", "lr_scaling",
    "adascale", "target", "tokens", "count", "reference", "layouts", "auto", "tp", "pp", "cp", "ep", "vpp",
    "schedule", "1f1b", "sharding", "parameters", "recompute", "full", "micro_batch", "sequence_parallel",
    "reconfigure", "live", "never", "checkpoint", "dir", "every", "grace", "fenced", "keep", "kappa", "noise", "adam",
    "progress", "source", "stdout", "regex", "step=(\\d+)", "samples_per_step", "tokens_per_step", "rank", "last",
    "seq_len", "min_runtime", "max_resizes_per_hour", "max_overhead_pct", "min_share", "time", "max_restarts", "restartable",
    "signal", "B:USR1@120s", "stall_after", "min_gpu_util", "10%/1h", "job", "on", "success", "range", "parallel",
    "0-99:2%8", "gpu_hours", "per", "gpu", "workdir", "command", "env", "secrets", "HF_TOKEN", "hooks", "prolog",
    "epilog", "timeout", "webhook", "https://hooks.example/x", "secret", "jobs", "4Mi tokens", "64 sequences",
    "300B tokens", "512GiB", "15m", "llama-3-8b", "layers", "hidden", "heads", "kinds", "kv_heads", "ffn_hidden", "vocab",
    "experts", "count", "active", "latent", "kv_rank", "head_width", "config", "hidden_size", "fp8", "offload", "host",
    "uneven_stages", "uneven_shares", "image", "roles", "{job_name}", "{checkpoint_dir}", "{array_index}", "H100-80G",
];

/// Whether a body is understood; a job that was is written as one that reads the same.
fn understood(body: &Value) -> bool {
    match read_submission_json(body) {
        Ok(jobs) => {
            for job in jobs {
                let written = to_json(&job);
                let again = read_json(&written).map(|again| to_json(&again));
                assert_eq!(again.as_ref(), Ok(&written), "what was read is written otherwise");
            }
            true
        }
        Err(error) => {
            assert!(error.all().all(|one| !one.message.is_empty()), "nothing is said of a mistake");
            false
        }
    }
}

/// `ended`: how many lines end before the last one.
fn stand(lines: &Lines, ended: usize) {
    let most = ended + 2;
    assert!(lines.values().all(|line| (1..=most).contains(line)), "a value stands on no line of {most}: {lines:?}");
}

/// The specifications of the examples, as trees.
fn examples() -> Vec<Value> {
    let folders = ["api/examples", "examples/training", "examples/emulated"];
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let files = folders.iter().flat_map(|folder| std::fs::read_dir(root.join(folder)).unwrap());
    let mut files: Vec<_> = files
        .map(|file| file.unwrap().path())
        .filter(|file| file.extension().is_some_and(|ending| ending == "yaml"))
        .collect();
    files.sort();
    let texts = files.iter().map(|file| std::fs::read_to_string(file).unwrap()).chain([FULL.to_owned()]);
    texts.map(|text| to_json(&read_yaml(&text).unwrap())).collect()
}

#[test]
fn any_yaml_is_read_or_refused() {
    let target = Target::text("specification-yaml", WORDS).seeds([FULL]).files("api/examples", ".yaml");
    target.files("examples/training", ".yaml").files("examples/emulated", ".yaml").check(|input| {
        let text = String::from_utf8_lossy(input);
        match submission_yaml(&text) {
            Ok((body, lines)) => {
                // A carriage return by itself ends a line too.
                stand(&lines, text.replace("\r\n", "\n").matches(['\n', '\r']).count());
                understood(&body)
            }
            Err(error) => {
                assert!(!error.message.is_empty(), "nothing is said of a mistake");
                false
            }
        }
    });
}

#[test]
fn any_toml_is_read_or_refused() {
    let written = examples().into_iter().filter_map(|example| toml::to_string(&example).ok());
    Target::text("specification-toml", WORDS).seeds(written).check(|input| {
        let text = String::from_utf8_lossy(input);
        let Ok((body, lines)) = document_toml(&text) else { return false };
        stand(&lines, text.matches('\n').count());
        understood(&body)
    });
}

#[test]
fn any_json_is_read_or_refused() {
    let written = examples().into_iter().map(|example| serde_json::to_string_pretty(&example).unwrap());
    Target::text("specification-json", WORDS)
        .seeds(written)
        .check(|input| serde_json::from_slice(input).is_ok_and(|body| understood(&body)));
}

/// As long as a body may be. Looking for the nearest known key once took seconds for one that nobody knows.
#[test]
fn a_key_of_any_length_is_refused_at_little_cost() {
    let key = "k".repeat((2 << 20) - 64);
    for input in [format!("{{\"{key}\": 1}}"), format!("{{\"jobs\": [], \"{key}\": 1}}")] {
        headway_fuzz::once("long-keys", input.as_bytes(), |input| {
            serde_json::from_slice(input).is_ok_and(|body| understood(&body))
        });
    }
}
