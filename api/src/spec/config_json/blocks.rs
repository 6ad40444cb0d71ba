//! Layers that a file describes one by one: `hybrid_override_pattern` (Nemotron-H) and `block_configs`
//! (Nemotron-NAS).

use headway_types::{LayerKinds, RecurrentKind, RecurrentLayers};
use serde_json::{Map, Value};

use super::ImportError;
use super::layers::LayerPlan;
use super::reader::{ConfigReader, NEEDED};

/// The pattern of a Nemotron-H: `M` is a Mamba-2 layer, `*` attention, `-` an FFN, `E` experts. The
/// recurrent layers are only counted.
pub(super) fn read_pattern(reader: &ConfigReader, names: &[&str]) -> Result<LayerPlan, ImportError> {
    const PATTERN: &str = "hybrid_override_pattern";
    let (key, marks) = match reader.text(PATTERN) {
        Some(pattern) => (PATTERN, pattern.chars().filter(|mark| *mark != '|').collect()),
        None => {
            let listed = match reader.list("layers_block_type")? {
                Some(types) => Some(types),
                None => reader.list("layer_types")?,
            };
            let types = listed.ok_or_else(|| ImportError::Missing(PATTERN.to_owned()))?;
            ("layers_block_type", types.iter().map(|kind| mark_of(kind.as_str().unwrap_or_default())).collect())
        }
    };
    let marks: Vec<char> = marks;
    let count = |mark: char| marks.iter().filter(|one| **one == mark).count() as u32;
    let (mamba, attention, ffn, experts) = (count('M'), count('*'), count('-'), count('E'));
    let layers = u32::try_from(marks.len()).unwrap_or(u32::MAX);
    if mamba + attention + ffn + experts != layers {
        return Err(ImportError::Unmodelled { key: key.to_owned(), why: "names layers other than M, *, - and E" });
    }
    let stated = reader.or_default(names, layers)?;
    if stated != layers {
        return Err(ImportError::Length { key: key.to_owned(), entries: marks.len(), layers: stated });
    }
    let recurrent = RecurrentLayers {
        layers: mamba,
        kind: RecurrentKind::Mamba2,
        heads: 1,
        head_width: 1,
        state: 1,
        groups: 1,
        convolution: 0,
        rank: 0,
    };
    let kinds = LayerKinds {
        recurrent: Some(recurrent),
        ffn_only: ffn + experts,
        without_ffn: mamba + attention,
        ..LayerKinds::default()
    };
    Ok(LayerPlan { layers, kinds, expert_layers: Some(experts), ..LayerPlan::default() })
}

fn mark_of(kind: &str) -> char {
    match kind {
        "mamba" | "linear_attention" => 'M',
        "attention" | "full_attention" => '*',
        "mlp" => '-',
        "moe" => 'E',
        _ => '?',
    }
}

/// The blocks of a Nemotron-NAS: each may lack attention or FFN, and its FFN has a width of its own. The
/// FFN counts with its mean width.
pub(super) fn read_blocks(reader: &ConfigReader, hidden: u32, layers: u32) -> Result<LayerPlan, ImportError> {
    const KEY: &str = "block_configs";
    let odd = |why| ImportError::Unmodelled { key: KEY.to_owned(), why };
    let blocks = reader.list(KEY)?.ok_or_else(|| ImportError::Missing(KEY.to_owned()))?;
    if u32::try_from(blocks.len()) != Ok(layers) {
        return Err(ImportError::Length { key: KEY.to_owned(), entries: blocks.len(), layers });
    }
    reader.ignore(&["num_key_value_heads", "intermediate_size"]);
    let mut plan = LayerPlan { layers, ..LayerPlan::default() };
    let (mut width, mut with_ffn) = (0u64, 0u32);
    for block in blocks {
        let part = |name: &str| block.get(name).and_then(Value::as_object);
        let (attention, ffn) = (part("attention"), part("ffn"));
        let (Some(attention), Some(ffn)) = (attention, ffn) else {
            return Err(odd("has a block without attention and ffn"));
        };
        if block.as_object().is_some_and(|block| has_others(block, &["attention", "ffn"])) {
            return Err(odd("has blocks of more than attention and ffn"));
        }
        let is_set = |part: &Map<String, Value>, name: &str| part.get(name).and_then(Value::as_bool) == Some(true);
        let known_attention = ["n_heads_in_group", "no_op", "num_key_value_heads"];
        if !is_set(attention, "no_op") && has_others(attention, &known_attention) {
            return Err(odd("has attention that is replaced, sparse or has a window"));
        }
        let known_ffn = ["ffn_mult", "intermediate_size", "no_op", "gated", "hidden_act"];
        if !is_set(ffn, "no_op") && has_others(ffn, &known_ffn) {
            return Err(odd("has an FFN that is replaced or sparse"));
        }
        match (is_set(attention, "no_op"), is_set(ffn, "no_op")) {
            (true, true) => plan.layers -= 1,
            (true, false) => plan.kinds.ffn_only += 1,
            (false, true) => plan.kinds.without_ffn += 1,
            (false, false) => {}
        }
        if !is_set(attention, "no_op") {
            let reader = ConfigReader::new(attention);
            let group = reader.or_default(&["n_heads_in_group"], NEEDED)?;
            if plan.heads_in_group.is_some_and(|first| first != group) {
                return Err(odd("has attention in groups of several sizes"));
            }
            plan.heads_in_group = Some(group);
        }
        if !is_set(ffn, "no_op") {
            width += u64::from(block_width(ffn, hidden)?);
            with_ffn += 1;
        }
    }
    let mean = width.checked_div(u64::from(with_ffn)).and_then(|mean| u32::try_from(mean).ok());
    plan.ffn_hidden = mean;
    Ok(plan)
}

/// Whether a part of a block has a setting, beside those known, that is neither null, false, zero nor empty.
fn has_others(part: &Map<String, Value>, known: &[&str]) -> bool {
    let reader = ConfigReader::new(part);
    part.keys().any(|name| !known.contains(&name.as_str()) && reader.is_set(name))
}

/// Width of a block's FFN: 2/3 of its multiple of the hidden size, rounded up to a multiple of 256.
fn block_width(ffn: &Map<String, Value>, hidden: u32) -> Result<u32, ImportError> {
    let reader = ConfigReader::new(ffn);
    if let Some(width) = reader.optional(&["intermediate_size"])? {
        return Ok(width);
    }
    let times = ffn.get("ffn_mult").and_then(Value::as_f64).filter(|times| (0.0..=1_000.0).contains(times));
    let times = times.ok_or_else(|| ImportError::Missing("ffn_mult".to_owned()))?;
    let width = (2.0 * times * f64::from(hidden) / 3.0) as u32;
    Ok(width.checked_next_multiple_of(256).unwrap_or(width))
}
