//! Order among feasible configurations, and the best found so far of a search. It computes no time and no memory.

use core::cmp::Reverse;

use headway_types::spec::BatchRange;
use headway_types::{Configuration, Execution, Layout, Sequences};

use crate::batches::Wanted;
use crate::infeasible::Infeasible;

/// Goodputs whose logarithms differ by less are equal.
const QUANTUM: f64 = 1e-6;

/// Order among feasible configurations, greater is better. Where the batch may vary, a step must have two small batches, or φ could
/// never be measured; then the batch that the norm test wants, where it chooses; then goodput, quantised so that equals tie; then fewer,
/// larger micro-batches, the smaller batch, and the plainer layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rank {
    measurable: bool,
    off: Reverse<u32>,
    goodput: i64,
    micro_batch: Sequences,
    batch: Reverse<Sequences>,
    degrees: Reverse<(u32, u32, Execution)>,
}

impl Rank {
    pub(crate) fn of(range: BatchRange, wanted: Option<Wanted>, configuration: &Configuration, goodput: f64) -> Self {
        let Layout { tp, pp, execution, .. } = configuration.layout;
        let small_batches = configuration.layout.micro_batches() * configuration.cycles().unwrap_or(0);
        Self {
            measurable: range.min == range.max || small_batches >= 2,
            off: Reverse(wanted.map_or(0, |wanted| wanted.steps_off(configuration.global_batch))),
            goodput: quantised(goodput),
            micro_batch: configuration.micro_batch,
            batch: Reverse(configuration.global_batch),
            degrees: Reverse((tp, pp, execution)),
        }
    }
}

impl Rank {
    /// Whether a step has two small batches, or the batch is fixed.
    pub(crate) fn is_measurable(&self) -> bool {
        self.measurable
    }
}

fn quantised(goodput: f64) -> i64 {
    (libm::log(goodput.max(f64::MIN_POSITIVE)) / QUANTUM).round() as i64
}

/// The best found so far, each of another layout, and what to say if there is none.
pub(crate) struct Best {
    pub keep: usize,
    /// Best first.
    pub found: Vec<(Rank, Configuration)>,
    pub refusal: Option<Infeasible>,
    /// Less than this is beaten: the goodput of the last that is kept, but for two quanta, for what rounding does to a bound.
    floor: f64,
}

impl Best {
    pub(crate) fn new(keep: usize) -> Self {
        Self { keep, found: Vec::with_capacity(keep + 1), refusal: None, floor: f64::NEG_INFINITY }
    }

    /// Whether something that brings no more than this could still be among them.
    pub(crate) fn may_hold(&self, goodput: f64) -> bool {
        goodput >= self.floor
    }

    pub(crate) fn admit(&mut self, rank: Rank, configuration: Configuration) {
        if let Some(same) = self.found.iter().position(|(_, other)| other.layout == configuration.layout) {
            if self.found[same].0 >= rank {
                return;
            }
            self.found.remove(same);
        }
        let place = self.found.partition_point(|(other, _)| *other >= rank);
        self.found.insert(place, (rank, configuration));
        self.found.truncate(self.keep);
        let last = self.found.last().filter(|_| self.found.len() == self.keep).map(|(last, _)| last);
        let bound = last.filter(|last| last.measurable && last.off == Reverse(0));
        self.floor = bound.map_or(f64::NEG_INFINITY, |last| libm::exp((last.goodput - 2) as f64 * QUANTUM));
    }

    pub(crate) fn refuse(&mut self, why: impl FnOnce() -> Infeasible) {
        if self.found.is_empty() {
            let why = why();
            if self.refusal.as_ref().is_none_or(|old| old.yields_to(&why)) {
                self.refusal = Some(why);
            }
        }
    }
}
