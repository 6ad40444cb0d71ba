//! The families of models that are understood, by `model_type`. Defaults are those of their
//! configurations in the Transformers library; families whose code comes with the model have none.

use super::family::{
    Dimensions, ExpertKeys, ExpertLayers, Family, FfnWidth, Hybrid, KvHeads, LatentDefaults, Layers, SharedExperts,
};
use super::reader::NEEDED;

/// Finds the family of a `model_type`.
pub(super) fn find_family(model_type: &str) -> Option<&'static Family> {
    FAMILIES.iter().find(|family| family.model_types.contains(&model_type))
}

/// Every `model_type` that is understood.
pub(super) fn known_types() -> impl Iterator<Item = &'static str> {
    FAMILIES.iter().flat_map(|family| family.model_types.iter().copied())
}

/// Why a model that is no decoder, or none of the kinds that are modelled, is refused.
pub(super) fn find_obstacle(model_type: &str) -> Option<&'static str> {
    UNMODELLED.iter().find(|(types, _)| types.contains(&model_type)).map(|(_, why)| *why)
}

/// The text model's type of a wrapper whose `text_config` does not say it.
pub(super) fn text_type(wrapper: &str) -> Option<&'static str> {
    WRAPPERS.iter().find(|(name, _)| *name == wrapper).map(|(_, text)| *text)
}

const WRAPPERS: &[(&str, &str)] = &[
    ("gemma3", "gemma3_text"),
    ("llama4", "llama4_text"),
    ("llava", "llama"),
    ("llava_next", "llama"),
    ("vipllava", "llama"),
    ("llava_onevision", "qwen2"),
    ("mistral3", "mistral"),
    ("paligemma", "gemma"),
    ("internvl", "qwen2"),
    ("qwen2_vl", "qwen2_vl_text"),
    ("qwen2_5_vl", "qwen2_5_vl_text"),
    ("qwen3_vl", "qwen3_vl_text"),
    ("qwen3_vl_moe", "qwen3_vl_moe_text"),
    ("qwen3_5", "qwen3_5_text"),
    ("qwen3_5_moe", "qwen3_5_moe_text"),
    ("glm4v", "glm4v_text"),
    ("glm4v_moe", "glm4v_moe_text"),
    ("idefics2", "mistral"),
    ("idefics3", "llama"),
    ("smolvlm", "llama"),
    ("aya_vision", "cohere2"),
    ("kimi_vl", "deepseek_v3"),
    ("kimi_k25", "kimi_k2"),
    ("cohere2_vision", "cohere2"),
    ("internvl_chat", "internlm2"),
    ("llava_next_video", "llama"),
    ("video_llava", "llama"),
];

const ENCODER: &str = "is an encoder, and only decoders are modelled";
const ENCODER_DECODER: &str = "is an encoder with a decoder, and only decoders are modelled";

const UNMODELLED: &[(&[&str], &str)] = &[
    (
        &[
            "albert",
            "bert",
            "camembert",
            "convbert",
            "deberta",
            "deberta-v2",
            "distilbert",
            "electra",
            "ernie",
            "esm",
            "eurobert",
            "flaubert",
            "ibert",
            "longformer",
            "megatron-bert",
            "mobilebert",
            "modernbert",
            "mpnet",
            "nomic_bert",
            "rembert",
            "roberta",
            "roformer",
            "squeezebert",
            "xlm",
            "xlm-roberta",
            "xlm-roberta-xl",
        ],
        ENCODER,
    ),
    (
        &[
            "bart",
            "bigbird_pegasus",
            "blenderbot",
            "blenderbot-small",
            "encoder-decoder",
            "fsmt",
            "led",
            "longt5",
            "m2m_100",
            "marian",
            "mbart",
            "mt5",
            "mvp",
            "nllb-moe",
            "pegasus",
            "pegasus_x",
            "plbart",
            "prophetnet",
            "switch_transformers",
            "t5",
            "t5gemma",
            "t5gemma2",
            "umt5",
            "whisper",
        ],
        ENCODER_DECODER,
    ),
    (&["gemma3n", "gemma3n_text"], "has alternating updates and per-layer embeddings, which are not modelled"),
    (&["mllama", "mllama_text_model"], "has layers of cross-attention, which are not modelled"),
    (&["deepseek_v32", "glm_moe_dsa"], "has sparse attention with an indexer, which is not modelled"),
    (&["kimi_linear"], "has Kimi delta attention, which is not modelled"),
    (&["zamba", "zamba2"], "shares blocks between layers, which is not modelled"),
    (&["falcon_h1", "hymba"], "has attention and state spaces side by side, which are not modelled"),
    (&["recurrent_gemma", "rwkv", "rwkv5", "rwkv6", "rwkv7", "xlstm"], "has recurrences that are not modelled"),
    (&["jetmoe"], "has experts of attention, which are not modelled"),
    (&["longcat_flash"], "has two attentions per layer and experts without parameters, which are not modelled"),
    (&["phi3small"], "has block-sparse attention, which is not modelled"),
    (&["step3", "step3_text"], "has factorised attention, which is not modelled"),
];

/// No default: the code of these models comes with them.
const UNSTATED: Dimensions = sizes(NEEDED, NEEDED, NEEDED, NEEDED, NEEDED);

const fn sizes(layers: u32, hidden: u32, heads: u32, ffn: u32, vocab: u32) -> Dimensions {
    let (kv_heads, ffn) = (KvHeads::AsHeads, FfnWidth::Default(ffn));
    Dimensions { layers, hidden, heads, kv_heads, head_width: 0, ffn, vocab }
}

impl Dimensions {
    const fn kv(self, kv_heads: u32) -> Self {
        Self { kv_heads: KvHeads::Default(kv_heads), ..self }
    }

    const fn head_width(self, head_width: u32) -> Self {
        Self { head_width, ..self }
    }
}

const fn gated(model_types: &'static [&'static str], defaults: Dimensions, layers: Layers) -> Family {
    let (experts, latent, harmless): (_, _, &'static [&'static str]) = (None, None, &[]);
    Family { model_types, defaults, gated: true, tied: false, layers, experts, latent, harmless }
}

/// A family of the first generation: a plain FFN four times as wide, one table.
const fn plain(model_types: &'static [&'static str], defaults: Dimensions, layers: Layers) -> Family {
    Family { gated: false, tied: true, ..gated(model_types, defaults, layers) }
}

const fn four_times(layers: u32, hidden: u32, heads: u32, vocab: u32) -> Dimensions {
    Dimensions { ffn: FfnWidth::FourTimes, ..sizes(layers, hidden, heads, NEEDED, vocab) }
}

impl Family {
    const fn tied(self) -> Self {
        Self { tied: true, ..self }
    }

    const fn untied(self) -> Self {
        Self { tied: false, ..self }
    }

    const fn plain_ffn(self) -> Self {
        Self { gated: false, ..self }
    }

    const fn with(self, experts: ExpertKeys) -> Self {
        Self { experts: Some(experts), ..self }
    }

    const fn latent(self, ranks: [u32; 2], widths: [u32; 3]) -> Self {
        let ([query_rank, kv_rank], [plain_width, rotary_width, value_width]) = (ranks, widths);
        let latent = LatentDefaults { query_rank, kv_rank, plain_width, rotary_width, value_width };
        Self { latent: Some(latent), ..self }
    }

    const fn harmless(self, harmless: &'static [&'static str]) -> Self {
        Self { harmless, ..self }
    }
}

const LOCAL: &[&str] = &["num_local_experts", "num_experts"];
const ROUTED: &[&str] = &["n_routed_experts", "num_local_experts", "num_experts"];
const PER_TOKEN: &[&str] = &["num_experts_per_tok", "experts_per_token", "num_experts_per_token"];
const OWN_WIDTH: &[&str] = &["moe_intermediate_size"];
const FFN_WIDTH: &[&str] = &["intermediate_size"];
const SHARED: &[&str] = &["n_shared_experts", "num_shared_experts"];

/// Experts on all layers, as wide as `intermediate_size` says.
const fn mixture(count: u32, active: u32, width: u32) -> ExpertKeys {
    ExpertKeys {
        count: LOCAL,
        active: PER_TOKEN,
        width: FFN_WIDTH,
        defaults: [count, active, width],
        shared: SharedExperts::Absent,
        layers: ExpertLayers::All,
    }
}

/// Experts with a width of their own, shared ones, and ordinary FFNs on the first layers (DeepSeek).
const fn fine_grained(count: u32, active: u32, width: u32, shared: u32, dense: u32) -> ExpertKeys {
    ExpertKeys {
        count: ROUTED,
        active: PER_TOKEN,
        width: OWN_WIDTH,
        defaults: [count, active, width],
        shared: SharedExperts::Count(SHARED, shared),
        layers: ExpertLayers::AfterFirst(dense),
    }
}

/// Experts of Qwen.
const fn sparse_step(count: u32, active: u32, width: u32, shared: SharedExperts) -> ExpertKeys {
    let layers = ExpertLayers::SparseStep;
    ExpertKeys { width: OWN_WIDTH, shared, layers, ..mixture(count, active, width) }
}

const fn no_default(shared: SharedExperts, layers: ExpertLayers) -> ExpertKeys {
    ExpertKeys { shared, layers, ..mixture(NEEDED, NEEDED, NEEDED) }
}

const COHERE: &[&str] = &[
    "layer_switch",
    "order_of_interleaved_layers",
    "use_embedding_sharing",
    "use_parallel_block",
    "use_parallel_embedding",
];
const SHARED_WIDTH: &str = "shared_expert_intermediate_size";

static FAMILIES: &[Family] = &[
    // Llama and those that follow it.
    gated(&["llama"], sizes(32, 4096, 32, 11_008, 32_000), Layers::Whole),
    gated(&["olmo", "olmo2"], sizes(32, 4096, 32, 11_008, 50_304), Layers::Whole),
    gated(&["olmo3"], sizes(32, 4096, 32, 11_008, 50_304), Layers::Alternating { period: 4, window: 4096 }),
    gated(&["granite"], sizes(32, 4096, 32, 11_008, 32_000), Layers::Whole),
    gated(&["stablelm"], sizes(32, 2560, 32, 6912, 50_304), Layers::Whole),
    gated(&["helium"], sizes(24, 2560, 20, 7040, 48_000).head_width(128), Layers::Whole),
    gated(&["seed_oss"], sizes(64, 4096, 80, 27_648, 155_136).kv(8).head_width(128), Layers::Whole),
    gated(&["glm", "glm4", "glm4v_text"], sizes(40, 4096, 32, 13_696, 151_552).kv(2).head_width(128), Layers::Whole),
    gated(&["ernie4_5"], sizes(18, 1024, 16, 3072, 103_424).kv(2).head_width(128), Layers::Whole)
        .tied()
        .harmless(&["compression_ratio"]),
    gated(&["exaone"], sizes(32, 4096, 32, 14_336, 102_400).kv(8), Layers::Whole),
    gated(&["exaone4"], sizes(32, 4096, 32, 16_384, 102_400), Layers::Alternating { period: 4, window: 4096 }),
    gated(&["smollm3"], sizes(36, 2048, 16, 11_008, 128_256).kv(4), Layers::Switched).tied(),
    gated(&["cohere"], sizes(40, 8192, 64, 22_528, 256_000), Layers::Whole).tied().harmless(COHERE),
    gated(&["cohere2"], sizes(40, 8192, 64, 22_528, 256_000), Layers::Alternating { period: 4, window: 4096 })
        .tied()
        .harmless(COHERE),
    gated(&["hunyuan_v1_dense"], sizes(32, 4096, 32, 11_008, 290_943), Layers::Whole),
    gated(&["internlm3"], sizes(48, 4096, 32, 10_240, 128_512).kv(2).head_width(128), Layers::Whole),
    gated(&["internlm", "internlm2", "aquila", "aquila2", "xverse", "Yi", "orion"], UNSTATED, Layers::Whole),
    gated(&["baichuan"], UNSTATED, Layers::Whole).harmless(&["z_loss_weight"]),
    gated(&["minicpm"], UNSTATED, Layers::Whole).tied().harmless(&["dim_model_base", "scale_depth"]),
    gated(&["qwen"], Dimensions { ffn: FfnWidth::Halved, ..UNSTATED }, Layers::Whole)
        .harmless(&["use_logn_attn", "use_dynamic_ntk"]),
    gated(&["chatglm"], Dimensions { kv_heads: KvHeads::ChatGlm, ..UNSTATED }, Layers::Whole).harmless(&[
        "interleaved_qkv",
        "apply_residual_connection_post_layernorm",
        "vocab_size",
        "num_hidden_layers",
    ]),
    // A plain FFN within the same frame.
    gated(&["nemotron"], sizes(32, 6144, 48, 24_576, 256_000), Layers::Whole).plain_ffn(),
    gated(&["arcee"], sizes(32, 2560, 32, 18_432, 32_000), Layers::Whole).plain_ffn(),
    gated(&["apertus"], sizes(32, 4096, 32, 14_336, 131_072), Layers::Whole).plain_ffn(),
    gated(&["persimmon"], sizes(36, 4096, 64, 16_384, 262_144), Layers::Whole).plain_ffn(),
    gated(&["nemotron-nas", "nemotron_nas", "deci"], UNSTATED, Layers::Blocks),
    // Mistral, Qwen, Phi and Gemma.
    gated(&["mistral"], sizes(32, 4096, 32, 14_336, 32_000).kv(8), Layers::Window { default: 4096 }),
    gated(&["ministral"], sizes(32, 4096, 32, 14_336, 32_000).kv(8), Layers::Window { default: 4096 }),
    gated(&["ministral3"], sizes(34, 4096, 32, 14_336, 131_072).kv(8).head_width(128), Layers::Window { default: 0 }),
    gated(&["mixtral"], sizes(32, 4096, 32, 14_336, 32_000).kv(8), Layers::Window { default: 0 })
        .with(mixture(8, 2, 14_336)),
    gated(&["qwen2"], sizes(32, 4096, 32, 22_016, 151_936).kv(32), Layers::Switched),
    gated(
        &["qwen2_vl", "qwen2_vl_text", "qwen2_5_vl", "qwen2_5_vl_text"],
        sizes(80, 8192, 64, 29_568, 152_064).kv(8),
        Layers::Switched,
    ),
    gated(&["qwen3", "qwen3_vl_text"], sizes(32, 4096, 32, 22_016, 151_936).kv(32).head_width(128), Layers::Switched),
    gated(&["qwen2_moe"], sizes(24, 2048, 16, 5632, 151_936).kv(16), Layers::Switched).with(sparse_step(
        60,
        4,
        1408,
        SharedExperts::Width(SHARED_WIDTH, 5632),
    )),
    gated(&["qwen3_moe"], sizes(24, 2048, 32, 6144, 151_936).kv(4), Layers::Switched).with(sparse_step(
        128,
        8,
        768,
        SharedExperts::Absent,
    )),
    gated(&["qwen3_vl_moe_text"], sizes(24, 2048, 16, 5632, 151_936).kv(16), Layers::Switched)
        .tied()
        .with(sparse_step(60, 4, 1408, SharedExperts::Absent)),
    gated(&["qwen3_next"], sizes(48, 2048, 16, 5632, 151_936).kv(2).head_width(256), Layers::Hybrid(Hybrid::QwenNext))
        .with(sparse_step(512, 10, 512, SharedExperts::Width(SHARED_WIDTH, 512))),
    gated(
        &["qwen3_5_text"],
        sizes(32, 4096, 16, 12_288, 248_320).kv(4).head_width(256),
        Layers::Hybrid(Hybrid::QwenNext),
    ),
    gated(
        &["qwen3_5_moe_text"],
        Dimensions { ffn: FfnWidth::Absent, ..sizes(40, 2048, 16, NEEDED, 248_320).kv(2).head_width(256) },
        Layers::Hybrid(Hybrid::QwenNext),
    )
    .with(ExpertKeys {
        layers: ExpertLayers::All,
        ..sparse_step(256, 8, 512, SharedExperts::Width(SHARED_WIDTH, 512))
    }),
    plain(&["phi"], sizes(24, 2048, 32, 8192, 51_200), Layers::Whole).untied(),
    gated(&["phi3"], sizes(32, 3072, 32, 8192, 32_064), Layers::Window { default: 0 }),
    gated(&["phimoe"], sizes(32, 4096, 32, 6400, 32_064).kv(8), Layers::Window { default: 0 })
        .with(mixture(16, 2, 6400)),
    gated(&["gemma"], sizes(28, 3072, 16, 24_576, 256_000).kv(16).head_width(256), Layers::Whole).tied(),
    gated(
        &["gemma2"],
        sizes(26, 2304, 8, 9216, 256_000).kv(4).head_width(256),
        Layers::Alternating { period: 2, window: 4096 },
    )
    .tied(),
    gated(
        &["gemma3_text"],
        sizes(26, 2304, 8, 9216, 262_208).kv(4).head_width(256),
        Layers::Alternating { period: 6, window: 4096 },
    )
    .tied(),
    // GPT-2 and its generation.
    plain(&["gpt2"], four_times(12, 768, 12, 50_257), Layers::Whole),
    plain(
        &["gpt_bigcode"],
        Dimensions { kv_heads: KvHeads::MultiQuery, ..four_times(12, 768, 12, 50_257) },
        Layers::Whole,
    )
    .harmless(&["inference_runner", "max_batch_size", "max_sequence_length", "pre_allocate_kv_cache"]),
    plain(&["gpt_neo"], four_times(24, 2048, 16, 50_257), Layers::GlobalLocal),
    plain(&["gptj", "codegen"], four_times(28, 4096, 16, 50_400), Layers::Whole).untied(),
    plain(&["gpt_neox"], sizes(44, 6144, 64, 24_576, 50_432), Layers::Whole).untied(),
    plain(&["opt"], sizes(12, 768, 12, 3072, 50_272), Layers::Whole).harmless(&["do_layer_norm_before"]),
    plain(&["bloom"], four_times(2, 64, 8, 250_880), Layers::Whole).harmless(&[
        "masked_softmax_fusion",
        "slow_but_exact",
        "skip_bias_add",
        "skip_bias_add_qkv",
    ]),
    plain(
        &["mpt"],
        Dimensions { kv_heads: KvHeads::Nested, ffn: FfnWidth::Expansion, ..sizes(24, 2048, 16, NEEDED, 50_368) },
        Layers::Whole,
    )
    .harmless(&["embedding_fraction", "learned_pos_emb", "use_pad_tok_in_ffn"]),
    plain(
        &["falcon", "RefinedWeb", "RefinedWebModel"],
        Dimensions { kv_heads: KvHeads::Falcon, ..four_times(32, 4544, 71, 65_024) },
        Layers::Whole,
    )
    .harmless(&["num_ln_in_parallel_attn", "new_decoder_architecture"]),
    plain(&["starcoder2"], sizes(30, 3072, 24, 12_288, 49_152).kv(2), Layers::Window { default: 0 })
        .harmless(&["mlp_type"]),
    // Mixtures of experts.
    gated(
        &["dbrx"],
        Dimensions { kv_heads: KvHeads::Nested, ffn: FfnWidth::Nested, ..sizes(24, 2048, 16, NEEDED, 32_000) },
        Layers::Whole,
    )
    .with(ExpertKeys {
        count: &["moe_num_experts"],
        active: &["moe_top_k"],
        width: &["ffn_hidden_size"],
        ..mixture(NEEDED, NEEDED, NEEDED)
    }),
    gated(&["olmoe"], sizes(16, 2048, 16, 2048, 50_304), Layers::Whole).with(mixture(64, 8, 2048)),
    gated(&["granitemoe"], sizes(32, 4096, 32, 11_008, 32_000), Layers::Whole).with(mixture(8, 2, 11_008)),
    gated(&["granitemoeshared"], sizes(32, 4096, 32, 11_008, 32_000), Layers::Whole)
        .with(ExpertKeys { shared: SharedExperts::Width("shared_intermediate_size", 0), ..mixture(8, 2, 11_008) }),
    gated(
        &["gpt_oss"],
        sizes(36, 2880, 64, 2880, 201_088).kv(8).head_width(64),
        Layers::Alternating { period: 2, window: 128 },
    )
    .with(mixture(128, 4, 2880))
    .harmless(&["initial_context_length"]),
    gated(
        &["llama4_text"],
        Dimensions {
            ffn: FfnWidth::BesideExperts(16_384),
            ..sizes(48, 5120, 40, NEEDED, 202_048).kv(8).head_width(128)
        },
        Layers::Chunked,
    )
    .with(ExpertKeys { shared: SharedExperts::One, layers: ExpertLayers::Interleaved, ..mixture(16, 1, 8192) }),
    gated(&["minimax_m2"], sizes(62, 3072, 48, 1536, 200_064).kv(8).head_width(128), Layers::Hybrid(Hybrid::MiniMax))
        .with(mixture(256, 8, 1536)),
    gated(&["arctic"], UNSTATED, Layers::Whole)
        .with(no_default(SharedExperts::Residual, ExpertLayers::Frequency))
        .harmless(&[
            "use_residual",
            "enable_expert_tensor_parallelism",
            "enc_index",
            "dec_index",
            "moe_eval_capacity_factor",
            "moe_train_capacity_factor",
            "moe_min_capacity",
            "moe_token_dropping",
        ]),
    gated(&["grok-1", "grok_1", "grok1"], UNSTATED, Layers::Whole)
        .tied()
        .with(no_default(SharedExperts::Absent, ExpertLayers::All))
        .harmless(&["max_attn_value", "widening_factor", "num_selected_experts"]),
    gated(&["hunyuan_v1_moe", "hunyuan"], UNSTATED, Layers::Whole)
        .tied()
        .with(ExpertKeys {
            active: &["moe_topk"],
            width: &["moe_intermediate_size", "intermediate_size"],
            shared: SharedExperts::Count(&["num_shared_expert"], 1),
            ..mixture(NEEDED, NEEDED, NEEDED)
        })
        .harmless(&["use_mixed_mlp_moe", "cla_share_factor", "moe_drop_tokens", "group_limited_greedy", "pool_type"]),
    gated(&["ernie4_5_moe"], sizes(28, 2560, 20, 12_288, 103_424).kv(4), Layers::Whole)
        .tied()
        .with(ExpertKeys {
            count: &["moe_num_experts", "num_experts"],
            active: &["moe_k", "num_experts_per_tok"],
            width: OWN_WIDTH,
            shared: SharedExperts::Count(&["moe_num_shared_experts"], 2),
            layers: ExpertLayers::Interval,
            ..mixture(64, 6, 1536)
        })
        .harmless(&["moe_capacity", "moe_gate", "moe_use_aux_free", "use_moe", "compression_ratio"]),
    gated(&["glm4_moe"], sizes(46, 4096, 96, 10_944, 151_552).kv(8), Layers::Whole)
        .with(fine_grained(128, 8, 1408, 1, 1)),
    gated(&["glm4v_moe_text"], sizes(46, 4096, 96, 10_944, 151_424).kv(8), Layers::Whole)
        .with(fine_grained(128, 8, 1408, 1, 1)),
    gated(&["dots1"], sizes(62, 4608, 32, 10_944, 152_064).kv(32), Layers::FromLayer { window: 4096, first: 62 })
        .with(fine_grained(NEEDED, NEEDED, 1408, 0, 0)),
    gated(&["deepseek"], UNSTATED, Layers::Whole).with(fine_grained(NEEDED, NEEDED, NEEDED, 0, 0)),
    // Latent attention.
    gated(&["deepseek_v2"], UNSTATED, Layers::Whole)
        .latent([1536, 512], [128, 64, 128])
        .with(fine_grained(NEEDED, NEEDED, NEEDED, 0, 0)),
    gated(&["deepseek_v3"], sizes(61, 7168, 128, 18_432, 129_280).kv(128), Layers::Whole)
        .latent([1536, 512], [128, 64, 128])
        .with(fine_grained(256, 8, 2048, 1, 3)),
    gated(&["kimi_k2"], UNSTATED, Layers::Whole)
        .latent([1536, 512], [128, 64, 128])
        .with(fine_grained(NEEDED, NEEDED, NEEDED, 0, 0)),
    gated(&["glm4_moe_lite"], sizes(47, 2048, 20, 10_240, 154_880).kv(20), Layers::Whole)
        .latent([768, 512], [192, 64, 256])
        .with(ExpertKeys { layers: ExpertLayers::MlpTypes, ..fine_grained(64, 4, 1536, 1, 1) }),
    gated(&["mistral4"], sizes(36, 4096, 32, 12_288, 131_072).kv(32), Layers::Whole)
        .latent([1024, 256], [64, 64, 128])
        .with(fine_grained(128, 4, 2048, 1, 0)),
    gated(&["minicpm3"], sizes(62, 2560, 40, 6400, 73_448).kv(40), Layers::Whole)
        .tied()
        .latent([768, 256], [64, 32, 64])
        .harmless(&["dim_model_base", "scale_depth"]),
    // Recurrent layers.
    gated(&["jamba"], sizes(32, 4096, 32, 14_336, 65_536).kv(8), Layers::Hybrid(Hybrid::Jamba))
        .with(ExpertKeys { layers: ExpertLayers::Period, ..mixture(16, 2, 14_336) }),
    gated(&["bamba"], sizes(32, 4096, 32, 14_336, 128_000).kv(8), Layers::Hybrid(Hybrid::Bamba)),
    gated(&["granitemoehybrid"], sizes(32, 4096, 32, 11_008, 32_000), Layers::Hybrid(Hybrid::Granite))
        .with(ExpertKeys { shared: SharedExperts::Width("shared_intermediate_size", 1024), ..mixture(8, 2, 11_008) }),
    gated(
        &["nemotron_h"],
        sizes(NEEDED, 4096, 32, 21_504, 131_072).kv(8).head_width(128),
        Layers::Hybrid(Hybrid::NemotronH),
    )
    .plain_ffn()
    .with(ExpertKeys {
        count: ROUTED,
        width: OWN_WIDTH,
        shared: SharedExperts::Width("moe_shared_expert_intermediate_size", NEEDED),
        layers: ExpertLayers::Pattern,
        ..mixture(NEEDED, NEEDED, NEEDED)
    }),
    gated(
        &["mamba", "falcon_mamba"],
        Dimensions { ffn: FfnWidth::Absent, ..sizes(32, 768, 1, NEEDED, 50_280) },
        Layers::Hybrid(Hybrid::Mamba),
    )
    .tied(),
    gated(
        &["mamba2"],
        Dimensions { ffn: FfnWidth::Absent, ..sizes(64, 4096, 1, NEEDED, 32_768) },
        Layers::Hybrid(Hybrid::Mamba2),
    ),
    gated(
        &["minimax", "minimax_text_01", "minimax_m1"],
        sizes(32, 4096, 32, 14_336, 32_000).kv(8),
        Layers::Hybrid(Hybrid::MiniMax),
    )
    .with(mixture(8, 2, 14_336)),
    gated(
        &["lfm2"],
        Dimensions { ffn: FfnWidth::Adjusted(12_288), ..sizes(32, 2560, 32, NEEDED, 65_536).kv(8) },
        Layers::Hybrid(Hybrid::Lfm2),
    )
    .tied(),
    gated(&["lfm2_moe"], sizes(32, 2048, 32, 7168, 65_536).kv(8), Layers::Hybrid(Hybrid::Lfm2))
        .tied()
        .with(ExpertKeys { width: OWN_WIDTH, layers: ExpertLayers::AfterDense(2), ..mixture(32, 4, 1792) }),
];
