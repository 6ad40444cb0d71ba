//! A model in one line, as an answer repeats what was read.

use headway_types::{ModelShape, RecurrentKind};

use crate::architecture::Architecture;

/// Describes a model: "117B parameters, 5.7B active; 36 layers (18 sliding-window 128), 128 experts,
/// 4 active; sequence length 4096".
#[must_use]
pub fn summarize_model(shape: &ModelShape) -> String {
    let architecture = Architecture::from(shape);
    let mut size = format!("{} parameters", format_count(architecture.parameters()));
    let mut layers = format!("{} layers", shape.layers);
    let kinds = list_kinds(shape);
    if !kinds.is_empty() {
        layers += &format!(" ({})", kinds.join(", "));
    }
    if let Some(experts) = shape.experts {
        size += &format!(", {} active", format_count(architecture.active_parameters()));
        layers += &format!(", {} experts, {} active", experts.count, experts.active);
    }
    format!("{size}; {layers}; sequence length {}", shape.seq_len)
}

/// The layers that are not one attention over the whole sequence and one FFN alike.
fn list_kinds(shape: &ModelShape) -> Vec<String> {
    let mut listed = Vec::new();
    let kinds = shape.kinds.unwrap_or_default();
    if let Some(window) = kinds.window {
        let kind = if window.chunked { "chunked" } else { "sliding-window" };
        listed.push(format!("{} {kind} {}", window.layers, window.tokens));
    }
    if let Some(recurrent) = kinds.recurrent {
        let kind = match recurrent.kind {
            RecurrentKind::Mamba => "Mamba",
            RecurrentKind::Mamba2 => "Mamba-2",
            RecurrentKind::GatedDelta => "gated delta rule",
            RecurrentKind::Lightning => "lightning attention",
            RecurrentKind::Convolution => "convolution",
        };
        listed.push(format!("{} {kind}", recurrent.layers));
        listed.push(format!("{} attention", shape.attention_layers()));
    }
    if kinds.ffn_only > 0 {
        listed.push(format!("{} FFN only", kinds.ffn_only));
    }
    if shape.experts.is_some() && shape.dense_layers() > 0 {
        listed.push(format!("{} without experts", shape.dense_layers()));
    }
    if shape.latent.is_some() {
        listed.push("latent attention".to_owned());
    }
    listed
}

/// Two or three digits: "5.7B", "117B", "360M".
fn format_count(count: f64) -> String {
    let (value, unit) = if count >= 1e9 { (count / 1e9, "B") } else { (count / 1e6, "M") };
    if value < 10.0 { format!("{value:.1}{unit}") } else { format!("{value:.0}{unit}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::examples::llama3_8b;
    use headway_types::{AttentionWindow, Experts, LayerKinds, RecurrentLayers};

    #[test]
    fn a_line_names_what_shapes_the_model() {
        assert_eq!(summarize_model(&llama3_8b()), "8.0B parameters; 32 layers; sequence length 8192");
        let experts = Experts { count: 128, active: 4, ffn_hidden: 2880, shared_ffn_hidden: 0, dense_layers: 0 };
        let window = AttentionWindow { layers: 18, tokens: 128, chunked: false };
        let gpt_oss = ModelShape {
            layers: 36,
            hidden: 2880,
            heads: 64,
            head_width: Some(64),
            ffn_hidden: 2880,
            experts: Some(experts),
            vocab: 201_088,
            seq_len: 4096,
            kinds: Some(LayerKinds { window: Some(window), ..LayerKinds::default() }),
            ..llama3_8b()
        };
        assert_eq!(
            summarize_model(&gpt_oss),
            "117B parameters, 5.7B active; 36 layers (18 sliding-window 128), 128 experts, 4 active; \
             sequence length 4096"
        );
    }

    #[test]
    fn layers_without_attention_are_counted_apart() {
        let recurrent = RecurrentLayers {
            layers: 24,
            kind: RecurrentKind::Mamba2,
            heads: 128,
            head_width: 64,
            state: 128,
            groups: 8,
            convolution: 4,
            rank: 0,
        };
        let kinds = LayerKinds { recurrent: Some(recurrent), ffn_only: 4, without_ffn: 28, ..LayerKinds::default() };
        let line = summarize_model(&ModelShape { kinds: Some(kinds), ..llama3_8b() });
        assert!(line.contains("32 layers (24 Mamba-2, 4 attention, 4 FFN only);"), "{line}");
    }
}
