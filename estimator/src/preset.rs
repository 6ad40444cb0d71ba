//! Architectures by name, and architectures from the `config.json` of the Hugging Face hub. The built-in names are `headway_types::preset`'s.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use headway_goodput::architecture::{Architecture, ArchitectureError, Attention, Experts};
use headway_types::preset;
use serde_json::{Map, Value};

/// A model whose architecture its publisher states.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Preset {
    pub architecture: Architecture,
    /// Published parameters, in billions: all, and those a token passes.
    pub parameters: f64,
    pub active: f64,
}

/// Why a `config.json` is no model.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    #[error("the model configuration is no JSON object")]
    Syntax(#[source] Option<serde_json::Error>),
    #[error("the model configuration has no usable {0}")]
    Missing(&'static str),
    #[error("the model configuration describes no possible model")]
    Impossible(#[from] ArchitectureError),
}

/// The built-in models, by name.
#[must_use]
pub fn presets() -> &'static BTreeMap<String, Preset> {
    static PRESETS: LazyLock<BTreeMap<String, Preset>> =
        LazyLock::new(|| preset::presets().iter().map(|(name, stated)| (name.clone(), of(stated))).collect());
    &PRESETS
}

/// The built-in model of a name; case and separators between family and size do not matter ("Llama3-70B").
#[must_use]
pub fn preset_named(name: &str) -> Option<&'static Preset> {
    let plain = |name: &str| name.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_ascii_lowercase();
    let wanted = plain(name);
    presets().iter().find(|(known, _)| plain(known) == wanted).map(|(_, preset)| preset)
}

fn of(stated: &preset::Preset) -> Preset {
    let grouped = Attention::Grouped { kv_heads: stated.kv_heads(), head_width: stated.head_width() };
    let architecture = Architecture {
        layers: stated.layers,
        hidden: stated.hidden,
        heads: stated.heads,
        attention: stated.latent.map_or(grouped, |latent| Attention::Latent {
            query_rank: Some(latent.query_rank),
            kv_rank: latent.kv_rank,
            plain_width: latent.plain_width,
            rotary_width: latent.rotary_width,
            value_width: latent.value_width,
        }),
        ffn_hidden: stated.ffn_hidden,
        gated: stated.gated,
        experts: stated.experts,
        vocab: stated.vocab,
        tied: stated.tied,
        seq_len: stated.seq_len,
    };
    Preset { architecture, parameters: stated.parameters, active: stated.active.unwrap_or(stated.parameters) }
}

/// Reads the `config.json` of a decoder. Names differ between families; what a family leaves out has that family's usual value.
/// `seq_len` is how long sequences are trained, which the file does not say: without it, the longest the model allows.
pub fn import(text: &str, seq_len: Option<u32>) -> Result<Architecture, ImportError> {
    let value: Value = serde_json::from_str(text).map_err(|error| ImportError::Syntax(Some(error)))?;
    let object = value.as_object().ok_or(ImportError::Syntax(None))?;
    let nested = object.get("text_config").and_then(Value::as_object);
    let config = Config(nested.unwrap_or(object));
    let family = config.text("model_type").unwrap_or_default();
    let hidden = config.number(&["hidden_size", "n_embd", "d_model"]).ok_or(ImportError::Missing("hidden_size"))?;
    let heads = config
        .number(&["num_attention_heads", "n_head", "n_heads"])
        .ok_or(ImportError::Missing("num_attention_heads"))?;
    let trained = config.number(&["max_position_embeddings", "n_positions", "max_seq_len", "n_ctx"]);
    let activation = config.text("hidden_act").or(config.text("activation_function")).unwrap_or_default();
    let plain = ["gpt2", "gpt_neo", "gpt_neox", "opt", "bloom", "mpt", "falcon", "phi", "starcoder2"].contains(&family);
    let architecture = Architecture {
        layers: config
            .number(&["num_hidden_layers", "n_layer", "n_layers"])
            .ok_or(ImportError::Missing("num_hidden_layers"))?,
        hidden,
        heads,
        attention: attention(&config, hidden, heads),
        ffn_hidden: config
            .number(&["intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size"])
            .unwrap_or(hidden.saturating_mul(4)),
        gated: !plain && !matches!(activation, "relu2" | "relu" | "gelu_new"),
        experts: experts(&config),
        vocab: config.number(&["vocab_size"]).ok_or(ImportError::Missing("vocab_size"))?,
        tied: config.flag("tie_word_embeddings").unwrap_or(family.starts_with("gemma") || plain),
        seq_len: seq_len.or(trained).ok_or(ImportError::Missing("max_position_embeddings"))?,
    };
    architecture.check()?;
    Ok(architecture)
}

fn attention(config: &Config, hidden: u32, heads: u32) -> Attention {
    if let Some(kv_rank) = config.number(&["kv_lora_rank"]) {
        return Attention::Latent {
            query_rank: config.number(&["q_lora_rank"]),
            kv_rank,
            plain_width: config.number(&["qk_nope_head_dim"]).unwrap_or(128),
            rotary_width: config.number(&["qk_rope_head_dim"]).unwrap_or(64),
            value_width: config.number(&["v_head_dim"]).unwrap_or(128),
        };
    }
    let shared = config.flag("multi_query") == Some(true);
    Attention::Grouped {
        kv_heads: config.number(&["num_key_value_heads", "num_kv_heads"]).unwrap_or(if shared { 1 } else { heads }),
        head_width: config.number(&["head_dim"]).unwrap_or(hidden / heads.max(1)),
    }
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
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn presets_have_their_published_sizes() {
        for (name, preset) in presets() {
            preset.architecture.check().unwrap();
            let near = |ours: f64, theirs: f64, what: &str| {
                let off = ours / 1e9 / theirs - 1.0;
                assert!(off.abs() < 0.012, "{name}: {what} {:.4} B against {theirs} B ({off:+.4})", ours / 1e9);
            };
            near(preset.architecture.parameters(), preset.parameters, "parameters");
            near(preset.architecture.active_parameters(), preset.active, "active parameters");
        }
    }

    #[test]
    fn names_are_forgiving_about_separators() {
        assert_eq!(preset_named("Llama3-70B"), presets().get("llama-3-70b"));
        assert_eq!(preset_named("qwen2.5-7b"), presets().get("qwen-2.5-7b"));
        assert_eq!(preset_named("llama-9-7b"), None);
    }

    #[test]
    fn a_llama_configuration_is_imported_as_its_preset() {
        let text = r#"{"model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32,
            "num_hidden_layers": 32, "num_key_value_heads": 8, "vocab_size": 128256, "max_position_embeddings": 8192,
            "tie_word_embeddings": false, "hidden_act": "silu"}"#;
        assert_eq!(import(text, None).unwrap(), presets()["llama-3-8b"].architecture);
        assert_eq!(import(text, Some(2048)).unwrap().seq_len, 2048);
    }

    #[test]
    fn an_expert_configuration_is_imported_as_its_preset() {
        let text = r#"{"model_type": "deepseek_v3", "hidden_size": 7168, "intermediate_size": 18432,
            "moe_intermediate_size": 2048, "num_attention_heads": 128, "num_hidden_layers": 61, "num_key_value_heads": 128,
            "n_routed_experts": 256, "n_shared_experts": 1, "num_experts_per_tok": 8, "first_k_dense_replace": 3,
            "kv_lora_rank": 512, "q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
            "vocab_size": 129280, "max_position_embeddings": 163840}"#;
        assert_eq!(import(text, Some(4096)).unwrap(), presets()["deepseek-v3"].architecture);
    }

    #[test]
    fn what_is_missing_is_named() {
        let refused = |text| import(text, None).unwrap_err().to_string();
        assert_eq!(refused("[]"), "the model configuration is no JSON object");
        assert_eq!(refused(r#"{"hidden_size": 64}"#), "the model configuration has no usable num_attention_heads");
        let zero =
            r#"{"hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 0, "vocab_size": 9, "n_ctx": 9}"#;
        assert_eq!(refused(zero), "the model configuration describes no possible model");
    }

    proptest! {
        #[test]
        fn no_text_makes_the_import_panic(text in "\\PC{0,300}") {
            let _ = import(&text, None);
        }

        #[test]
        fn no_numbers_make_the_import_panic(numbers in prop::array::uniform8(any::<u32>()), gated: bool) {
            let [hidden, heads, layers, kv, vocab, length, experts, active] = numbers;
            let text = format!(
                r#"{{"hidden_size": {hidden}, "num_attention_heads": {heads}, "num_hidden_layers": {layers},
                "num_key_value_heads": {kv}, "vocab_size": {vocab}, "n_ctx": {length}, "num_experts": {experts},
                "num_experts_per_tok": {active}, "hidden_act": "{}"}}"#, if gated { "silu" } else { "relu" });
            if let Ok(architecture) = import(&text, None) {
                prop_assert!(architecture.parameters().is_finite() && architecture.training_flops_per_token() > 0.0);
            }
        }
    }
}
