//! Seconds that one rank computes on one micro-batch of one layer: matrix multiplications, attention, memory-bound passes, and the host
//! that launches them. Collectives between ranks are not its business.

use headway_types::RecurrentLayers;

use crate::architecture::{Architecture, Matrix, Split};
use crate::collective::Cluster;
use crate::recurrent::{is_scan_elementwise, passed_values, recurrent_matrices, scan_flops_per_token};
use crate::strategy::{Precision, Strategy};

/// Tiles of matrix kernels, log2 of rows and columns, with their rate over that of the largest (two thirds of the operands are
/// loaded again for half a tile).
const TILES: [(u32, u32, f64); 6] = [(8, 7, 1.0), (7, 8, 1.0), (7, 7, 0.95), (7, 6, 0.85), (6, 7, 0.85), (6, 6, 0.7)];
/// FLOPs that an A100 does while it moves a byte, at its best measured rates.
const A100_BALANCE: f64 = 133.0;
/// Backward over forward FLOPs of fused attention: it computes the attention matrix again.
const FUSED_BACKWARD: f64 = 2.5;
/// Width at which a fused attention head loses half its rate.
const HALF_RATE_HEAD: f64 = 16.0;
/// Backward over forward traffic of memory-bound kernels.
const PASSES_BACKWARD: f64 = 1.5;
/// Load of the busiest rank's experts over the mean. Assumed: routing is balanced by an auxiliary loss, not perfectly.
const EXPERT_IMBALANCE: f64 = 1.1;
/// Rate of arithmetic on vectors over that of matrices in half precision: 19.5 of 312 TFLOP/s on an A100,
/// 67 of 989 on an H100 (data sheets).
const VECTOR_SHARE: f64 = 1.0 / 16.0;

/// The FFN of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LayerFfn {
    Dense,
    Experts,
    Absent,
}

/// Forward and backward seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Passes {
    pub forward: f64,
    pub backward: f64,
}

impl Passes {
    fn scaled(self, times: f64) -> Passes {
        Passes { forward: self.forward * times, backward: self.backward * times }
    }
}

impl std::ops::Add for Passes {
    type Output = Passes;
    fn add(self, other: Passes) -> Passes {
        Passes { forward: self.forward + other.forward, backward: self.backward + other.backward }
    }
}

/// Longer of two times that overlap nearly perfectly (p-norm, p = 4).
pub(crate) fn longer(left: f64, right: f64) -> f64 {
    let most = left.max(right).max(1e-12);
    let (left, right) = (left / most, right / most);
    let fourth = |value: f64| value * value * value * value;
    most * (fourth(left) + fourth(right)).sqrt().sqrt()
}

/// The least whole number not below a value of ordinary size; the cast is several times faster than `libm::ceil`.
fn ceil(value: f64) -> f64 {
    let whole = value as i64 as f64;
    if whole < value { whole + 1.0 } else { whole }
}

/// What one rank computes.
pub(crate) struct Kernels<'a> {
    architecture: &'a Architecture,
    strategy: &'a Strategy,
    cluster: &'a Cluster<'a>,
    /// Tokens of a micro-batch on this rank.
    pub tokens: f64,
    /// FLOP/s of wide matrices, in half precision (or fp32) and in the strategy's precision.
    rate: f64,
    narrow_rate: f64,
    /// Bytes of an operand of the layers' matrices.
    operand: f64,
    memory: f64,
    /// Whether the layers' matrices are multiplied in 8 or 4 bits.
    narrow: bool,
}

impl<'a> Kernels<'a> {
    pub(crate) fn new(architecture: &'a Architecture, strategy: &'a Strategy, cluster: &'a Cluster<'a>) -> Self {
        let (hardware, physics) = (cluster.hardware, &cluster.profile.physics);
        let narrow = cluster.multiplies_narrow(strategy);
        let share = physics.matmul_share * hardware.factors.matmul_share;
        let wide = if strategy.precision == Precision::Fp32 { Precision::Fp32 } else { Precision::Bf16 };
        let rate = hardware.matmul_rate(wide) * share;
        let narrow_rate = hardware.matmul_rate(strategy.precision) * share * physics.eight_bit_share;
        let tokens = strategy.micro_batch as f64 * f64::from(architecture.seq_len) / f64::from(strategy.cp);
        Self {
            architecture,
            strategy,
            cluster,
            tokens,
            rate,
            narrow_rate: if narrow { narrow_rate } else { rate },
            operand: if narrow { 1.5 } else { strategy.precision.bytes() },
            memory: hardware.memory_bandwidth * physics.memory_share,
            narrow,
        }
    }

    /// As many multiplications of (rows × inner) by (inner × columns) in one kernel: the best tiling's full waves, or the memory traffic.
    fn multiplications(&self, count: f64, rows: f64, columns: f64, inner: f64, rate: f64) -> f64 {
        let physics = &self.cluster.profile.physics;
        let processors = self.cluster.hardware.multiprocessors;
        let (whole_rows, whole_columns) = (rows.max(1.0) as u64, columns.max(1.0) as u64);
        let mut area = f64::INFINITY;
        for (height, width, tile_rate) in TILES {
            let tiles = count * (whole_rows.div_ceil(1 << height) * whole_columns.div_ceil(1 << width)) as f64;
            let waves = ceil(tiles / processors);
            area = area.min(waves * processors * ((1u64 << (height + width)) as f64) / tile_rate);
        }
        let useful = count * rows * columns;
        let loss = libm::pow((area / useful).max(1.0), physics.tile_loss);
        let arithmetic = 2.0 * useful * inner / rate * (1.0 + self.half_rate_width(rate) / inner) * loss;
        let traffic = self.operand * count * (rows * columns + rows * inner + columns * inner) / self.memory;
        longer(arithmetic, traffic) + physics.kernel_seconds
    }

    /// Inner dimension at which writing the result costs as much as computing it: the device's balance of arithmetic and memory. The
    /// constant is the A100's.
    fn half_rate_width(&self, rate: f64) -> f64 {
        self.cluster.profile.physics.half_rate_width * rate / (self.cluster.hardware.memory_bandwidth * A100_BALANCE)
    }

    /// A weight matrix: forward, and backward by activations and by weights.
    fn matrix(&self, tokens: f64, outputs: f64, inputs: f64, rate: f64) -> Passes {
        self.matrices(1.0, tokens, outputs, inputs, rate)
    }

    /// As many weight matrices of the same shape in one kernel, each with its own tokens.
    fn matrices(&self, count: f64, tokens: f64, outputs: f64, inputs: f64, rate: f64) -> Passes {
        Passes {
            forward: self.multiplications(count, tokens, outputs, inputs, rate),
            backward: self.multiplications(count, tokens, inputs, outputs, rate)
                + self.multiplications(count, inputs, outputs, tokens, rate),
        }
    }

    /// Bringing what a narrow multiplication is fed into 8 bits: its input forward, the gradient of its output backward.
    fn quantising(&self, tokens: f64, outputs: f64, inputs: f64) -> Passes {
        let pass =
            if self.narrow { self.cluster.profile.physics.quantise_passes * 2.0 * tokens / self.memory } else { 0.0 };
        Passes { forward: pass * inputs, backward: pass * outputs }
    }

    fn split(&self, matrix: &Matrix, tokens: f64) -> Passes {
        let ranks = f64::from(self.strategy.tp);
        let (outputs, inputs) = match matrix.split {
            Split::Outputs => (matrix.outputs / ranks, matrix.inputs),
            Split::Inputs => (matrix.outputs, matrix.inputs / ranks),
            Split::Neither => (matrix.outputs, matrix.inputs),
        };
        self.matrix(tokens, outputs, inputs, self.narrow_rate) + self.quantising(tokens, outputs, inputs)
    }

    /// The matrices of a layer's attention.
    fn projections(&self) -> Passes {
        let (matrices, count) = self.architecture.attention_matrices();
        matrices[..count].iter().fold(Passes::default(), |sum, matrix| sum + self.split(matrix, self.tokens))
    }

    fn ffn(&self, width: f64, tokens: f64) -> Passes {
        self.architecture
            .ffn_matrices(width)
            .iter()
            .fold(Passes::default(), |sum, matrix| sum + self.split(matrix, tokens))
    }

    /// Whether the usual fused softmax kernel takes the shape: it works on four rows of heads at a time.
    fn softmax_refused(&self) -> bool {
        let heads = self.strategy.micro_batch * u64::from(self.architecture.heads) / u64::from(self.strategy.tp.max(1));
        !self.strategy.fused_attention && !heads.is_multiple_of(4)
    }

    /// What mixes a layer's tokens, on average over the model's kinds of layers: attention with its
    /// projections, or a recurrence.
    fn mixer(&self) -> Passes {
        let Some(kinds) = self.architecture.kinds else { return self.projections() + self.attention() };
        let mix = self.architecture.mix();
        let mut passes = self.attention();
        if mix.attention() > 0.0 {
            passes = passes + self.projections().scaled(mix.attention());
        }
        if let Some(layers) = kinds.recurrent {
            passes = passes + self.recurrence(&layers).scaled(mix.recurrent);
        }
        passes
    }

    /// A recurrent layer: its matrices, the scan at the rate of fused attention (or of vectors), and what
    /// passes through memory between them. Nominal: no measurement shows it.
    fn recurrence(&self, layers: &RecurrentLayers) -> Passes {
        let physics = &self.cluster.profile.physics;
        let ranks = f64::from(self.strategy.tp);
        let matrices = recurrent_matrices(self.architecture.hidden, layers);
        let matrices = matrices.iter().fold(Passes::default(), |sum, matrix| sum + self.split(matrix, self.tokens));
        let peak = self.matmul_peak();
        let rate = if is_scan_elementwise(layers) {
            peak * VECTOR_SHARE
        } else {
            peak * physics.fused_attention_share * self.cluster.hardware.factors.fused_attention_share
        };
        let scan = self.tokens * scan_flops_per_token(layers) / ranks / rate;
        let scan = Passes {
            forward: scan + 2.0 * physics.kernel_seconds,
            backward: FUSED_BACKWARD * scan + 4.0 * physics.kernel_seconds,
        };
        matrices + scan + self.traffic(2.0 * self.tokens * passed_values(layers) / ranks)
    }

    /// FLOP/s of half-precision matrices at their best.
    fn matmul_peak(&self) -> f64 {
        self.rate / (self.cluster.profile.physics.matmul_share * self.cluster.hardware.factors.matmul_share)
    }

    /// Attention between queries and keys, without its projections, on average over all layers: some may
    /// have a window, or none.
    pub(crate) fn attention(&self) -> Passes {
        let length = f64::from(self.architecture.seq_len);
        let mix = self.architecture.mix();
        if self.architecture.kinds.is_none() {
            return self.attention_over(length);
        }
        let mut passes = Passes::default();
        if mix.whole > 0.0 {
            passes = passes + self.attention_over(length).scaled(mix.whole);
        }
        if mix.windowed > 0.0 {
            passes = passes + self.attention_over(mix.window_length).scaled(mix.windowed);
        }
        passes
    }

    /// Causal attention of the tokens, each to half of `attended` on average. Without a fused kernel a
    /// window only masks the whole matrix.
    fn attention_over(&self, attended: f64) -> Passes {
        let physics = &self.cluster.profile.physics;
        let (strategy, architecture) = (self.strategy, self.architecture);
        let ranks = f64::from(strategy.tp);
        let length = f64::from(architecture.seq_len);
        if strategy.fused_attention {
            let square = 4.0 * self.tokens * attended * architecture.attention_width() / ranks;
            let share = physics.fused_attention_share * self.cluster.hardware.factors.fused_attention_share;
            let peak = self.matmul_peak();
            // Causal: half the square.
            let causal = 0.5 * square / (peak * share) * (1.0 + HALF_RATE_HEAD / architecture.head_width());
            return Passes {
                forward: causal + 2.0 * physics.kernel_seconds,
                backward: FUSED_BACKWARD * causal + 4.0 * physics.kernel_seconds,
            };
        }
        // One multiplication per sequence and head; backward twice as many of each kind.
        let heads = strategy.micro_batch as f64 * f64::from(architecture.heads) / ranks;
        let (own, width) = (length / f64::from(strategy.cp), architecture.head_width());
        let rate = self.rate * physics.batched_matmul_share;
        let scores = self.multiplications(heads, own, length, width, rate);
        let values = self.multiplications(heads, own, width, length, rate);
        let refused = if self.softmax_refused() { physics.softmax_refused } else { 1.0 };
        let entries = heads * own * length;
        let softmax = physics.softmax_passes * refused * entries * strategy.precision.bytes() / self.memory;
        Passes {
            forward: scores + values + softmax + 2.0 * physics.kernel_seconds,
            backward: scores + 3.0 * values + PASSES_BACKWARD * softmax + 4.0 * physics.kernel_seconds,
        }
    }

    /// Norms, residuals and, per unit of the FFN's width on this rank, activation functions. Sequence parallelism splits the first two over
    /// the tensor-parallel ranks.
    fn passes(&self, ffn_values: f64, ffn: LayerFfn) -> Passes {
        let physics = &self.cluster.profile.physics;
        let ranks = f64::from(self.strategy.tp);
        let whole = if self.strategy.sequence_parallel { 1.0 / ranks } else { 0.5 + 0.5 / ranks };
        let gate = if self.architecture.gated { 1.5 } else { 1.0 };
        let parts = self.parts(ffn);
        let hidden = physics.hidden_passes * self.tokens * f64::from(self.architecture.hidden) * whole * parts;
        self.traffic(hidden + physics.ffn_passes * ffn_values * gate)
    }

    /// Values that memory-bound kernels move.
    fn traffic(&self, values: f64) -> Passes {
        let forward = self.cluster.profile.physics.traffic * values * self.strategy.precision.bytes() / self.memory;
        Passes { forward, backward: PASSES_BACKWARD * forward }
    }

    /// Parts of a layer with such an FFN (attention or recurrence, FFN) over the two of a plain one.
    pub(crate) fn parts(&self, ffn: LayerFfn) -> f64 {
        let mix = self.architecture.mix();
        let ffn = if ffn == LayerFfn::Absent { 0.0 } else { 1.0 };
        0.5 * (mix.attention() + mix.recurrent) + 0.5 * ffn
    }

    /// A layer of the model with such an FFN.
    pub(crate) fn layer(&self, ffn: LayerFfn) -> Passes {
        match ffn {
            LayerFfn::Dense => self.dense_layer(),
            LayerFfn::Experts => self.expert_layer(),
            LayerFfn::Absent => self.mixer() + self.passes(0.0, ffn),
        }
    }

    /// A layer with an ordinary FFN.
    fn dense_layer(&self) -> Passes {
        let width = f64::from(self.architecture.ffn_hidden);
        let values = self.tokens * width / f64::from(self.strategy.tp);
        self.mixer() + self.ffn(width, self.tokens) + self.passes(values, LayerFfn::Dense)
    }

    /// A layer with experts: each local expert multiplies its own tokens, all in one grouped kernel, once they are sorted.
    fn expert_layer(&self) -> Passes {
        let Some(experts) = self.architecture.experts else { return self.dense_layer() };
        let (physics, strategy) = (&self.cluster.profile.physics, self.strategy);
        let (width, split) = (f64::from(experts.ffn_hidden), f64::from(strategy.expert_split()));
        let local = f64::from(experts.count) / f64::from(strategy.ep);
        // Whole experts get the tokens of a tensor-parallel group from each of its ranks its part.
        let own = self.tokens * split / f64::from(strategy.tp);
        let routed = own * f64::from(experts.active) * EXPERT_IMBALANCE;
        let rate = self.narrow_rate * physics.grouped_matmul_share;
        let grouped = self.architecture.ffn_matrices(width).iter().fold(Passes::default(), |sum, matrix| {
            let (outputs, inputs) = match matrix.split {
                Split::Outputs => (matrix.outputs / split, matrix.inputs),
                Split::Inputs | Split::Neither => (matrix.outputs, matrix.inputs / split),
            };
            sum + self.matrices(local, (routed / local).max(1.0), outputs, inputs, rate)
                + self.quantising(routed, outputs, inputs)
        });
        let shared = f64::from(experts.shared_ffn_hidden);
        let shared_time = if shared > 0.0 { self.ffn(shared, self.tokens) } else { Passes::default() };
        let sorted = self.traffic(physics.routed_passes * routed * f64::from(self.architecture.hidden));
        let values = routed * width / split + self.tokens * shared / f64::from(strategy.tp);
        self.mixer() + grouped + shared_time + sorted + self.passes(values, LayerFfn::Experts)
    }

    /// Output projection and loss, on the last stage.
    pub(crate) fn logits(&self) -> f64 {
        let (physics, traits) = (&self.cluster.profile.physics, &self.cluster.profile.traits);
        let (strategy, vocab) = (self.strategy, f64::from(self.architecture.vocab));
        let unaligned = traits.unpadded_vocabulary && strategy.tp == 1 && !self.architecture.vocab.is_multiple_of(8);
        let rate = if unaligned { self.rate / physics.unaligned_vocabulary } else { self.rate };
        let local = vocab / f64::from(strategy.tp);
        let time = self.matrix(self.tokens, local, f64::from(self.architecture.hidden), rate);
        let loss = physics.traffic * physics.loss_passes * self.tokens * local * 2.0 / self.memory;
        time.forward + time.backward + loss
    }

    /// Embedding, on the first stage.
    pub(crate) fn embedding(&self) -> f64 {
        6.0 * self.tokens * f64::from(self.architecture.hidden) * self.strategy.precision.bytes()
            / self.cluster.hardware.memory_bandwidth
    }

    /// Host seconds to launch a layer's forward pass. `entangled`: collectives queue behind transfers between nodes.
    pub(crate) fn launches(&self, entangled: bool, ffn: LayerFfn) -> f64 {
        let physics = &self.cluster.profile.physics;
        let ranks = f64::from(self.strategy.tp);
        let mut growth = 1.0 + physics.launch_tensor * libm::log2(ranks);
        if ffn == LayerFfn::Experts {
            growth *= physics.expert_launches;
        }
        if self.softmax_refused() {
            growth *= physics.softmax_refused.sqrt();
        }
        if entangled {
            growth *= 1.0 + physics.entanglement * ranks;
        }
        physics.launch_seconds * growth * self.parts(ffn)
    }
}
