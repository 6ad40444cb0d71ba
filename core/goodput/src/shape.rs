//! Parameters and FLOPs of a dense decoder, from its shape. Pure arithmetic; it knows no hardware. The worker's
//! `headway/flops.py` has the same formulas, so that an emulated device takes the time this crate is about.

use headway_types::ModelShape;

/// Share of key/value width in attention: kv_heads / heads.
pub(crate) fn kv_ratio(shape: &ModelShape) -> f64 {
    f64::from(shape.kv_heads) / f64::from(shape.heads)
}

/// Matrix parameters of one layer: 2h²(1 + kv/a) + (2 + gated)·h·f.
#[must_use]
pub fn layer_weights(shape: &ModelShape) -> f64 {
    let hidden = f64::from(shape.hidden);
    let matrices = if shape.gated { 3.0 } else { 2.0 };
    2.0 * hidden * hidden * (1.0 + kv_ratio(shape)) + matrices * hidden * f64::from(shape.ffn_hidden)
}

/// Parameters of one layer with its two norms.
#[must_use]
pub fn layer_parameters(shape: &ModelShape) -> f64 {
    layer_weights(shape) + 2.0 * f64::from(shape.hidden)
}

/// Parameters of one embedding table or of the output projection.
#[must_use]
pub fn embedding_parameters(shape: &ModelShape) -> f64 {
    f64::from(shape.vocab) * f64::from(shape.hidden)
}

/// All parameters: L layers, one or two embedding tables, and the last norm.
#[must_use]
pub fn parameters(shape: &ModelShape) -> f64 {
    let tables = if shape.tied { 1.0 } else { 2.0 };
    f64::from(shape.layers) * layer_parameters(shape) + tables * embedding_parameters(shape) + f64::from(shape.hidden)
}

/// Parameters one GPU of the fullest stage holds: its layers and the tables that sit on it, over tp. Tied tables
/// exist twice when the first and the last stage differ (Megatron-LM).
#[must_use]
pub fn stage_parameters(shape: &ModelShape, tp: u32, pp: u32) -> f64 {
    let whole = if pp <= 1 {
        parameters(shape)
    } else {
        f64::from(shape.layers) / f64::from(pp) * layer_parameters(shape) + embedding_parameters(shape)
    };
    whole / f64::from(tp.max(1))
}

/// Forward FLOPs per token of all layers; causal attention counted once, as kernels do it: 2·L·P + 2·L·s·h.
pub(crate) fn forward_layer_flops_per_token(shape: &ModelShape) -> f64 {
    let (layers, hidden) = (f64::from(shape.layers), f64::from(shape.hidden));
    2.0 * layers * layer_weights(shape) + 2.0 * layers * f64::from(shape.seq_len) * hidden
}

/// Forward FLOPs per token of the output projection: 2·h·V.
pub(crate) fn forward_logit_flops_per_token(shape: &ModelShape) -> f64 {
    2.0 * f64::from(shape.hidden) * f64::from(shape.vocab)
}

/// FLOPs to train on one token; the backward pass costs twice the forward pass.
#[must_use]
pub fn training_flops_per_token(shape: &ModelShape) -> f64 {
    3.0 * (forward_layer_flops_per_token(shape) + forward_logit_flops_per_token(shape))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::examples::{gpt3_175b, llama2_7b, llama3_8b, tiny};

    fn billions(shape: &ModelShape) -> f64 {
        parameters(shape) / 1e9
    }

    #[test]
    fn known_models_have_their_published_sizes() {
        assert!((billions(&llama3_8b()) - 8.03).abs() < 0.005, "{}", billions(&llama3_8b()));
        assert!((billions(&llama2_7b()) - 6.74).abs() < 0.005, "{}", billions(&llama2_7b()));
        assert!((billions(&gpt3_175b()) - 174.6).abs() < 0.5, "{}", billions(&gpt3_175b()));
    }

    #[test]
    fn training_costs_about_six_flops_per_parameter_and_token() {
        let ratio = training_flops_per_token(&llama2_7b()) / parameters(&llama2_7b());
        assert!((6.0..6.6).contains(&ratio), "{ratio}");
    }

    #[test]
    fn the_tiny_model_agrees_with_the_worker_to_the_unit() {
        // layers 4, hidden 64, ffn 172, gated, vocab 256, seq 64, as `headway.flops.ModelShape` computes them.
        let matrices = 2.0 * 64.0 * 64.0 * 2.0 + 3.0 * 64.0 * 172.0;
        assert_eq!(parameters(&tiny()), 4.0 * (matrices + 128.0) + 2.0 * 256.0 * 64.0 + 64.0);
        let forward = 2.0 * 4.0 * matrices + 2.0 * 4.0 * 64.0 * 64.0 + 2.0 * 64.0 * 256.0;
        assert_eq!(training_flops_per_token(&tiny()), 3.0 * forward);
    }

    #[test]
    fn stages_hold_what_the_model_holds() {
        let shape = llama2_7b();
        assert_eq!(stage_parameters(&shape, 1, 1), parameters(&shape));
        assert_eq!(stage_parameters(&shape, 8, 1), parameters(&shape) / 8.0);
        assert!(stage_parameters(&shape, 1, 4) * 4.0 >= parameters(&shape));
    }
}
