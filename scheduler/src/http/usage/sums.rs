//! GPU-time of allocations added up: by the values of some dimensions, and within each step of a span where steps are wanted. Pure.

use std::collections::{BTreeMap, BTreeSet};

use headway_api::v1;
use headway_engine::GpuTime;
use headway_engine::record::{Allocation, StopCause};
use headway_engine::view::View;
use headway_types::{GpuSeconds, JobId, Seconds, Timestamp};

use super::dimension::Dimension;
use crate::http::access::ANOTHER;
use crate::http::conversions::time;
use crate::store::Held;

/// Where nobody took the GPUs.
const NOBODY: &str = "-";

/// For whom GPUs were taken, as long as it is not known whether the reader may know.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Value {
    Text(String),
    Taker { job: JobId, owner: String },
}

/// A step, by its beginning; the beginning of the span where there are no steps.
type Key = (Timestamp, Vec<Value>);

/// GPU-time and jobs by the values of the dimensions.
type Rows = BTreeMap<Vec<String>, (GpuSeconds, BTreeSet<JobId>)>;

/// What is added up.
pub struct Sums<'a> {
    by: &'a [Dimension],
    span: (Timestamp, Timestamp),
    step: Option<Seconds>,
    now: Timestamp,
    sums: BTreeMap<Key, (GpuSeconds, BTreeSet<JobId>)>,
}

impl<'a> Sums<'a> {
    /// Of a span until `now` at the latest.
    pub fn new(by: &'a [Dimension], span: (Timestamp, Timestamp), step: Option<Seconds>, now: Timestamp) -> Self {
        Self { by, span, step, now, sums: BTreeMap::new() }
    }

    pub fn add(&mut self, held: &Held, view: &View) {
        let allocation = &held.allocation;
        let end = allocation.placement.slices().iter().map(|slice| allocation.released.get(&slice.node));
        let end = end.map(|release| release.map_or(self.now, |release| release.at)).max().unwrap_or(self.now);
        let (from, to) = (self.span.0.max(allocation.granted_at), self.span.1.min(end));
        let mut begins = self.step_of(from);
        while begins < to {
            let ends = self.step.map_or(self.span.1, |step| begins + step);
            let time = GpuTime::within(allocation, self.now, begins.max(self.span.0), ends.min(self.span.1));
            self.add_time(begins, held, &time, view);
            begins = ends;
        }
    }

    /// Steps begin at whole multiples of their length.
    fn step_of(&self, at: Timestamp) -> Timestamp {
        match self.step {
            None => self.span.0,
            Some(step) => Timestamp(at.0 - at.0.rem_euclid(((step.0 * 1e6) as i64).max(1))),
        }
    }

    fn add_time(&mut self, at: Timestamp, held: &Held, time: &GpuTime, view: &View) {
        let allocation = &held.allocation;
        for (cause, part) in causes(allocation, time) {
            if part.0 <= 0.0 {
                continue;
            }
            let value = |dimension: &Dimension| match dimension {
                Dimension::User => Value::Text(held.owner.clone()),
                Dimension::Project => Value::Text(held.project.clone()),
                Dimension::GpuType => Value::Text(gpu_type(allocation, view)),
                Dimension::Cause => Value::Text(cause.to_owned()),
                Dimension::DisplacedBy => taker(allocation, cause),
            };
            let (sum, jobs) = self.sums.entry((at, self.by.iter().map(value).collect())).or_default();
            *sum += part;
            jobs.insert(allocation.job);
        }
    }

    /// Jobs that took GPUs, of which it has to be known whether the reader may know.
    pub fn takers(&self) -> BTreeSet<JobId> {
        let values = self.sums.keys().flat_map(|(_, values)| values);
        let taker = |value: &Value| match value {
            Value::Taker { job, .. } => Some(*job),
            Value::Text(_) => None,
        };
        values.filter_map(taker).collect()
    }

    /// The rows, with the owners of those that took GPUs but of the `hidden`; and of each step, where there are any.
    pub fn told(self, hidden: &BTreeSet<JobId>) -> v1::Usage {
        let Self { by, span: (from, to), step, sums, .. } = self;
        let word = |value: Value| match value {
            Value::Text(text) => text,
            Value::Taker { job, .. } if hidden.contains(&job) => ANOTHER.to_owned(),
            Value::Taker { owner, .. } => owner,
        };
        let mut all: Rows = BTreeMap::new();
        let mut steps: BTreeMap<Timestamp, Rows> = BTreeMap::new();
        for ((at, values), (sum, jobs)) in sums {
            let values: Vec<String> = values.into_iter().map(word).collect();
            if step.is_some() {
                let row = steps.entry(at).or_default().entry(values.clone()).or_default();
                row.0 += sum;
                row.1.extend(jobs.iter().copied());
            }
            let row = all.entry(values).or_default();
            row.0 += sum;
            row.1.extend(jobs);
        }
        let total: GpuSeconds = all.values().map(|(sum, _)| *sum).sum();
        let told = |(at, rows)| v1::UsageStep { at: time(at), items: rows_of(by, rows), healthy_gpu_hours: None };
        v1::Usage {
            from: time(from),
            to: time(to),
            group_by: by.iter().map(|one| <&str>::from(*one).to_owned()).collect(),
            items: rows_of(by, all),
            total_gpu_hours: total.0 / 3_600.0,
            step_seconds: step.map(|step| step.0),
            steps: step.map(|_| steps.into_iter().map(told).collect()),
        }
    }
}

/// The most GPU-time first.
fn rows_of(by: &[Dimension], sums: Rows) -> Vec<v1::UsageRow> {
    let mut rows: Vec<v1::UsageRow> =
        sums.into_iter().map(|(values, (sum, jobs))| row(by, values, sum, &jobs)).collect();
    rows.sort_by(|one, other| other.gpu_hours.total_cmp(&one.gpu_hours));
    rows
}

fn row(by: &[Dimension], values: Vec<String>, sum: GpuSeconds, jobs: &BTreeSet<JobId>) -> v1::UsageRow {
    let mut row = v1::UsageRow {
        user: None,
        project: None,
        gpu_type: None,
        cause: None,
        displaced_by: None,
        gpu_hours: sum.0 / 3_600.0,
        jobs: jobs.len() as u64,
    };
    for (dimension, value) in by.iter().zip(values) {
        match dimension {
            Dimension::User => row.user = Some(value),
            Dimension::Project => row.project = Some(value),
            Dimension::GpuType => row.gpu_type = Some(value),
            Dimension::Cause => row.cause = Some(value),
            Dimension::DisplacedBy => row.displaced_by = Some(value),
        }
    }
    row
}

/// Whoever got most of the GPUs.
fn taker(allocation: &Allocation, cause: &str) -> Value {
    match allocation.displaced_by.first().filter(|_| cause == "displaced") {
        Some(taker) => Value::Taker { job: taker.job, owner: taker.owner.clone() },
        None => Value::Text(NOBODY.to_owned()),
    }
}

/// An allocation that ended since others took its GPUs was saved, torn down and redone for them.
fn causes(allocation: &Allocation, time: &GpuTime) -> [(&'static str, GpuSeconds); 5] {
    let displaced = !allocation.displaced_by.is_empty()
        && matches!(allocation.stopped_for, Some(StopCause::Preempt | StopCause::Rescale));
    let (rework, saving) = if displaced { ("displaced", "displaced") } else { ("rework", "saving") };
    [
        ("useful", time.training),
        ("starting", time.starting),
        (rework, time.rework),
        ("idle", time.idle),
        (saving, time.stopping),
    ]
}

/// Allocations of an earlier release do not say; of those a node that is still there does.
fn gpu_type(allocation: &Allocation, view: &View) -> String {
    let node = || view.nodes.get(&allocation.placement.first_node());
    let told = allocation.gpu_type.clone().or_else(|| node().map(|node| node.node.inventory.gpu_type.clone()));
    told.map_or_else(|| "unknown".into(), |gpu_type| gpu_type.0)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use headway_engine::record::{Displacer, Release, ReleaseProof};
    use headway_types::{Generation, GpuCount, GpuUuid, IdSource, NodeSlice, Placement};
    use proptest::prelude::*;

    use super::super::dimension;
    use super::*;
    use crate::http::fixtures;

    fn at(seconds: i64) -> Timestamp {
        Timestamp(1_700_000_000_000_000 + seconds * 1_000_000)
    }

    /// Two GPUs for an hour, of which ten minutes pass before the first step, the last twenty are not saved and five are for stopping.
    fn displaced() -> Held {
        let mut ids = IdSource::seeded(1);
        let node = ids.node(at(0));
        let gpus = vec![GpuUuid("a".into()), GpuUuid("b".into())];
        let placement = Placement::try_new(vec![NodeSlice { node, gpus }]).unwrap();
        let by = Displacer { job: ids.job(at(0)), name: "urgent".into(), owner: "grace".into(), gpus: GpuCount(2) };
        let allocation = Allocation {
            training_at: Some(at(600)),
            saved_at: Some(at(2_100)),
            stopping_at: Some(at(3_300)),
            stopped_for: Some(StopCause::Preempt),
            displaced_by: vec![by],
            released: [(node, Release { at: at(3_600), proof: ReleaseProof::Reported })].into(),
            ended_at: Some(at(3_600)),
            ..Allocation::new(ids.job(at(0)), Generation(1), placement, at(0))
        };
        Held { owner: "ada".into(), project: "nlp".into(), allocation }
    }

    fn told(by: &str, span: (Timestamp, Timestamp), step: Option<f64>, hides: bool) -> v1::Usage {
        let by = dimension::dimensions(Some(by)).unwrap();
        let mut sums = Sums::new(&by, span, step.map(Seconds), at(9_000));
        sums.add(&displaced(), &fixtures::running());
        let hidden = if hides { sums.takers() } else { BTreeSet::new() };
        sums.told(&hidden)
    }

    #[test]
    fn what_others_took_is_theirs_by_name_and_all_adds_up() {
        let usage = told("displaced_by,cause,user", (at(0), at(9_000)), None, false);
        assert_eq!(usage.group_by, ["user", "cause", "displaced_by"]);
        let rows: Vec<String> = usage
            .items
            .iter()
            .map(|row| {
                let [user, cause, by] =
                    [&row.user, &row.cause, &row.displaced_by].map(|value| value.as_deref().unwrap());
                format!("{user} {cause} {by} {:.3} {}", row.gpu_hours, row.jobs)
            })
            .collect();
        assert_eq!(rows, ["ada displaced grace 0.833 1", "ada useful - 0.833 1", "ada starting - 0.333 1"]);
        assert!((usage.total_gpu_hours - 2.0).abs() < 1e-9 && usage.steps.is_none());
        let part = told("user", (at(300), at(900)), None, false);
        assert!((part.total_gpu_hours - 2.0 * 600.0 / 3_600.0).abs() < 1e-9);
    }

    #[test]
    fn who_took_gpus_is_nobody_to_whom_he_does_not_exist() {
        let usage = told("displaced_by", (at(0), at(9_000)), None, true);
        let by: Vec<_> = usage.items.iter().map(|row| row.displaced_by.as_deref().unwrap()).collect();
        assert_eq!(by, ["-", ANOTHER]);
    }

    proptest! {
        #[test]
        fn steps_add_up_to_the_whole_span(from in -2_000..3_500_i64, length in 1..6_000_i64, minutes in 1..100_u32) {
            let span = (at(from), at(from + length));
            let usage = told("cause", span, Some(f64::from(minutes) * 60.0), false);
            let steps = usage.steps.unwrap();
            for row in &usage.items {
                let same = |other: &&v1::UsageRow| other.cause == row.cause;
                let sum: f64 = steps.iter().flat_map(|step| step.items.iter().filter(same)).map(|row| row.gpu_hours).sum();
                prop_assert!((sum - row.gpu_hours).abs() < 1e-9, "{:?}: {sum} of {}", row.cause, row.gpu_hours);
            }
            let begins: Vec<_> = steps.iter().map(|step| step.at.timestamp()).collect();
            prop_assert!(begins.is_sorted() && begins.iter().all(|at| at % (i64::from(minutes) * 60) == 0), "{begins:?}");
        }
    }
}
