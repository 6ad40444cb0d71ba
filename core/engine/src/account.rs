//! The account of GPU-time: what every second of every GPU went into. Two views that must agree: `View::census` counts GPUs
//! by what they are doing now, `GpuTime::of` divides the life of one allocation among named uses.
//!
//! Rework is known only afterwards: what a generation trained after its last committed checkpoint counts as training
//! while it runs, and as rework once it has ended without saving it.

use std::ops::AddAssign;

use headway_types::{GpuCount, GpuSeconds, Timestamp};

use crate::record::Allocation;

/// GPU-time of one or several allocations by use.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct GpuTime {
    /// From the grant to the first step: checks, launch, imports, loading.
    pub starting: GpuSeconds,
    /// Steps that counted.
    pub training: GpuSeconds,
    /// Steps lost with the generation, which the next one does again.
    pub rework: GpuSeconds,
    /// From the decision to stop until the GPUs were proven free: saving, teardown, waiting for proof.
    pub stopping: GpuSeconds,
}

impl GpuTime {
    /// What the GPUs of an allocation went into up to `now`. The parts add up to the time they were held.
    #[must_use]
    pub fn of(allocation: &Allocation, now: Timestamp) -> Self {
        let mut time = Self::default();
        for slice in allocation.placement.slices() {
            let end = allocation.released.get(&slice.node).map_or(now, |release| release.at);
            let (gpus, end) = (GpuCount(slice.gpus.len() as u32), end.max(allocation.granted_at));
            let until = |at: Option<Timestamp>| at.unwrap_or(end).clamp(allocation.granted_at, end);
            let stopped = until(allocation.stopping_at);
            // A job that tells of no steps trains from its launch on.
            let trained = until(allocation.training_at.or(allocation.launched_at)).min(stopped);
            let over = allocation.ended_at.is_some() && !allocation.complete;
            let kept =
                if over { until(allocation.saved_at.or(Some(trained))).clamp(trained, stopped) } else { stopped };
            time.starting += gpus * trained.since(allocation.granted_at);
            time.training += gpus * kept.since(trained);
            time.rework += gpus * stopped.since(kept);
            time.stopping += gpus * end.since(stopped);
        }
        time
    }

    /// GPU-time of the steps that are lost with an allocation whose job leaves it undone.
    #[must_use]
    pub fn lost(allocation: &Allocation, now: Timestamp) -> GpuSeconds {
        Self::of(&Allocation { ended_at: Some(now), complete: false, ..allocation.clone() }, now).rework
    }

    #[must_use]
    pub fn total(&self) -> GpuSeconds {
        self.starting + self.training + self.rework + self.stopping
    }
}

impl AddAssign for GpuTime {
    fn add_assign(&mut self, rhs: Self) {
        self.starting += rhs.starting;
        self.training += rhs.training;
        self.rework += rhs.rework;
        self.stopping += rhs.stopping;
    }
}

/// What a GPU is doing at a moment, by the name that metrics and the API write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum Activity {
    Training,
    Starting,
    Stopping,
    /// Free, and nobody waits for a GPU.
    IdleNoDemand,
    /// Free although jobs wait: too few, too scattered, or a round is under way.
    IdleWaiting,
    /// Free, but nothing may start: cordoned, drained, quarantined, a full disk.
    Withheld,
    /// Its node is out of contact and holds nothing.
    Unreachable,
    Broken,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::collections::BTreeMap;

    use headway_types::{Generation, GpuUuid, IdSource, NodeSlice, Placement};

    use super::*;
    use crate::record::{Release, ReleaseProof};

    fn at(seconds: i64) -> Timestamp {
        Timestamp(1_000_000_000 + seconds * 1_000_000)
    }

    fn allocation() -> Allocation {
        let mut ids = IdSource::seeded(3);
        let node = ids.node(at(0));
        let gpus = vec![GpuUuid("a".into()), GpuUuid("b".into())];
        let placement = Placement::try_new(vec![NodeSlice { node, gpus }]).unwrap();
        Allocation {
            prepared_at: Some(at(1)),
            launched_at: Some(at(2)),
            training_at: Some(at(10)),
            saved_at: Some(at(60)),
            stopping_at: Some(at(100)),
            released: [(node, Release { at: at(105), proof: ReleaseProof::Reported })].into(),
            ended_at: Some(at(105)),
            ..Allocation::new(ids.job(at(0)), Generation(1), placement, at(0))
        }
    }

    #[test]
    fn what_was_trained_after_the_last_checkpoint_is_rework_once_the_generation_is_over() {
        let ended = GpuTime::of(&allocation(), at(500));
        assert_eq!(ended.starting, GpuSeconds(20.0));
        assert_eq!(ended.training, GpuSeconds(100.0));
        assert_eq!(ended.rework, GpuSeconds(80.0));
        assert_eq!(ended.stopping, GpuSeconds(10.0));
        let saved = GpuTime::of(&Allocation { saved_at: Some(at(103)), ..allocation() }, at(500));
        assert_eq!((saved.training, saved.rework), (GpuSeconds(180.0), GpuSeconds(0.0)));
        let complete = GpuTime::of(&Allocation { complete: true, ..allocation() }, at(500));
        assert_eq!(complete.rework, GpuSeconds(0.0));
    }

    #[test]
    fn the_parts_add_up_to_the_time_held_whatever_is_known() {
        let whole = allocation();
        let unknown =
            Allocation { training_at: None, launched_at: None, saved_at: None, stopping_at: None, ..whole.clone() };
        let living = Allocation { released: BTreeMap::new(), ended_at: None, stopping_at: None, ..whole.clone() };
        for one in [whole, unknown] {
            assert_eq!(GpuTime::of(&one, at(500)).total(), GpuSeconds(210.0));
        }
        assert_eq!(GpuTime::of(&living, at(200)).total(), GpuSeconds(400.0));
    }
}
