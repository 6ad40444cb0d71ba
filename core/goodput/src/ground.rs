//! Where a job's steps were measured on a GPU type. The factors that reports teach (`correction`) are the same for all micro-batches, so how a
//! step depends on the micro-batch is believed, not learnt: what lies far from any that was measured is less sure, is come to in steps, and where
//! first steps contradict what was expected, they count and not the factors. It never looks at φ or memory.

use core::fmt;

use headway_types::{Configuration, Layout, NodeClass, NodeCount, Seconds, Sequences};

use crate::model::JobModel;

/// What one doubling of the micro-batch away from any that was measured adds to the deviation of the logarithm of a step time.
const PER_DOUBLING: f64 = 0.05;

/// What a micro-batch's time depends on of a layout: data parallelism and how a stage is executed leave it what it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Degrees {
    tp: u32,
    pp: u32,
    cp: u32,
    ep: u32,
}

impl Degrees {
    pub(crate) fn of(layout: Layout) -> Self {
        Self { tp: layout.tp, pp: layout.pp, cp: layout.execution.cp, ep: layout.execution.ep }
    }
}

/// Micro-batches of a replica on slower and on faster nodes in a cycle: what a step takes depends on how much faster these are, which nobody measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ratio(u32, u32);

impl Ratio {
    pub(crate) fn of(layout: Layout) -> Self {
        let shares = layout.execution.shares;
        Self(shares.slower, shares.faster)
    }

    pub(crate) fn is_even(self) -> bool {
        self.0 == self.1
    }
}

/// A configuration whose first steps took longer than the band of what was expected of them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Contradiction {
    pub configuration: Configuration,
    pub nodes: NodeCount,
    /// Of a step, before the first of them.
    pub expected: Seconds,
    /// The slow edge of that.
    pub slowest: Seconds,
    /// The fastest report of it since.
    pub measured: Seconds,
}

impl fmt::Display for Contradiction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { configuration, expected, slowest, measured, .. } = self;
        write!(
            f,
            "steps of a batch of {} in micro-batches of {} took {} where {} were expected, and at most {}",
            configuration.global_batch,
            configuration.micro_batch,
            in_seconds(*measured),
            in_seconds(*expected),
            in_seconds(*slowest),
        )
    }
}

/// With three digits that count.
fn in_seconds(time: Seconds) -> String {
    match time.0 {
        short if short < 0.1 => format!("{short:.4} s"),
        short if short < 1.0 => format!("{short:.3} s"),
        short if short < 10.0 => format!("{short:.2} s"),
        long => format!("{long:.1} s"),
    }
}

impl JobModel {
    /// Where steps were measured on a class.
    pub(crate) fn ground(&self, class: &NodeClass) -> Ground {
        self.correction.ground(&class.gpu_type)
    }

    /// Configurations whose first steps on a class took longer than the band of what was expected of them.
    pub fn contradictions(&self, class: &NodeClass) -> impl Iterator<Item = Contradiction> {
        self.correction.contradictions(&class.gpu_type)
    }

    /// The same of one configuration on so many nodes.
    #[must_use]
    pub fn contradiction(
        &self,
        class: &NodeClass,
        nodes: NodeCount,
        configuration: &Configuration,
    ) -> Option<Contradiction> {
        self.contradictions(class).find(|one| one.nodes == nodes && one.configuration == *configuration)
    }

    /// What it adds to the deviation of a step time's logarithm that no step was measured at a micro-batch or near it, for a job that runs in
    /// `present`.
    #[must_use]
    pub fn unmeasured(&self, class: &NodeClass, configuration: &Configuration, present: &Configuration) -> f64 {
        self.ground(class).unmeasured(configuration.layout, configuration.micro_batch, Some(present.micro_batch))
    }
}

/// A situation in which steps were measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spot {
    pub degrees: Degrees,
    pub ratio: Ratio,
    pub nodes: NodeCount,
    pub micro_batch: Sequences,
    /// Cycles of a step.
    pub cycles: u64,
    /// Where steps contradicted what was expected: how many times as long as the factors say they take.
    pub slowdown: Option<f64>,
}

/// See the module.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Ground {
    spots: Vec<Spot>,
}

impl Ground {
    pub(crate) fn new(spots: Vec<Spot>) -> Self {
        Self { spots }
    }

    /// Whether anything was contradicted.
    pub(crate) fn is_contradicted(&self) -> bool {
        self.spots.iter().any(|spot| spot.slowdown.is_some())
    }

    /// Whether anything was at a micro-batch.
    pub(crate) fn is_contradicted_at(&self, layout: Layout, micro_batch: Sequences) -> bool {
        self.at(layout, micro_batch).any(|spot| spot.slowdown.is_some())
    }

    /// How many times as long as the factors say a step takes: as the nearest number of cycles that was measured at this micro-batch
    /// shows; 1 where that agreed, or none was.
    pub(crate) fn slowdown(&self, layout: Layout, nodes: NodeCount, micro_batch: Sequences, cycles: u64) -> f64 {
        let distance = |spot: &Spot| {
            let (one, other) = (spot.cycles.max(1) as f64, cycles.max(1) as f64);
            (one / other).max(other / one)
        };
        // Of equally near ones those on as many nodes, and of these the slower: nothing is lost by that but a gain.
        let nearer = |a: &&Spot, b: &&Spot| {
            let elsewhere = (a.nodes != nodes).cmp(&(b.nodes != nodes));
            let slower = b.slowdown.unwrap_or(1.0).total_cmp(&a.slowdown.unwrap_or(1.0));
            distance(a).total_cmp(&distance(b)).then(elsewhere).then(slower)
        };
        self.at(layout, micro_batch).min_by(nearer).and_then(|spot| spot.slowdown).unwrap_or(1.0)
    }

    /// What the distance to the nearest micro-batch that was measured and agreed, or that the job runs in, adds to the deviation of a step time's
    /// logarithm; nothing where there is none.
    pub(crate) fn unmeasured(&self, layout: Layout, micro_batch: Sequences, present: Option<Sequences>) -> f64 {
        let known = self.sound(layout).chain(present);
        let nearest = known.map(|known| doublings(known, micro_batch)).fold(f64::INFINITY, f64::min);
        if nearest.is_finite() { PER_DOUBLING * nearest } else { 0.0 }
    }

    /// Whether a job that runs in `present` may go to a micro-batch: one that was measured, or the next to such a one.
    pub(crate) fn reaches(&self, layout: Layout, micro_batch: Sequences, present: Sequences) -> bool {
        self.sound(layout).chain([present]).any(|measured| doublings(measured, micro_batch) <= 1.0)
    }

    /// Where none of uneven shares was measured there, and none of their ratio has agreed anywhere, all of that ratio: it is the ratio that was wrong.
    fn at(&self, layout: Layout, micro_batch: Sequences) -> impl Iterator<Item = &Spot> {
        let (degrees, ratio) = (Degrees::of(layout), Ratio::of(layout));
        let same = move |spot: &Spot| spot.degrees == degrees && spot.micro_batch == micro_batch;
        let of_ratio = move |spot: &&Spot| spot.ratio == ratio;
        let mut alike = self.spots.iter().filter(of_ratio);
        let wrong = !ratio.is_even() && alike.all(|spot| spot.slowdown.is_some() && !same(spot));
        self.spots.iter().filter(of_ratio).filter(move |spot| wrong || same(spot))
    }

    fn sound(&self, layout: Layout) -> impl Iterator<Item = Sequences> {
        let degrees = Degrees::of(layout);
        let sound = self.spots.iter().filter(move |spot| spot.degrees == degrees && spot.slowdown.is_none());
        sound.map(|spot| spot.micro_batch)
    }
}

fn doublings(one: Sequences, other: Sequences) -> f64 {
    let (one, other) = (one.0.max(1) as f64, other.0.max(1) as f64);
    libm::log2((one / other).max(other / one))
}

#[cfg(test)]
#[path = "ground_tests.rs"]
mod tests;
