//! Shapes of models: presets by name, dimensions written out, or the `config.json` of a model.

use headway_types::preset::{self, Preset};
use headway_types::{Experts, Latent, LayerKinds, ModelShape};
use serde_json::Value;

use super::config_json::{self, ImportError};
use super::section::{Findings, Section, kind, nearest};

const DIMENSIONS: &[&str] = &[
    "layers",
    "hidden",
    "heads",
    "kv_heads",
    "head_width",
    "ffn_hidden",
    "gated",
    "experts",
    "latent",
    "kinds",
    "vocab",
    "seq_len",
    "tied",
];

/// A preset's name, a mapping of dimensions, or a preset (`{preset: …, seq_len: …}`) or a `config.json` (`{config: {…}, seq_len: …}`) with some
/// of them changed.
pub(super) fn read(value: &Value, path: &str, findings: &Findings) -> Option<ModelShape> {
    let shape = match value {
        Value::String(name) => named(name, path, findings)?,
        Value::Object(_) => {
            let known: Vec<&str> = DIMENSIONS.iter().chain(&["preset", "config"]).copied().collect();
            let section = Section::open(path, value, &known, &[], findings)?;
            let base = match (section.get("preset"), section.get("config")) {
                (Some(_), Some(_)) => {
                    section.wrong("config", "stands instead of preset, not beside it");
                    return None;
                }
                (Some(_), None) => Some(named(&section.text("preset")?, &section.field("preset"), findings)?),
                (None, Some(config)) => Some(imported(&section, config)?),
                (None, None) => None,
            };
            with_dimensions(&section, base)?
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

fn named(name: &str, path: &str, findings: &Findings) -> Option<ModelShape> {
    let known = preset::presets();
    if let Some(preset) = known.get(name) {
        return Some(Preset::shape(preset));
    }
    if is_file(name) {
        let hint = "submit with the CLI, which reads it, or write what is in it: model: {config: {…}, seq_len: …}";
        findings.hint(path, format!("names a file, \"{name}\", which is on your machine and not here"), hint);
        return None;
    }
    let names = || known.keys().map(String::as_str);
    let hint = match nearest(name, names()) {
        Some(near) => format!("did you mean {near}?"),
        None => format!("presets are {}; or write the dimensions out", names().collect::<Vec<_>>().join(", ")),
    };
    findings.hint(path, format!("there is no model preset \"{name}\""), hint);
    None
}

/// Whether a model is named by a file, which only whoever submits can read.
#[must_use]
pub fn is_file(name: &str) -> bool {
    name.ends_with(".json")
}

fn imported(section: &Section<'_>, config: &Value) -> Option<ModelShape> {
    let seq_len = if section.has("seq_len") { Some(section.whole("seq_len", 1)?) } else { None };
    match config_json::import(config, seq_len) {
        Ok(imported) => Some(imported.shape),
        Err(error) => {
            let key = if matches!(error, ImportError::NoSequenceLength { .. }) { "seq_len" } else { "config" };
            section.wrong_hint(key, error.to_string(), error.hint());
            None
        }
    }
}

/// Of what is not said, what the base has; without one, only what every model has must be said.
fn with_dimensions(section: &Section<'_>, base: Option<ModelShape>) -> Option<ModelShape> {
    let of = base.unwrap_or_default();
    let dimension_from = |key, of: u32, least| {
        if base.is_none() {
            section.require(key, "a model needs layers, hidden, heads, ffn_hidden, vocab and seq_len, or a preset");
        }
        if section.has(key) { section.whole(key, least) } else { Some(of).filter(|_| base.is_some()) }
    };
    let dimension = |key, of| dimension_from(key, of, 1);
    let (layers, hidden, heads) =
        (dimension("layers", of.layers), dimension("hidden", of.hidden), dimension("heads", of.heads));
    // A model without an ordinary FFN has none of any width.
    let (ffn_hidden, vocab, seq_len) = (
        dimension_from("ffn_hidden", of.ffn_hidden, 0),
        dimension("vocab", of.vocab),
        dimension("seq_len", of.seq_len),
    );
    let experts = match section.get("experts") {
        Some(value) => Some(experts(section, value)?),
        None => of.experts,
    };
    let latent = match section.get("latent") {
        Some(value) => Some(latent(section, value)?),
        None => of.latent,
    };
    let kinds = match section.get("kinds") {
        Some(value) => Some(kinds(section, value)?),
        None => of.kinds,
    };
    let usual = if base.is_some() { Some(of.kv_heads) } else { heads };
    Some(ModelShape {
        layers: layers?,
        hidden: hidden?,
        heads: heads?,
        kv_heads: if section.has("kv_heads") { section.whole("kv_heads", 1) } else { usual }?,
        head_width: if section.has("head_width") { Some(section.whole("head_width", 1)?) } else { of.head_width },
        ffn_hidden: ffn_hidden?,
        gated: section.flag("gated").unwrap_or(base.is_none() || of.gated),
        experts,
        latent,
        kinds,
        vocab: vocab?,
        seq_len: seq_len?,
        tied: section.flag("tied").unwrap_or(of.tied),
    })
}

fn experts(model: &Section<'_>, value: &Value) -> Option<Experts> {
    let path = model.field("experts");
    let known = ["count", "active", "ffn_hidden", "shared_ffn_hidden", "dense_layers"];
    let section = Section::open(&path, value, &known, &[], model.findings())?;
    let needed = |key| {
        section.require(key, "as in experts: {count: 8, active: 2, ffn_hidden: 14336}")?;
        section.whole(key, 1)
    };
    let (count, active, ffn_hidden) = (needed("count"), needed("active"), needed("ffn_hidden"));
    let or_none = |key| if section.has(key) { section.whole(key, 0) } else { Some(0) };
    let (shared_ffn_hidden, dense_layers) = (or_none("shared_ffn_hidden"), or_none("dense_layers"));
    Some(Experts {
        count: count?,
        active: active?,
        ffn_hidden: ffn_hidden?,
        shared_ffn_hidden: shared_ffn_hidden?,
        dense_layers: dense_layers?,
    })
}

/// Reads the layers that are no attention with an FFN.
fn kinds(model: &Section<'_>, value: &Value) -> Option<LayerKinds> {
    match serde_json::from_value(value.clone()) {
        Ok(kinds) => Some(kinds),
        Err(error) => {
            let hint = "as in kinds: {window: {layers: 18, tokens: 128}}";
            model.wrong_hint("kinds", error.to_string(), hint);
            None
        }
    }
}

fn latent(model: &Section<'_>, value: &Value) -> Option<Latent> {
    let path = model.field("latent");
    let known = ["query_rank", "kv_rank", "plain_width", "rotary_width", "value_width"];
    let section = Section::open(&path, value, &known, &[], model.findings())?;
    let needed = |key, least| {
        section.require(
            key,
            "as in latent: {query_rank: 1536, kv_rank: 512, plain_width: 128, rotary_width: 64, value_width: 128}",
        )?;
        section.whole(key, least)
    };
    let (kv_rank, plain_width) = (needed("kv_rank", 1), needed("plain_width", 1));
    let (rotary_width, value_width) = (needed("rotary_width", 0), needed("value_width", 1));
    let query_rank = if section.has("query_rank") { Some(section.whole("query_rank", 1)?) } else { None };
    Some(Latent {
        query_rank,
        kv_rank: kv_rank?,
        plain_width: plain_width?,
        rotary_width: rotary_width?,
        value_width: value_width?,
    })
}
