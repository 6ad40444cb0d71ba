//! Step times as a search compares them: what grows with the batch and what does not.

use crate::correction::Factors;
use crate::step_time::StepTime;

/// Prior seconds of a layout at a micro-batch, by how they grow: with the micro-batches, of which a quantum of sequences is one each, and
/// once per step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Terms {
    pub repeated: f64,
    pub bubble: f64,
    pub step: f64,
    pub overhead: f64,
    pub quantum: f64,
}

impl Terms {
    pub fn of(unit: &StepTime, quantum: u64) -> Self {
        let bubble = unit.pipeline_bubble.0;
        let (repeated, step, overhead) = (unit.micro().0 - bubble, unit.step().0, unit.overhead.0);
        Self { repeated, bubble, step, overhead, quantum: quantum as f64 }
    }

    /// Corrected by what reports taught.
    pub fn corrected(&self, factors: Factors) -> Line {
        let once = self.bubble * factors.micro + self.step * factors.step + self.overhead + factors.extra;
        Line { intercept: once.max(0.0), slope: self.repeated * factors.micro / self.quantum }
    }
}

/// Step time over the batch: a + b·B.
#[derive(Clone, Copy)]
pub(crate) struct Line {
    pub intercept: f64,
    pub slope: f64,
}

impl Line {
    pub fn at(&self, batch: f64) -> f64 {
        self.intercept + self.slope * batch
    }
}
