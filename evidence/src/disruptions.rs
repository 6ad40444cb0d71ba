//! How often jobs were disturbed: moved to other GPUs, or stopped for others.

use std::collections::BTreeMap;

use headway_engine::record::{Allocation, StopCause};
use headway_types::{GpuCount, JobId, Timestamp};

/// A size that is taken up again within so long was left for nothing, seconds.
const SWING: f64 = 3_600.0;

/// Counts over all jobs of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Disruptions {
    /// To other GPUs or another layout.
    pub moves: u32,
    /// For other jobs, and back into the queue.
    pub preemptions: u32,
    /// Times that a job changed its size.
    pub resizes: u32,
    /// Those of them that led back within an hour to the size before.
    pub swings: u32,
    /// GPU-seconds from the grant to the first step, and from the decision to stop to the last release.
    pub starting: f64,
    pub stopping: f64,
}

impl Disruptions {
    /// Counts them from the allocations of a run.
    #[must_use]
    pub fn of(allocations: &[Allocation]) -> Self {
        let mut counts = Self::default();
        let mut sizes: BTreeMap<JobId, Vec<(Timestamp, GpuCount)>> = BTreeMap::new();
        let mut ordered: Vec<&Allocation> = allocations.iter().collect();
        ordered.sort_by_key(|one| (one.job, one.generation));
        for one in ordered {
            match one.stopped_for {
                Some(StopCause::Rescale) => counts.moves += 1,
                Some(StopCause::Preempt) => counts.preemptions += 1,
                _ => {}
            }
            let gpus = f64::from(one.placement.gpus().0);
            let started = one.training_at.or(one.launched_at).or(one.ended_at).unwrap_or(one.granted_at);
            counts.starting += gpus * started.since(one.granted_at).0.max(0.0);
            if let (Some(stopping), Some(ended)) = (one.stopping_at, one.ended_at) {
                counts.stopping += gpus * ended.since(stopping).0.max(0.0);
            }
            sizes.entry(one.job).or_default().push((one.granted_at, one.placement.gpus()));
        }
        for sizes in sizes.into_values() {
            counts.resizes += sizes.windows(2).filter(|two| two[0].1 != two[1].1).count() as u32;
            let back = |three: &&[(Timestamp, GpuCount)]| {
                let [(_, first), (left, between), (again, last)] = three[..] else { return false };
                first == last && first != between && again.since(left).0 <= SWING
            };
            counts.swings += sizes.windows(3).filter(back).count() as u32;
        }
        counts
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use headway_types::{Generation, GpuUuid, NodeId, NodeSlice, Placement};
    use uuid::Uuid;

    use super::*;

    fn allocation(generation: u64, gpus: u32, granted: i64, stopped_for: Option<StopCause>) -> Allocation {
        let gpus = (0..gpus).map(|gpu| GpuUuid(format!("GPU-{gpu}"))).collect();
        let node = NodeId(Uuid::from_u128(1));
        let placement = Placement::try_new(vec![NodeSlice { node, gpus }]).unwrap();
        let job = JobId(Uuid::from_u128(7));
        let at = Timestamp(granted * 1_000_000);
        Allocation { stopped_for, ..Allocation::new(job, Generation(generation), placement, at) }
    }

    #[test]
    fn a_size_taken_up_again_within_the_hour_is_a_swing() {
        let of = |last: i64| {
            Disruptions::of(&[
                allocation(1, 8, 0, Some(StopCause::Rescale)),
                allocation(2, 4, 600, Some(StopCause::Preempt)),
                allocation(3, 8, last, None),
            ])
        };
        assert_eq!(of(900), Disruptions { moves: 1, preemptions: 1, resizes: 2, swings: 1, ..Disruptions::default() });
        assert_eq!(of(6_000).swings, 0, "it had the other size for longer than an hour");
    }
}
