#![allow(clippy::unwrap_used)]
use super::*;
use crate::catalog::{self, Device, Hardware};
use crate::examples::llama2_7b;
use crate::fitting::Fitting;
use crate::infeasible::Infeasible;
use crate::step_time::unnamed_software;
use headway_types::{Configuration, GpuType, Layout, Sequences, spec};

fn fitting(hardware: Hardware) -> Fitting<'static> {
    Fitting::new(&llama2_7b(), spec::Precision::Bf16, &Device::Catalogued(hardware), None)
}

fn checked(dp: u32, tp: u32, pp: u32, gpu: &str) -> Result<(), Infeasible> {
    let layout = Layout { dp, tp, pp, ..Layout::single() };
    let at = Configuration { layout, micro_batch: Sequences(1), global_batch: Sequences(u64::from(dp) * 8) };
    let gpu_type = GpuType(gpu.into());
    fitting(catalog::find(&gpu_type).unwrap()).check(&gpu_type, &at, 8)
}

#[test]
fn seven_billion_parameters_need_more_than_one_80_gb_gpu() {
    let refusal = checked(1, 1, 1, "A100-80G").unwrap_err();
    assert!(refusal.is_memory());
    assert!(refusal.to_string().contains("MiB per GPU (states 1"), "{refusal}");
    assert!(checked(1, 4, 1, "A100-80G").is_ok());
}

#[test]
fn states_are_eighteen_bytes_per_parameter_and_buffers() {
    let hardware = catalog::find(&GpuType("H200".into())).unwrap();
    let layout = Layout { dp: 1, tp: 1, pp: 1, ..Layout::single() };
    let at = Configuration { layout, micro_batch: Sequences(1), global_batch: Sequences(1) };
    let states = fitting(hardware).predicted(&at, 1).unwrap().states;
    let each = states / crate::architecture::parameters(&llama2_7b());
    assert!((each - 18.0 - unnamed_software().physics.buffer_bytes).abs() < 0.01, "{each}");
}

fn of(strategy: Strategy) -> MemoryUse {
    let hardware = catalog::find(&GpuType("H100-80G".into())).unwrap();
    memory_of(&Architecture::from(&llama2_7b()), &strategy, &Cluster::usual(&hardware, unnamed_software(), 8))
}

#[test]
fn sharding_more_never_holds_more() {
    let at = |sharding| of(Strategy { dp: 8, micro_batches: 4, sharding, ..Strategy::single() }).states;
    let optimizer = at(Sharding::Optimizer { group: None });
    assert!(optimizer < at(Sharding::None));
    assert!(at(Sharding::Gradients) < optimizer);
    assert!(at(Sharding::Parameters) < at(Sharding::Gradients));
}

#[test]
fn recomputing_keeps_less_and_offloading_moves_states_off_the_device() {
    let plain = Strategy { tp: 4, micro_batches: 4, ..Strategy::single() };
    let full = Strategy { recompute: Recompute::Full, ..plain };
    assert!(of(full).activations < 0.25 * of(plain).activations);
    let offloaded = of(Strategy { offload: Offload::Host, ..plain });
    assert!((offloaded.states + offloaded.offloaded - of(plain).states).abs() < 1.0);
    assert!(offloaded.offloaded > 0.6 * of(plain).states);
}

#[test]
fn logits_sit_on_the_last_stage_and_early_stages_hold_more_micro_batches() {
    let shallow = of(Strategy { pp: 2, micro_batches: 1, ..Strategy::single() });
    let deep = of(Strategy { pp: 8, micro_batches: 64, micro_batch: 4, ..Strategy::single() });
    assert!(shallow.logits > 0.0);
    assert_eq!(deep.logits, 0.0, "the first of eight stages is the fullest");
}

#[test]
fn no_more_micro_batches_are_in_flight_than_there_are() {
    let hardware = catalog::find(&GpuType("H200".into())).unwrap();
    let layout = Layout { dp: 1, tp: 1, pp: 4, ..Layout::single() };
    let at = Configuration { layout, micro_batch: Sequences(1), global_batch: Sequences(8) };
    let held = |m| fitting(hardware).predicted(&at, m).unwrap().activations;
    assert!((held(8) / held(4) - 1.0).abs() < 1e-9 && held(2) < held(4));
    assert_eq!(held(4), held(64));
}
