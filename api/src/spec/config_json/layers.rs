//! What mixes the tokens of each layer: attention over the whole sequence, over a window, or a recurrence.

use std::collections::BTreeMap;

use headway_types::{AttentionWindow, LayerKinds, RecurrentKind, RecurrentLayers};
use serde_json::Value;

use super::ImportError;
use super::blocks::{read_blocks, read_pattern};
use super::family::{Family, Hybrid, Layers};
use super::reader::{ConfigReader, NEEDED};

/// Layers as the file has them.
#[derive(Clone, Copy, Default)]
pub(super) struct LayerPlan {
    pub layers: u32,
    pub kinds: LayerKinds,
    /// Layers with experts, where the layers' kinds say so.
    pub expert_layers: Option<u32>,
    /// Width of the FFN, where the layers' kinds say so.
    pub ffn_hidden: Option<u32>,
    /// Queries that share a key/value head, where the layers' kinds say so.
    pub heads_in_group: Option<u32>,
}

/// More layers than any model has.
const MOST_LAYERS: u32 = 10_000;

/// Names under which files list the kinds of layers, one for each.
const TYPES: [&str; 2] = ["layer_types", "layers_block_type"];

pub(super) fn read_layers(
    reader: &ConfigReader,
    family: &Family,
    hidden: u32,
    heads: u32,
) -> Result<LayerPlan, ImportError> {
    const NAMES: &[&str] = &["num_hidden_layers", "n_layer", "n_layers", "num_layers"];
    if matches!(family.layers, Layers::Hybrid(Hybrid::NemotronH)) {
        let mut plan = read_pattern(reader, NAMES)?;
        let recurrent = plan.kinds.recurrent.map_or(0, |recurrent| recurrent.layers);
        let layers = mamba2(reader, hidden, recurrent, Mamba2Keys::NEMOTRON)?;
        plan.kinds.recurrent = Some(layers).filter(|layers| layers.layers > 0);
        return Ok(plan);
    }
    let layers = if family.model_types.contains(&"chatglm") {
        reader.or_default(&["num_layers"], NEEDED)?
    } else {
        reader.or_default(NAMES, family.defaults.layers)?
    };
    if layers > MOST_LAYERS {
        return Err(ImportError::NoNumber { key: NAMES[0].to_owned(), value: layers.to_string() });
    }
    let types = count_types(reader, layers)?;
    let plan = |kinds| LayerPlan { layers, kinds, ..LayerPlan::default() };
    let window = |layers, tokens, chunked| {
        let window = AttentionWindow { layers, tokens, chunked };
        let window = Some(window).filter(|window| window.layers > 0 && window.tokens > 0);
        plan(LayerKinds { window, ..LayerKinds::default() })
    };
    let sliding = types.as_ref().map(|types| types.of(&["sliding_attention"]));
    let kinds = match family.layers {
        Layers::Whole => plan(LayerKinds::default()),
        Layers::Window { default } => {
            let tokens = nullable(reader, "sliding_window", default)?;
            window(sliding.unwrap_or(layers), tokens, false)
        }
        Layers::Switched => {
            let switched = reader.flag("use_sliding_window")?.unwrap_or(false);
            reader.ignore(&["sliding_window", "max_window_layers"]);
            if !switched {
                return refuse_other_types(types, &["full_attention", "sliding_attention"])
                    .map(|()| window(0, 0, false));
            }
            let tokens = reader.or_default(&["sliding_window"], NEEDED)?;
            let windowed = match (sliding, family.experts) {
                (Some(listed), _) => listed,
                (None, None) => layers.saturating_sub(reader.or_default(&["max_window_layers"], NEEDED)?),
                (None, Some(_)) => return Err(ImportError::Missing("layer_types".to_owned())),
            };
            window(windowed, tokens, false)
        }
        Layers::FromLayer { window: tokens, first } => {
            let tokens = nullable(reader, "sliding_window", tokens)?;
            let first = reader.or_default(&["max_window_layers"], first)?;
            window(sliding.unwrap_or(layers.saturating_sub(first)), tokens, false)
        }
        Layers::Alternating { period, window: tokens } => {
            let tokens = nullable(reader, "sliding_window", tokens)?;
            let listed = sliding.map_or_else(|| alternating(reader, layers, period), Ok)?;
            window(listed, tokens, false)
        }
        Layers::Chunked => {
            let tokens = nullable(reader, "attention_chunk_size", 8192)?;
            let rotary = match reader.list("no_rope_layers")? {
                Some(rotary) => u32::try_from(rotary.iter().filter(|one| one.as_u64() == Some(1)).count()).ok(),
                None => {
                    let interval = reader.or_default(&["no_rope_layer_interval"], 4)?;
                    layers.checked_div(interval).map(|whole| layers - whole)
                }
            };
            let listed = types.as_ref().map(|types| types.of(&["chunked_attention"]));
            window(listed.or(rotary).unwrap_or(layers), tokens, true)
        }
        Layers::GlobalLocal => {
            let tokens = reader.or_default(&["window_size"], 256)?;
            window(local_layers(reader, layers)?, tokens, false)
        }
        Layers::Blocks => return read_blocks(reader, hidden, layers),
        Layers::Hybrid(hybrid) => plan(hybrid_kinds(reader, hybrid, [layers, hidden, heads], types.as_ref())?),
    };
    let known: &[&str] = match family.layers {
        Layers::Whole => &["full_attention"],
        Layers::Chunked => &["full_attention", "chunked_attention"],
        Layers::Hybrid(_) => &["full_attention", "attention", "linear_attention", "mamba", "conv"],
        _ => &["full_attention", "sliding_attention"],
    };
    refuse_other_types(types, known)?;
    Ok(kinds)
}

/// Kinds of layers with the number of each.
struct LayerTypes(&'static str, BTreeMap<String, u32>);

impl LayerTypes {
    fn of(&self, names: &[&str]) -> u32 {
        names.iter().filter_map(|name| self.1.get(*name)).sum()
    }
}

fn count_types(reader: &ConfigReader, layers: u32) -> Result<Option<LayerTypes>, ImportError> {
    for key in TYPES {
        let Some(types) = reader.list(key)? else { continue };
        if u32::try_from(types.len()) != Ok(layers) {
            return Err(ImportError::Length { key: key.to_owned(), entries: types.len(), layers });
        }
        let mut counted = BTreeMap::new();
        for kind in types {
            *counted.entry(kind.as_str().unwrap_or_default().to_owned()).or_insert(0) += 1;
        }
        return Ok(Some(LayerTypes(key, counted)));
    }
    Ok(None)
}

fn refuse_other_types(types: Option<LayerTypes>, known: &[&str]) -> Result<(), ImportError> {
    let Some(LayerTypes(key, counted)) = types else { return Ok(()) };
    match counted.keys().find(|kind| !known.contains(&kind.as_str())) {
        Some(kind) => Err(ImportError::LayerType { key: key.to_owned(), kind: kind.clone() }),
        None => Ok(()),
    }
}

/// A number, 0 where it is null, and the default where it is missing.
fn nullable(reader: &ConfigReader, key: &str, default: u32) -> Result<u32, ImportError> {
    match reader.value(key) {
        None => Ok(default),
        Some(_) => Ok(reader.optional(&[key])?.unwrap_or(0)),
    }
}

/// Layers with a window where every `period`th has none.
fn alternating(reader: &ConfigReader, layers: u32, period: u32) -> Result<u32, ImportError> {
    const KEYS: [&str; 2] = ["sliding_window_pattern", "_sliding_window_pattern"];
    let pattern = KEYS.iter().find_map(|key| reader.text(key));
    let Some(pattern) = pattern else {
        let period = reader.optional(&KEYS)?.unwrap_or(period);
        return Ok(layers.checked_div(period).map_or(0, |whole| layers - whole));
    };
    let pattern: Vec<char> = pattern.chars().collect();
    if pattern.is_empty() || pattern.iter().any(|kind| !matches!(kind, 'L' | 'G')) {
        let why = "has letters other than L and G";
        return Err(ImportError::Unmodelled { key: KEYS[0].to_owned(), why });
    }
    let local = (0..layers as usize).filter(|at| pattern[at % pattern.len()] == 'L').count();
    Ok(u32::try_from(local).unwrap_or(layers))
}

/// Layers with a window by GPT-Neo's `attention_types`, `[[["global", "local"], 12]]`.
fn local_layers(reader: &ConfigReader, layers: u32) -> Result<u32, ImportError> {
    reader.ignore(&["attention_layers"]);
    let Some(groups) = reader.list("attention_types")? else { return Ok(layers / 2) };
    let key = || "attention_types".to_owned();
    let odd = || ImportError::Unmodelled { key: key(), why: "is no list of kinds with their repetitions" };
    let (mut local, mut all) = (0, 0);
    for group in groups {
        let kinds = group.get(0).and_then(Value::as_array).ok_or_else(odd)?;
        let times = group.get(1).and_then(Value::as_u64).filter(|times| *times <= 10_000).ok_or_else(odd)?;
        for kind in kinds {
            match kind.as_str() {
                Some("global") => all += times,
                Some("local") => (local, all) = (local + times, all + times),
                _ => return Err(odd()),
            }
        }
    }
    if all != u64::from(layers) {
        return Err(ImportError::Length { key: key(), entries: all as usize, layers });
    }
    u32::try_from(local).map_err(|_| odd())
}

fn hybrid_kinds(
    reader: &ConfigReader,
    hybrid: Hybrid,
    [layers, hidden, heads]: [u32; 3],
    types: Option<&LayerTypes>,
) -> Result<LayerKinds, ImportError> {
    let listed = types.map(|types| types.of(&["linear_attention", "mamba", "conv"]));
    let mut kinds = LayerKinds::default();
    let recurrent = match hybrid {
        Hybrid::NemotronH => None,
        Hybrid::Jamba => {
            let period = reader.or_default(&["attn_layer_period"], 8)?;
            let offset = reader.or_default(&["attn_layer_offset"], 4)?;
            let attention = count_every(layers, period, offset, "attn_layer_period")?;
            reader.ignore(&["use_mamba_kernels", "mamba_inner_layernorms"]);
            Some(mamba(reader, hidden, layers - attention, "mamba_")?)
        }
        Hybrid::Mamba => {
            kinds.without_ffn = layers;
            Some(mamba(reader, hidden, layers, "")?)
        }
        Hybrid::Mamba2 => {
            kinds.without_ffn = layers;
            Some(mamba2(reader, hidden, layers, Mamba2Keys::MAMBA2)?)
        }
        Hybrid::Bamba => {
            let attention = reader.indices("attn_layer_indices")?.unwrap_or_default();
            let attention = attention.range(..layers).count();
            let recurrent = listed.unwrap_or(layers.saturating_sub(u32::try_from(attention).unwrap_or(layers)));
            Some(mamba2(reader, hidden, recurrent, Mamba2Keys::BAMBA)?)
        }
        Hybrid::Granite => Some(mamba2(reader, hidden, listed.unwrap_or(layers), Mamba2Keys::BAMBA)?),
        Hybrid::QwenNext => {
            kinds.gated_attention = reader.flag("attn_output_gate")?.unwrap_or(true);
            let interval = reader.or_default(&["full_attention_interval"], 4)?;
            let recurrent = listed.or(layers.checked_div(interval).map(|whole| layers - whole)).unwrap_or(0);
            Some(RecurrentLayers {
                layers: recurrent,
                kind: RecurrentKind::GatedDelta,
                heads: reader.or_default(&["linear_num_value_heads"], 32)?,
                head_width: reader.or_default(&["linear_value_head_dim"], 128)?,
                state: reader.or_default(&["linear_key_head_dim"], 128)?,
                groups: reader.or_default(&["linear_num_key_heads"], 16)?,
                convolution: reader.or_default(&["linear_conv_kernel_dim"], 4)?,
                rank: 0,
            })
        }
        Hybrid::MiniMax => minimax(reader, [layers, hidden, heads], listed)?,
        Hybrid::Lfm2 => {
            let attention = reader.indices("full_attn_idxs")?.map(|indices| indices.range(..layers).count());
            let attention = attention.and_then(|count| u32::try_from(count).ok()).unwrap_or(layers);
            reader.ignore(&["conv_dim", "conv_dim_out", "block_dim"]);
            Some(RecurrentLayers {
                layers: listed.unwrap_or(layers.saturating_sub(attention)),
                kind: RecurrentKind::Convolution,
                heads: 1,
                head_width: hidden,
                state: 1,
                groups: 1,
                convolution: reader.or_default(&["conv_L_cache"], 3)?,
                rank: 0,
            })
        }
    };
    kinds.recurrent = recurrent.filter(|recurrent| recurrent.layers > 0);
    Ok(kinds)
}

/// Lightning attention where `attn_type_list` has a 0.
fn minimax(
    reader: &ConfigReader,
    [layers, hidden, heads]: [u32; 3],
    listed: Option<u32>,
) -> Result<Option<RecurrentLayers>, ImportError> {
    const KEY: &str = "attn_type_list";
    reader.ignore(&["linear_attn_alpha_factor", "linear_attn_beta_factor", "full_attn_alpha_factor"]);
    reader.ignore(&["full_attn_beta_factor", "mlp_alpha_factor", "mlp_beta_factor", "block_size"]);
    reader.ignore(&["shared_moe_mode"]);
    let by_list = match reader.list(KEY)? {
        Some(types) if u32::try_from(types.len()) != Ok(layers) => {
            return Err(ImportError::Length { key: KEY.to_owned(), entries: types.len(), layers });
        }
        Some(types) => u32::try_from(types.iter().filter(|one| one.as_u64() == Some(0)).count()).ok(),
        None => None,
    };
    let is_linear = reader.text("model_type") != Some("minimax_m2");
    let recurrent = listed.or(by_list).unwrap_or(if is_linear { layers / 2 } else { 0 });
    let width = reader.optional(&["head_dim"])?.unwrap_or(hidden / heads.max(1));
    Ok(Some(RecurrentLayers {
        layers: recurrent,
        kind: RecurrentKind::Lightning,
        heads,
        head_width: width,
        state: width,
        groups: heads,
        convolution: 0,
        rank: 0,
    }))
}

/// Layers `i` with `i % period == offset`.
pub(super) fn count_every(layers: u32, period: u32, offset: u32, key: &str) -> Result<u32, ImportError> {
    if period == 0 {
        return Err(ImportError::NoNumber { key: key.to_owned(), value: "0".into() });
    }
    Ok((0..layers).filter(|at| at % period == offset).count() as u32)
}

/// Mamba-1, whose keys have a prefix in some families.
fn mamba(reader: &ConfigReader, hidden: u32, layers: u32, prefix: &str) -> Result<RecurrentLayers, ImportError> {
    let expand = |key: &str| reader.or_default(&[key], 2).map(|times| times.saturating_mul(hidden));
    let (state, conv, rank, channels) = if prefix.is_empty() {
        let channels = reader.optional(&["intermediate_size"])?;
        let expanded = expand("expand")?;
        reader.ignore(&["d_inner", "d_model", "n_layer"]);
        (["state_size"], ["conv_kernel"], "time_step_rank", channels.unwrap_or(expanded))
    } else {
        (["mamba_d_state"], ["mamba_d_conv"], "mamba_dt_rank", expand("mamba_expand")?)
    };
    Ok(RecurrentLayers {
        layers,
        kind: RecurrentKind::Mamba,
        heads: 1,
        head_width: channels,
        state: reader.or_default(&state, 16)?,
        groups: 1,
        convolution: reader.or_default(&conv, 4)?,
        rank: reader.automatic(rank)?.unwrap_or(hidden.div_ceil(16)),
    })
}

/// Keys of Mamba-2 with their defaults.
#[derive(Clone, Copy)]
struct Mamba2Keys {
    heads: (&'static str, u32),
    head_width: (&'static str, u32),
    state: (&'static str, u32),
    groups: (&'static [&'static str], u32),
    convolution: &'static [&'static str],
    expand: &'static [&'static str],
}

impl Mamba2Keys {
    const MAMBA2: Self = Self {
        heads: ("num_heads", 128),
        head_width: ("head_dim", 64),
        state: ("state_size", 128),
        groups: (&["n_groups"], 8),
        convolution: &["conv_kernel"],
        expand: &["expand"],
    };
    const NEMOTRON: Self = Self {
        heads: ("mamba_num_heads", 128),
        head_width: ("mamba_head_dim", 64),
        state: ("ssm_state_size", 128),
        groups: (&["n_groups", "mamba_n_groups"], 8),
        convolution: &["conv_kernel", "mamba_d_conv"],
        expand: &["expand", "mamba_expand"],
    };
    const BAMBA: Self = Self {
        heads: ("mamba_n_heads", 128),
        head_width: ("mamba_d_head", 0),
        state: ("mamba_d_state", 256),
        groups: (&["mamba_n_groups"], 1),
        convolution: &["mamba_d_conv"],
        expand: &["mamba_expand"],
    };
}

fn mamba2(reader: &ConfigReader, hidden: u32, layers: u32, keys: Mamba2Keys) -> Result<RecurrentLayers, ImportError> {
    reader.ignore(&["chunk_size", "mamba_chunk_size", "time_step_rank", "use_mamba_kernels"]);
    let heads = reader.or_default(&[keys.heads.0], keys.heads.1)?.max(1);
    // The width of a head decides where it is said; else the channels are spread over the heads.
    let channels = reader.or_default(keys.expand, 2)?.saturating_mul(hidden);
    let stated = match reader.value(keys.head_width.0) {
        None if keys.head_width.1 > 0 => Some(keys.head_width.1),
        _ => reader.automatic(keys.head_width.0)?,
    };
    Ok(RecurrentLayers {
        layers,
        kind: RecurrentKind::Mamba2,
        heads,
        head_width: stated.unwrap_or(channels / heads),
        state: reader.or_default(&[keys.state.0], keys.state.1)?,
        groups: reader.or_default(keys.groups.0, keys.groups.1)?,
        convolution: reader.or_default(keys.convolution, 4)?,
        rank: 0,
    })
}
