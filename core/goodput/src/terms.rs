//! Step times as a search compares them: what grows with the batch and what does not, and what executions of the same degrees have in common.

use headway_types::{Execution, Layout, Offload, Recompute, Schedule, Sharding};

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

/// Prior step times with one micro-batch of the executions of some degrees at a micro-batch. Chunks only shorten the bubble and multiply the
/// transfers, and a single micro-batch knows no schedule, so few have to be computed.
#[derive(Default)]
pub(crate) struct Units {
    /// With one chunk, by what decides them.
    known: Vec<(Kept, StepTime)>,
}

impl Units {
    /// That of a layout; `compute` is asked for one without chunks.
    pub fn of(&mut self, layout: Layout, compute: impl FnOnce(Layout) -> StepTime) -> StepTime {
        let key = Kept::by(&layout.execution);
        let known = self.known.iter().find(|(other, _)| *other == key).map(|(_, unit)| *unit);
        let unit = known.unwrap_or_else(|| {
            let plain = Execution { vpp: 1, schedule: Schedule::default(), ..layout.execution };
            let unit = compute(Layout { execution: plain, ..layout });
            self.known.push((key, unit));
            unit
        });
        let chunks = f64::from(layout.execution.vpp);
        StepTime {
            pipeline_bubble: unit.pipeline_bubble * (1.0 / chunks),
            pipeline_transfers: unit.pipeline_transfers * chunks,
            ..unit
        }
    }
}

/// Of an execution what decides, at some degrees and a micro-batch, what a micro-batch takes and what is kept of each. Chunks and schedules only keep
/// more of them in flight.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Kept {
    sharding: Sharding,
    recompute: Recompute,
    sequence_parallel: bool,
    offload: Offload,
}

impl Kept {
    pub fn by(execution: &Execution) -> Self {
        let Execution { sharding, recompute, sequence_parallel, offload, .. } = *execution;
        Self { sharding, recompute, sequence_parallel, offload }
    }
}
