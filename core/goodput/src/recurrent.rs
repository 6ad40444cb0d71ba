//! What layers cost whose work per token does not grow with the sequence: state spaces, linear attention
//! and short convolutions. Each has one matrix into its channels, a scan over the tokens and one matrix
//! back. Scans are counted in the chunked forms that training kernels use; causal parts count once.

use headway_types::{RecurrentKind, RecurrentLayers};

use crate::architecture::{Matrix, Split};

/// Tokens of a chunk: of Mamba-2 and lightning attention, and of the delta rule, as their kernels set them.
const CHUNK: f64 = 256.0;
const DELTA_CHUNK: f64 = 64.0;
/// FLOPs of Mamba-1's scan per channel, state and token: what its authors count.
const SCAN_FLOPS: f64 = 9.0;

/// Widths of a recurrent layer's channels.
struct Widths {
    /// Columns of the matrix from the hidden state.
    input: f64,
    /// Channels that the convolution passes over.
    convolved: f64,
    /// Channels of the values, which the last matrix brings back.
    values: f64,
}

fn widths(of: &RecurrentLayers) -> Widths {
    let (heads, values) = (f64::from(of.heads), f64::from(of.heads) * f64::from(of.head_width));
    let keys = f64::from(of.groups) * f64::from(of.state);
    let (input, convolved) = match of.kind {
        // x and the gate z.
        RecurrentKind::Mamba => (2.0 * values, values),
        // x, z, B, C and a time step per head.
        RecurrentKind::Mamba2 => (2.0 * values + 2.0 * keys + heads, values + 2.0 * keys),
        // Queries, keys, values, the gate z, and two scalars per head.
        RecurrentKind::GatedDelta => (2.0 * keys + 2.0 * values + 2.0 * heads, 2.0 * keys + values),
        // Queries, keys, values and the output gate.
        RecurrentKind::Lightning => (4.0 * values, 0.0),
        // B, C and x.
        RecurrentKind::Convolution => (3.0 * values, values),
    };
    Widths { input, convolved, values }
}

/// The matrix from the hidden state and the one back.
pub(crate) fn recurrent_matrices(hidden: u32, of: &RecurrentLayers) -> [Matrix; 2] {
    let (hidden, widths) = (f64::from(hidden), widths(of));
    [
        Matrix { outputs: widths.input, inputs: hidden, split: Split::Outputs },
        Matrix { outputs: hidden, inputs: widths.values, split: Split::Inputs },
    ]
}

/// Parameters of one recurrent layer, without the norm before it.
pub(crate) fn recurrent_parameters(hidden: u32, of: &RecurrentLayers) -> f64 {
    let Widths { convolved, values, .. } = widths(of);
    let matrices: f64 = recurrent_matrices(hidden, of).iter().map(|matrix| matrix.outputs * matrix.inputs).sum();
    let convolution = convolved * f64::from(of.convolution);
    let (heads, state, rank) = (f64::from(of.heads), f64::from(of.state), f64::from(of.rank));
    let others = match of.kind {
        // From x to the time step's rank, B and C; from the rank to the time step; A and D.
        RecurrentKind::Mamba => values * (rank + 2.0 * state) + values * rank + values * (state + 2.0),
        // A, D and the time step's bias per head, and a norm.
        RecurrentKind::Mamba2 => 3.0 * heads + values,
        RecurrentKind::GatedDelta => 2.0 * heads + f64::from(of.head_width),
        RecurrentKind::Lightning => values,
        RecurrentKind::Convolution => 0.0,
    };
    matrices + convolution + others
}

/// Forward FLOPs per token of one layer's scan, beside its matrices.
///
/// Mamba-1 is a scan of `9·channels·state` (Gu & Dao 2023). In chunks of Q tokens Mamba-2 multiplies
/// `C·Bᵀ` per group and its result with the values per head, `Q·(G·N + H·P)`, and passes states on,
/// `4·H·N·P` (Dao & Gu 2024, section 6). Lightning attention is the same with its own keys per head (Qin
/// et al. 2024). The gated delta rule also solves for its updates within a chunk: `C·(3k + 2v) + 6·k·v`
/// per head (Yang et al. 2024).
pub(crate) fn scan_flops_per_token(of: &RecurrentLayers) -> f64 {
    let (heads, width, state) = (f64::from(of.heads), f64::from(of.head_width), f64::from(of.state));
    match of.kind {
        RecurrentKind::Mamba => SCAN_FLOPS * heads * width * state,
        RecurrentKind::Mamba2 => CHUNK * (f64::from(of.groups) * state + heads * width) + 4.0 * heads * state * width,
        RecurrentKind::Lightning => CHUNK * heads * (state + width) + 4.0 * heads * state * width,
        RecurrentKind::GatedDelta => heads * (DELTA_CHUNK * (3.0 * state + 2.0 * width) + 6.0 * state * width),
        RecurrentKind::Convolution => 0.0,
    }
}

/// Whether the scan is no matrix multiplication and runs on the vector units.
pub(crate) fn is_scan_elementwise(of: &RecurrentLayers) -> bool {
    matches!(of.kind, RecurrentKind::Mamba)
}

/// Values per token that a layer writes and reads again between its matrices: what it projects, what the
/// convolution makes of it, what the scan makes of that, and the same with its gate.
pub(crate) fn passed_values(of: &RecurrentLayers) -> f64 {
    let Widths { input, convolved, values } = widths(of);
    input + convolved + 2.0 * values
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_of_published_models_have_their_sizes() {
        // Mamba-2 2.7B: 64 layers, hidden 2560; 2.7 B with a tied table of 50,288 rows.
        let mamba2 = RecurrentLayers {
            layers: 64,
            kind: RecurrentKind::Mamba2,
            heads: 80,
            head_width: 64,
            state: 128,
            groups: 1,
            convolution: 4,
            rank: 0,
        };
        let total = 64.0 * (recurrent_parameters(2560, &mamba2) + 2560.0) + 50_288.0 * 2560.0;
        assert!((total / 2.7e9 - 1.0).abs() < 0.01, "{total}");
        // Mamba 2.8B: 64 layers, hidden 2560, state 16, rank 160; 2.77 B.
        let mamba =
            RecurrentLayers { kind: RecurrentKind::Mamba, heads: 1, head_width: 5120, state: 16, rank: 160, ..mamba2 };
        let total = 64.0 * (recurrent_parameters(2560, &mamba) + 2560.0) + 50_280.0 * 2560.0;
        assert!((total / 2.77e9 - 1.0).abs() < 0.01, "{total}");
    }
}
