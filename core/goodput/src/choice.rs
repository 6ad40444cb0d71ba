//! The best configurations of one allocation, found by branch and bound: layouts and micro-batches in the order of what they could bring
//! at most, until the rest cannot beat what is found. Exact over the grid of batches; it keeps no memory between allocations but of
//! what layers take.

use core::cmp::Reverse;

use headway_types::spec::BatchRange;
use headway_types::{
    Configuration, Execution, GpuCount, Layout, ModelShape, NodeClass, NodeCount, Prediction, Recompute, Schedule,
    Seconds, Sequences,
};

use crate::batches::{Wanted, batch_grid, interleaved, near};
use crate::catalog;
use crate::correction::Factors;
use crate::fitting::Fitting;
use crate::infeasible::Infeasible;
use crate::layouts::Room;
use crate::model::JobModel;
use crate::step_time::{PriorTimes, Spread, StepTime};

/// Goodputs whose logarithms differ by less are equal.
const QUANTUM: f64 = 1e-6;

/// A configuration with what it brings.
pub(crate) type Choice = (Configuration, Prediction);

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
        let Layout { dp, tp, pp, execution } = configuration.layout;
        let small_batches = u64::from(dp) * configuration.accumulation().unwrap_or(0);
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

fn quantised(goodput: f64) -> i64 {
    (libm::log(goodput.max(f64::MIN_POSITIVE)) / QUANTUM).round() as i64
}

/// The best found so far, each of another layout, and what to say if there is none.
struct Best {
    keep: usize,
    /// Best first.
    found: Vec<(Rank, Configuration)>,
    refusal: Option<Infeasible>,
}

impl Best {
    /// Whether something that brings no more than this could still be among them.
    fn may_hold(&self, goodput: f64) -> bool {
        // One quantum of slack for what rounding does to a bound.
        let beaten = |(last, _): &(Rank, Configuration)| {
            last.measurable && last.off == Reverse(0) && quantised(goodput) + 1 < last.goodput
        };
        self.found.len() < self.keep || !self.found.last().is_some_and(beaten)
    }

    fn admit(&mut self, rank: Rank, configuration: Configuration) {
        if let Some(same) = self.found.iter().position(|(_, other)| other.layout == configuration.layout) {
            if self.found[same].0 >= rank {
                return;
            }
            self.found.remove(same);
        }
        let place = self.found.partition_point(|(other, _)| *other >= rank);
        self.found.insert(place, (rank, configuration));
        self.found.truncate(self.keep);
    }

    fn refuse(&mut self, why: impl FnOnce() -> Infeasible) {
        if self.found.is_empty() {
            let why = why();
            if self.refusal.as_ref().is_none_or(|old| old.yields_to(&why)) {
                self.refusal = Some(why);
            }
        }
    }
}

/// At which of its batches a layout fits at a micro-batch.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fit {
    Never,
    Sometimes,
    Always,
    /// It was not looked at, since it could not win.
    Unknown,
}

/// Step time over the batch: a + b·B.
#[derive(Clone, Copy)]
struct Line {
    intercept: f64,
    slope: f64,
}

/// A search over one class: its device, and what layers take there, are found once.
pub(crate) struct Search<'a> {
    model: &'a JobModel,
    class: &'a NodeClass,
    shape: &'a ModelShape,
    factors: Factors,
    prior: PriorTimes,
    memory: Fitting<'a>,
    /// φκ in sequences.
    critical: f64,
    /// Where the norm test chooses the batch.
    wanted: Option<Wanted>,
}

/// One micro-batch size of some degrees, and the most any execution of them could bring.
struct Frame {
    ceiling: f64,
    degrees: usize,
    micro_batch: Sequences,
}

impl<'a> Search<'a> {
    /// A search for the configurations of a model on a class whose GPUs are known.
    pub(crate) fn new(model: &'a JobModel, class: &'a NodeClass) -> Result<Self, Infeasible> {
        let Some(shape) = model.shape() else { return Err(Infeasible::Opaque) };
        let device = catalog::device(class)?;
        Ok(Self {
            model,
            class,
            shape,
            factors: model.factors(&class.gpu_type),
            prior: PriorTimes::new(shape, model.training.precision, device),
            memory: model.fitting(class, &device).ok_or(Infeasible::Opaque)?,
            critical: model.critical_batch().0 / f64::from(shape.seq_len),
            wanted: model.wanted_batch(),
        })
    }

    /// The best configurations over all layouts, best first, at most `keep`, each of another layout.
    pub(crate) fn ranked(&mut self, gpus: GpuCount, nodes: NodeCount, keep: usize) -> Result<Vec<Choice>, Infeasible> {
        self.model.check_allocation(self.class, gpus, nodes)?;
        let room = Room { shape: self.shape, limits: &self.model.training.layouts, class: self.class, gpus, nodes };
        let degrees = room.degrees();
        let spread = Spread { gpus, nodes };
        let mut frames = Vec::with_capacity(4 * degrees.len());
        for (index, layout) in degrees.iter().enumerate() {
            for micro_batch in self.micro_batches() {
                let ceiling = self.ceiling(&room, spread, *layout, micro_batch);
                frames.push(Frame { ceiling, degrees: index, micro_batch });
            }
        }
        frames.sort_by(|left, right| {
            let order = (left.degrees, left.micro_batch).cmp(&(right.degrees, right.micro_batch));
            right.ceiling.total_cmp(&left.ceiling).then(order)
        });
        let mut best = Best { keep, found: Vec::with_capacity(keep + 1), refusal: None };
        // Memory only grows with the micro-batch: above one that fits in no way, none does.
        let mut largest = vec![Sequences(u64::MAX); degrees.len()];
        for Frame { ceiling, degrees: index, micro_batch } in frames {
            if !best.may_hold(ceiling) {
                break;
            }
            if micro_batch > largest[index] {
                continue;
            }
            if !self.weigh_all(&room, degrees[index], micro_batch, &mut best) {
                largest[index] = micro_batch;
            }
        }
        self.settled(best, gpus, nodes, Infeasible::NoLayout { gpus, nodes })
    }

    /// The best micro-batch and batch of a layout that stays.
    pub(crate) fn best_batch(
        &mut self,
        gpus: GpuCount,
        nodes: NodeCount,
        layout: Layout,
    ) -> Result<Choice, Infeasible> {
        self.model.check_allocation(self.class, gpus, nodes)?;
        if layout.gpus() != gpus {
            let micro_batch = Sequences(1);
            let smallest = Configuration { layout, micro_batch, global_batch: Sequences(u64::from(layout.dp)) };
            return Err(Infeasible::WrongSize { configuration: smallest, gpus });
        }
        self.model.check_layout(self.class, gpus, nodes, layout)?;
        self.wanted = self.model.wanted_batch_of_a_layout();
        let mut best = Best { keep: 1, found: Vec::with_capacity(2), refusal: None };
        for micro_batch in self.micro_batches() {
            if self.weigh(Spread { gpus, nodes }, layout, micro_batch, &mut best) == Fit::Never {
                break;
            }
        }
        let (range, largest_micro_batch) = (self.model.training.batch, self.largest_micro_batch());
        let nothing = Infeasible::NoBatch { range, dp: layout.dp, largest_micro_batch };
        let mut found = self.settled(best, gpus, nodes, nothing)?;
        Ok(found.swap_remove(0))
    }

    /// Predicts what was found once more by the way every other question takes, so that both give the same number to the last digit.
    fn settled(
        &self,
        best: Best,
        gpus: GpuCount,
        nodes: NodeCount,
        nothing: Infeasible,
    ) -> Result<Vec<Choice>, Infeasible> {
        if best.found.is_empty() {
            return Err(best.refusal.unwrap_or(nothing));
        }
        let predict = |(_, configuration): (Rank, Configuration)| {
            Ok((configuration, self.model.predict(self.class, gpus, nodes, &configuration)?))
        };
        best.found.into_iter().map(predict).collect()
    }

    fn largest_micro_batch(&self) -> u64 {
        self.model.training.layouts.max_micro_batch.0.max(1)
    }

    fn micro_batches(&self) -> impl Iterator<Item = Sequences> + use<> {
        (0..=self.largest_micro_batch().ilog2()).map(|power| Sequences(1 << power))
    }

    /// More goodput than any execution of these degrees brings at this micro-batch. Every part is at its least: no recomputation, the
    /// bubble at the most chunks, no gradients to exchange where anything may hide or spare them, the optimizer spread over all replicas.
    fn ceiling(&mut self, room: &Room<'_>, spread: Spread, degrees: Layout, micro_batch: Sequences) -> f64 {
        let limits = &room.limits.execution;
        let plain = Execution { cp: degrees.execution.cp, ..Execution::PLAIN };
        let varied = limits.sharding.len() + limits.recompute.len() > 2 || degrees.execution != plain;
        let chunks = limits.vpp.last().copied().unwrap_or(1);
        let sequence = [false, limits.sequence_parallel && degrees.tp > 1];
        let mut highest = f64::NEG_INFINITY;
        for sequence_parallel in sequence.into_iter().take(1 + usize::from(sequence[1])) {
            let layout = Layout { execution: Execution { sequence_parallel, ..plain }, ..degrees };
            let mut unit = self.unit(spread, layout, micro_batch);
            unit.pipeline_bubble = unit.pipeline_bubble * (1.0 / f64::from(chunks));
            if varied {
                unit.data_collectives = Seconds(0.0);
                unit.optimizer = unit.optimizer * (1.0 / f64::from(degrees.dp * plain.cp));
            }
            let line = self.line(&unit, u64::from(degrees.dp) * micro_batch.0);
            highest = highest.max(self.ceiling_of(line));
        }
        highest
    }

    /// Goodput at the best batch of the range, whether or not the batch divides: B/((a + bB)(φκ + B)) has one peak, at √(a·φκ/b). Where the
    /// norm test chooses, batches beyond its bounds rank behind whatever they bring.
    fn ceiling_of(&self, line: Line) -> f64 {
        let range = self.model.training.batch;
        let (min, max) = self.wanted.map_or((range.min.0 as f64, range.max.0 as f64), |wanted| wanted.bounds(range));
        let batch = (line.intercept * self.critical / line.slope).sqrt().max(min).min(max);
        self.goodput(batch, line.intercept + line.slope * batch)
    }

    fn goodput(&self, batch: f64, seconds: f64) -> f64 {
        let seq_len = f64::from(self.model.training.work.seq_len());
        let reference = self.model.training.reference_batch.0 as f64;
        batch * seq_len / seconds * (self.critical + reference) / (self.critical + batch)
    }

    /// Prior step time with one micro-batch.
    fn unit(&mut self, spread: Spread, layout: Layout, micro_batch: Sequences) -> StepTime {
        let once = Configuration { layout, micro_batch, global_batch: Sequences(u64::from(layout.dp) * micro_batch.0) };
        self.prior.step_time(spread, &once, 1)
    }

    fn unit_line(&mut self, spread: Spread, layout: Layout, micro_batch: Sequences) -> Line {
        let unit = self.unit(spread, layout, micro_batch);
        self.line(&unit, u64::from(layout.dp) * micro_batch.0)
    }

    fn line(&self, unit: &StepTime, quantum: u64) -> Line {
        let [micro, step] = [self.factors.micro, self.factors.step];
        let repeated = (unit.micro().0 - unit.pipeline_bubble.0) * micro;
        let once = unit.pipeline_bubble.0 * micro + unit.step().0 * step + unit.overhead.0 + self.factors.extra;
        Line { intercept: once.max(0.0), slope: repeated / quantum as f64 }
    }

    /// Weighs every execution of some degrees at a micro-batch; whether any fits, or might.
    fn weigh_all(&mut self, room: &Room<'_>, degrees: Layout, micro_batch: Sequences, best: &mut Best) -> bool {
        let spread = Spread { gpus: room.gpus, nodes: room.nodes };
        let mut fits = false;
        let mut kept: Option<Layout> = None;
        for layout in room.executions(degrees) {
            // Recomputing takes time, of which the exchange of gradients hides behind it less than all. Where it is not needed at any
            // batch, it never wins.
            let again = |other: Layout| Layout {
                execution: Execution { recompute: layout.execution.recompute, ..other.execution },
                ..other
            };
            let needless = best.keep == 1
                && self.factors.micro >= self.factors.step
                && kept.is_some_and(|kept| again(kept) == layout);
            if needless {
                continue;
            }
            let fit = self.weigh(spread, layout, micro_batch, best);
            fits |= fit != Fit::Never;
            if fit == Fit::Always && layout.execution.recompute == Recompute::None {
                kept = Some(layout);
            }
        }
        fits
    }

    /// Weighs a layout at a micro-batch.
    fn weigh(&mut self, spread: Spread, layout: Layout, micro_batch: Sequences, best: &mut Best) -> Fit {
        let range = self.model.training.batch;
        let quantum = u64::from(layout.dp) * micro_batch.0;
        // Breadth-first stages gather once per step, so their time is no line over the batch.
        let straight = layout.pp == 1 || layout.execution.schedule != Schedule::BreadthFirst;
        let line = if straight && !best.found.is_empty() {
            let line = self.unit_line(spread, layout, micro_batch);
            if !best.may_hold(self.ceiling_of(line)) {
                return Fit::Unknown;
            }
            Some(line)
        } else {
            None
        };
        let multiple_of = quantum * interleaved(layout);
        let mut grid = match self.wanted {
            None => batch_grid(range, multiple_of),
            Some(wanted) => wanted.grid(range, multiple_of, micro_batch),
        };
        let (Some(&smallest), Some(&largest)) = (grid.first(), grid.last()) else {
            let largest_micro_batch = self.largest_micro_batch();
            best.refuse(|| Infeasible::NoBatch { range, dp: layout.dp, largest_micro_batch });
            return Fit::Unknown;
        };
        let at = |batch: Sequences| Configuration { layout, micro_batch, global_batch: batch };
        // More micro-batches never need less memory, so what fits is the beginning of the grid.
        let fits = |batch: Sequences| self.fits(&at(batch), batch.0 / quantum);
        let always = fits(largest);
        if !always {
            if !fits(smallest) {
                best.refuse(|| self.refusal(&at(smallest), smallest.0 / quantum));
                return Fit::Never;
            }
            grid.truncate(grid.partition_point(|batch| fits(*batch)));
        }
        let line = line.unwrap_or_else(|| self.unit_line(spread, layout, micro_batch));
        // A batch of a single gradient ranks behind all others, whatever its goodput.
        let single = grid.partition_point(|batch| u64::from(layout.dp) * (batch.0 / quantum) < 2);
        if range.min != range.max && single < grid.len() {
            grid.drain(..single);
        }
        let likely = match self.wanted {
            Some(_) => grid.split_off(grid.len() - 1),
            None if straight => near(&grid, (line.intercept * self.critical / line.slope).sqrt()),
            None => grid,
        };
        for batch in likely {
            let seconds = if straight {
                line.intercept + line.slope * batch.0 as f64
            } else {
                self.exact(spread, &at(batch), batch.0 / quantum)
            };
            let goodput = self.goodput(batch.0 as f64, seconds);
            best.admit(Rank::of(range, self.wanted, &at(batch), goodput), at(batch));
        }
        if always { Fit::Always } else { Fit::Sometimes }
    }

    fn fits(&self, configuration: &Configuration, micro_batches: u64) -> bool {
        self.memory.fits(configuration, micro_batches)
    }

    fn refusal(&self, configuration: &Configuration, micro_batches: u64) -> Infeasible {
        let refused = self.memory.check(&self.class.gpu_type, configuration, micro_batches).err();
        refused.expect("what does not fit has a reason")
    }

    /// Corrected seconds of a step.
    fn exact(&mut self, spread: Spread, configuration: &Configuration, micro_batches: u64) -> f64 {
        let time = self.prior.step_time(spread, configuration, micro_batches);
        let factors = self.factors;
        time.micro().0 * factors.micro + time.step().0 * factors.step + time.overhead.0 + factors.extra
    }
}

#[cfg(test)]
#[path = "choice_tests.rs"]
mod tests;
