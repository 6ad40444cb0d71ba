//! The configurations of an allocation of which one is the best as long as what is learnt stays within bounds: reports then only weigh
//! these again, and find what a search from nothing would find, to the last digit.
//!
//! For two configurations at fixed batches the ratio of their step times is linear-fractional in the two learnt numbers that do not scale
//! both alike (σ, the step's factor over the micro-batches', and κ, the fixed seconds over the latter), and that of what their tokens
//! count as in φκ, also where one of them counts 1 whatever φκ is. Such a ratio takes its extremes at the corners of a box. So whoever is beaten at every corner by one that surely fits is beaten
//! everywhere in the box, and whoever is not is listed.

use headway_types::spec::BatchRange;
use headway_types::{Configuration, GpuCount, Layout, NodeCount, Sequences};

use crate::batches::{batch_grid, interleaved, near};
use crate::choice::Search;
use crate::correction::Factors;
use crate::efficiency::Worth;
use crate::groups::{Groups, LEAST};
use crate::layouts::Room;
use crate::peaks::PeakBounds;
use crate::rank::{Best, Rank};
use crate::step_time::Spread;
use crate::terms::Terms;
use crate::weigh::{Fit, Units, straight, without_single_gradients};

/// How far σ, φκ and κ may move, the latter as a share of the winner's step too: wide enough for most reports, narrow enough for few
/// candidates.
const RATIO: f64 = 1.5;
const CRITICAL: f64 = 1.5;
const FIXED_SHARE: f64 = 0.1;
/// How far the logarithms of what peaks teach may move; less where the winner hardly fits.
const PEAKS: [f64; 3] = [0.03, 0.003, 0.0];
/// More than two quanta of the rank's goodput: whoever is beaten by so much is not equal.
const CLEARLY: f64 = 1.0 - 4e-6;
/// A list beyond this is no shorter way.
const MOST: usize = 64;

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Shortlist {
    bounds: Bounds,
    /// Those first that could bring most when the list was made.
    entries: Vec<Entry>,
}

/// What is learnt, as far as it decides between configurations.
#[derive(Clone, Copy, Debug)]
struct Point {
    sigma: f64,
    kappa: f64,
    critical: f64,
}

#[derive(Clone, Debug)]
struct Bounds {
    low: Point,
    high: Point,
    peaks: PeakBounds,
}

/// A layout at a micro-batch.
#[derive(Clone, Debug)]
struct Entry {
    layout: Layout,
    micro_batch: Sequences,
    terms: Terms,
    /// The largest batch that fits, where it is the same whatever peaks teach within the bounds.
    largest: Option<Sequences>,
}

impl Point {
    fn of(search: &Search<'_>, overhead: f64) -> Self {
        let Factors { micro, step, extra } = search.learnt.factors;
        Self { sigma: step / micro, kappa: (overhead + extra) / micro, critical: search.learnt.worth.critical }
    }

    fn factors(&self) -> Factors {
        Factors { micro: 1.0, step: self.sigma, extra: self.kappa }
    }
}

impl Bounds {
    fn around(search: &Search<'_>, winner: &Entry, batch: f64) -> Option<Self> {
        let at = Point::of(search, winner.terms.overhead);
        let step = winner.terms.without_overhead().corrected(at.factors()).at(batch);
        let (sigma, critical) = (at.sigma, at.critical);
        let low = Point {
            sigma: sigma / RATIO,
            kappa: (at.kappa - FIXED_SHARE * step).max(0.0),
            critical: critical / CRITICAL,
        };
        let high = Point { sigma: sigma * RATIO, kappa: at.kappa + FIXED_SHARE * step, critical: critical * CRITICAL };
        let sound = [low, high].iter().all(|it| it.sigma.is_finite() && it.sigma > 0.0 && it.kappa.is_finite());
        // The bar is the winner's, so it has to fit whatever peaks teach.
        let (at, many) = (winner.at(Sequences(batch as u64)), (batch as u64) / winner.quantum());
        let fits = |peaks: &PeakBounds| search.memory.surely_fits(&at, many, peaks);
        let peaks = PEAKS.into_iter().filter_map(|slack| search.memory.bounds(slack)).find(fits)?;
        (sound && low.critical > 0.0 && high.critical.is_finite()).then_some(Self { low, high, peaks })
    }

    fn hold(&self, search: &Search<'_>, overhead: f64) -> bool {
        let at = Point::of(search, overhead);
        let within = |low: f64, at: f64, high: f64| (low..=high).contains(&at);
        within(self.low.sigma, at.sigma, self.high.sigma)
            && within(self.low.kappa, at.kappa, self.high.kappa)
            && within(self.low.critical, at.critical, self.high.critical)
            && search.memory.is_within(&self.peaks)
    }

    fn corners(&self) -> [Point; 8] {
        let either = |bit: usize, low: f64, high: f64| if bit == 0 { low } else { high };
        core::array::from_fn(|corner| Point {
            sigma: either(corner & 1, self.low.sigma, self.high.sigma),
            kappa: either(corner & 2, self.low.kappa, self.high.kappa),
            critical: either(corner & 4, self.low.critical, self.high.critical),
        })
    }
}

/// What there is to beat at each corner: the winner at its batch.
struct Bar {
    corners: [Point; 8],
    values: [f64; 8],
    worth: Worth,
    range: BatchRange,
    overhead: f64,
}

impl Bar {
    fn new(bounds: &Bounds, winner: &Terms, batch: f64, worth: Worth, range: BatchRange) -> Self {
        let corners = bounds.corners();
        let values = corners.map(|at| {
            let seconds = winner.without_overhead().corrected(at.factors()).at(batch);
            CLEARLY * batch / seconds * worth.with(at.critical).at(batch)
        });
        Self { corners, values, worth, range, overhead: winner.overhead }
    }

    /// Whether a line could be best somewhere within the bounds; `None` if its fixed seconds are not the winner's, which the bounds rest on.
    fn reached_by(&self, terms: &Terms) -> Option<bool> {
        if terms.overhead != self.overhead {
            return None;
        }
        let (min, max) = (self.range.min.0 as f64, self.range.max.0 as f64);
        let terms = terms.without_overhead();
        let mut corners = self.corners.iter().zip(&self.values);
        Some(corners.any(|(at, value)| {
            let line = terms.corrected(at.factors());
            let worth = self.worth.with(at.critical);
            let batch = worth.peak(line.intercept, line.slope).max(min).min(max);
            batch / line.at(batch) * worth.at(batch) >= *value
        }))
    }
}

impl Terms {
    /// κ holds it.
    fn without_overhead(self) -> Terms {
        Terms { overhead: 0.0, ..self }
    }
}

impl Shortlist {
    /// The list around what has just been found; `None` where there is no bound to go by, as where steps contradicted what is learnt.
    pub(crate) fn around(search: &mut Search<'_>, gpus: GpuCount, nodes: NodeCount, found: &Best) -> Option<Self> {
        let (rank, winner) = found.found.first()?;
        if search.learnt.wanted.is_some()
            || search.ground.is_contradicted()
            || !rank.is_measurable()
            || !straight(winner.layout)
        {
            return None;
        }
        let (spread, batch) = (Spread { gpus, nodes }, winner.global_batch.0 as f64);
        let terms = search.terms_of(spread, winner.layout, winner.micro_batch, &mut Units::default());
        let of_winner = Entry { layout: winner.layout, micro_batch: winner.micro_batch, terms, largest: None };
        let bounds = Bounds::around(search, &of_winner, batch)?;
        let bar = Bar::new(&bounds, &terms, batch, search.learnt.worth, search.model.training.batch);
        let mut list = Self { bounds, entries: Vec::new() };
        list.gather(search, &search.room(gpus, nodes), &bar)?;
        let ceiling = |entry: &Entry| search.ceiling_of(entry.terms.corrected(search.learnt.factors));
        list.entries.sort_by(|left, right| ceiling(right).total_cmp(&ceiling(left)));
        list.entries.shrink_to_fit();
        Some(list)
    }

    /// The best by what is learnt now; `None` beyond the bounds.
    pub(crate) fn best(&self, search: &Search<'_>) -> Option<Configuration> {
        let overhead = self.entries.first()?.terms.overhead;
        if search.learnt.wanted.is_some() || search.ground.is_contradicted() || !self.bounds.hold(search, overhead) {
            return None;
        }
        let mut best = Best::new(1);
        for entry in &self.entries {
            entry.weigh(search, &mut best);
        }
        best.found.first().map(|(_, configuration)| *configuration)
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    fn gather(&mut self, search: &mut Search<'_>, room: &Room<'_>, bar: &Bar) -> Option<()> {
        for degrees in room.degrees() {
            for micro_batch in search.micro_batches() {
                let among = search.known.executions(room, degrees);
                let least = search.least_terms(room, degrees, micro_batch, &among);
                let mut reached = false;
                for terms in least.into_iter().flatten() {
                    reached |= bar.reached_by(&terms)?;
                }
                if reached && !self.gather_executions(search, room, (degrees, micro_batch), &among, bar)? {
                    // Memory only grows with the micro-batch.
                    break;
                }
            }
        }
        (self.entries.len() <= MOST).then_some(())
    }

    /// Lists the executions of some degrees at a micro-batch; whether any may fit.
    fn gather_executions(
        &mut self,
        search: &mut Search<'_>,
        room: &Room<'_>,
        (degrees, micro_batch): (Layout, Sequences),
        among: &Groups,
        bar: &Bar,
    ) -> Option<bool> {
        let spread = Spread { gpus: room.gpus, nodes: room.nodes };
        let mut any = false;
        for group in &among.all {
            let mut units = Units::default();
            for &order in group.orders.iter() {
                let layout = group.ordered(degrees, order);
                let terms = search.terms_of(spread, layout, micro_batch, &mut units);
                if !bar.reached_by(&terms)? {
                    any = true;
                    continue;
                }
                if !straight(layout) {
                    return None;
                }
                let entry = Entry { layout, micro_batch, terms, largest: None };
                match entry.fit(search, &self.bounds.peaks) {
                    // The others only keep more.
                    (Fit::Never, _) if order == LEAST => break,
                    (Fit::Never, _) => {}
                    (Fit::Unknown, _) => any = true,
                    (_, largest) => {
                        any = true;
                        self.entries.push(Entry { largest, ..entry });
                    }
                }
            }
        }
        Some(any)
    }
}

/// Bounds within which no configuration of an allocation fits, where that is so.
pub(crate) fn nothing_fits(search: &mut Search<'_>, gpus: GpuCount, nodes: NodeCount) -> Option<PeakBounds> {
    let (room, peaks) = (search.room(gpus, nodes), search.memory.bounds(PEAKS[0])?);
    let range = search.model.training.batch;
    // Memory only grows with the micro-batch and with the number of them.
    let may = room.degrees().into_iter().any(|degrees| {
        search.known.executions(&room, degrees).all.iter().any(|group| {
            let (at, count) = group.smallest(degrees, Sequences(1), range);
            at.global_batch <= range.max && search.memory.may_fit(&at, count, &peaks)
        })
    });
    (!may).then_some(peaks)
}

impl Entry {
    fn quantum(&self) -> u64 {
        self.layout.micro_batches() * self.micro_batch.0
    }

    fn grid(&self, range: BatchRange) -> Vec<Sequences> {
        batch_grid(range, self.quantum() * interleaved(self.layout))
    }

    fn at(&self, batch: Sequences) -> Configuration {
        Configuration { layout: self.layout, micro_batch: self.micro_batch, global_batch: batch }
    }

    /// At which of its batches it may fit within the bounds (`Unknown`: it has none), and the largest that fits, where that is certain.
    fn fit(&self, search: &Search<'_>, peaks: &PeakBounds) -> (Fit, Option<Sequences>) {
        let grid = self.grid(search.model.training.batch);
        let quantum = self.quantum();
        let may = |batch: &Sequences| search.memory.may_fit(&self.at(*batch), batch.0 / quantum, peaks);
        let surely = |batch: &Sequences| search.memory.surely_fits(&self.at(*batch), batch.0 / quantum, peaks);
        let Some(largest) = grid.last() else { return (Fit::Unknown, None) };
        if surely(largest) {
            return (Fit::Always, Some(*largest));
        }
        let most = grid.partition_point(may);
        if most == 0 {
            return (Fit::Never, None);
        }
        (Fit::Sometimes, Some(grid[most - 1]).filter(surely))
    }

    /// As a search weighs it.
    fn weigh(&self, search: &Search<'_>, best: &mut Best) {
        let (range, quantum) = (search.model.training.batch, self.quantum());
        let line = self.terms.corrected(search.learnt.factors);
        if !best.may_hold(search.ceiling_of(line)) {
            return;
        }
        let grid = self.grid(range);
        let fitting = match self.largest {
            Some(largest) => grid.partition_point(|batch| *batch <= largest),
            None => grid.partition_point(|batch| search.fits(&self.at(*batch), batch.0 / quantum)),
        };
        let grid = without_single_gradients(&grid[..fitting], range, self.layout, quantum);
        for batch in near(grid, search.learnt.worth.peak(line.intercept, line.slope)) {
            let goodput = search.goodput(batch.0 as f64, line.at(batch.0 as f64));
            let at = self.at(batch);
            best.admit(Rank::of(range, None, &at, goodput), at);
        }
    }
}
