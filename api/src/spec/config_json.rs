//! The `config.json` of the Hugging Face hub, as the shape of the decoder that it describes.
//!
//! A table of families (`families`) says what a file's keys mean and what a missing key stands for. Nothing
//! else is assumed: an unknown `model_type` is refused, and so is a key that looks as if it shaped the model
//! and that no reader asked for (`reader`, `keys`). `layers` and `blocks` read what mixes the tokens of each
//! layer, `experts` reads mixtures. What must never happen: a part of the model that is not read gets a
//! default, and the estimate is of another model.

mod blocks;
mod experts;
mod families;
mod family;
mod keys;
mod layers;
mod reader;

#[cfg(test)]
mod tests;

use headway_types::{Latent, LayerKinds, ModelShape, ModelShapeError};
use serde_json::{Map, Value};

use self::experts::read_experts;
use self::families::{find_family, find_obstacle, known_types, text_type};
use self::family::{ExpertLayers, Family, FfnWidth, Hybrid, KvHeads, Layers};
use self::layers::{LayerPlan, read_layers};
use self::reader::{ConfigReader, NEEDED};
use super::section::nearest;

/// Why a `config.json` is no model that Headway can plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImportError {
    #[error("the model configuration is no JSON object")]
    NoObject,
    #[error("the model configuration has no model_type, so the meaning of its keys is unknown")]
    NoType,
    #[error("model_type {model_type} is not known to Headway{}", suggest(.nearest))]
    UnknownType { model_type: String, nearest: Option<&'static str> },
    #[error("a model of type {model_type} {why}")]
    NotModelled { model_type: String, why: &'static str },
    #[error("the model configuration has no {0}")]
    Missing(String),
    #[error("{key} of the model configuration is {value}, which is not a usable number")]
    NoNumber { key: String, value: String },
    #[error("{key} of the model configuration is {value}, and must be true or false")]
    NoFlag { key: String, value: String },
    #[error("{first} and {second} of the model configuration disagree")]
    Disagree { first: String, second: String },
    #[error("{key} of the model configuration has {entries} entries for {layers} layers")]
    Length { key: String, entries: usize, layers: u32 },
    #[error("{key} of the model configuration has layers of kind \"{kind}\", which Headway does not model here")]
    LayerType { key: String, kind: String },
    #[error("{key} of the model configuration {why}, which Headway does not model")]
    Unmodelled { key: String, why: &'static str },
    #[error("the model configuration (model_type {family}) has keys that Headway does not know: {}", .keys.join(", "))]
    Unread { family: String, keys: Vec<String> },
    #[error("the length of the training sequences is missing: a model configuration does not say it{}", allow(.longest))]
    NoSequenceLength { longest: Option<u32> },
    #[error("the model configuration describes no possible model: {0}")]
    Impossible(#[source] ModelShapeError),
}

fn suggest(nearest: &Option<&'static str>) -> String {
    nearest.map_or_else(String::new, |name| format!(", did you mean {name}?"))
}

fn allow(longest: &Option<u32>) -> String {
    longest.map_or_else(String::new, |longest| format!(" (it allows up to {longest} tokens)"))
}

impl ImportError {
    /// Returns what to do about it.
    #[must_use]
    pub fn hint(&self) -> &'static str {
        match self {
            Self::NoObject | Self::NoType => "give the content of the model's config.json",
            Self::NoSequenceLength { .. } => "add it, as in model: {config: config.json, seq_len: 4096}",
            _ => {
                "describe the model by its dimensions: model: {layers: …, hidden: …, heads: …, ffn_hidden: …, \
                 vocab: …, seq_len: …}"
            }
        }
    }
}

/// A model as its `config.json` describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportedModel {
    pub shape: ModelShape,
    /// The family by whose rules the file was read.
    pub model_type: String,
    /// Parts of the file that the shape leaves out on purpose.
    pub notes: Vec<String>,
}

/// Parses the text of a `config.json`. Python also writes the numbers `Infinity` and `NaN`, which are no
/// JSON: they become null.
pub fn parse_config(text: &str) -> Result<Value, serde_json::Error> {
    serde_json::from_str(text).or_else(|error| {
        let replaced = replace_python_numbers(text);
        if replaced == text { Err(error) } else { serde_json::from_str(&replaced) }
    })
}

fn replace_python_numbers(text: &str) -> String {
    const NUMBERS: [&str; 3] = ["-Infinity", "Infinity", "NaN"];
    let (mut replaced, mut rest) = (String::with_capacity(text.len()), text);
    let (mut is_quoted, mut is_escaped) = (false, false);
    while let Some(next) = rest.chars().next() {
        if let Some(number) = NUMBERS.iter().find(|number| !is_quoted && rest.starts_with(**number)) {
            replaced.push_str("null");
            rest = &rest[number.len()..];
            continue;
        }
        if next == '"' && !is_escaped {
            is_quoted = !is_quoted;
        }
        is_escaped = is_quoted && next == '\\' && !is_escaped;
        replaced.push(next);
        rest = &rest[next.len_utf8()..];
    }
    replaced
}

/// Reads a `config.json` for training on sequences of `seq_len` tokens.
pub fn import(config: &Value, seq_len: Option<u32>) -> Result<ImportedModel, ImportError> {
    let object = config.as_object().ok_or(ImportError::NoObject)?;
    let wrapper_type = object.get("model_type").and_then(Value::as_str);
    if let Some(why) = wrapper_type.and_then(find_obstacle) {
        return Err(ImportError::NotModelled { model_type: wrapper_type.unwrap_or_default().to_owned(), why });
    }
    let text = TEXT_CONFIGS.iter().find_map(|name| object.get(*name)?.as_object());
    let (text, wrapper) = match text {
        Some(text) => (text, Some(ConfigReader::new(object))),
        None => (object, None),
    };
    let own_type = text.get("model_type").and_then(Value::as_str);
    let text_of_wrapper = wrapper_type.and_then(text_type);
    let model_type = match (&wrapper, own_type) {
        (Some(_), own) => {
            let wrapper_type = wrapper_type.ok_or(ImportError::NoType)?;
            let known = text_of_wrapper.ok_or_else(|| unknown_type(wrapper_type))?;
            own.unwrap_or(known)
        }
        (None, Some(own)) => own,
        (None, None) => return Err(ImportError::NoType),
    };
    if let Some(why) = find_obstacle(model_type) {
        return Err(ImportError::NotModelled { model_type: model_type.to_owned(), why });
    }
    let family = find_family(model_type).ok_or_else(|| unknown_type(model_type))?;
    let reader = ConfigReader::new(text);
    let mut shape = read_shape(&reader, family, wrapper.as_ref())?;
    reader.refuse_unread(model_type)?;
    if let Some(wrapper) = &wrapper {
        refuse_unread_of_wrapper(wrapper, object, wrapper_type.unwrap_or_default())?;
    }
    let longest = reader.longest_sequence();
    shape.seq_len = seq_len.ok_or(ImportError::NoSequenceLength { longest })?;
    shape.check().map_err(ImportError::Impossible)?;
    let mut notes = list_omissions(object, text);
    if let Some(longest) = longest.filter(|longest| *longest < shape.seq_len) {
        notes.push(format!("sequences are longer than the {longest} tokens that the configuration allows"));
    }
    Ok(ImportedModel { shape, model_type: model_type.to_owned(), notes })
}

/// Names under which a model of images and text keeps its decoder.
const TEXT_CONFIGS: [&str; 3] = ["text_config", "llm_config", "language_config"];

fn unknown_type(model_type: &str) -> ImportError {
    let nearest = nearest(model_type, known_types());
    ImportError::UnknownType { model_type: model_type.chars().take(64).collect(), nearest }
}

/// Refuses keys beside a decoder that would shape it. Images, sounds and what projects them are left out.
fn refuse_unread_of_wrapper(
    wrapper: &ConfigReader,
    object: &Map<String, Value>,
    wrapper_type: &str,
) -> Result<(), ImportError> {
    const OTHERS: [&str; 9] =
        ["mm_", "image", "vision", "video", "audio", "projector", "multimodal", "spatial", "_config"];
    wrapper.ignore(&["tie_word_embeddings", "hidden_size", "vocab_size", "projection_dim", "downsample_ratio"]);
    wrapper.ignore(&["ignore_index", "pixel_shuffle_factor", "scale_factor", "use_thumbnail", "select_layer"]);
    wrapper.ignore(&["dynamic_image_size", "max_dynamic_patch", "min_dynamic_patch", "ps_version", "template"]);
    for name in object.keys().filter(|name| OTHERS.iter().any(|part| name.contains(part))) {
        wrapper.ignore(&[name.as_str()]);
    }
    wrapper.refuse_unread(wrapper_type)
}

/// Parts of a file that are no part of the shape, and which its author should know of.
fn list_omissions(object: &Map<String, Value>, text: &Map<String, Value>) -> Vec<String> {
    const PARTS_OF_THE_SHAPE: [&str; 5] =
        ["quantization_config", "compression_config", "attn_config", "ffn_config", "generation_config"];
    const PREDICTED: [&str; 4] =
        ["num_nextn_predict_layers", "num_mtp_layers", "mtp_num_hidden_layers", "num_mtp_modules"];
    let mut notes = Vec::new();
    for (name, value) in object {
        let is_other = name.ends_with("_config") && value.is_object();
        let is_shape = PARTS_OF_THE_SHAPE.contains(&name.as_str()) || TEXT_CONFIGS.contains(&name.as_str());
        if is_other && !is_shape {
            notes.push(format!("{name} is not counted"));
        }
    }
    for name in PREDICTED {
        if let Some(count) = text.get(name).and_then(Value::as_u64).filter(|count| *count > 0) {
            notes.push(format!("{name} {count} is not counted: layers that predict further tokens"));
        }
    }
    let quantized = [object, text].into_iter().find_map(|map| map.get("quantization_config")?.as_object());
    if let Some(method) = quantized.map(|of| of.get("quant_method").and_then(Value::as_str).unwrap_or("unnamed")) {
        notes.push(format!("quantization_config ({method}) does not matter: precision says how it is trained"));
    }
    notes
}

const HIDDEN: &[&str] = &["hidden_size", "n_embd", "d_model", "n_embed"];
const HEADS: &[&str] = &["num_attention_heads", "n_head", "n_heads", "num_heads"];
const KV_HEADS: &[&str] = &["num_key_value_heads", "num_kv_heads", "n_head_kv", "multi_query_group_num"];
const WIDTHS: &[&str] = &["head_dim", "attention_head_dim", "kv_channels"];
const FFN: &[&str] = &["intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size"];

/// Reads all but the length of the sequences.
fn read_shape(
    reader: &ConfigReader,
    family: &Family,
    wrapper: Option<&ConfigReader>,
) -> Result<ModelShape, ImportError> {
    if reader.is_set("is_encoder_decoder") {
        let why = "is an encoder with a decoder, and only decoders are modelled";
        return Err(ImportError::NotModelled { model_type: family.model_types[0].to_owned(), why });
    }
    let defaults = &family.defaults;
    reader.ignore(family.harmless);
    reader.ignore(&["num_nextn_predict_layers", "num_mtp_layers", "mtp_num_hidden_layers", "num_mtp_modules"]);
    reader.ignore(&["use_mtp", "mtp_transformer_layers", "mtp_loss_scaling_factor", "mtp_use_dedicated_embeddings"]);
    let _ = reader.longest_sequence();
    let hidden = reader.or_default(HIDDEN, defaults.hidden)?;
    let is_recurrent = matches!(family.layers, Layers::Hybrid(Hybrid::Mamba | Hybrid::Mamba2));
    let heads = if is_recurrent { 1 } else { reader.or_default(HEADS, defaults.heads)? };
    let mut plan = read_layers(reader, family, hidden, heads)?;
    let attn_config = reader.nested("attn_config");
    let ffn_config = reader.nested("ffn_config");
    let latent = read_latent(reader, family)?;
    let kv_heads = match (latent, plan.heads_in_group) {
        _ if is_recurrent => 1,
        (Some(_), _) => {
            reader.ignore(KV_HEADS);
            heads
        }
        (None, Some(group)) => heads.checked_div(group).unwrap_or(0),
        (None, None) => read_kv_heads(reader, family, heads, attn_config.as_ref())?,
    };
    let experts = match &family.experts {
        Some(keys) if matches!(defaults.ffn, FfnWidth::Nested) => {
            let nested = ffn_config.as_ref().ok_or_else(|| ImportError::Missing("ffn_config".to_owned()))?;
            nested.ignore(&["ffn_act_fn", "moe_normalize_expert_weights", "uniform_expert_assignment"]);
            nested.ignore(&["moe_jitter_eps", "moe_loss_weight", "hidden_size"]);
            read_experts(nested, keys, &plan, hidden)?
        }
        Some(keys) => read_experts(reader, keys, &plan, hidden)?,
        None => None,
    };
    let mut gated = family.gated;
    let ffn_hidden = match plan.ffn_hidden {
        Some(width) => width,
        None => read_ffn(reader, family, hidden, ffn_config.as_ref(), &mut gated)?,
    };
    let ffn_hidden = match (&family.experts, experts) {
        // Without experts the shared part is the FFN.
        (Some(keys), None) if matches!(family.layers, Layers::Hybrid(Hybrid::Granite)) => match keys.shared {
            family::SharedExperts::Width(key, default) => reader.or_default(&[key], default)?,
            _ => ffn_hidden,
        },
        _ => ffn_hidden,
    };
    if family.experts.is_some_and(|keys| matches!(keys.layers, ExpertLayers::Pattern)) && experts.is_none() {
        reader.ignore(&["moe_latent_size", "moe_shared_expert_overlap"]);
    }
    for (name, nested) in [("attn_config", attn_config), ("ffn_config", ffn_config)] {
        if let Some(nested) = nested {
            nested.refuse_unread(name)?;
        }
    }
    plan.kinds.positions = read_positions(reader, family)?;
    let stated_width = match WIDTHS.iter().any(|name| reader.value(name).is_some()) {
        true if is_recurrent => None,
        true => reader.optional(WIDTHS)?,
        false => Some(defaults.head_width).filter(|width| *width > 0),
    };
    if stated_width.is_none() && latent.is_none() && heads > 0 && !hidden.is_multiple_of(heads) {
        return Err(ImportError::Missing("head_dim".to_owned()));
    }
    let is_own = |width: &u32| latent.is_none() && width.checked_mul(heads) != Some(hidden);
    let tied = match reader.flag("tie_word_embeddings")?.or(reader.flag("tie_embedding")?) {
        Some(tied) => Some(tied),
        None => wrapper.map(|wrapper| wrapper.flag("tie_word_embeddings")).transpose()?.flatten(),
    };
    let vocab: &[&str] =
        if matches!(defaults.kv_heads, KvHeads::ChatGlm) { &["padded_vocab_size"] } else { &["vocab_size"] };
    let LayerPlan { layers, kinds, .. } = plan;
    Ok(ModelShape {
        layers,
        hidden,
        heads,
        kv_heads,
        head_width: stated_width.filter(is_own),
        ffn_hidden,
        gated,
        experts,
        latent,
        kinds: Some(kinds).filter(|kinds| *kinds != LayerKinds::default()),
        vocab: reader.or_default(vocab, defaults.vocab)?,
        tied: tied.unwrap_or(family.tied),
        seq_len: 1,
    })
}

fn read_latent(reader: &ConfigReader, family: &Family) -> Result<Option<Latent>, ImportError> {
    let Some(defaults) = family.latent else { return Ok(None) };
    reader.ignore(WIDTHS);
    reader.ignore(&["qk_head_dim"]);
    let query_rank = match reader.value("q_lora_rank") {
        None => Some(defaults.query_rank),
        Some(_) => reader.optional(&["q_lora_rank"])?.filter(|rank| *rank > 0),
    };
    let or_default = |key, default| reader.or_default(&[key], default);
    let value_width = match reader.value("v_head_dim") {
        Some(Value::Null) => defaults.value_width,
        _ => or_default("v_head_dim", defaults.value_width)?,
    };
    Ok(Some(Latent {
        query_rank,
        kv_rank: or_default("kv_lora_rank", defaults.kv_rank)?,
        plain_width: or_default("qk_nope_head_dim", defaults.plain_width)?,
        rotary_width: or_default("qk_rope_head_dim", defaults.rotary_width)?,
        value_width,
    }))
}

fn read_kv_heads(
    reader: &ConfigReader,
    family: &Family,
    heads: u32,
    attn_config: Option<&ConfigReader>,
) -> Result<u32, ImportError> {
    let stated = || reader.optional(KV_HEADS);
    match family.defaults.kv_heads {
        KvHeads::AsHeads => Ok(stated()?.unwrap_or(heads)),
        KvHeads::Default(default) => match KV_HEADS.iter().any(|name| reader.value(name).is_some()) {
            true => Ok(stated()?.unwrap_or(heads)),
            false => Ok(default),
        },
        KvHeads::MultiQuery => {
            let shared = reader.flag("multi_query")?.unwrap_or(true);
            Ok(stated()?.unwrap_or(if shared { 1 } else { heads }))
        }
        KvHeads::Falcon => {
            let (grouped, shared) = (reader.is_set("new_decoder_architecture"), reader.flag("multi_query")?);
            let stated = stated()?;
            let is_old = reader.text("model_type") == Some("RefinedWeb");
            Ok(match (grouped || is_old, shared.unwrap_or(true)) {
                (true, _) => stated.unwrap_or(heads),
                (false, true) => 1,
                (false, false) => heads,
            })
        }
        KvHeads::ChatGlm => {
            let grouped = reader.flag("multi_query_attention")?.unwrap_or(false);
            let stated = reader.optional(&["multi_query_group_num"])?;
            Ok(if grouped { stated.unwrap_or(1) } else { heads })
        }
        KvHeads::Nested => {
            let missing = || ImportError::Missing("attn_config".to_owned());
            let Some(nested) = attn_config else {
                // MPT without attn_config has its defaults.
                return if family.experts.is_some() { Err(missing()) } else { Ok(heads) };
            };
            nested.ignore(&["attn_uses_sequence_id", "qk_gn", "qk_ln", "attn_impl"]);
            match nested.text("attn_type") {
                None if family.experts.is_some() => nested.or_default(&["kv_n_heads"], NEEDED),
                None | Some("multihead_attention") => Ok(nested.optional(&["kv_n_heads"])?.unwrap_or(heads)),
                Some("multiquery_attention") => Ok(1),
                Some("grouped_query_attention") => nested.or_default(&["kv_n_heads"], NEEDED),
                Some(_) => {
                    let why = "is no multi-head, multi-query or grouped-query attention";
                    Err(ImportError::Unmodelled { key: "attn_config.attn_type".to_owned(), why })
                }
            }
        }
    }
}

fn read_ffn(
    reader: &ConfigReader,
    family: &Family,
    hidden: u32,
    ffn_config: Option<&ConfigReader>,
    gated: &mut bool,
) -> Result<u32, ImportError> {
    match family.defaults.ffn {
        FfnWidth::Default(width) => reader.or_default(FFN, width),
        FfnWidth::FourTimes => Ok(reader.optional(FFN)?.unwrap_or(hidden.saturating_mul(4))),
        FfnWidth::Halved => Ok(reader.or_default(FFN, NEEDED)? / 2),
        FfnWidth::BesideExperts(width) => {
            reader.ignore(FFN);
            reader.or_default(&["intermediate_size_mlp"], width)
        }
        FfnWidth::Absent | FfnWidth::Nested => {
            reader.ignore(FFN);
            Ok(0)
        }
        FfnWidth::Adjusted(width) => read_adjusted_ffn(reader, width),
        FfnWidth::Expansion => {
            let times = reader.or_default(&["expansion_ratio"], 4)?;
            let wide = hidden.saturating_mul(times);
            let Some(nested) = ffn_config else { return Ok(wide) };
            match nested.text("ffn_type") {
                None | Some("mptmlp") => {}
                Some("mptglu") => *gated = true,
                Some(_) => {
                    let why = "is neither mptmlp nor mptglu";
                    return Err(ImportError::Unmodelled { key: "ffn_config.ffn_type".to_owned(), why });
                }
            }
            nested.ignore(&["ffn_act_fn", "fc_type"]);
            Ok(nested.optional(&["ffn_hidden_size"])?.unwrap_or(wide))
        }
    }
}

/// Two thirds of the stated width, times a factor, rounded up: LFM2's rule.
fn read_adjusted_ffn(reader: &ConfigReader, width: u32) -> Result<u32, ImportError> {
    const FACTOR: &str = "block_ffn_dim_multiplier";
    reader.ignore(&["block_use_swiglu", "block_dim"]);
    let width = reader.or_default(&["block_ff_dim", "intermediate_size"], width)?;
    let multiple = reader.or_default(&["block_multiple_of"], 256)?.max(1);
    if reader.flag("block_auto_adjust_ff_dim")? == Some(false) {
        return Ok(width);
    }
    let factor = reader.value(FACTOR).and_then(Value::as_f64).unwrap_or(1.0);
    let odd = || ImportError::NoNumber { key: FACTOR.to_owned(), value: factor.to_string() };
    let factor = Some(factor).filter(|factor| (0.0..=100.0).contains(factor)).ok_or_else(odd)?;
    let adjusted = (factor * f64::from((f64::from(width) * 2.0 / 3.0) as u32)) as u32;
    Ok(adjusted.checked_next_multiple_of(multiple).unwrap_or(adjusted))
}

/// Rows of the table of learned positions, where a family has one.
fn read_positions(reader: &ConfigReader, family: &Family) -> Result<u32, ImportError> {
    let longest = |default| reader.longest_sequence().unwrap_or(default);
    match family.model_types[0] {
        "gpt2" | "gpt_bigcode" => Ok(longest(1024)),
        "gpt_neo" => Ok(longest(2048)),
        "opt" => {
            let projected = reader.optional(&["word_embed_proj_dim"])?;
            if projected.is_some_and(|width| reader.optional(HIDDEN).ok().flatten() != Some(width)) {
                let why = "differs from hidden_size";
                return Err(ImportError::Unmodelled { key: "word_embed_proj_dim".to_owned(), why });
            }
            // Two rows are for padding.
            Ok(longest(2048).saturating_add(2))
        }
        "mpt" if reader.is_set("learned_pos_emb") => {
            let config = reader.nested("attn_config");
            let others = config.is_some_and(|config| config.is_set("alibi") || config.is_set("rope"));
            Ok(if others { 0 } else { longest(2048) })
        }
        _ => Ok(0),
    }
}
