#![allow(clippy::unwrap_used)]
use super::*;
use headway_types::{GpuType, Layout, Sequences};

use crate::catalog;
use crate::examples::{emulated_class, gpt3_175b, llama3_8b, tiny};

fn configuration(dp: u32, tp: u32, pp: u32, micro: u64, global: u64) -> Configuration {
    let layout = Layout { dp, tp, pp, ..Layout::single() };
    Configuration { layout, micro_batch: Sequences(micro), global_batch: Sequences(global) }
}

fn on(shape: &ModelShape, gpu: &str, nodes: u32, configuration: &Configuration) -> StepTime {
    let device = Device::Catalogued(catalog::find(&GpuType(gpu.into())).unwrap());
    let spread = Spread { gpus: configuration.layout.gpus(), nodes: NodeCount(nodes) };
    step_time(shape, spec::Precision::Bf16, &device, spread, configuration, configuration.accumulation().unwrap())
}

#[test]
fn an_emulated_step_is_what_the_worker_pads_it_to() {
    let class = emulated_class(4);
    let device = catalog::device(&class).unwrap();
    let at = configuration(4, 1, 1, 2, 32);
    let spread = Spread { gpus: GpuCount(4), nodes: NodeCount(1) };
    let time = step_time(&tiny(), spec::Precision::Fp32, &device, spread, &at, 4);
    let padded = 4.0 * (training_flops_per_token(&tiny()) * 128.0 / 1e9) + 1.5 * 4.0 * parameters(&tiny()) / 4e6;
    assert!((time.total().0 - padded).abs() < 1e-12);
    assert_eq!(time.overhead, Seconds(0.0));
    // Two replicas of two stages: eight micro-batches on half the layers, one more to fill the pipeline, half the gradient.
    let staged = step_time(&tiny(), spec::Precision::Fp32, &device, spread, &configuration(2, 1, 2, 2, 32), 8);
    let padded = 9.0 * (training_flops_per_token(&tiny()) * 128.0 / 2e9) + 4.0 * parameters(&tiny()) / 2.0 / 4e6;
    assert!((staged.total().0 - padded).abs() < 1e-12);
}

#[test]
fn a_published_175b_step_lies_within_a_third() {
    // Korthikanti et al. 2022: 64 A100-80G, tp 8, pp 8, micro-batch 1, batch 64: 13.75 s per step.
    let time = on(&gpt3_175b(), "A100-80G", 8, &configuration(1, 8, 8, 1, 64)).total().0;
    assert!((13.75 / 1.33..13.75 * 1.33).contains(&time), "{time}");
}

#[test]
fn an_8b_model_on_one_h100_node_reaches_a_usual_utilisation() {
    let at = configuration(2, 2, 2, 1, 64);
    let time = on(&llama3_8b(), "H100-80G", 1, &at).total().0;
    let utilisation = training_flops_per_token(&llama3_8b()) * 64.0 * 8192.0 / time / (8.0 * 989e12);
    assert!((0.3..0.55).contains(&utilisation), "{utilisation}");
}

#[test]
fn the_bubble_is_p_minus_1_over_m_of_the_layers_work() {
    // Without an output projection to speak of, all stages are equal.
    let shape = ModelShape { vocab: 8, ..gpt3_175b() };
    let time = on(&shape, "A100-80G", 8, &configuration(1, 8, 8, 1, 64));
    let host = unnamed_software().physics.micro_batch_seconds * 64.0;
    let work = time.compute.0 + time.tensor_collectives.0 + time.launches.0 - host;
    assert!((time.pipeline_bubble.0 / work / (7.0 / 64.0) - 1.0).abs() < 1e-3);
}

#[test]
fn reducing_over_nodes_costs_more_than_inside_one() {
    let at = configuration(8, 1, 1, 1, 64);
    let (one, two) = (on(&llama3_8b(), "H100-80G", 1, &at), on(&llama3_8b(), "H100-80G", 8, &at));
    assert!(two.data_collectives.0 > one.data_collectives.0);
    assert!(two.compute.0 / one.compute.0 < 1.1, "only stragglers make more nodes compute longer");
}
