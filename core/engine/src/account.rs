//! The account of GPU-time: what every second of every GPU went into. Two views that must agree: `View::census` counts GPUs
//! by what they are doing now, `GpuTime::of` divides the life of one allocation among named uses.
//!
//! Rework is known only afterwards: what a generation trained after its last committed checkpoint counts as training
//! while it runs, and as rework once it has ended without saving it.

mod tenure;

use std::ops::AddAssign;

use headway_types::{GpuCount, GpuSeconds, Timestamp};
use serde::{Deserialize, Serialize};

pub use self::tenure::{Taker, Tenure};
use crate::record::Allocation;

/// What granted GPUs are used for, by the name that the API writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Use {
    /// From the grant to the first step: checks, launch, imports, loading.
    Starting,
    /// Steps that counted.
    Training,
    /// Steps lost with the generation, which the next one does again.
    Rework,
    /// From the last step of processes that hung until that was noticed.
    Idle,
    /// From the decision to stop until the GPUs were proven free: saving, teardown, waiting for proof.
    Stopping,
}

/// GPU-time of one or several allocations by use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GpuTime {
    pub starting: GpuSeconds,
    pub training: GpuSeconds,
    pub rework: GpuSeconds,
    pub idle: GpuSeconds,
    pub stopping: GpuSeconds,
}

impl GpuTime {
    /// What the GPUs of an allocation went into up to `now`. The parts add up to the time they were held.
    #[must_use]
    pub fn of(allocation: &Allocation, now: Timestamp) -> Self {
        Self::within(allocation, now, allocation.granted_at, Timestamp(i64::MAX))
    }

    /// The same of a span of time.
    #[must_use]
    pub fn within(allocation: &Allocation, now: Timestamp, from: Timestamp, to: Timestamp) -> Self {
        let (mut time, moments) = (Self::default(), Moments::of(allocation));
        for slice in allocation.placement.slices() {
            let end = allocation.released.get(&slice.node).map_or(now, |release| release.at);
            time.add(&moments, GpuCount(slice.gpus.len() as u32), end, from, to);
        }
        time
    }

    /// GPUs that were held until `end`, as far as that lies within a span of time.
    fn add(&mut self, moments: &Moments, gpus: GpuCount, end: Timestamp, from: Timestamp, to: Timestamp) {
        for (used_for, began, ended) in moments.spans(end.max(moments.granted_at)) {
            let (began, ended) = (began.max(from), ended.min(to));
            if began < ended {
                *self.part(used_for) += gpus * ended.since(began);
            }
        }
    }

    fn part(&mut self, of: Use) -> &mut GpuSeconds {
        match of {
            Use::Starting => &mut self.starting,
            Use::Training => &mut self.training,
            Use::Rework => &mut self.rework,
            Use::Idle => &mut self.idle,
            Use::Stopping => &mut self.stopping,
        }
    }

    #[must_use]
    pub fn total(&self) -> GpuSeconds {
        self.starting + self.training + self.rework + self.idle + self.stopping
    }
}

/// The moments in the life of an allocation at which the use of its GPUs changes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Moments {
    granted_at: Timestamp,
    /// First step; of a job that tells of no steps, its launch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    worked_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    saved_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    idle_since: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    stopping_at: Option<Timestamp>,
    /// It has ended, and what it did not save has to be computed again.
    lost: bool,
}

impl Moments {
    fn of(allocation: &Allocation) -> Self {
        Self {
            granted_at: allocation.granted_at,
            worked_at: allocation.training_at.or(allocation.launched_at),
            saved_at: allocation.saved_at,
            idle_since: allocation.idle_since,
            stopping_at: allocation.stopping_at,
            lost: allocation.ended_at.is_some() && !allocation.complete,
        }
    }

    /// The life of GPUs that were held until `end`, without gaps.
    fn spans(&self, end: Timestamp) -> [(Use, Timestamp, Timestamp); 5] {
        let granted = self.granted_at;
        let until = |at: Option<Timestamp>| at.unwrap_or(end).clamp(granted, end);
        let stopped = until(self.stopping_at);
        let trained = until(self.worked_at).min(stopped);
        let worked = until(self.idle_since.or(Some(stopped))).clamp(trained, stopped);
        let kept = if self.lost { until(self.saved_at.or(Some(trained))).clamp(trained, worked) } else { worked };
        [
            (Use::Starting, granted, trained),
            (Use::Training, trained, kept),
            (Use::Rework, kept, worked),
            (Use::Idle, worked, stopped),
            (Use::Stopping, stopped, end),
        ]
    }
}

impl AddAssign for GpuTime {
    fn add_assign(&mut self, rhs: Self) {
        self.starting += rhs.starting;
        self.training += rhs.training;
        self.rework += rhs.rework;
        self.idle += rhs.idle;
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
    /// Free, but a reservation that has begun closes its node to jobs that are no members.
    Reserved,
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

    pub(super) fn at(seconds: i64) -> Timestamp {
        Timestamp(1_000_000_000 + seconds * 1_000_000)
    }

    pub(super) fn allocation() -> Allocation {
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

    #[test]
    fn what_hung_was_idle_from_its_last_step() {
        let hung = Allocation { idle_since: Some(at(80)), ..allocation() };
        let time = GpuTime::of(&hung, at(500));
        assert_eq!((time.training, time.rework, time.idle), (GpuSeconds(100.0), GpuSeconds(40.0), GpuSeconds(40.0)));
        assert_eq!(time.total(), GpuSeconds(210.0));
    }

    #[test]
    fn the_parts_of_a_span_of_time_add_up_to_it() {
        let whole = allocation();
        let parts = [(0, 7), (7, 61), (61, 104), (104, 400)]
            .map(|(from, to)| GpuTime::within(&whole, at(500), at(from), at(to)));
        let mut sum = GpuTime::default();
        parts.into_iter().for_each(|part| sum += part);
        assert_eq!(sum, GpuTime::of(&whole, at(500)));
        assert_eq!(parts[0], GpuTime { starting: GpuSeconds(14.0), ..GpuTime::default() });
        assert_eq!(GpuTime::within(&whole, at(500), at(-50), at(-10)), GpuTime::default());
    }
}
