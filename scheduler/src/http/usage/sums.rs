//! GPU-time of allocations added up: by the values of some dimensions, and within each step of a span where steps are wanted. Pure.

use std::collections::{BTreeMap, BTreeSet};

use headway_api::v1;
use headway_engine::{GpuTime, Tenure};
use headway_types::{GpuSeconds, JobId, Seconds, Timestamp};

use super::dimension::Dimension;
use crate::http::access::ANOTHER;
use crate::http::conversions::time;
use crate::store::HeldFor;

/// Where nobody took the GPUs.
const NOBODY: &str = "-";

/// GPU-time of some jobs. Those of a job come one after another, so the last one tells whether the next is another.
#[derive(Debug, Default)]
struct Sum {
    time: GpuSeconds,
    jobs: u64,
    last: Option<JobId>,
}

/// By the values of the dimensions.
type Rows = BTreeMap<Vec<String>, Sum>;

/// What is added up.
pub struct Sums {
    by: Vec<Dimension>,
    span: (Timestamp, Timestamp),
    step: Option<Seconds>,
    now: Timestamp,
    /// Jobs that took GPUs and that the reader may know of; `None`: he may know of all.
    shown: Option<BTreeSet<JobId>>,
    all: Rows,
    steps: BTreeMap<Timestamp, Rows>,
}

impl Sums {
    /// Of a span until `now` at the latest.
    pub fn new(
        by: Vec<Dimension>,
        span: (Timestamp, Timestamp),
        step: Option<Seconds>,
        now: Timestamp,
        shown: Option<BTreeSet<JobId>>,
    ) -> Self {
        Self { by, span, step, now, shown, all: BTreeMap::new(), steps: BTreeMap::new() }
    }

    /// All of one job have to come one after another.
    pub fn add(&mut self, held: &HeldFor) {
        let tenure = &held.tenure;
        let (granted, released) = tenure.span(self.now);
        let (from, to) = (self.span.0.max(granted), self.span.1.min(released));
        let values = self.values(held);
        add_to(&mut self.all, &values, held.job, causes(tenure, &tenure.within(self.now, from, to)));
        let Some(step) = self.step else { return };
        // Steps begin at whole multiples of their length.
        let mut begins = Timestamp(from.0 - from.0.rem_euclid(((step.0 * 1e6) as i64).max(1)));
        while begins < to {
            let ends = begins + step;
            let time = tenure.within(self.now, begins.max(from), ends.min(to));
            add_to(self.steps.entry(begins).or_default(), &values, held.job, causes(tenure, &time));
            begins = ends;
        }
    }

    /// The values of the dimensions by cause.
    fn values(&self, held: &HeldFor) -> [Vec<String>; 5] {
        let tenure = &held.tenure;
        let taker = |cause: &str| match tenure.displaced_by.as_ref().filter(|_| cause == DISPLACED) {
            Some(taker) if self.shown.as_ref().is_some_and(|shown| !shown.contains(&taker.job)) => ANOTHER.to_owned(),
            Some(taker) => taker.owner.clone(),
            None => NOBODY.to_owned(),
        };
        let value = |dimension: &Dimension, cause: &str| match dimension {
            Dimension::User => held.owner.clone(),
            Dimension::Project => held.project.clone(),
            Dimension::GpuType => {
                tenure.gpu_type.as_ref().map_or_else(|| "unknown".into(), |gpu_type| gpu_type.0.clone())
            }
            Dimension::Cause => cause.to_owned(),
            Dimension::DisplacedBy => taker(cause),
        };
        causes(tenure, &GpuTime::default())
            .map(|(cause, _)| self.by.iter().map(|dimension| value(dimension, cause)).collect())
    }

    /// The rows, and those of each step where there are any.
    pub fn told(self) -> v1::Usage {
        let Self { by, span: (from, to), step, all, steps, .. } = self;
        let total: GpuSeconds = all.values().map(|sum| sum.time).sum();
        let told = |(at, rows)| v1::UsageStep { at: time(at), items: rows_of(&by, rows), healthy_gpu_hours: None };
        v1::Usage {
            from: time(from),
            to: time(to),
            group_by: by.iter().map(|one| <&str>::from(*one).to_owned()).collect(),
            items: rows_of(&by, all),
            total_gpu_hours: total.0 / 3_600.0,
            step_seconds: step.map(|step| step.0),
            steps: step.map(|_| steps.into_iter().map(told).collect()),
        }
    }
}

fn add_to(rows: &mut Rows, values: &[Vec<String>; 5], job: JobId, parts: [(&str, GpuSeconds); 5]) {
    for (values, (_, part)) in values.iter().zip(parts).filter(|(_, (_, part))| part.0 > 0.0) {
        if !rows.contains_key(values) {
            rows.insert(values.clone(), Sum::default());
        }
        let Some(sum) = rows.get_mut(values) else { continue };
        sum.time += part;
        if sum.last.replace(job) != Some(job) {
            sum.jobs += 1;
        }
    }
}

/// The most GPU-time first.
fn rows_of(by: &[Dimension], sums: Rows) -> Vec<v1::UsageRow> {
    let mut rows: Vec<v1::UsageRow> = sums.into_iter().map(|(values, sum)| row(by, values, &sum)).collect();
    rows.sort_by(|one, other| other.gpu_hours.total_cmp(&one.gpu_hours));
    rows
}

fn row(by: &[Dimension], values: Vec<String>, sum: &Sum) -> v1::UsageRow {
    let mut row = v1::UsageRow {
        user: None,
        project: None,
        gpu_type: None,
        cause: None,
        displaced_by: None,
        gpu_hours: sum.time.0 / 3_600.0,
        jobs: sum.jobs,
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

const DISPLACED: &str = "displaced";

/// An allocation that ended since others took its GPUs was saved, torn down and redone for them.
fn causes(tenure: &Tenure, time: &GpuTime) -> [(&'static str, GpuSeconds); 5] {
    let displaced = tenure.displaced_by.is_some();
    let (rework, saving) = if displaced { (DISPLACED, DISPLACED) } else { ("rework", "saving") };
    [
        ("useful", time.training),
        ("starting", time.starting),
        (rework, time.rework),
        ("idle", time.idle),
        (saving, time.stopping),
    ]
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use headway_engine::record::{Allocation, Displacer, Release, ReleaseProof, StopCause};
    use headway_types::{Generation, GpuCount, GpuUuid, IdSource, NodeSlice, Placement};
    use proptest::prelude::*;

    use super::super::dimension;
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp(1_700_000_000_000_000 + seconds * 1_000_000)
    }

    /// Two GPUs for an hour, of which ten minutes pass before the first step, the last twenty are not saved and five are for stopping.
    fn displaced() -> HeldFor {
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
        let tenure = Tenure::of(&allocation);
        HeldFor { job: allocation.job, owner: "ada".into(), project: "nlp".into(), tenure }
    }

    fn told(by: &str, span: (Timestamp, Timestamp), step: Option<f64>, hides: bool) -> v1::Usage {
        let by = dimension::dimensions(Some(by)).unwrap();
        let held = displaced();
        let mut sums = Sums::new(by, span, step.map(Seconds), at(9_000), hides.then(BTreeSet::new));
        sums.add(&held);
        sums.told()
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
