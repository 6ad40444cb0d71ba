//! An allocation as far as an account of GPU-time needs it: a tenth of its record, which names every GPU.

use headway_types::{GpuCount, GpuType, JobId, Timestamp};
use serde::{Deserialize, Serialize};

use super::{GpuTime, Moments};
use crate::record::{Allocation, StopCause};

/// How many GPUs were held until when, what they were, the moments between which they were used for one thing, and who got them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tenure {
    moments: Moments,
    /// By node, with the moment at which it released them.
    gpus: Vec<(GpuCount, Option<Timestamp>)>,
    /// Absent of allocations of an earlier release.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_type: Option<GpuType>,
    /// Who got most of them, where it ended for others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub displaced_by: Option<Taker>,
}

/// A job that got GPUs of another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Taker {
    pub job: JobId,
    pub owner: String,
}

impl Tenure {
    #[must_use]
    pub fn of(allocation: &Allocation) -> Self {
        let slices = allocation.placement.slices().iter();
        let released = |node| allocation.released.get(node).map(|release| release.at);
        let displaced = matches!(allocation.stopped_for, Some(StopCause::Preempt | StopCause::Rescale));
        let taker = allocation.displaced_by.first().filter(|_| displaced);
        Self {
            moments: Moments::of(allocation),
            gpus: slices.map(|slice| (GpuCount(slice.gpus.len() as u32), released(&slice.node))).collect(),
            gpu_type: allocation.gpu_type.clone(),
            displaced_by: taker.map(|taker| Taker { job: taker.job, owner: taker.owner.clone() }),
        }
    }

    /// From the grant until its last GPU was released; until `now`, while one is not.
    #[must_use]
    pub fn span(&self, now: Timestamp) -> (Timestamp, Timestamp) {
        let ends = self.gpus.iter().map(|(_, released)| released.unwrap_or(now)).max();
        (self.moments.granted_at, ends.unwrap_or(now))
    }

    /// What its GPUs went into within a span of time, up to `now`.
    #[must_use]
    pub fn within(&self, now: Timestamp, from: Timestamp, to: Timestamp) -> GpuTime {
        let mut time = GpuTime::default();
        for (gpus, released) in &self.gpus {
            time.add(&self.moments, *gpus, released.unwrap_or(now), from, to);
        }
        time
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::tests::{allocation, at};
    use super::*;
    use crate::record::Displacer;

    #[test]
    fn a_tenure_tells_of_gpu_time_what_its_allocation_does() {
        let whole = allocation();
        let living = Allocation { released: Default::default(), ended_at: None, ..whole.clone() };
        for one in [whole, living] {
            let written = serde_json::to_value(Tenure::of(&one)).unwrap();
            let read: Tenure = serde_json::from_value(written).unwrap();
            for (from, to) in [(0, 400), (-50, 7), (7, 61), (61, 104), (300, 301)] {
                assert_eq!(read.within(at(500), at(from), at(to)), GpuTime::within(&one, at(500), at(from), at(to)));
            }
        }
    }

    #[test]
    fn who_displaced_it_is_told_where_it_ended_for_that() {
        let by = Displacer { job: allocation().job, name: "urgent".into(), owner: "grace".into(), gpus: GpuCount(2) };
        let displaced = |stopped_for| {
            Tenure::of(&Allocation { displaced_by: vec![by.clone()], stopped_for, ..allocation() }).displaced_by
        };
        assert_eq!(displaced(Some(StopCause::Preempt)).unwrap().owner, "grace");
        assert_eq!(displaced(Some(StopCause::Drain)), None);
    }
}
