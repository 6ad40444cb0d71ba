//! The plainest truth: work divides evenly over GPUs, a step costs a little besides, and more per node. Histories full of faults are told with it, since what
//! they are about does not depend on how fast steps are.

use headway_types::{Configuration, GpuCount, NodeCount, NoiseSample, Seconds, Tokens};

/// How a job trains and how noisy its gradients are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Linear {
    /// Of one GPU at a large batch.
    pub tokens_per_second: f64,
    /// Gradient noise scale in tokens.
    pub noise_scale: f64,
}

/// A step costs this much besides its work, and this much more per node.
const STEP_OVERHEAD: (f64, f64) = (0.02, 0.01);

impl Linear {
    /// Mean duration of a step of so many tokens. `drag`: how much slower the slowest makes everybody.
    #[must_use]
    pub fn step_time(&self, batch: Tokens, gpus: GpuCount, nodes: NodeCount, drag: f64) -> Seconds {
        let work = batch.0 / (self.tokens_per_second * f64::from(gpus.0));
        Seconds(work * drag + STEP_OVERHEAD.0 + STEP_OVERHEAD.1 * f64::from(nodes.0))
    }

    /// What a step shows of its gradients, exactly: E|g_b|² = |G|² + tr(Σ)/b with |G|² = 1 (McCandlish et al. 2018, eq. A.1).
    #[must_use]
    pub fn measure(&self, configuration: &Configuration, seq_len: u32) -> NoiseSample {
        let per_sequence = self.noise_scale / f64::from(seq_len);
        let big_batch = configuration.global_batch.0 as f64;
        let small_batch = big_batch / f64::from(configuration.layout.dp.max(2));
        NoiseSample {
            small_sqr: 1.0 + per_sequence / small_batch,
            big_sqr: 1.0 + per_sequence / big_batch,
            small_batch,
            big_batch,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn twice_the_gpus_halve_the_work_of_a_step_and_nothing_else() {
        let linear = Linear { tokens_per_second: 1_000.0, noise_scale: 0.0 };
        let time = |gpus| linear.step_time(Tokens(8_000.0), GpuCount(gpus), NodeCount(1), 1.0).0;
        assert!((time(1) - 8.03).abs() < 1e-12 && (time(2) - 4.03).abs() < 1e-12);
    }
}
