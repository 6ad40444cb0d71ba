//! The true step time: the scheduler's own prior, off by factors it is not told. They belong to a model shape on a GPU
//! type, as a better kernel or a slower host would, so that what one layout teaches holds for another; where the world is harsh, each
//! job is off by one more that no other job teaches, and each of its layouts by one that no other layout teaches.

use headway_goodput::architecture::Architecture;
use headway_goodput::catalog::Device;
use headway_goodput::collective::Cluster;
use headway_goodput::memory::memory_of;
use headway_goodput::physics::Parameters;
use headway_goodput::step_time::{Spread, StepTime, step_time};
use headway_goodput::strategy::Strategy;
use headway_types::spec::Precision;
use headway_types::{Bytes, Configuration, GpuType, Layout, ModelShape, Seconds, Shares};

use crate::nature::{Cliff, Nature};
use crate::random::{Random, Seed};

/// Deviation of the logarithm of hidden memory: the memory model's error on clean runs.
const MEMORY_SPREAD: f64 = 0.02;
/// Relative deviation of one step from the mean.
const JITTER: f64 = 0.03;

/// How a model shape really runs on a GPU type.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepTruth {
    /// Over the prior's terms that follow micro-batches.
    micro: f64,
    /// Over the prior's terms paid once per step.
    step: f64,
    /// Over the memory model's bytes.
    memory: f64,
    /// Over the whole step, of this job alone.
    job: f64,
    /// Whose layouts have factors of their own, and how far these lie from 1.
    layouts: (Seed, f64),
    contention: f64,
    cliff: Option<Cliff>,
    /// The faster device of a gang over two classes, and what its micro-batches are off by.
    ahead: Option<(Device, f64)>,
}

impl StepTruth {
    #[must_use]
    pub fn hidden(seed: Seed, nature: &Nature, job: Seed, shape: &ModelShape, gpu_type: &GpuType) -> Self {
        let key = format!("{shape:?}");
        let mut random = Random::new(seed.about(b"step").about(key.as_bytes()).about(gpu_type.0.as_bytes()));
        let mut memory = Random::new(seed.about(b"memory").about(key.as_bytes()).about(gpu_type.0.as_bytes()));
        Self {
            micro: random.around(1.0, nature.micro),
            step: random.around(1.0, nature.step),
            memory: memory.around(1.0, MEMORY_SPREAD),
            job: Random::new(job.about(b"job").about(gpu_type.0.as_bytes())).around(1.0, nature.job),
            contention: nature.contention,
            cliff: nature.cliff,
            layouts: (job.about(b"layout").about(gpu_type.0.as_bytes()), nature.layout),
            ahead: None,
        }
    }

    /// The same in a gang whose last nodes have a faster device, whose own truth is the other.
    #[must_use]
    pub fn with_ahead(self, device: Device, other: &StepTruth) -> Self {
        Self { ahead: Some((device, other.micro)), ..self }
    }

    /// The same with memory off the model by a stated factor.
    #[must_use]
    pub fn with_memory(self, factor: f64) -> Self {
        Self { memory: factor, ..self }
    }

    /// Most bytes a GPU really holds, and whether that is more than it has; `None` on devices whose memory is not modelled.
    #[must_use]
    pub fn memory(
        &self,
        shape: &ModelShape,
        precision: Precision,
        device: &Device,
        configuration: &Configuration,
    ) -> Option<(Bytes, bool)> {
        let Device::Catalogued(hardware) = device else { return None };
        let profile = Parameters::built_in().profile(None);
        let strategy = Strategy::of_faster(configuration, configuration.cycles()?, precision);
        let modelled = memory_of(&Architecture::from(shape), &strategy, &Cluster::usual(hardware, &profile, 1));
        let bytes = modelled.total() * self.memory;
        Some((Bytes(bytes as u64), bytes > hardware.memory))
    }

    /// Mean seconds of one optimizer step; `None` where the batch does not divide into micro-batches. `crowd`: share of the other nodes that
    /// gangs of several nodes hold, which talk over the same fabric.
    #[must_use]
    pub fn step_time(
        &self,
        shape: &ModelShape,
        precision: Precision,
        device: &Device,
        spread: Spread,
        crowd: f64,
        configuration: &Configuration,
    ) -> Option<Seconds> {
        let (Shares { slower, faster, .. }, cycles) = (configuration.layout.execution.shares, configuration.cycles()?);
        let prior = |device: &Device, share: u32| -> StepTime {
            step_time(shape, precision, device, spread, configuration, u64::from(share) * cycles)
        };
        let of_faster = self.ahead.filter(|_| slower != faster);
        let of_faster = of_faster.map_or(Seconds(0.0), |(device, off)| prior(&device, faster).micro() * off);
        let prior = prior(device, slower);
        let micro = Seconds((prior.micro() * self.micro).0.max(of_faster.0));
        let talk =
            (prior.pipeline_transfers + prior.parameter_collectives) * self.micro + prior.data_collectives * self.step;
        let crowded = if spread.nodes.0 > 1 { self.contention * crowd } else { 0.0 };
        let common = micro + prior.step() * self.step + prior.overhead + talk * crowded;
        let fallen =
            self.cliff.filter(|cliff| configuration.micro_batch < cliff.below).map_or(1.0, |cliff| cliff.times);
        Some(common * self.job * self.of_layout(configuration.layout) * fallen)
    }

    /// What this layout of this job is off by, and no other.
    fn of_layout(&self, layout: Layout) -> f64 {
        let (seed, spread) = self.layouts;
        if spread == 0.0 { 1.0 } else { Random::new(seed.about(format!("{layout:?}").as_bytes())).around(1.0, spread) }
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
    use headway_goodput::{JobModel, catalog};
    use headway_types::example::{self, llama2_7b};
    use headway_types::spec::{BatchRange, ExecutionLimits, LayoutLimits, Training, Work};
    use headway_types::{
        Generation, GpuCount, IdSource, Layout, NodeCount, Recompute, Sequences, Sharding, StepReport, Timestamp,
    };
    use proptest::prelude::*;

    use super::*;

    fn time(seed: u64, gpu: &str, layout: Layout, micro: u64, global: u64) -> f64 {
        let gpu_type = GpuType(gpu.into());
        let device = Device::Catalogued(catalog::find(&gpu_type).unwrap());
        let (gpus, nodes) = (layout.gpus(), NodeCount(layout.gpus().0.div_ceil(8)));
        let at = Configuration { layout, micro_batch: Sequences(micro), global_batch: Sequences(global) };
        let truth = StepTruth::hidden(Seed(seed), &Nature::GENTLE, Seed(0), &llama2_7b(), &gpu_type);
        truth.step_time(&llama2_7b(), Precision::Bf16, &device, Spread { gpus, nodes }, 0.0, &at).unwrap().0
    }

    proptest! {
        #[test]
        fn more_replicas_never_make_a_step_of_the_same_batch_longer_than_their_network_costs(
            seed in 0..500_u64, doublings in 0..4_u32, micro in 1..3_u64,
        ) {
            let layout = |dp| Layout { dp, tp: 4, pp: 1, ..Layout::single() };
            let (few, many) = (2 << doublings, 4 << doublings);
            let (slow, fast) = (
                time(seed, "H100-80G", layout(few), micro, 512),
                time(seed, "H100-80G", layout(many), micro, 512),
            );
            prop_assert!(fast < slow * 1.1, "{few} -> {many}: {slow} -> {fast}");
        }

        #[test]
        fn the_truth_stays_near_what_published_runs_differ_from_the_prior(seed in 0..2000_u64) {
            let truth = StepTruth::hidden(Seed(seed), &Nature::GENTLE, Seed(0), &llama2_7b(), &GpuType("H100-80G".into()));
            prop_assert!((0.4..2.5).contains(&truth.micro) && (0.16..6.1).contains(&truth.step));
        }
    }

    #[test]
    fn the_truth_is_not_the_prior_and_differs_between_gpu_types() {
        let layout = Layout { dp: 2, tp: 4, pp: 1, ..Layout::single() };
        let of = |gpu: &str| StepTruth::hidden(Seed(3), &Nature::GENTLE, Seed(0), &llama2_7b(), &GpuType(gpu.into()));
        assert_ne!(of("H100-80G"), of("A100-80G"));
        assert_eq!(of("H100-80G"), of("H100-80G"));
        assert!(time(3, "A100-80G", layout, 1, 64) > time(3, "H100-80G", layout, 1, 64));
    }

    #[test]
    fn in_a_harsh_world_every_layout_of_a_job_is_off_by_a_factor_of_its_own() {
        let of = |nature, job, layout: Layout| {
            StepTruth::hidden(Seed(3), nature, Seed(job), &llama2_7b(), &GpuType("H100-80G".into())).of_layout(layout)
        };
        let (one, other) = (Layout { tp: 4, ..Layout::single() }, Layout { pp: 4, ..Layout::single() });
        assert_eq!((of(&Nature::GENTLE, 1, one), of(&Nature::GENTLE, 1, other)), (1.0, 1.0));
        assert_ne!(of(&Nature::HARSH, 1, one), of(&Nature::HARSH, 1, other));
        assert_ne!(of(&Nature::HARSH, 1, one), of(&Nature::HARSH, 2, one));
        assert_eq!(of(&Nature::HARSH, 1, one), of(&Nature::HARSH, 1, one));
    }

    #[test]
    fn gangs_of_several_nodes_share_the_fabric() {
        let (shape, gpu_type) = (llama2_7b(), GpuType("H100-80G".into()));
        let device = Device::Catalogued(catalog::find(&gpu_type).unwrap());
        let truth = StepTruth::hidden(Seed(3), &Nature::HARSH, Seed(0), &shape, &gpu_type);
        let time = |dp: u32, crowd| {
            let layout = Layout { dp, tp: 4, ..Layout::single() };
            let at = Configuration { layout, micro_batch: Sequences(1), global_batch: Sequences(64) };
            let spread = Spread { gpus: layout.gpus(), nodes: NodeCount(layout.gpus().0.div_ceil(8)) };
            truth.step_time(&shape, Precision::Bf16, &device, spread, crowd, &at).unwrap().0
        };
        assert_eq!(time(2, 0.0), time(2, 1.0));
        assert!(time(8, 1.0) > time(8, 0.5) && time(8, 0.5) > time(8, 0.0));
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

    /// Llama 7B at four times its sequence length with a script that recomputes, shards and splits sequences.
    fn long_sequences() -> (ModelShape, JobModel) {
        let shape = ModelShape { seq_len: 16_384, ..llama2_7b() };
        let execution = ExecutionLimits {
            sharding: vec![Sharding::None, Sharding::Optimizer],
            recompute: vec![Recompute::None, Recompute::Full],
            sequence_parallel: true,
            ..ExecutionLimits::default()
        };
        let training = Training {
            reference_batch: Sequences(64),
            batch: BatchRange { min: Sequences(32), max: Sequences(128) },
            layouts: LayoutLimits { execution, ..LayoutLimits::degrees(vec![], vec![], Sequences(8)) },
            ..example::training(Work::Model(shape))
        };
        (shape, JobModel::new(training))
    }

    #[test]
    fn a_job_whose_memory_is_15_per_cent_above_the_models_fits_after_running_out_at_most_once() {
        let class = example::class("H100-80G", 8);
        let device = catalog::device(&class).unwrap();
        for gpus in [8, 16, 32].map(GpuCount) {
            let (shape, mut model) = long_sequences();
            let nodes = NodeCount(gpus.0 / 8);
            let truth = StepTruth::hidden(Seed(1), &Nature::GENTLE, Seed(0), &shape, &class.gpu_type).with_memory(1.15);
            let mut ended = 0;
            let (at, peak) = loop {
                let at = model.best(&class, gpus, nodes).unwrap().configuration.unwrap();
                match truth.memory(&shape, Precision::Bf16, &device, &at).unwrap() {
                    (peak, false) => break (at, peak),
                    (_, true) => model.exhausted(&class, &at),
                }
                ended += 1;
                assert!(ended <= 1, "{at} on {gpus} GPUs");
            };
            let mean = truth.step_time(&shape, Precision::Bf16, &device, Spread { gpus, nodes }, 0.0, &at).unwrap();
            let report = StepReport {
                job: IdSource::seeded(1).job(Timestamp(0)),
                generation: Generation(1),
                step: 1,
                steps: 1,
                samples_seen: at.global_batch,
                tokens: at.global_batch.tokens(shape.seq_len),
                duration: mean,
                configuration: at,
                loss: None,
                noise: None,
                preconditioned: None,
                memory_peak: Some(peak),
            };
            model.observe(&class, nodes, &report);
            let believed = model.memory(&class, &at).unwrap();
            assert!((believed.bytes / peak.0 as f64 - 1.0).abs() < 0.05, "{believed:?} of {peak}");
        }
    }
}
