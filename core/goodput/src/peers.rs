//! What measured jobs teach those alike that were never measured: where the same shape, in the same precision, has shown its pace on a GPU type,
//! the median of what it showed is a better prior than none. Without it whoever comes anew is thought faster or slower than his like that
//! runs, for no reason but that one of them was measured.
//!
//! A lesson is kept in per mille and microseconds: finer it is not known, and what is known equally is equal.

use std::collections::BTreeMap;
use std::sync::Arc;

use headway_types::spec::Precision;
use headway_types::{GpuType, ModelShape, Seconds};
use serde::{Deserialize, Serialize};

use crate::correction::{Corrected, Factors};
use crate::step_time::StepTime;

/// Standard deviations of ln(micro factor) and ln(step factor) of one job around the median of its like.
const SPREAD: [f64; 2] = [0.15, 0.3];
/// A lesson is taught anew once a logarithm has moved by so many per mille,
const MOVED: i32 = 20;
/// or its seconds per step by this share, and by so many microseconds.
const MOVED_EXTRA: (f64, u64) = (0.1, 2_000);
/// Beyond these (a factor of 150 either way, an hour per step) nothing is a lesson.
const MOST_LOGARITHM: i32 = 5_000;
const MOST_EXTRA: f64 = 3.6e9;
/// More kinds are not remembered than have jobs now.
const MOST_KINDS: usize = 1_024;

/// Whose lessons are whose.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Kind {
    shape: ModelShape,
    precision: Precision,
}

/// What jobs of one kind have shown on one GPU type, over the prior.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Lesson {
    /// ln(micro factor) and ln(step factor), per mille.
    micro: i32,
    step: i32,
    /// Microseconds more per step.
    extra: u64,
}

/// The lessons of a kind, by GPU type.
pub type Taught = BTreeMap<GpuType, Lesson>;

/// All lessons of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "Vec<(Kind, Arc<Taught>)>", into = "Vec<(Kind, Arc<Taught>)>")]
pub struct Lessons(BTreeMap<Kind, Arc<Taught>>);

impl Kind {
    pub(crate) fn new(shape: ModelShape, precision: Precision) -> Self {
        Self { shape, precision }
    }
}

impl Lesson {
    /// `None` of factors that are none: nobody learns from an absurd fit.
    pub(crate) fn of(factors: Factors) -> Option<Self> {
        let per_mille = |factor: f64| {
            let logarithm = libm::round(1e3 * libm::log(factor));
            (logarithm.abs() <= f64::from(MOST_LOGARITHM)).then_some(logarithm as i32)
        };
        let extra = libm::round(1e6 * factors.extra);
        let extra = (0.0..=MOST_EXTRA).contains(&extra).then_some(extra as u64)?;
        Some(Self { micro: per_mille(factors.micro)?, step: per_mille(factors.step)?, extra })
    }

    pub(crate) fn factors(self) -> Factors {
        let factor = |per_mille: i32| libm::exp(f64::from(per_mille) / 1e3);
        Factors { micro: factor(self.micro), step: factor(self.step), extra: self.extra as f64 / 1e6 }
    }

    /// The prior, corrected by it.
    pub(crate) fn apply(self, prior: &StepTime) -> Corrected {
        let factors = self.factors();
        let (micro, step) = (factors.micro * prior.micro().0, factors.step * prior.step().0);
        let time = micro + step + prior.overhead.0 + factors.extra;
        let relative_error = libm::hypot(SPREAD[0] * micro, SPREAD[1] * step) / time;
        Corrected { time: Seconds(time), relative_error }
    }

    /// Part by part.
    fn median(mut of: Vec<Self>) -> Option<Self> {
        let mut middle = |part: fn(&Self) -> i64| {
            of.sort_by_key(part);
            let (low, high) = (of.get((of.len().max(1) - 1) / 2)?, of.get(of.len() / 2)?);
            Some(i64::midpoint(part(low), part(high)))
        };
        let (micro, step) = (middle(|one| one.micro.into())?, middle(|one| one.step.into())?);
        let extra = middle(|one| one.extra as i64)?;
        Some(Self { micro: micro as i32, step: step as i32, extra: extra as u64 })
    }

    /// Whether it says something else than the one taught before.
    fn differs(self, before: Self) -> bool {
        let apart = self.extra.abs_diff(before.extra);
        self.micro.abs_diff(before.micro) >= MOVED.unsigned_abs()
            || self.step.abs_diff(before.step) >= MOVED.unsigned_abs()
            || apart > MOVED_EXTRA.1 && apart as f64 > MOVED_EXTRA.0 * self.extra.max(before.extra) as f64
    }
}

impl Lessons {
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    #[must_use]
    pub fn of(&self, kind: &Kind) -> Option<&Arc<Taught>> {
        self.0.get(kind)
    }

    /// Lessons as measured jobs show them now; what nobody shows any more stays as it was last seen. `None` where nothing says anything else
    /// than before.
    #[must_use]
    pub fn renewed<'a>(&self, shown: impl Iterator<Item = (Kind, &'a GpuType, Lesson)>) -> Option<Self> {
        let mut by_kind: BTreeMap<Kind, BTreeMap<&GpuType, Vec<Lesson>>> = BTreeMap::new();
        for (kind, gpu_type, lesson) in shown {
            by_kind.entry(kind).or_default().entry(gpu_type).or_default().push(lesson);
        }
        let mut lessons = self.0.clone();
        let mut changed = false;
        for (kind, types) in &mut by_kind {
            let known = self.0.get(kind);
            for (gpu_type, all) in types {
                let Some(lesson) = Lesson::median(std::mem::take(all)) else { continue };
                let before = known.and_then(|known| known.get(*gpu_type));
                if before.is_none_or(|before| lesson.differs(*before)) {
                    let taught = lessons.entry(kind.clone()).or_default();
                    Arc::make_mut(taught).insert((*gpu_type).clone(), lesson);
                    changed = true;
                }
            }
        }
        if lessons.len() > MOST_KINDS {
            lessons.retain(|kind, _| by_kind.contains_key(kind));
        }
        changed.then_some(Self(lessons))
    }
}

impl From<Vec<(Kind, Arc<Taught>)>> for Lessons {
    fn from(all: Vec<(Kind, Arc<Taught>)>) -> Self {
        Self(all.into_iter().collect())
    }
}

impl From<Lessons> for Vec<(Kind, Arc<Taught>)> {
    fn from(lessons: Lessons) -> Self {
        lessons.0.into_iter().collect()
    }
}

#[cfg(test)]
#[path = "peers_tests.rs"]
mod tests;
