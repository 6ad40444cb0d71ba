//! The truth of a device that keeps time on a CPU slot: the stated device says how long a step takes, the noise is that of all emulation.

use headway_types::{Configuration, NoiseSample, Sequences};

use crate::noise::GradientNoise;
use crate::random::Random;

/// Bytes of gradient per parameter that data-parallel replicas exchange.
const GRADIENT_BYTES: f64 = 4.0;

/// A model on stated devices.
#[derive(Clone, Debug)]
pub struct StatedTruth {
    pub seq_len: f64,
    pub flops_per_token: f64,
    pub parameters: f64,
    pub device_flops: f64,
    pub link_bytes_per_second: f64,
    pub noise: GradientNoise,
    pub random: Random,
}

impl StatedTruth {
    /// Device seconds of one optimizer step of rank 0: compute of its replica's micro-batches, the pipeline's bubble, then a ring all-reduce.
    #[must_use]
    pub fn step_time(&self, configuration: &Configuration) -> f64 {
        let layout = configuration.layout;
        let shards = f64::from(layout.tp * layout.pp);
        let replicas = f64::from(layout.dp);
        let bubble = f64::from(layout.pp - 1) * configuration.micro_batch.0 as f64;
        let share = f64::from(layout.execution.shares.slower) / layout.micro_batches() as f64;
        let sequences = configuration.global_batch.0 as f64 * share + bubble;
        let compute = sequences * self.seq_len * self.flops_per_token / shards / self.device_flops;
        let bytes = self.parameters * GRADIENT_BYTES / shards;
        compute + 2.0 * (replicas - 1.0) / replicas * bytes / self.link_bytes_per_second
    }

    /// Mean squared gradient norms of `steps` steps; `None` where a step is one small batch.
    pub fn measure(&mut self, configuration: &Configuration, samples: Sequences, steps: u32) -> Option<NoiseSample> {
        self.noise.measure(&mut self.random, configuration, samples, steps)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use headway_types::{Execution, Layout, Shares};

    use super::*;
    use crate::random::Seed;

    #[test]
    fn a_step_is_compute_and_bubble_plus_all_reduce() {
        let truth = StatedTruth {
            seq_len: 64.0,
            flops_per_token: 1e6,
            parameters: 1e6,
            device_flops: 1e9,
            link_bytes_per_second: 1e8,
            noise: "8,64,1000".parse().unwrap(),
            random: Random::new(Seed(7)),
        };
        let configuration = |dp, pp| Configuration {
            layout: Layout { dp, tp: 1, pp, ..Layout::single() },
            micro_batch: Sequences(1),
            global_batch: Sequences(16),
        };
        assert!((truth.step_time(&configuration(1, 1)) - 16.0 * 0.064).abs() < 1e-12);
        assert!((truth.step_time(&configuration(4, 1)) - (4.0 * 0.064 + 1.5 * 0.04)).abs() < 1e-12);
        let shares = Shares { slower: 1, faster: 3, of_faster: 2 };
        let execution = Execution { shares, ..Execution::PLAIN };
        let mut uneven = configuration(4, 1);
        uneven.layout.execution = execution;
        assert!((truth.step_time(&uneven) - (2.0 * 0.064 + 1.5 * 0.04)).abs() < 1e-12);
        // Half the layers, one micro-batch more to fill the pipeline, half the gradient.
        assert!((truth.step_time(&configuration(2, 2)) - (9.0 * 0.032 + 0.02)).abs() < 1e-12);
    }
}
