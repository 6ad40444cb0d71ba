//! What share of a model's layers has which parts. A layer is costed on average over its kinds, since
//! stages of a pipeline are assumed to hold their share of each.

use headway_types::{AttentionWindow, ModelShape};

/// Shares of layers by what they consist of. Of a plain model all are exactly 0 or 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct LayerMix {
    pub attention_layers: u32,
    pub dense_layers: u32,
    pub expert_layers: u32,
    /// Share of layers with an attention over the whole sequence, over a window, or a recurrence.
    pub whole: f64,
    pub windowed: f64,
    pub recurrent: f64,
    /// Share of layers with an ordinary FFN, with experts, and without either.
    pub dense: f64,
    pub experts: f64,
    pub without_ffn: f64,
    /// Length of the sequence whose causal attention costs what the window's does.
    pub window_length: f64,
    /// Parts of a layer (attention or recurrence, FFN) over the two of a plain one.
    pub parts: f64,
}

impl LayerMix {
    pub(crate) fn new(shape: &ModelShape) -> Self {
        let layers = f64::from(shape.layers.max(1));
        let share = |count: u32| f64::from(count) / layers;
        let kinds = shape.kinds.unwrap_or_default();
        let (attention_layers, dense_layers) = (shape.attention_layers(), shape.dense_layers());
        let expert_layers = shape.expert_layers();
        let window = kinds.window.map_or(0, |window| window.layers.min(attention_layers));
        let recurrent = kinds.recurrent.map_or(0, |recurrent| recurrent.layers);
        let without_ffn = shape.layers.saturating_sub(dense_layers.saturating_add(expert_layers));
        let parts = f64::from(2 * shape.layers) - f64::from(kinds.ffn_only) - f64::from(without_ffn);
        Self {
            attention_layers,
            dense_layers,
            expert_layers,
            whole: share(attention_layers - window),
            windowed: share(window),
            recurrent: share(recurrent),
            dense: share(dense_layers),
            experts: share(expert_layers),
            without_ffn: share(without_ffn),
            window_length: kinds.window.map_or(0.0, |window| window_length(&window, shape.seq_len)),
            parts: parts / (2.0 * layers),
        }
    }

    /// Share of layers with an attention.
    pub(crate) fn attention(&self) -> f64 {
        self.whole + self.windowed
    }
}

/// Length of the sequence whose causal attention costs as much per token as a window's. Of `s` tokens
/// with a sliding window of `w`, the first `w` attend to those before them and all others to `w`: that
/// is `w − w²/2s` tokens on average, against `s/2` without a window. Chunks are sequences of their own.
fn window_length(window: &AttentionWindow, seq_len: u32) -> f64 {
    let (tokens, length) = (f64::from(window.tokens.min(seq_len)), f64::from(seq_len.max(1)));
    if window.chunked { tokens } else { 2.0 * tokens - tokens * tokens / length }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::examples::llama3_8b;
    use headway_types::LayerKinds;

    #[test]
    fn a_plain_model_has_whole_layers_only() {
        let mix = LayerMix::new(&llama3_8b());
        assert_eq!((mix.whole, mix.windowed, mix.recurrent), (1.0, 0.0, 0.0));
        assert_eq!((mix.dense, mix.experts, mix.without_ffn, mix.parts), (1.0, 0.0, 0.0, 1.0));
    }

    #[test]
    fn a_window_costs_what_its_tokens_attend_to() {
        let length = |tokens, chunked, seq_len| {
            let window = AttentionWindow { layers: 1, tokens, chunked };
            let exact: u64 = (0..u64::from(seq_len))
                .map(|at| if chunked { at % u64::from(tokens) } else { at.min(u64::from(tokens)) })
                .sum();
            let exact = 2.0 * exact as f64 / f64::from(seq_len);
            let ours = window_length(&window, seq_len);
            assert!((ours / exact - 1.0).abs() < 0.02, "{ours} against {exact}");
            ours
        };
        assert_eq!(length(8192, false, 4096), 4096.0);
        assert_eq!(length(1024, true, 4096), 1024.0);
        assert_eq!(length(128, false, 4096), 252.0);
    }

    #[test]
    fn layers_of_one_part_are_half_a_layer() {
        let kinds = LayerKinds { ffn_only: 8, without_ffn: 24, ..LayerKinds::default() };
        let mix = LayerMix::new(&ModelShape { kinds: Some(kinds), ..llama3_8b() });
        assert_eq!((mix.attention_layers, mix.dense_layers), (24, 8));
        assert_eq!((mix.parts, mix.attention(), mix.dense), (0.5, 0.75, 0.25));
    }
}
