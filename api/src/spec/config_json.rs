//! The `config.json` of the Hugging Face hub, as the shape of the decoder that it describes.

use headway_types::{Experts, Latent, ModelShape, ModelShapeError};
use serde_json::{Map, Value};

/// Why a `config.json` is no model.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImportError {
    #[error("the model configuration is no JSON object")]
    NoObject,
    #[error("the model configuration has no usable {0}")]
    Missing(&'static str),
    #[error("the model configuration describes no possible model: {0}")]
    Impossible(#[source] ModelShapeError),
}

/// Families whose FFN is not gated, and whose tables are tied unless they say otherwise.
const PLAIN: [&str; 9] = ["gpt2", "gpt_neo", "gpt_neox", "opt", "bloom", "mpt", "falcon", "phi", "starcoder2"];

/// Reads it. Names differ between families; what a family leaves out has that family's usual value. `seq_len` is how long sequences are
/// trained, which the file does not say: without it, the longest the model allows.
pub fn import(config: &Value, seq_len: Option<u32>) -> Result<ModelShape, ImportError> {
    let object = config.as_object().ok_or(ImportError::NoObject)?;
    let nested = object.get("text_config").and_then(Value::as_object);
    let config = Config(nested.unwrap_or(object));
    let family = config.text("model_type").unwrap_or_default();
    let hidden = config.needed(&["hidden_size", "n_embd", "d_model"])?;
    let heads = config.needed(&["num_attention_heads", "n_head", "n_heads"])?;
    let trained = config.number(&["max_position_embeddings", "n_positions", "max_seq_len", "n_ctx"]);
    let activation = config.text("hidden_act").or(config.text("activation_function")).unwrap_or_default();
    let plain = PLAIN.contains(&family);
    let shared = config.flag("multi_query") == Some(true);
    let latent = latent(&config);
    let width =
        config.number(&["head_dim"]).filter(|width| latent.is_none() && width.checked_mul(heads) != Some(hidden));
    let shape = ModelShape {
        layers: config.needed(&["num_hidden_layers", "n_layer", "n_layers"])?,
        hidden,
        heads,
        kv_heads: match latent {
            Some(_) => heads,
            None => config.number(&["num_key_value_heads", "num_kv_heads"]).unwrap_or(if shared { 1 } else { heads }),
        },
        head_width: width,
        ffn_hidden: config
            .number(&["intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size"])
            .unwrap_or(hidden.saturating_mul(4)),
        gated: !plain && !matches!(activation, "relu2" | "relu" | "gelu_new"),
        experts: experts(&config),
        latent,
        vocab: config.needed(&["vocab_size"])?,
        tied: config.flag("tie_word_embeddings").unwrap_or(family.starts_with("gemma") || plain),
        seq_len: seq_len.or(trained).ok_or(ImportError::Missing("max_position_embeddings"))?,
    };
    shape.check().map_err(ImportError::Impossible)?;
    Ok(shape)
}

fn latent(config: &Config) -> Option<Latent> {
    Some(Latent {
        kv_rank: config.number(&["kv_lora_rank"])?,
        query_rank: config.number(&["q_lora_rank"]),
        plain_width: config.number(&["qk_nope_head_dim"]).unwrap_or(128),
        rotary_width: config.number(&["qk_rope_head_dim"]).unwrap_or(64),
        value_width: config.number(&["v_head_dim"]).unwrap_or(128),
    })
}

fn experts(config: &Config) -> Option<Experts> {
    let count = config
        .number(&["num_local_experts", "n_routed_experts", "num_experts", "moe_num_experts"])
        .filter(|count| *count > 1)?;
    let ffn_hidden = config.number(&["moe_intermediate_size", "intermediate_size", "ffn_hidden_size"]).unwrap_or(0);
    let shared = config
        .number(&["shared_expert_intermediate_size"])
        .unwrap_or_else(|| config.number(&["n_shared_experts"]).unwrap_or(0).saturating_mul(ffn_hidden));
    Some(Experts {
        count,
        active: config.number(&["num_experts_per_tok", "moe_top_k", "num_experts_per_token"]).unwrap_or(2),
        ffn_hidden,
        shared_ffn_hidden: shared,
        dense_layers: config.number(&["first_k_dense_replace"]).unwrap_or(0),
    })
}

/// The file's fields, under any of their names.
struct Config<'a>(&'a Map<String, Value>);

impl Config<'_> {
    fn number(&self, names: &[&str]) -> Option<u32> {
        names.iter().find_map(|name| self.0.get(*name)?.as_u64()).and_then(|value| u32::try_from(value).ok())
    }

    /// By the first of its names, where it is missing.
    fn needed(&self, names: &[&'static str]) -> Result<u32, ImportError> {
        self.number(names).ok_or(ImportError::Missing(names.first().copied().unwrap_or_default()))
    }

    fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name)?.as_str()
    }

    fn flag(&self, name: &str) -> Option<bool> {
        self.0.get(name)?.as_bool()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use headway_types::preset::presets;
    use proptest::prelude::*;

    use super::*;

    fn read(text: &str, seq_len: Option<u32>) -> Result<ModelShape, ImportError> {
        import(&serde_json::from_str(text).unwrap(), seq_len)
    }

    #[test]
    fn a_llama_configuration_is_imported_as_its_preset() {
        let text = r#"{"model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32,
            "num_hidden_layers": 32, "num_key_value_heads": 8, "vocab_size": 128256, "max_position_embeddings": 8192,
            "tie_word_embeddings": false, "hidden_act": "silu"}"#;
        assert_eq!(read(text, None).unwrap(), presets()["llama-3-8b"].shape());
        assert_eq!(read(text, Some(2048)).unwrap().seq_len, 2048);
    }

    #[test]
    fn an_expert_configuration_is_imported_as_its_preset() {
        let text = r#"{"model_type": "deepseek_v3", "hidden_size": 7168, "intermediate_size": 18432,
            "moe_intermediate_size": 2048, "num_attention_heads": 128, "num_hidden_layers": 61, "num_key_value_heads": 128,
            "n_routed_experts": 256, "n_shared_experts": 1, "num_experts_per_tok": 8, "first_k_dense_replace": 3,
            "kv_lora_rank": 512, "q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
            "vocab_size": 129280, "max_position_embeddings": 163840}"#;
        assert_eq!(read(text, Some(4096)).unwrap(), presets()["deepseek-v3"].shape());
    }

    #[test]
    fn what_is_missing_is_named() {
        let refused = |text| read(text, None).unwrap_err().to_string();
        assert_eq!(refused("[]"), "the model configuration is no JSON object");
        assert_eq!(refused(r#"{"hidden_size": 64}"#), "the model configuration has no usable num_attention_heads");
        let zero =
            r#"{"hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 0, "vocab_size": 9, "n_ctx": 9}"#;
        let told = refused(zero);
        assert_eq!(told, "the model configuration describes no possible model: layers must be at least 1");
    }

    proptest! {
        #[test]
        fn no_text_makes_the_import_panic(text in "\\PC{0,300}") {
            if let Ok(config) = serde_json::from_str(&text) {
                let _ = import(&config, None);
            }
        }

        #[test]
        fn what_is_imported_is_a_possible_model(numbers in prop::array::uniform8(any::<u32>()), gated: bool) {
            let [hidden, heads, layers, kv, vocab, length, experts, active] = numbers;
            let text = format!(
                r#"{{"hidden_size": {hidden}, "num_attention_heads": {heads}, "num_hidden_layers": {layers},
                "num_key_value_heads": {kv}, "vocab_size": {vocab}, "n_ctx": {length}, "num_experts": {experts},
                "num_experts_per_tok": {active}, "hidden_act": "{}"}}"#, if gated { "silu" } else { "relu" });
            if let Ok(shape) = read(&text, None) {
                prop_assert_eq!(shape.check(), Ok(()));
            }
        }
    }
}
