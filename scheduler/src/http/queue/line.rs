//! The line: all jobs that wait, in order, as of a moment. Making it looks at every one of them, so it is made once for all who ask within a second, off the
//! reactor; what the plan leaves free is worked out once per plan.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use headway_api::v1;
use headway_engine::record::{Job, JobState};
use headway_engine::view::View;
use headway_planner::{Room, room};
use headway_types::spec::Priority;
use headway_types::{GpuType, JobId, PlanId, Timestamp};
use tokio::sync::Mutex;

use crate::asking::{Asking, Foretold};
use crate::http::conversions::time;
use crate::http::cursor::unknown as no_cursor;
use crate::http::problem::Problem;
use crate::http::waiting;
use crate::planning::SolvedRound;

/// How long a line serves.
const KEPT: Duration = Duration::from_secs(1);

/// Where a job stands: by predicted start, then by priority, then by arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank {
    /// Place in the order of predicted starts; without one, behind all that have one.
    foretold: u32,
    priority: Reverse<Priority>,
    submitted_at: Timestamp,
    job: JobId,
}

/// A job that waits.
pub struct Row {
    pub rank: Rank,
    /// In the whole line; the first is 1.
    pub place: u32,
    pub job: Arc<Job>,
    since: Timestamp,
    pub waiting: v1::Waiting,
}

pub struct Line {
    pub at: Timestamp,
    pub rows: Vec<Row>,
    /// GPU types that nodes have.
    pub types: Vec<GpuType>,
    /// What the newest plan leaves free.
    pub room: Option<(PlanId, Arc<BTreeMap<GpuType, Room>>)>,
}

/// The newest line. Whoever comes while one is made waits for it.
#[derive(Default)]
pub struct Memory(Mutex<Option<(Instant, Arc<Line>)>>);

impl Memory {
    pub async fn line(&self, view: &Arc<View>, asking: &Asking) -> Result<Arc<Line>, Problem> {
        let mut kept = self.0.lock().await;
        let before = match &*kept {
            Some((until, line)) if Instant::now() < *until => return Ok(Arc::clone(line)),
            Some((_, line)) => line.room.clone(),
            None => None,
        };
        let (view, foretold, round) = (Arc::clone(view), asking.foretold(), asking.round());
        let made = tokio::task::spawn_blocking(move || Line::of(&view, &foretold, round.as_deref(), before)).await;
        let line = made.map(Arc::new).map_err(|error| {
            tracing::error!(error = &error as &dyn std::error::Error, "making the queue broke down");
            Problem::internal()
        })?;
        *kept = Some((Instant::now() + KEPT, Arc::clone(&line)));
        Ok(line)
    }
}

impl Line {
    fn of(
        view: &View,
        foretold: &Foretold,
        round: Option<&SolvedRound>,
        before: Option<(PlanId, Arc<BTreeMap<GpuType, Room>>)>,
    ) -> Self {
        let waits = view.jobs.values().filter_map(|shown| match shown.job.state {
            JobState::Queued { since } => Some((shown, since)),
            _ => None,
        });
        let mut rows: Vec<Row> = waits
            .filter_map(|(shown, since)| {
                let waiting = waiting::waiting(shown, view, foretold)?;
                let job = Arc::clone(&shown.job);
                Some(Row { rank: Rank::of(&job, waiting.position), place: 0, job, since, waiting })
            })
            .collect();
        rows.sort_unstable_by_key(|row| row.rank);
        rows.iter_mut().zip(1..).for_each(|(row, place)| row.place = place);
        let room = round.map(|round| match before {
            Some((plan, rooms)) if plan == round.plan.id => (plan, rooms),
            _ => (round.plan.id, Arc::new(room(&round.input, &round.plan))),
        });
        let types: BTreeSet<&GpuType> = view.nodes.values().map(|node| &node.node.inventory.gpu_type).collect();
        Self { at: view.at, rows, types: types.into_iter().cloned().collect(), room }
    }
}

impl Row {
    pub fn shown(&self) -> v1::QueuedJob {
        let (job, gpus) = (&self.job, &self.job.spec.role().gpus);
        v1::QueuedJob {
            place: self.place,
            job_id: job.id.0,
            name: job.spec.name.clone(),
            project: job.spec.project.clone(),
            owner: job.owner.clone(),
            gpus_min: job.least().0,
            gpus_max: gpus.max.0,
            gpu_types: gpus.types.iter().map(|of| of.0.clone()).collect(),
            since: time(self.since),
            priority: job.spec.priority.0,
            waiting: self.waiting.clone(),
        }
    }
}

impl Rank {
    fn of(job: &Job, foretold: Option<u32>) -> Self {
        Self {
            foretold: foretold.unwrap_or(u32::MAX),
            priority: Reverse(job.spec.priority),
            submitted_at: job.submitted_at,
            job: job.id,
        }
    }
}

impl fmt::Display for Rank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}.{}", self.foretold, self.priority.0.0, self.submitted_at.0, self.job)
    }
}

impl FromStr for Rank {
    type Err = Problem;

    fn from_str(text: &str) -> Result<Self, Problem> {
        let mut parts = text.splitn(4, '.');
        let mut part = || parts.next().ok_or_else(no_cursor);
        Ok(Self {
            foretold: part()?.parse().map_err(|_| no_cursor())?,
            priority: Reverse(Priority(part()?.parse().map_err(|_| no_cursor())?)),
            submitted_at: Timestamp(part()?.parse().map_err(|_| no_cursor())?),
            job: part()?.parse().map_err(|_| no_cursor())?,
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use headway_types::Seconds;
    use proptest::prelude::*;

    use super::*;
    use crate::http::fixtures::{self, NOW};

    fn rank(foretold: Option<u32>, priority: u8, after: f64) -> Rank {
        let mut job = fixtures::job();
        job.spec.priority = Priority(priority);
        job.submitted_at = NOW + Seconds(after);
        Rank::of(&job, foretold)
    }

    #[test]
    fn who_is_foretold_comes_first_then_priority_then_arrival() {
        let line = [rank(Some(1), 10, 9.0), rank(Some(2), 90, 0.0), rank(None, 70, 5.0), rank(None, 50, 1.0)];
        assert!(line.is_sorted());
        assert!(rank(None, 50, 1.0) < rank(None, 50, 2.0));
    }

    proptest! {
        #[test]
        fn a_rank_is_read_as_it_was_written(foretold in any::<Option<u32>>(), priority in any::<u8>(), after in 0.0..1e9) {
            let rank = rank(foretold, priority, after);
            prop_assert_eq!(rank.to_string().parse::<Rank>().ok(), Some(rank));
        }
    }

    #[test]
    fn what_is_no_rank_is_no_cursor() {
        for text in ["", "1", "1.2.3", "1.2.3.x", "-1.2.3.4", "1.300.3.4"] {
            assert!(text.parse::<Rank>().is_err(), "{text}");
        }
    }
}
