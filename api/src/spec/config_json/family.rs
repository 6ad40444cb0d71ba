//! What the keys of a family of models mean, and what a missing key stands for.

/// A family of models whose `config.json` has the same keys.
pub(super) struct Family {
    /// Values of `model_type`.
    pub model_types: &'static [&'static str],
    pub defaults: Dimensions,
    /// Gated FFN: three matrices instead of two.
    pub gated: bool,
    /// Whether embedding and output share a table where the file does not say so.
    pub tied: bool,
    pub layers: Layers,
    pub experts: Option<ExpertKeys>,
    /// Keys and values from a latent, with the family's ranks and widths.
    pub latent: Option<LatentDefaults>,
    /// Keys that look structural and are not in this family.
    pub harmless: &'static [&'static str],
}

/// Defaults of the dimensions that every family has; `NEEDED` where the file must say.
#[derive(Clone, Copy)]
pub(super) struct Dimensions {
    pub layers: u32,
    pub hidden: u32,
    pub heads: u32,
    pub kv_heads: KvHeads,
    /// 0: hidden / heads.
    pub head_width: u32,
    pub ffn: FfnWidth,
    pub vocab: u32,
}

#[derive(Clone, Copy)]
pub(super) enum KvHeads {
    /// As many as heads.
    AsHeads,
    Default(u32),
    /// One where `multi_query` says so, as it does by default.
    MultiQuery,
    /// `multi_query` and `num_kv_heads` by Falcon's rules.
    Falcon,
    /// `multi_query_attention` and `multi_query_group_num` of ChatGLM.
    ChatGlm,
    /// Read from `attn_config`.
    Nested,
}

#[derive(Clone, Copy)]
pub(super) enum FfnWidth {
    Default(u32),
    /// Four times the hidden size.
    FourTimes,
    /// `expansion_ratio` times the hidden size, or `ffn_config`.
    Expansion,
    /// `ffn_config.ffn_hidden_size`.
    Nested,
    /// `intermediate_size` counts both halves of a gated FFN (the first Qwen).
    Halved,
    /// `intermediate_size_mlp`, beside experts as wide as `intermediate_size` (Llama 4).
    BesideExperts(u32),
    /// `block_ff_dim` and its adjustment (LFM2).
    Adjusted(u32),
    /// There is no FFN of this kind.
    Absent,
}

/// What mixes the tokens of each layer.
#[derive(Clone, Copy)]
pub(super) enum Layers {
    /// Attention over the whole sequence.
    Whole,
    /// A sliding window on every layer, if `sliding_window` is a number; the default where it is missing.
    Window { default: u32 },
    /// A sliding window from `max_window_layers` on, if `use_sliding_window`.
    Switched,
    /// A sliding window from `max_window_layers` on, if `sliding_window` is a number (dots.llm1).
    FromLayer { window: u32, first: u32 },
    /// A sliding window but for every `period`th layer.
    Alternating { period: u32, window: u32 },
    /// Chunks but for every fourth layer (Llama 4).
    Chunked,
    /// `attention_types` of GPT-Neo.
    GlobalLocal,
    /// Recurrent layers among the attention.
    Hybrid(Hybrid),
    /// `block_configs`, one for each layer (Nemotron-NAS).
    Blocks,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Hybrid {
    Jamba,
    Bamba,
    Granite,
    NemotronH,
    Mamba,
    Mamba2,
    QwenNext,
    MiniMax,
    Lfm2,
}

/// Where a family keeps its experts.
#[derive(Clone, Copy)]
pub(super) struct ExpertKeys {
    pub count: &'static [&'static str],
    pub active: &'static [&'static str],
    pub width: &'static [&'static str],
    /// Defaults of these three.
    pub defaults: [u32; 3],
    pub shared: SharedExperts,
    pub layers: ExpertLayers,
}

/// The part of an expert layer that every token passes.
#[derive(Clone, Copy)]
pub(super) enum SharedExperts {
    Absent,
    /// A width of its own, under this key.
    Width(&'static str, u32),
    /// So many experts, under one of these keys.
    Count(&'static [&'static str], u32),
    /// One expert of the width of the others.
    One,
    /// An FFN of the hidden size, if `parallel_attn_mlp_res` (Arctic).
    Residual,
}

/// Which layers have experts.
#[derive(Clone, Copy)]
pub(super) enum ExpertLayers {
    All,
    /// All but the first `first_k_dense_replace`, every `moe_layer_freq`th.
    AfterFirst(u32),
    /// All but the first `num_dense_layers`.
    AfterDense(u32),
    /// Every `decoder_sparse_step`th, but for `mlp_only_layers`.
    SparseStep,
    /// `moe_layers`, or every `interleave_moe_layer_step`th.
    Interleaved,
    /// `expert_layer_period` and `expert_layer_offset` (Jamba).
    Period,
    /// `moe_layer_start_index`, `moe_layer_end_index` and `moe_layer_interval` (ERNIE 4.5).
    Interval,
    /// `mlp_layer_types`: all but the first where it is missing.
    MlpTypes,
    /// Every `moe_layer_frequency`th (Arctic).
    Frequency,
    /// Those that `hybrid_override_pattern` marks.
    Pattern,
}

/// Ranks and widths of latent attention where the file does not say them.
#[derive(Clone, Copy)]
pub(super) struct LatentDefaults {
    pub query_rank: u32,
    pub kv_rank: u32,
    pub plain_width: u32,
    pub rotary_width: u32,
    pub value_width: u32,
}
