//! The true step time: the scheduler's own prior, off by factors it is not told. They belong to a model shape on a GPU
//! type, as a better kernel or a slower host would, so that what one layout teaches holds for another.

use headway_goodput::catalog::Device;
use headway_goodput::step_time::{Spread, StepTime, step_time};
use headway_types::spec::Precision;
use headway_types::{Configuration, GpuType, ModelShape, Seconds};

use crate::random::{Random, Seed};

/// Deviation of the logarithm of the hidden factors: about what published runs differ from the prior (docs/goodput.md).
const MICRO_SPREAD: f64 = 0.15;
const STEP_SPREAD: f64 = 0.3;
/// Relative deviation of one step from the mean.
const JITTER: f64 = 0.03;

/// How a model shape really runs on a GPU type.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepTruth {
    /// Over the prior's terms that follow micro-batches.
    micro: f64,
    /// Over the prior's terms paid once per step.
    step: f64,
}

impl StepTruth {
    #[must_use]
    pub fn hidden(seed: Seed, shape: &ModelShape, gpu_type: &GpuType) -> Self {
        let key = format!("{shape:?}");
        let mut random = Random::new(seed.about(b"step").about(key.as_bytes()).about(gpu_type.0.as_bytes()));
        Self { micro: random.around(1.0, MICRO_SPREAD), step: random.around(1.0, STEP_SPREAD) }
    }

    /// Mean seconds of one optimizer step; `None` where the batch does not divide into micro-batches.
    #[must_use]
    pub fn step_time(
        &self,
        shape: &ModelShape,
        precision: Precision,
        device: &Device,
        spread: Spread,
        configuration: &Configuration,
    ) -> Option<Seconds> {
        let prior: StepTime = step_time(shape, precision, device, spread, configuration, configuration.accumulation()?);
        Some(prior.micro() * self.micro + prior.step() * self.step + prior.overhead)
    }
}

/// What `steps` steps of a mean duration took on average.
#[must_use]
pub fn measured(random: &mut Random, mean: Seconds, steps: u32) -> Seconds {
    Seconds(random.around(mean.0, JITTER / f64::from(steps.max(1)).sqrt()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use headway_goodput::catalog;
    use headway_types::{Layout, NodeCount, Sequences};
    use proptest::prelude::*;

    use super::*;
    use crate::run::tests::llama_7b;

    fn time(seed: u64, gpu: &str, layout: Layout, micro: u64, global: u64) -> f64 {
        let gpu_type = GpuType(gpu.into());
        let device = Device::Catalogued(catalog::find(&gpu_type).unwrap());
        let (gpus, nodes) = (layout.gpus(), NodeCount(layout.gpus().0.div_ceil(8)));
        let at = Configuration { layout, micro_batch: Sequences(micro), global_batch: Sequences(global) };
        let truth = StepTruth::hidden(Seed(seed), &llama_7b(), &gpu_type);
        truth.step_time(&llama_7b(), Precision::Bf16, &device, Spread { gpus, nodes }, &at).unwrap().0
    }

    proptest! {
        #[test]
        fn more_replicas_never_make_a_step_of_the_same_batch_longer_than_their_network_costs(
            seed in 0..500_u64, doublings in 0..4_u32, micro in 1..3_u64,
        ) {
            let layout = |dp| Layout { dp, tp: 4, pp: 1 };
            let (few, many) = (2 << doublings, 4 << doublings);
            let (slow, fast) = (
                time(seed, "H100-80G", layout(few), micro, 512),
                time(seed, "H100-80G", layout(many), micro, 512),
            );
            prop_assert!(fast < slow * 1.1, "{few} -> {many}: {slow} -> {fast}");
        }

        #[test]
        fn the_truth_stays_near_what_published_runs_differ_from_the_prior(seed in 0..2000_u64) {
            let truth = StepTruth::hidden(Seed(seed), &llama_7b(), &GpuType("H100-80G".into()));
            prop_assert!((0.4..2.5).contains(&truth.micro) && (0.16..6.1).contains(&truth.step));
        }
    }

    #[test]
    fn the_truth_is_not_the_prior_and_differs_between_gpu_types() {
        let layout = Layout { dp: 2, tp: 4, pp: 1 };
        let of = |gpu: &str| StepTruth::hidden(Seed(3), &llama_7b(), &GpuType(gpu.into()));
        assert_ne!(of("H100-80G"), of("A100-80G"));
        assert_eq!(of("H100-80G"), of("H100-80G"));
        assert!(time(3, "A100-80G", layout, 1, 64) > time(3, "H100-80G", layout, 1, 64));
    }

    #[test]
    fn many_steps_average_their_jitter() {
        let mut random = Random::new(Seed(5));
        let far = |steps, random: &mut Random| {
            (0..500).map(|_| (measured(random, Seconds(2.0), steps).0 / 2.0 - 1.0).abs()).fold(0.0, f64::max)
        };
        let (one, hundred) = (far(1, &mut random), far(100, &mut random));
        assert!(hundred < one / 4.0 && one < 0.2, "{one} {hundred}");
    }
}
