//! What the plan does with one job.

use headway_types::{Assignment, GpuCount};

use crate::input::{Freedom, PlanJob, PlanWork};

/// A job with what it has and what it is to have.
pub(super) struct Delta<'a> {
    pub job: &'a PlanJob,
    pub from: Option<&'a Assignment>,
    pub to: Option<&'a Assignment>,
}

impl<'a> Delta<'a> {
    pub fn new(job: &'a PlanJob, to: Option<&'a Assignment>) -> Self {
        Self { job, from: job.current.as_ref(), to }
    }

    pub fn is_fixed(&self) -> bool {
        matches!(self.job.freedom, Freedom::Fixed { .. })
    }

    /// It goes on on the very GPUs it has.
    pub fn stays(&self) -> bool {
        self.to.is_some() && self.from.map(|at| &at.placement) == self.to.map(|at| &at.placement)
    }

    /// What it is given anew; nothing where it stays.
    pub fn fresh(&self) -> Option<&'a Assignment> {
        self.to.filter(|_| !self.stays())
    }

    pub fn gpus_before(&self) -> GpuCount {
        self.from.map_or(GpuCount(0), |at| at.placement.gpus())
    }

    pub fn gpus_after(&self) -> GpuCount {
        self.to.map_or(GpuCount(0), |at| at.placement.gpus())
    }

    /// The largest size it accepts on any cluster.
    fn largest(&self) -> GpuCount {
        let range = &self.job.range;
        let allowed = |gpus: &GpuCount| range.allows(*gpus);
        let largest = match &self.job.work {
            PlanWork::Table(table) => {
                let runs = table.rows.iter().filter(|row| row.goodput > 0.0).map(|row| row.gpus);
                runs.filter(allowed).max()
            }
            PlanWork::Model(_) if !range.sizes.is_empty() => range.sizes.iter().copied().filter(allowed).max(),
            PlanWork::Opaque | PlanWork::Model(_) => Some(range.max).filter(allowed),
        };
        largest.unwrap_or(GpuCount(0))
    }

    /// Whether it could still use more than it is given.
    pub fn asks_for_more(&self) -> bool {
        !self.is_fixed() && self.gpus_after() < self.largest()
    }
}
