//! Experts of a mixture: how many there are, how wide they are, and which layers have them.

use headway_types::Experts;
use serde_json::Value;

use super::ImportError;
use super::family::{ExpertKeys, ExpertLayers, SharedExperts};
use super::layers::{LayerPlan, count_every};
use super::reader::{ConfigReader, NEEDED};

/// Reads the experts; `None` where the file has no mixture.
pub(super) fn read_experts(
    reader: &ConfigReader,
    keys: &ExpertKeys,
    plan: &LayerPlan,
    hidden: u32,
) -> Result<Option<Experts>, ImportError> {
    let [count, active, width] = keys.defaults;
    if matches!(keys.layers, ExpertLayers::Pattern) && plan.expert_layers == Some(0) {
        reader.ignore(keys.count);
        reader.ignore(keys.active);
        reader.ignore(&["n_shared_experts", "moe_shared_expert_intermediate_size", "moe_intermediate_size"]);
        return Ok(None);
    }
    let count = reader.or_default(keys.count, count)?;
    if count <= 1 {
        reader.ignore(keys.active);
        reader.ignore(&["expert_layer_period", "expert_layer_offset", "decoder_sparse_step", "moe_layer_freq"]);
        return Ok(None);
    }
    let active = reader.uniform(keys.active, active)?;
    let ffn_hidden = reader.uniform(keys.width, width)?;
    let shared_ffn_hidden = match keys.shared {
        SharedExperts::Absent => 0,
        SharedExperts::Width(key, default) => match reader.value(key) {
            None if default == NEEDED => 0,
            _ => reader.or_default(&[key], default)?,
        },
        SharedExperts::Count(keys, default) => shared_count(reader, keys, default)?.saturating_mul(ffn_hidden),
        SharedExperts::One => ffn_hidden,
        SharedExperts::Residual if reader.flag("parallel_attn_mlp_res")?.unwrap_or(false) => hidden,
        SharedExperts::Residual => 0,
    };
    if matches!(keys.layers, ExpertLayers::Pattern) {
        reader.ignore(&["n_shared_experts"]);
    }
    let with_experts = expert_layers(reader, keys.layers, plan)?;
    if with_experts == 0 {
        return Ok(None);
    }
    let with_ffn = plan.layers.saturating_sub(plan.kinds.without_ffn);
    let dense_layers = with_ffn.saturating_sub(with_experts);
    Ok(Some(Experts { count, active, ffn_hidden, shared_ffn_hidden, dense_layers }))
}

/// Experts that every token passes: missing and null are none where a family has none by default.
fn shared_count(reader: &ConfigReader, keys: &[&str], default: u32) -> Result<u32, ImportError> {
    let is_null = keys.iter().filter_map(|key| reader.value(key)).any(Value::is_null);
    if is_null {
        return Ok(0);
    }
    let is_missing = keys.iter().all(|key| reader.value(key).is_none());
    if is_missing { Ok(default) } else { reader.uniform(keys, NEEDED) }
}

fn expert_layers(reader: &ConfigReader, rule: ExpertLayers, plan: &LayerPlan) -> Result<u32, ImportError> {
    let layers = plan.layers;
    match rule {
        ExpertLayers::All => Ok(layers.saturating_sub(plan.kinds.without_ffn)),
        ExpertLayers::Pattern => Ok(plan.expert_layers.unwrap_or(0)),
        ExpertLayers::AfterFirst(first) => match sparse_layers(reader, layers)? {
            Some(listed) => Ok(listed),
            None => after_first(reader, layers, first),
        },
        ExpertLayers::AfterDense(dense) => {
            Ok(layers.saturating_sub(reader.optional(&["num_dense_layers"])?.unwrap_or(dense)))
        }
        ExpertLayers::SparseStep => {
            let step = reader.or_default(&["decoder_sparse_step"], 1)?;
            let dense = reader.indices("mlp_only_layers")?.unwrap_or_default();
            if step == 0 {
                return Err(ImportError::NoNumber { key: "decoder_sparse_step".into(), value: "0".into() });
            }
            Ok((0..layers).filter(|at| (at + 1).is_multiple_of(step) && !dense.contains(at)).count() as u32)
        }
        ExpertLayers::Interleaved => {
            let step = reader.or_default(&["interleave_moe_layer_step"], 1)?;
            match reader.indices("moe_layers")? {
                Some(listed) => Ok(listed.range(..layers).count() as u32),
                // A step of 0 is a model without experts.
                None => Ok(layers.checked_div(step).unwrap_or(0)),
            }
        }
        ExpertLayers::Period => {
            let period = reader.or_default(&["expert_layer_period"], 2)?;
            let offset = reader.or_default(&["expert_layer_offset"], 1)?;
            count_every(layers, period, offset, "expert_layer_period")
        }
        ExpertLayers::Frequency => {
            let frequency = reader.or_default(&["moe_layer_frequency"], 2)?;
            count_every(layers, frequency, frequency.saturating_sub(1), "moe_layer_frequency")
        }
        ExpertLayers::Interval => {
            let last = match reader.value("moe_layer_end_index").and_then(Value::as_i64) {
                Some(end) => u32::try_from(end).unwrap_or(layers.saturating_sub(1)),
                None => layers.saturating_sub(1),
            };
            let first = reader.or_default(&["moe_layer_start_index"], 1)?;
            let interval = reader.or_default(&["moe_layer_interval"], 1)?;
            let all = count_every(layers, interval, interval.saturating_sub(1), "moe_layer_interval")?;
            let within = |at: &u32| (at + 1).is_multiple_of(interval) && (first..=last).contains(at);
            Ok(if first == 0 && last.saturating_add(1) >= layers {
                all
            } else {
                (0..layers).filter(within).count() as u32
            })
        }
        ExpertLayers::MlpTypes => Ok(sparse_layers(reader, layers)?.unwrap_or(layers.saturating_sub(1))),
    }
}

/// All but the first layers, every `moe_layer_freq`th of them.
fn after_first(reader: &ConfigReader, layers: u32, first: u32) -> Result<u32, ImportError> {
    const KEY: &str = "moe_layer_freq";
    let first = reader.optional(&["first_k_dense_replace"])?.unwrap_or(first);
    if let Some(Value::Array(marks)) = reader.value(KEY) {
        if u32::try_from(marks.len()) != Ok(layers) {
            return Err(ImportError::Length { key: KEY.to_owned(), entries: marks.len(), layers });
        }
        let marked = marks.iter().skip(first as usize).filter(|mark| mark.as_u64().is_some_and(|mark| mark > 0));
        return Ok(marked.count() as u32);
    }
    let frequency = reader.or_default(&[KEY], 1)?;
    if frequency == 0 {
        return Err(ImportError::NoNumber { key: KEY.to_owned(), value: "0".into() });
    }
    Ok((first..layers).filter(|at| at.is_multiple_of(frequency)).count() as u32)
}

/// Layers that `mlp_layer_types` calls sparse.
fn sparse_layers(reader: &ConfigReader, layers: u32) -> Result<Option<u32>, ImportError> {
    const KEY: &str = "mlp_layer_types";
    let Some(types) = reader.list(KEY)? else { return Ok(None) };
    if u32::try_from(types.len()) != Ok(layers) {
        return Err(ImportError::Length { key: KEY.to_owned(), entries: types.len(), layers });
    }
    let odd = types.iter().filter_map(Value::as_str).find(|kind| !matches!(*kind, "sparse" | "dense"));
    if let Some(kind) = odd {
        return Err(ImportError::LayerType { key: KEY.to_owned(), kind: kind.to_owned() });
    }
    Ok(Some(types.iter().filter(|kind| kind.as_str() == Some("sparse")).count() as u32))
}
