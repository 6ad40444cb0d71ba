//! The truth about workers: how fast a gang really trains and what its gradients really look like.

use std::collections::BTreeMap;

use headway_types::{
    CheckpointRef, Configuration, Generation, JobId, LaunchOrder, Layout, NodeId, NoiseSample, Seconds, Sequences,
    StepReport, Timestamp,
};

use crate::scenario::SimJob;

/// Processes of one generation over all its nodes.
#[derive(Clone, Debug)]
pub(crate) struct Gang {
    pub order: LaunchOrder,
    pub truth: usize,
    pub configuration: Configuration,
    pub step: u64,
    pub samples: Sequences,
    pub saved_at: Timestamp,
    pub save_wanted: bool,
    pub stop_wanted: bool,
    /// Nodes whose process lives.
    pub alive: BTreeMap<NodeId, bool>,
    pub done: bool,
}

/// What one report of a gang covers.
const STEPS_PER_REPORT: u32 = 4;

impl Gang {
    pub fn new(order: LaunchOrder, truth: usize, now: Timestamp) -> Self {
        let (step, samples) = order.resume.as_ref().map_or((0, Sequences(0)), |one| (one.step, one.samples_seen));
        let opaque = Configuration {
            layout: Layout::data_parallel(order.placement.gpus()),
            micro_batch: Sequences(1),
            global_batch: Sequences(1),
        };
        Self {
            configuration: order.configuration.unwrap_or(opaque),
            order,
            truth,
            step,
            samples,
            saved_at: now,
            save_wanted: false,
            stop_wanted: false,
            alive: BTreeMap::new(),
            done: false,
        }
    }

    pub fn job(&self) -> (JobId, Generation) {
        (self.order.job, self.order.generation)
    }

    /// Whether all ranks are up; collectives hang otherwise.
    pub fn complete(&self) -> bool {
        self.order.placement.slices().iter().all(|slice| self.alive.get(&slice.node) == Some(&true))
    }

    /// True duration of the steps one report covers: linear scaling with a fixed overhead per step.
    pub fn duration(&self, truth: &SimJob) -> Seconds {
        let tokens = self.configuration.global_batch.tokens(seq_len(truth)).0;
        let gpus = f64::from(self.order.placement.gpus().0);
        let nodes = f64::from(self.order.placement.nodes().0);
        let step = tokens / (truth.tokens_per_second * gpus) + 0.02 + 0.01 * nodes;
        Seconds(step * f64::from(STEPS_PER_REPORT))
    }

    /// Trains the steps of one report.
    pub fn advance(&mut self, truth: &SimJob) -> StepReport {
        let duration = self.duration(truth);
        let sequences = Sequences(self.configuration.global_batch.0 * u64::from(STEPS_PER_REPORT));
        self.step += u64::from(STEPS_PER_REPORT);
        self.samples += sequences;
        // E|g_b|² = |G|² + tr(Σ)/b with |G|² = 1 (McCandlish et al. 2018, eq. A.1).
        let per_sequence = truth.noise_scale / f64::from(seq_len(truth));
        let big_batch = self.configuration.global_batch.0 as f64;
        let small_batch = big_batch / f64::from(self.configuration.layout.dp.max(2));
        let noise = NoiseSample {
            small_sqr: 1.0 + per_sequence / small_batch,
            big_sqr: 1.0 + per_sequence / big_batch,
            small_batch,
            big_batch,
        };
        let (job, generation) = self.job();
        StepReport {
            job,
            generation,
            step: self.step,
            steps: STEPS_PER_REPORT,
            samples_seen: self.samples,
            tokens: sequences.tokens(seq_len(truth)),
            duration,
            configuration: self.configuration,
            loss: Some(2.0),
            noise: Some(noise),
        }
    }

    pub fn checkpoint(&mut self, now: Timestamp) -> CheckpointRef {
        self.saved_at = now;
        self.save_wanted = false;
        let generation = self.order.generation;
        CheckpointRef {
            generation,
            path: format!("{}/{generation}/step-{:09}", self.order.checkpoint_dir, self.step),
            step: self.step,
            samples_seen: self.samples,
            manifest_sha256: format!("{:064x}", self.step),
        }
    }
}

fn seq_len(truth: &SimJob) -> u32 {
    truth.spec.training().map_or(1, |training| training.work.seq_len())
}
