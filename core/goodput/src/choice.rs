//! The best configurations of one allocation, found by branch and bound: layouts and micro-batches in the order of what they could bring
//! at most, until the rest cannot beat what is found. Exact over the grid of batches; it keeps no memory between allocations but of
//! what layers take.

use headway_types::{
    Configuration, Execution, GpuCount, Layout, ModelShape, NodeClass, NodeCount, Prediction, Recompute, Schedule,
    Seconds, Sequences, Sharding,
};

use crate::batches::{Wanted, batch_grid, interleaved, near};
use crate::catalog;
use crate::correction::Factors;
use crate::efficiency::Worth;
use crate::fitting::Fitting;
use crate::infeasible::Infeasible;
use crate::layouts::Room;
use crate::model::JobModel;
use crate::rank::{Best, Rank};
use crate::step_time::{PriorTimes, Spread, StepTime};

/// A configuration with what it brings.
pub(crate) type Choice = (Configuration, Prediction);

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

/// Prior step times with one micro-batch of the executions of some degrees at a micro-batch. Chunks only shorten the bubble and multiply the
/// transfers, and a single micro-batch knows no schedule, so few have to be computed.
#[derive(Default)]
struct Units {
    /// With one chunk, by what decides them.
    known: Vec<((Sharding, Recompute, bool), StepTime)>,
}

/// A search over one class: its device, and what layers take there, are found once.
pub(crate) struct Search<'a> {
    model: &'a JobModel,
    class: &'a NodeClass,
    shape: &'a ModelShape,
    factors: Factors,
    prior: PriorTimes,
    memory: Fitting<'a>,
    /// What a token counts as at a batch.
    worth: Worth,
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
            worth: model.worth(),
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
        let mut best = Best::new(keep);
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
        let mut best = Best::new(1);
        for micro_batch in self.micro_batches() {
            if self.weigh(Spread { gpus, nodes }, layout, micro_batch, &mut Units::default(), &mut best) == Fit::Never {
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

    /// Goodput at the best batch of the range, whether or not the batch divides. Where the norm test chooses, batches beyond its bounds rank
    /// behind whatever they bring.
    fn ceiling_of(&self, line: Line) -> f64 {
        let range = self.model.training.batch;
        let (min, max) = self.wanted.map_or((range.min.0 as f64, range.max.0 as f64), |wanted| wanted.bounds(range));
        let batch = self.worth.peak(line.intercept, line.slope).max(min).min(max);
        self.goodput(batch, line.intercept + line.slope * batch)
    }

    fn goodput(&self, batch: f64, seconds: f64) -> f64 {
        let seq_len = f64::from(self.model.training.work.seq_len());
        batch * seq_len / seconds * self.worth.at(batch)
    }

    /// Prior step time with one micro-batch.
    fn unit(&mut self, spread: Spread, layout: Layout, micro_batch: Sequences) -> StepTime {
        let once = Configuration { layout, micro_batch, global_batch: Sequences(u64::from(layout.dp) * micro_batch.0) };
        self.prior.step_time(spread, &once, 1)
    }

    /// The time of a layout over its batch; of one whose time is no line, a line that it never falls below.
    fn line_of(&mut self, spread: Spread, layout: Layout, micro_batch: Sequences, units: &mut Units) -> Line {
        let quantum = u64::from(layout.dp) * micro_batch.0;
        if straight(layout) {
            let unit = self.unit_of(spread, layout, micro_batch, units);
            return self.line(&unit, quantum);
        }
        // A micro-batch takes the less time the more of them share what is gathered.
        let most = (self.model.training.batch.max.0 / quantum).max(1);
        let at = Configuration { layout, micro_batch, global_batch: Sequences(most * quantum) };
        let all = self.prior.step_time(spread, &at, most);
        self.line(&all, quantum * most)
    }

    fn unit_of(&mut self, spread: Spread, layout: Layout, micro_batch: Sequences, units: &mut Units) -> StepTime {
        let Execution { vpp, sharding, recompute, sequence_parallel, .. } = layout.execution;
        let key = (sharding, recompute, sequence_parallel);
        let known = units.known.iter().find(|(other, _)| *other == key).map(|(_, unit)| *unit);
        let unit = known.unwrap_or_else(|| {
            let plain = Execution { vpp: 1, schedule: Schedule::default(), ..layout.execution };
            let unit = self.unit(spread, Layout { execution: plain, ..layout }, micro_batch);
            units.known.push((key, unit));
            unit
        });
        let chunks = f64::from(vpp);
        StepTime {
            pipeline_bubble: unit.pipeline_bubble * (1.0 / chunks),
            pipeline_transfers: unit.pipeline_transfers * chunks,
            ..unit
        }
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
        // The last layouts that do nothing again, without and with sequence parallelism.
        let mut plain: [Option<(Layout, Fit)>; 2] = [None; 2];
        let mut units = Units::default();
        let mut never: Vec<(Sharding, Recompute, bool)> = Vec::new();
        for layout in room.executions(degrees) {
            let Execution { vpp, schedule, sharding, recompute, sequence_parallel, .. } = layout.execution;
            let again = Layout { execution: Execution { recompute: Recompute::None, ..layout.execution }, ..layout };
            let sibling =
                plain[usize::from(sequence_parallel)].filter(|(other, _)| *other == again).map(|(_, fit)| fit);
            // Recomputing takes time, of which the exchange of gradients hides behind it less than all. Where it is not needed at any
            // batch, or would not help even if it cost nothing, it never wins.
            let needless = sibling == Some(Fit::Unknown) || (best.keep == 1 && sibling == Some(Fit::Always));
            // Chunks and other schedules only keep more micro-batches in flight.
            let kept_by = (sharding, recompute, sequence_parallel);
            if (needless && self.factors.micro >= self.factors.step) || never.contains(&kept_by) {
                continue;
            }
            let fit = self.weigh(spread, layout, micro_batch, &mut units, best);
            fits |= fit != Fit::Never;
            if fit == Fit::Never && vpp == 1 && schedule == Schedule::OneForwardOneBackward {
                never.push(kept_by);
            }
            if recompute == Recompute::None {
                plain[usize::from(sequence_parallel)] = Some((layout, fit));
            }
        }
        fits
    }

    /// Weighs a layout at a micro-batch.
    fn weigh(
        &mut self,
        spread: Spread,
        layout: Layout,
        micro_batch: Sequences,
        units: &mut Units,
        best: &mut Best,
    ) -> Fit {
        let range = self.model.training.batch;
        let quantum = u64::from(layout.dp) * micro_batch.0;
        let line = self.line_of(spread, layout, micro_batch, units);
        if !best.may_hold(self.ceiling_of(line)) {
            return Fit::Unknown;
        }
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
        if !fits(smallest) {
            best.refuse(|| self.refusal(&at(smallest), smallest.0 / quantum));
            return Fit::Never;
        }
        let always = fits(largest);
        if !always {
            grid.truncate(grid.partition_point(|batch| fits(*batch)));
        }
        // A batch of a single gradient ranks behind all others, whatever its goodput.
        let single = grid.partition_point(|batch| u64::from(layout.dp) * (batch.0 / quantum) < 2);
        if range.min != range.max && single < grid.len() {
            grid.drain(..single);
        }
        let straight = straight(layout);
        let likely = match self.wanted {
            Some(_) => grid.split_off(grid.len() - 1),
            None if straight => near(&grid, self.worth.peak(line.intercept, line.slope)),
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

/// Whether its time is a line over the batch. Breadth-first stages gather parameters once per step.
fn straight(layout: Layout) -> bool {
    let Execution { schedule, sharding, .. } = layout.execution;
    layout.pp == 1 || schedule != Schedule::BreadthFirst || sharding < Sharding::Gradients
}

#[cfg(test)]
#[path = "choice_tests.rs"]
mod tests;
