#![allow(clippy::unwrap_used)]
use std::collections::BTreeSet;

use headway_types::preset::presets;
use headway_types::{AttentionWindow, Experts, RecurrentKind};
use proptest::prelude::*;
use serde_json::json;

use super::*;

fn read(text: &str, seq_len: Option<u32>) -> Result<ModelShape, ImportError> {
    import(&serde_json::from_str(text).unwrap(), seq_len).map(|imported| imported.shape)
}

fn case(name: &str) -> Value {
    let path = std::path::Path::new("src/spec/config_json/cases").join(format!("{name}.json"));
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// A case with some of its keys replaced.
fn changed(name: &str, changes: Value) -> Value {
    let mut config = case(name);
    for (key, value) in changes.as_object().unwrap() {
        config.as_object_mut().unwrap().insert(key.clone(), value.clone());
    }
    config
}

fn refuse(config: &Value) -> String {
    import(config, Some(4096)).unwrap_err().to_string()
}

fn shape_of(config: &Value) -> ModelShape {
    import(config, Some(4096)).unwrap().shape
}

#[test]
fn a_llama_configuration_is_imported_as_its_preset() {
    let text = r#"{"model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32,
        "num_hidden_layers": 32, "num_key_value_heads": 8, "vocab_size": 128256, "max_position_embeddings": 8192,
        "tie_word_embeddings": false, "hidden_act": "silu"}"#;
    assert_eq!(read(text, Some(8192)).unwrap(), presets()["llama-3-8b"].shape());
    assert_eq!(read(text, Some(2048)).unwrap().seq_len, 2048);
}

#[test]
fn an_expert_configuration_is_imported_as_its_preset() {
    let text = r#"{"model_type": "deepseek_v3", "hidden_size": 7168, "intermediate_size": 18432,
        "moe_intermediate_size": 2048, "num_attention_heads": 128, "num_hidden_layers": 61, "num_key_value_heads": 128,
        "n_routed_experts": 256, "n_shared_experts": 1, "num_experts_per_tok": 8, "first_k_dense_replace": 3,
        "kv_lora_rank": 512, "q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
        "vocab_size": 129280, "max_position_embeddings": 163840, "num_nextn_predict_layers": 1}"#;
    assert_eq!(read(text, Some(4096)).unwrap(), presets()["deepseek-v3"].shape());
    let imported = import(&serde_json::from_str(text).unwrap(), Some(4096)).unwrap();
    assert!(imported.notes[0].starts_with("num_nextn_predict_layers 1 is not counted"), "{:?}", imported.notes);
}

#[test]
fn the_length_of_sequences_is_asked_for_with_what_the_configuration_allows() {
    let error = import(&case("gpt-oss-120b"), None).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the length of the training sequences is missing: a model configuration does not say it \
         (it allows up to 131072 tokens)"
    );
    assert_eq!(error.hint(), "add it, as in model: {config: config.json, seq_len: 4096}");
    let longer = import(&case("gemma2-27b"), Some(16_384)).unwrap();
    assert_eq!(longer.notes, ["sequences are longer than the 8192 tokens that the configuration allows"]);
}

#[test]
fn every_case_is_read() {
    let mut read = 0;
    for entry in std::fs::read_dir("src/spec/config_json/cases").unwrap() {
        let path = entry.unwrap().path();
        let config: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        let imported = import(&config, Some(4096));
        assert!(imported.is_ok(), "{}: {}", path.display(), imported.unwrap_err());
        read += 1;
    }
    assert!(read >= 40, "{read}");
}

#[test]
fn nested_and_renamed_keys_are_read() {
    let dbrx = shape_of(&case("dbrx"));
    let experts = Experts { count: 16, active: 4, ffn_hidden: 10_752, shared_ffn_hidden: 0, dense_layers: 0 };
    assert_eq!((dbrx.heads, dbrx.kv_heads, dbrx.experts), (48, 8, Some(experts)));
    let mpt = shape_of(&case("mpt-30b"));
    assert_eq!((mpt.hidden, mpt.ffn_hidden, mpt.gated, mpt.tied, mpt.kinds), (7168, 28_672, false, true, None));
    let starcoder = shape_of(&case("starcoder-15b"));
    assert_eq!((starcoder.kv_heads, starcoder.gated, starcoder.tied), (1, false, true));
    assert_eq!(starcoder.kinds.unwrap().positions, 8192);
    let llava = import(&case("llava-style"), Some(2048)).unwrap();
    assert_eq!((llava.shape.layers, llava.shape.hidden, llava.shape.vocab), (32, 4096, 32_064));
    assert_eq!(llava.notes, ["vision_config is not counted"]);
}

#[test]
fn layers_of_several_kinds_are_counted() {
    let window = |name: &str| shape_of(&case(name)).kinds.unwrap().window.unwrap();
    let sliding = |layers, tokens| AttentionWindow { layers, tokens, chunked: false };
    assert_eq!(window("gemma2-27b"), sliding(23, 4096));
    assert_eq!(window("gemma3-4b"), sliding(29, 1024));
    assert_eq!(window("gpt-oss-120b"), sliding(18, 128));
    assert_eq!(window("command-r7b"), sliding(24, 4096));
    assert_eq!(window("gpt-neo-1.3b"), sliding(12, 256));
    assert_eq!(window("starcoder2-7b"), sliding(32, 4096));
    assert_eq!(window("llama4-scout"), AttentionWindow { layers: 36, tokens: 8192, chunked: true });
    let hybrid = |name: &str| {
        let shape = shape_of(&case(name));
        let recurrent = shape.kinds.unwrap().recurrent.unwrap();
        (recurrent.layers, recurrent.kind, shape.attention_layers())
    };
    assert_eq!(hybrid("nemotron-h-8b"), (24, RecurrentKind::Mamba2, 4));
    assert_eq!(hybrid("jamba-v0.1"), (28, RecurrentKind::Mamba, 4));
    assert_eq!(hybrid("bamba-9b"), (29, RecurrentKind::Mamba2, 3));
    assert_eq!(hybrid("qwen3-next-80b-a3b"), (36, RecurrentKind::GatedDelta, 12));
    assert_eq!(hybrid("minimax-text-01"), (70, RecurrentKind::Lightning, 10));
    assert_eq!(hybrid("lfm2-1.2b"), (10, RecurrentKind::Convolution, 6));
    assert_eq!(hybrid("mamba-2.8b"), (64, RecurrentKind::Mamba, 0));
    let experts = |name: &str| {
        let shape = shape_of(&case(name));
        (shape.expert_layers(), shape.dense_layers(), shape.experts.unwrap().shared_ffn_hidden)
    };
    assert_eq!(experts("llama4-maverick"), (24, 24, 8192));
    assert_eq!(experts("glm-4.5-air"), (45, 1, 1408));
    assert_eq!(experts("jamba-v0.1"), (16, 16, 0));
    assert_eq!(experts("ernie-4.5-21b-a3b"), (27, 1, 3072));
}

#[test]
fn layers_that_a_file_lists_one_by_one_are_counted() {
    let types: Vec<&str> = (0..36).map(|at| if at < 6 { "full_attention" } else { "sliding_attention" }).collect();
    let shape = shape_of(&changed("gpt-oss-120b", json!({ "layer_types": types })));
    assert_eq!(shape.kinds.unwrap().window.unwrap().layers, 30);
    let few = refuse(&changed("gpt-oss-120b", json!({ "layer_types": ["full_attention"] })));
    assert_eq!(few, "layer_types of the model configuration has 1 entries for 36 layers");
    let types: Vec<&str> = (0..36).map(|_| "retention").collect();
    let odd = refuse(&changed("gpt-oss-120b", json!({ "layer_types": types })));
    assert!(odd.contains("layers of kind \"retention\""), "{odd}");
    // A window that is switched off, and one of every layer but the first ones.
    let qwen = json!({ "model_type": "qwen2", "sliding_window": 1024, "max_window_layers": 20 });
    assert_eq!(shape_of(&qwen).kinds, None);
    let qwen = json!({ "model_type": "qwen2", "sliding_window": 1024, "max_window_layers": 20,
                       "use_sliding_window": true });
    assert_eq!(shape_of(&qwen).kinds.unwrap().window.unwrap().layers, 12);
    let blocks: Vec<Value> = (0..4)
        .map(|at| {
            json!({ "attention": { "n_heads_in_group": 8, "no_op": at == 1, "window_length": null },
                    "ffn": { "ffn_mult": if at == 2 { 5.25 } else { 2.625 }, "no_op": at == 3 } })
        })
        .collect();
    let nas = json!({ "model_type": "nemotron-nas", "hidden_size": 8192, "num_attention_heads": 64,
                      "num_key_value_heads": null, "intermediate_size": null, "num_hidden_layers": 4,
                      "vocab_size": 128256, "block_configs": blocks });
    let shape = shape_of(&nas);
    let kinds = shape.kinds.unwrap();
    assert_eq!((shape.kv_heads, kinds.ffn_only, kinds.without_ffn), (8, 1, 1));
    // 14,336 twice and 28,672 once, on average.
    assert_eq!(shape.ffn_hidden, 19_114);
}

#[test]
fn what_is_not_modelled_is_refused_by_name() {
    let refused: Vec<(Value, &str)> = vec![
        (json!([]), "no JSON object"),
        (json!({ "hidden_size": 64 }), "no model_type"),
        (json!({ "model_type": "llamma" }), "model_type llamma is not known to Headway, did you mean llama?"),
        (json!({ "model_type": "bert" }), "a model of type bert is an encoder"),
        (json!({ "model_type": "t5" }), "encoder with a decoder"),
        (json!({ "model_type": "llama", "is_encoder_decoder": true }), "encoder with a decoder"),
        (json!({ "model_type": "mllama", "text_config": {} }), "cross-attention"),
        (json!({ "model_type": "gemma3n" }), "alternating updates"),
        (json!({ "model_type": "somevl", "text_config": { "model_type": "llama" } }), "somevl is not known"),
        (json!({ "model_type": "kimi_k2", "hidden_size": 7168 }), "has no num_attention_heads"),
        (json!({ "model_type": "llama", "hidden_size": null }), "hidden_size of the model configuration is null"),
        (json!({ "model_type": "llama", "num_hidden_layers": 2.5 }), "is 2.5, which is not a usable number"),
        (json!({ "model_type": "llama", "num_hidden_layers": "many" }), "num_hidden_layers"),
        (json!({ "model_type": "llama", "hidden_size": 512, "n_embd": 768 }), "hidden_size and n_embd"),
        (json!({ "model_type": "llama", "sliding_window": 4096 }), "does not know: sliding_window"),
        (json!({ "model_type": "llama", "expert_layer_period": 2, "num_experts": 8 }), "expert_layer_period"),
        (json!({ "model_type": "llama", "block_configs": [{}] }), "block_configs"),
        (json!({ "model_type": "llama", "cross_attention_layers": [3] }), "cross_attention_layers"),
        (json!({ "model_type": "llama", "attn_layer_period": 8 }), "attn_layer_period"),
        (json!({ "model_type": "llama", "use_cla": true }), "use_cla"),
        (json!({ "model_type": "mistral", "mamba_d_state": 16 }), "mamba_d_state"),
        (json!({ "model_type": "llama", "num_hidden_layers": 0 }), "layers must be at least 1"),
        (json!({ "model_type": "llama", "num_hidden_layers": 4_000_000_000u32 }), "num_hidden_layers"),
        (changed("jamba-v0.1", json!({ "attn_layer_period": 0 })), "attn_layer_period"),
        (changed("mpt-30b", json!({ "attn_config": { "attn_type": "linear" } })), "attn_config.attn_type"),
        (changed("mpt-30b", json!({ "ffn_config": { "ffn_type": "mb_moe" } })), "ffn_config.ffn_type"),
        (changed("dbrx", json!({ "ffn_config": null })), "has no ffn_config"),
        (changed("dbrx", json!({ "attn_config": { "kv_n_heads": 8, "sparse_block": 64 } })), "sparse_block"),
        (changed("nemotron-h-8b", json!({ "hybrid_override_pattern": "MX*-" })), "hybrid_override_pattern"),
        (changed("nemotron-h-8b", json!({ "hybrid_override_pattern": "M-*" })), "3 entries for 52 layers"),
        (changed("hunyuan-a13b", json!({ "moe_topk": [8, 4] })), "moe_topk"),
        (changed("opt-6.7b", json!({ "word_embed_proj_dim": 512 })), "word_embed_proj_dim"),
        (changed("kimi-k2", json!({ "n_routed_experts": null })), "n_routed_experts"),
    ];
    for (config, expected) in refused {
        let error = refuse(&config);
        assert!(error.contains(expected), "{config}: {error}");
    }
}

#[test]
fn keys_that_shape_nothing_are_no_obstacle() {
    let config = json!({
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "attention_bias": true, "attention_dropout": 0.1,
        "attn_implementation": "flash_attention_2", "bos_token_id": 1, "chunk_size_feed_forward": 0, "dtype": "bfloat16",
        "eos_token_id": [2, 3], "hidden_act": "silu", "initializer_range": 0.02, "layer_types": null, "mlp_bias": false,
        "num_beams": 1, "num_return_sequences": 1, "output_attentions": false, "output_hidden_states": true,
        "pretraining_tp": 1, "quantization_config": { "quant_method": "fp8", "weight_block_size": [128, 128] },
        "rms_norm_eps": 1e-5, "rope_scaling": { "factor": 8.0 }, "rope_theta": 5e5, "sliding_window": null,
        "task_specific_params": { "num_layers": 3 }, "top_k": 50, "torch_dtype": "float16",
        "transformers_version": "4.44.0", "use_cache": true, "head_dim": 128,
    });
    let imported = import(&config, Some(2048)).unwrap();
    assert_eq!(imported.shape.head_width, None);
    let note = "quantization_config (fp8) does not matter: precision says how it is trained";
    assert_eq!(imported.notes, [note]);
}

#[test]
fn a_vision_part_beside_the_decoder_is_named_and_not_counted() {
    let config = json!({"model_type": "qwen2_5_vl", "hidden_size": 3584, "intermediate_size": 18944,
        "num_attention_heads": 28, "num_hidden_layers": 28, "num_key_value_heads": 4, "vocab_size": 152064,
        "max_position_embeddings": 128000, "max_window_layers": 28, "sliding_window": 32768,
        "use_sliding_window": false, "tie_word_embeddings": false, "return_dict": true, "rms_norm_eps": 1e-06,
        "vision_start_token_id": 151652, "vision_config": {"depth": 32, "hidden_size": 1280, "num_heads": 16}});
    let imported = import(&config, Some(4096)).unwrap();
    assert_eq!((imported.shape.layers, imported.shape.hidden), (28, 3584));
    assert_eq!(imported.notes, ["vision_config is not counted"]);
}

#[test]
fn a_family_without_dense_layers_needs_no_word_about_them() {
    for model_type in ["mistral4", "dots1"] {
        let config = json!({"model_type": model_type, "n_routed_experts": 16, "num_experts_per_tok": 2,
            "moe_intermediate_size": 1024, "n_shared_experts": 1});
        match import(&config, Some(4096)) {
            Ok(imported) => assert_eq!(imported.shape.experts.unwrap().dense_layers, 0, "{model_type}"),
            Err(error) => assert!(!error.to_string().contains("first_k_dense_replace"), "{model_type}: {error}"),
        }
    }
}

#[test]
fn every_family_is_complete_or_asks_by_name_for_what_it_needs() {
    let mut types = BTreeSet::new();
    for model_type in known_types() {
        assert!(types.insert(model_type), "{model_type} is in two families");
        assert_eq!(find_obstacle(model_type), None, "{model_type}");
        match import(&json!({ "model_type": model_type }), Some(1024)) {
            Ok(imported) => assert_eq!(imported.shape.check(), Ok(()), "{model_type}"),
            Err(ImportError::Missing(_)) => {}
            Err(other) => panic!("{model_type}: {other}"),
        }
    }
}

#[test]
fn numbers_as_python_writes_them_are_read() {
    let text = r#"{"time_step_limit": [0.0, Infinity], "a": "say \"NaN\" or Infinity", "b": -Infinity}"#;
    let config = parse_config(text).unwrap();
    assert_eq!(config, json!({ "time_step_limit": [0.0, null], "a": "say \"NaN\" or Infinity", "b": null }));
    assert!(parse_config("{\"a\": Infinite}").is_err());
}

proptest! {
    #[test]
    fn no_text_makes_the_import_panic(text in "\\PC{0,300}") {
        if let Ok(config) = parse_config(&text) {
            let _ = import(&config, None);
        }
    }

    #[test]
    fn what_is_imported_is_a_possible_model(
        numbers in prop::array::uniform8(any::<u32>()), family in any::<prop::sample::Index>(),
    ) {
        let [hidden, heads, layers, kv, vocab, period, experts, active] = numbers;
        let types: Vec<&str> = known_types().collect();
        let config = json!({
            "model_type": types[family.index(types.len())], "hidden_size": hidden, "num_attention_heads": heads,
            "num_hidden_layers": layers % 200, "num_key_value_heads": kv, "vocab_size": vocab,
            "num_experts": experts, "num_experts_per_tok": active, "intermediate_size": period,
            "attn_layer_period": period % 20, "expert_layer_period": period % 7, "decoder_sparse_step": period % 5,
            "sliding_window": hidden, "sliding_window_pattern": period % 9, "state_size": kv, "expand": active,
        });
        if let Ok(imported) = import(&config, Some(1024)) {
            prop_assert_eq!(imported.shape.check(), Ok(()));
        }
    }
}
