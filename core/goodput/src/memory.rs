//! Memory per GPU of a configuration, and the refusal of one that does not fit. Formulas of the field (docs/goodput.md); without
//! sharded optimizer states and without recomputation, which the layouts of today do not have.

use headway_types::spec::Precision;
use headway_types::{Configuration, GpuType, ModelShape};

use crate::catalog::Hardware;
use crate::infeasible::Infeasible;
use crate::shape::{kv_ratio, stage_parameters};

/// Logits of the last stage, bytes per token and vocabulary entry: half-precision values and fp32 softmax.
const LOGIT_BYTES: f64 = 6.0;
/// Device context and communication buffers, bytes.
const CONTEXT: f64 = 1.5e9;
/// Share of the memory that fragmentation takes.
const FRAGMENTATION: f64 = 0.06;
const MIB: f64 = 1024.0 * 1024.0;

/// Memory per GPU by use, in bytes, on the fullest stage.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MemoryUse {
    /// Parameters, gradients and optimizer states.
    pub states: f64,
    pub activations: f64,
    pub logits: f64,
    /// Context, buffers and fragmentation.
    pub reserve: f64,
}

impl MemoryUse {
    #[must_use]
    pub fn total(&self) -> f64 {
        self.states + self.activations + self.logits + self.reserve
    }
}

/// AdamW's bytes per parameter: half-precision weights 2, fp32 gradients 4, master weights and two moments 12 (Megatron-LM);
/// in fp32 the weights are their own master.
fn state_bytes(precision: Precision) -> f64 {
    match precision {
        Precision::Bf16 | Precision::Fp16 => 18.0,
        Precision::Fp32 => 16.0,
    }
}

/// Activations kept for the backward pass per token and layer, bytes: Korthikanti et al. 2022, eq. 2, without the attention
/// matrix (fused attention keeps none), for any FFN width, gated FFN and grouped-query attention.
pub(crate) fn activation_bytes_per_token_and_layer(shape: &ModelShape, tp: u32, precision: Precision) -> f64 {
    let (hidden, ffn) = (f64::from(shape.hidden), f64::from(shape.ffn_hidden));
    let attention = hidden * (4.0 + 4.0 * kv_ratio(shape));
    let feed_forward = if shape.gated { 6.0 * ffn } else { 4.0 * ffn };
    let half = 10.0 * hidden + (attention + feed_forward) / f64::from(tp);
    if precision == Precision::Fp32 { 2.0 * half } else { half }
}

/// Memory a configuration takes with `micro_batches` micro-batches per replica; 1F1B keeps min(m, pp) of them in flight.
#[must_use]
pub fn memory_use(
    shape: &ModelShape,
    precision: Precision,
    hardware: &Hardware,
    configuration: &Configuration,
    micro_batches: u64,
) -> MemoryUse {
    let layout = configuration.layout;
    let tokens = configuration.micro_batch.tokens(shape.seq_len).0;
    let in_flight = micro_batches.min(u64::from(layout.pp)) as f64;
    let layers = f64::from(shape.layers) / f64::from(layout.pp);
    MemoryUse {
        states: state_bytes(precision) * stage_parameters(shape, layout.tp, layout.pp),
        activations: tokens * in_flight * layers * activation_bytes_per_token_and_layer(shape, layout.tp, precision),
        logits: LOGIT_BYTES * tokens * f64::from(shape.vocab) / f64::from(layout.tp),
        reserve: CONTEXT + FRAGMENTATION * hardware.memory,
    }
}

/// Refuses a configuration that does not fit, with its numbers.
pub fn check(
    shape: &ModelShape,
    precision: Precision,
    gpu_type: &GpuType,
    hardware: &Hardware,
    configuration: &Configuration,
    micro_batches: u64,
) -> Result<(), Infeasible> {
    let needed = memory_use(shape, precision, hardware, configuration, micro_batches);
    if needed.total() <= hardware.memory {
        return Ok(());
    }
    let mib = |bytes: f64| libm::ceil(bytes / MIB) as u64;
    Err(Infeasible::Memory {
        configuration: *configuration,
        gpu_type: gpu_type.clone(),
        needed_mib: mib(needed.total()),
        available_mib: mib(hardware.memory),
        detail: format!(
            "states {}, activations {}, logits {}, reserve {}",
            mib(needed.states),
            mib(needed.activations),
            mib(needed.logits),
            mib(needed.reserve)
        ),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::catalog;
    use crate::examples::{gpt3_175b, llama2_7b};
    use headway_types::{Layout, Sequences};

    fn checked(dp: u32, tp: u32, pp: u32, gpu: &str) -> Result<(), Infeasible> {
        let layout = Layout { dp, tp, pp };
        let at = Configuration { layout, micro_batch: Sequences(1), global_batch: Sequences(u64::from(dp) * 8) };
        let gpu_type = GpuType(gpu.into());
        check(&llama2_7b(), Precision::Bf16, &gpu_type, &catalog::find(&gpu_type).unwrap(), &at, 8)
    }

    #[test]
    fn seven_billion_parameters_need_more_than_one_80_gb_gpu() {
        let refusal = checked(1, 1, 1, "A100-80G").unwrap_err();
        assert!(refusal.is_memory());
        assert!(refusal.to_string().contains("states 115673"), "{refusal}");
        assert!(checked(1, 4, 1, "A100-80G").is_ok());
        assert!(checked(1, 1, 1, "H200").is_err(), "120 GB of states and the reserve exceed 141 GB with activations");
    }

    #[test]
    fn activations_of_a_plain_decoder_are_korthikantis() {
        let per_layer = activation_bytes_per_token_and_layer(&gpt3_175b(), 8, Precision::Bf16);
        assert!((per_layer / 12_288.0 - (10.0 + 24.0 / 8.0)).abs() < 1e-9);
    }

    #[test]
    fn no_more_micro_batches_are_in_flight_than_there_are() {
        let hardware = catalog::find(&GpuType("H200".into())).unwrap();
        let layout = Layout { dp: 1, tp: 1, pp: 4 };
        let at = Configuration { layout, micro_batch: Sequences(1), global_batch: Sequences(8) };
        let held = |m| memory_use(&llama2_7b(), Precision::Bf16, &hardware, &at, m).activations;
        assert_eq!(held(2) * 2.0, held(4));
        assert_eq!(held(4), held(64));
    }
}
