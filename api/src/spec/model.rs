//! Shapes of models: presets by name, or dimensions written out.

use headway_types::ModelShape;
use headway_types::preset::{self, Preset};
use serde_json::Value;

use super::section::{Findings, Section, kind, nearest};

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
    let known = preset::presets();
    match known.get(name).map(Preset::shape) {
        Some(Ok(shape)) => return Some(shape),
        Some(Err(beyond)) => {
            let hint = "`headway model presets` shows which models jobs can be of; a measured curve serves for any";
            findings.hint(path, format!("is {name}, which jobs cannot be modelled as yet: {beyond}"), hint);
        }
        None => {
            let names = || known.iter().filter(|(_, preset)| preset.shape().is_ok()).map(|(name, _)| name.as_str());
            let hint = match nearest(name, names()) {
                Some(near) => format!("did you mean {near}?"),
                None => format!("presets are {}; or write the dimensions out", names().collect::<Vec<_>>().join(", ")),
            };
            findings.hint(path, format!("there is no model preset \"{name}\""), hint);
        }
    }
    None
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
