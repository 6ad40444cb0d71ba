//! Orders of the jobs that have not ended by what only the snapshot knows. Sorting them all costs their number, so an order is kept for a moment and
//! serves all who ask within it; a page then costs the rows it passes.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use headway_engine::view::{JobView, View};
use headway_types::{ArrayId, JobId};

use crate::asking::Foretold;
use crate::http::cursor::unknown as no_cursor;
use crate::http::labels;
use crate::http::problem::Problem;
use crate::store::{JobFilter, Page};

/// How long an order serves.
const KEPT: Duration = Duration::from_secs(1);

/// What live jobs are sorted by, by the name that is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum LiveKey {
    Priority,
    Gpus,
    Goodput,
    Progress,
    Lost,
    Eta,
    Position,
}

/// Without `backwards` the most comes first, of times the soonest; what a job does not have comes last, either way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LiveOrder {
    pub key: LiveKey,
    pub backwards: bool,
}

/// Where a job stands in an order.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Position {
    rank: f64,
    job: JobId,
}

impl Position {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        // Of equals the newest first.
        self.rank.total_cmp(&other.rank).then(other.job.cmp(&self.job))
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}.{}", self.rank.to_bits(), self.job)
    }
}

impl FromStr for Position {
    type Err = Problem;

    fn from_str(text: &str) -> Result<Self, Problem> {
        let (rank, job) = text.split_once('.').ok_or_else(no_cursor)?;
        let rank = u64::from_str_radix(rank, 16).map_err(|_| no_cursor())?;
        Ok(Self { rank: f64::from_bits(rank), job: job.parse().map_err(|_| no_cursor())? })
    }
}

#[derive(Default)]
pub struct Orders(Mutex<BTreeMap<LiveOrder, Made>>);

/// An order, and when it was made.
type Made = (Instant, Arc<Vec<Position>>);

impl Orders {
    /// The jobs that a filter admits after a position, by an order that is at most a moment old.
    pub fn page(
        &self,
        order: LiveOrder,
        view: &View,
        foretold: &Foretold,
        filter: &JobFilter,
        after: Option<Position>,
    ) -> Page<JobId, Position> {
        let sorted = self.sorted(order, view, foretold);
        let first = after.map_or(0, |after| sorted.partition_point(|one| one.cmp(&after).is_le()));
        let admitted =
            sorted[first..].iter().filter(|one| view.jobs.get(&one.job).is_some_and(|job| admits(filter, job)));
        let found: Vec<Position> = admitted.take(filter.limit as usize + 1).copied().collect();
        let Page { items, next } = Page::of(found, filter.limit, |last| *last);
        Page { items: items.into_iter().map(|one| one.job).collect(), next }
    }

    fn sorted(&self, order: LiveOrder, view: &View, foretold: &Foretold) -> Arc<Vec<Position>> {
        // Whoever comes meanwhile waits for it rather than sorting as well.
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((until, sorted)) = kept.get(&order)
            && Instant::now() < *until
        {
            return Arc::clone(sorted);
        }
        let mut sorted: Vec<Position> =
            view.jobs.iter().map(|(job, live)| Position { rank: rank(order, live, foretold), job: *job }).collect();
        sorted.sort_unstable_by(Position::cmp);
        let sorted = Arc::new(sorted);
        kept.insert(order, (Instant::now() + KEPT, Arc::clone(&sorted)));
        sorted
    }
}

/// The least comes first.
fn rank(order: LiveOrder, live: &JobView, foretold: &Foretold) -> f64 {
    let job = &live.job;
    let (value, soonest) = match order.key {
        LiveKey::Priority => (Some(f64::from(job.spec.priority.0)), false),
        LiveKey::Gpus => (live.allocation.as_ref().map(|held| f64::from(held.held_gpus().0)), false),
        LiveKey::Goodput => (live.live.goodput.map(|rate| rate.0), false),
        LiveKey::Progress => (progress(live), false),
        LiveKey::Lost => (Some(job.spent.rework.0), false),
        LiveKey::Eta => (live.live.remaining.map(|left| left.0), true),
        LiveKey::Position => (foretold.starts.get(&job.id).map(|(place, _)| f64::from(*place)), true),
    };
    match value.filter(|value| value.is_finite()) {
        None => f64::INFINITY,
        Some(value) if soonest != order.backwards => value,
        Some(value) => -value,
    }
}

fn progress(live: &JobView) -> Option<f64> {
    let job = &live.job;
    let target = job.target().filter(|target| target.tokens.0 > 0.0)?;
    let (seen, reached) = match live.live.reported_at {
        Some(_) => (job.tokens(live.live.samples_seen), live.live.progress),
        None => (job.seen(), job.progress),
    };
    Some(target.counted(seen, reached).0 / target.tokens.0)
}

/// The same conditions as the store's.
fn admits(filter: &JobFilter, live: &JobView) -> bool {
    let (job, spec) = (&live.job, &live.job.spec);
    let of_array = |array: &ArrayId| job.element.as_ref().is_some_and(|element| element.array == *array);
    (filter.states.is_empty() || filter.states.contains(&job.state.kind()))
        && filter.project.as_ref().is_none_or(|project| *project == spec.project)
        && filter.owner.as_ref().is_none_or(|owner| *owner == job.owner)
        && filter.name.as_ref().is_none_or(|name| *name == spec.name)
        && filter.among.as_ref().is_none_or(|jobs| jobs.binary_search(&job.id).is_ok())
        && filter.name_contains.as_ref().is_none_or(|part| spec.name.to_lowercase().contains(&part.to_lowercase()))
        && labels::meet(&spec.labels, &filter.labels)
        && filter.array.as_ref().is_none_or(of_array)
        && filter.out_of_sight.as_ref().is_none_or(|hidden| !hidden.hides(&spec.project, &job.owner))
}
