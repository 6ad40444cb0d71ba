//! Shapes of models: presets by name, or dimensions written out.

use headway_types::ModelShape;
use serde_json::Value;

use super::section::{Findings, Section, kind, nearest};

/// Shapes as their makers published them (configuration files of the released weights).
const PRESETS: &[(&str, ModelShape)] = &[
    ("gpt2-124m", shape(12, 768, (12, 12), 3_072, false, 50_257, 1_024, true)),
    ("llama-2-7b", shape(32, 4_096, (32, 32), 11_008, true, 32_000, 4_096, false)),
    ("llama-2-13b", shape(40, 5_120, (40, 40), 13_824, true, 32_000, 4_096, false)),
    ("llama-3-8b", shape(32, 4_096, (32, 8), 14_336, true, 128_256, 8_192, false)),
    ("llama-3-70b", shape(80, 8_192, (64, 8), 28_672, true, 128_256, 8_192, false)),
    ("qwen-2.5-32b", shape(64, 5_120, (40, 8), 27_648, true, 152_064, 32_768, false)),
];

#[allow(clippy::too_many_arguments)] // A row of the table above, which reads best as one.
const fn shape(
    layers: u32,
    hidden: u32,
    (heads, kv_heads): (u32, u32),
    ffn_hidden: u32,
    gated: bool,
    vocab: u32,
    seq_len: u32,
    tied: bool,
) -> ModelShape {
    ModelShape { layers, hidden, heads, kv_heads, ffn_hidden, gated, vocab, seq_len, tied }
}

const DIMENSIONS: &[&str] =
    &["layers", "hidden", "heads", "kv_heads", "ffn_hidden", "gated", "vocab", "seq_len", "tied"];

/// A preset's name, a mapping of dimensions, or a preset with some of them changed (`{preset: …, seq_len: …}`).
pub(super) fn read(value: &Value, path: &str, findings: &Findings) -> Option<ModelShape> {
    let shape = match value {
        Value::String(name) => preset(name, path, findings)?,
        Value::Object(_) => {
            let known: Vec<&str> = DIMENSIONS.iter().chain(&["preset"]).copied().collect();
            let section = Section::open(path, value, &known, &[], findings)?;
            match section.text("preset") {
                Some(name) => changed(&section, preset(&name, &section.field("preset"), findings)?),
                None => dimensions(&section)?,
            }
        }
        other => {
            findings.add(path, format!("must be a preset's name or a mapping of dimensions, not {}", kind(other)));
            return None;
        }
    };
    if let Err(error) = shape.check() {
        findings.add(path, error.to_string());
        return None;
    }
    Some(shape)
}

fn preset(name: &str, path: &str, findings: &Findings) -> Option<ModelShape> {
    let found = PRESETS.iter().find(|(preset, _)| *preset == name).map(|(_, shape)| *shape);
    if found.is_none() {
        let names = || PRESETS.iter().map(|(preset, _)| *preset);
        let hint = match nearest(name, names()) {
            Some(near) => format!("did you mean {near}?"),
            None => format!("presets are {}; or write the dimensions out", names().collect::<Vec<_>>().join(", ")),
        };
        findings.hint(path, format!("there is no model preset \"{name}\""), hint);
    }
    found
}

fn changed(section: &Section<'_>, base: ModelShape) -> ModelShape {
    let or = |key, value| section.whole(key, 1).unwrap_or(value);
    ModelShape {
        layers: or("layers", base.layers),
        hidden: or("hidden", base.hidden),
        heads: or("heads", base.heads),
        kv_heads: or("kv_heads", base.kv_heads),
        ffn_hidden: or("ffn_hidden", base.ffn_hidden),
        gated: section.flag("gated").unwrap_or(base.gated),
        vocab: or("vocab", base.vocab),
        seq_len: or("seq_len", base.seq_len),
        tied: section.flag("tied").unwrap_or(base.tied),
    }
}

fn dimensions(section: &Section<'_>) -> Option<ModelShape> {
    let required = |key| {
        section.require(key, "a model needs layers, hidden, heads, ffn_hidden, vocab and seq_len, or a preset");
        section.whole(key, 1)
    };
    let [layers, hidden, heads, ffn_hidden, vocab, seq_len] =
        ["layers", "hidden", "heads", "ffn_hidden", "vocab", "seq_len"].map(required);
    Some(ModelShape {
        layers: layers?,
        hidden: hidden?,
        heads: heads?,
        kv_heads: section.whole("kv_heads", 1).or(heads)?,
        ffn_hidden: ffn_hidden?,
        gated: section.flag("gated").unwrap_or(true),
        vocab: vocab?,
        seq_len: seq_len?,
        tied: section.flag("tied").unwrap_or(false),
    })
}
