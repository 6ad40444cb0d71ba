#![allow(clippy::unwrap_used)]
//! Configurations of published models come to their published sizes, or are refused.

use std::path::Path;

use headway_api::spec::import;
use headway_goodput::architecture::Architecture;
use headway_goodput::summary::summarize_model;
use serde_json::Value;

/// Files with all parameters and, of a mixture, those a token passes, in billions.
const FILES: &[(&str, f64, Option<f64>)] = &[
    ("dbrx", 131.6, Some(36.5)),
    ("deepseek-v2-lite", 15.7, Some(2.66)),
    ("gemma2-27b", 27.2, None),
    ("gemma3-4b", 3.88, None),
    // Its publisher leaves out the input's embedding.
    ("glm-4.5-air", 106.9, Some(12.8 + 0.62)),
    ("gpt-oss-120b", 116.8, Some(5.7)),
    ("granite-3b-a800m", 3.3, Some(0.88)),
    ("kimi-k2", 1026.0, Some(32.9)),
    ("llama4-maverick", 400.0, Some(17.2)),
    ("llama4-scout", 107.8, Some(17.2)),
    ("llava-style", 6.74, None),
    ("mpt-30b", 30.0, None),
    ("nemotron-h-8b", 8.1, None),
    ("qwen3-30b-a3b-fp8", 30.5, Some(3.35)),
    ("smollm2-360m", 0.362, None),
    ("starcoder-15b", 15.5, None),
    ("arctic", 479.0, Some(17.3)),
    ("bamba-9b", 9.78, None),
    ("chatglm3-6b", 6.24, None),
    ("command-r7b", 8.03, None),
    ("ernie-4.5-21b-a3b", 21.8, Some(3.35)),
    ("falcon-7b", 6.92, None),
    ("falcon-40b", 41.3, None),
    ("gemma-3-27b", 27.0, None),
    ("granite-4.0-h-small", 32.2, Some(8.8)),
    ("gpt-j-6b", 6.05, None),
    ("gpt-neo-1.3b", 1.32, None),
    ("hunyuan-a13b", 80.4, Some(12.75)),
    ("jamba-v0.1", 51.6, Some(12.1)),
    ("lfm2-1.2b", 1.17, None),
    ("mamba-2.8b", 2.77, None),
    // Theirs leaves out both tables.
    ("minimax-m2", 228.7, Some(9.8 + 1.23)),
    ("minimax-text-01", 456.0, Some(45.9 + 2.46)),
    ("nemotron-4-340b", 341.0, None),
    ("olmoe-1b-7b", 6.92, Some(1.28)),
    ("opt-6.7b", 6.66, None),
    ("phi-2", 2.78, None),
    ("phi-3.5-moe", 41.9, Some(6.64)),
    ("pythia-12b", 11.85, None),
    ("qwen-7b", 7.72, None),
    ("qwen2-57b-a14b", 57.4, Some(14.2)),
    ("qwen3-next-80b-a3b", 79.7, Some(3.86)),
    ("starcoder2-7b", 7.17, None),
];

fn read_file(name: &str) -> Value {
    let path = Path::new("../api/src/spec/config_json/cases").join(format!("{name}.json"));
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

#[test]
fn configurations_come_to_their_published_sizes() {
    let mut wrong = Vec::new();
    for (name, all, active) in FILES {
        let imported = match import(&read_file(name), Some(4096)) {
            Ok(imported) => imported,
            Err(error) => {
                wrong.push(format!("{name}: {error}"));
                continue;
            }
        };
        let architecture = Architecture::from(&imported.shape);
        let (ours, ours_active) = (architecture.parameters() / 1e9, architecture.active_parameters() / 1e9);
        let is_near = |ours: f64, theirs: f64| (ours / theirs - 1.0).abs() < 0.02;
        if !is_near(ours, *all) || active.is_some_and(|active| !is_near(ours_active, active)) {
            wrong.push(format!("{name}: {ours:.3}/{ours_active:.3} against {all}/{active:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_line_says_what_was_read() {
    let line = |name: &str| summarize_model(&import(&read_file(name), Some(4096)).unwrap().shape);
    assert_eq!(
        line("gpt-oss-120b"),
        "117B parameters, 5.7B active; 36 layers (18 sliding-window 128), 128 experts, 4 active; sequence length 4096"
    );
    assert_eq!(
        line("nemotron-h-8b"),
        "8.1B parameters; 52 layers (24 Mamba-2, 4 attention, 24 FFN only); sequence length 4096"
    );
    assert_eq!(
        line("llama4-maverick"),
        "401B parameters, 17B active; 48 layers (36 chunked 8192, 24 without experts), 128 experts, 1 active; \
         sequence length 4096"
    );
}
