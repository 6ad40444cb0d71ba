//! Which keys of a `config.json` shape a model. A key that no reader knows is refused if its name looks
//! structural; these lists say what a name looks like.

/// Keys that name a structure and yet change nothing of parameters, memory and time.
const HARMLESS: &[&str] = &[
    "add_bos_token",
    "architectures",
    "attn_temperature_tuning",
    "auto_map",
    "chunk_size_feed_forward",
    "compression_config",
    "decoder_start_token_id",
    "ep_size",
    "model_type",
    "moe_router_dtype",
    "n_group",
    "no_rope_layer_interval",
    "no_rope_layers",
    "num_expert_group",
    "num_image_tokens",
    "num_labels",
    "no_repeat_ngram_size",
    "encoder_no_repeat_ngram_size",
    "num_logits_to_keep",
    "num_return_sequences",
    "original_max_position_embeddings",
    "output_attentions",
    "output_hidden_states",
    "parallel_attn",
    "position_embedding_type",
    "query_pre_attn_scalar",
    "return_dict",
    "router_dtype",
    "seq_aux",
    "task_specific_params",
    "topk_group",
    "topk_method",
    "use_parallel_residual",
    "vision_config",
];

/// Parts of names that tell of structure, whatever else the name holds.
const ALWAYS_STRUCTURAL_PARTS: &[&str] = &["activated", "ffn_dim", "multi_query", "multiple_of"];

/// Parts of names that are no structure, wherever they occur.
const HARMLESS_PARTS: &[&str] = &[
    "_act",
    "_drop",
    "_eps",
    "_impl",
    "activation",
    "alibi",
    "beam",
    "bf16",
    "bias",
    "cache",
    "checkpoint",
    "clip",
    "coef",
    "dropout",
    "dtype",
    "epsilon",
    "flash",
    "fp16",
    "fp32",
    "implementation",
    "init",
    "jitter",
    "kernels",
    "label",
    "logit",
    "loss",
    "multiplier",
    "noise",
    "norm",
    "pdrop",
    "penalty",
    "pretraining_tp",
    "quant",
    "rope",
    "rotary",
    "scal",
    "softcap",
    "softmax",
    "summary",
    "temperature",
    "time_step",
    "token_id",
    "token_index",
    "tokenizer",
    "upcast",
    "version",
];

/// Parts of names that tell of structure.
const STRUCTURAL_PARTS: &[&str] = &[
    "adapter",
    "altup",
    "attention",
    "attn",
    "block",
    "chunk",
    "cla",
    "conv",
    "cross",
    "decoder",
    "depth",
    "dim",
    "dense",
    "embed",
    "encoder",
    "expand",
    "expansion",
    "expert",
    "ffn",
    "freq",
    "group",
    "head",
    "hidden",
    "hybrid",
    "index",
    "inner",
    "interleave",
    "intermediate",
    "interval",
    "kv",
    "laurel",
    "layer",
    "linear",
    "lora",
    "loop",
    "lru",
    "mamba",
    "memory",
    "mlp",
    "moe",
    "mtp",
    "nextn",
    "num_",
    "offset",
    "pattern",
    "period",
    "rank",
    "ratio",
    "recurrent",
    "rwkv",
    "share",
    "size",
    "skip",
    "sparse",
    "ssm",
    "state",
    "stride",
    "topk",
    "vocab",
    "width",
    "window",
];

/// Whether a key's name tells of a structure that the estimate would have to know.
pub(super) fn looks_structural(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let has = |parts: &[&str]| parts.iter().any(|part| name.contains(part));
    let is_named = name.starts_with("n_") || name.starts_with("d_") || has(STRUCTURAL_PARTS);
    let is_structural = has(ALWAYS_STRUCTURAL_PARTS) || (is_named && !has(HARMLESS_PARTS));
    !name.starts_with('_') && !HARMLESS.contains(&name.as_str()) && is_structural
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_of_structure_is_not_hidden_by_a_harmless_part() {
        for name in ["ffn_dim_multiplier", "num_activated_experts", "multi_query", "d_ff", "multiple_of"] {
            assert!(looks_structural(name), "{name}");
        }
        for name in ["embedding_multiplier", "hidden_act", "activation_function", "rope_scaling"] {
            assert!(!looks_structural(name), "{name}");
        }
    }
}
