//! What a job trains: a model by name, its reference batch, its noise, and what its script can be told. Rates are those of the prior: the
//! amount of work is the same in every world.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use headway_emulation::GradientNoise;
use headway_goodput::{JobModel, Offer};
use headway_types::spec::{
    BatchRange, CheckpointPolicy, ExecutionLimits, LayoutLimits, Target, TargetCount, Training as Told, Work,
};
use headway_types::{
    Configuration, GpuCount, ModelShape, NodeClass, NodeCount, Recompute, Seconds, Sequences, Sharding, Tokens,
    example, preset,
};

/// Tokens per sequence of every recipe.
pub const SEQ_LEN: u32 = 4_096;

/// A model of the estimator's list, the batch it is commonly trained at, and the sizes at which people ask for it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Model {
    pub name: &'static str,
    pub shape: ModelShape,
    /// In tokens.
    pub batch: f64,
    /// Smallest and largest request.
    pub gpus: (u32, u32),
}

/// 1 to 70 billion parameters.
const MODELS: [(&str, f64, (u32, u32)); 8] = [
    ("llama-3.2-1b", 0.5e6, (1, 8)),
    ("llama-3.2-3b", 1e6, (4, 16)),
    ("qwen-2.5-7b", 1e6, (8, 32)),
    ("llama-3-8b", 2e6, (8, 32)),
    ("llama-2-13b", 2e6, (8, 64)),
    ("qwen-2.5-14b", 2e6, (16, 64)),
    ("qwen-2.5-32b", 4e6, (16, 128)),
    ("llama-2-70b", 4e6, (32, 512)),
];

/// All of them.
#[must_use]
pub fn models() -> &'static [Model] {
    static MODELS_READ: OnceLock<Vec<Model>> = OnceLock::new();
    MODELS_READ.get_or_init(|| {
        let read = |(name, batch, gpus): (&'static str, f64, (u32, u32))| {
            let preset = preset::named(name).expect("a test reads every model of the list");
            Model { name, shape: ModelShape { seq_len: SEQ_LEN, ..preset.shape() }, batch, gpus }
        };
        MODELS.into_iter().map(read).collect()
    })
}

/// One job's training.
#[derive(Clone, Debug, PartialEq)]
pub struct Recipe {
    pub model: &'static str,
    pub shape: ModelShape,
    pub reference_batch: Sequences,
    pub batch: BatchRange,
    /// The true one.
    pub noise: GradientNoise,
    /// Tokens at which it is done, and which of them count.
    pub target: Tokens,
    pub count: TargetCount,
}

impl Recipe {
    /// As the job's owner tells it.
    #[must_use]
    pub fn told(&self) -> Told {
        let execution = ExecutionLimits {
            sharding: vec![Sharding::Optimizer, Sharding::Parameters],
            recompute: vec![Recompute::None, Recompute::Full],
            ..ExecutionLimits::default()
        };
        let degrees = vec![1, 2, 4, 8];
        Told {
            reference_batch: self.reference_batch,
            batch: self.batch,
            target: Some(Target { tokens: self.target, count: self.count }),
            layouts: LayoutLimits {
                tp: degrees.clone(),
                pp: degrees,
                max_micro_batch: Sequences(8),
                execution,
                sizes: BTreeMap::new(),
            },
            checkpoint: CheckpointPolicy { grace: Seconds(900.0), ..CheckpointPolicy::default() },
            ..example::training(Work::Model(self.shape))
        }
    }

    /// The best that the prior knows at the reference batch, and how many tokens per second it brings.
    #[must_use]
    pub fn at(&self, class: &NodeClass, gpus: GpuCount) -> Option<(Configuration, f64)> {
        let mut told = self.told();
        told.batch = BatchRange { min: self.reference_batch, max: self.reference_batch };
        let nodes = NodeCount(gpus.0.div_ceil(class.gpus_per_node.0));
        let Offer { configuration, prediction, .. } = JobModel::new(told).best(class, gpus, nodes).ok()?;
        Some((configuration?, prediction.throughput.0))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn every_model_runs_at_the_sizes_people_ask_for_it() {
        for model in models() {
            let batch = Sequences((model.batch / f64::from(SEQ_LEN)) as u64);
            let recipe = Recipe {
                model: model.name,
                shape: model.shape,
                reference_batch: batch,
                batch: BatchRange { min: batch, max: batch },
                noise: GradientNoise { start: 1.0, growth: 0.0, half: 1.0 },
                target: Tokens(1.0),
                count: TargetCount::Both,
            };
            for gpus in [model.gpus.0, model.gpus.1] {
                for gpu_type in ["H100-80G", "A100-80G"] {
                    let class = example::class(gpu_type, 8);
                    let rate = recipe.at(&class, GpuCount(gpus)).map(|(_, rate)| rate);
                    assert!(rate.is_some_and(|rate| rate > 0.0), "{} on {gpus} {gpu_type}", model.name);
                }
            }
        }
    }
}
