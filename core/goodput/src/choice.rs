//! The best configurations of one allocation, found by branch and bound: layouts and micro-batches in the order of what they could bring
//! at most, until the rest cannot beat what is found. Exact over the grid of batches; it keeps no memory between allocations but of
//! what layers take. What stays true while reports teach more is in `shortlist`.

use std::collections::BTreeMap;
use std::rc::Rc;

use headway_types::spec::BatchRange;
use headway_types::{
    Configuration, Execution, GpuCount, Layout, ModelShape, NodeClass, NodeCount, Offload, Prediction, Recompute,
    Schedule, Seconds, Sequences, Sharding,
};

use crate::batches::{Wanted, batch_grid, interleaved, near};
use crate::correction::Factors;
use crate::efficiency::Worth;
use crate::fitting::Fitting;
use crate::ground::Ground;
use crate::infeasible::Infeasible;
use crate::layouts::{Executions, Room};
use crate::model::JobModel;
use crate::rank::{Best, Rank};
use crate::step_time::{PriorTimes, Spread, StepTime};
use crate::terms::{Kept, Line, Terms, Units};

/// More than a need in MiB is rounded by.
const ROUNDED: f64 = 1.001;

/// A configuration with what it brings.
pub(crate) type Choice = (Configuration, Prediction);

/// At which of its batches a layout fits at a micro-batch.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fit {
    Never,
    Sometimes,
    Always,
    /// It was not looked at, since it could not win.
    Unknown,
}

/// A search over one class: its device, and what layers take there, are found once.
pub(crate) struct Search<'a> {
    pub model: &'a JobModel,
    pub class: &'a NodeClass,
    pub shape: &'a ModelShape,
    pub prior: &'a mut PriorTimes,
    pub memory: Fitting<'a>,
    pub learnt: Learnt,
    pub ground: Ground,
    pub executions: Executions,
    /// Batches by what they are multiples of.
    grids: BTreeMap<u64, Rc<[Sequences]>>,
}

/// What reports taught of time and noise, as far as a search on one class depends on it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Learnt {
    pub factors: Factors,
    /// What a token counts as at a batch.
    pub worth: Worth,
    /// Where the norm test chooses the batch; also of a layout that stays.
    pub wanted: Option<Wanted>,
    pub wanted_of_a_layout: Option<Wanted>,
}

impl Learnt {
    pub fn of(model: &JobModel, class: &NodeClass) -> Self {
        Self {
            factors: model.factors(&class.gpu_type),
            worth: model.worth(),
            wanted: model.wanted_batch(),
            wanted_of_a_layout: model.wanted_batch_of_a_layout(),
        }
    }
}

/// One micro-batch size of some degrees, and the most any execution of them could bring.
struct Frame {
    ceiling: f64,
    degrees: usize,
    micro_batch: Sequences,
}

impl<'a> Search<'a> {
    /// A search for the configurations of a model on a class; `prior` is of the model's shape there.
    pub(crate) fn new(
        model: &'a JobModel,
        class: &'a NodeClass,
        prior: &'a mut PriorTimes,
    ) -> Result<Self, Infeasible> {
        Self::with(model, class, prior, Learnt::of(model, class))
    }

    /// The same where it is known what the model has learnt.
    pub(crate) fn with(
        model: &'a JobModel,
        class: &'a NodeClass,
        prior: &'a mut PriorTimes,
        learnt: Learnt,
    ) -> Result<Self, Infeasible> {
        let Some(shape) = model.shape() else { return Err(Infeasible::Opaque) };
        let memory = model.fitting(class, prior.device()).ok_or(Infeasible::Opaque)?;
        let (executions, grids) = (Executions::default(), BTreeMap::new());
        let ground = model.ground(class);
        Ok(Self { model, class, shape, prior, memory, learnt, ground, executions, grids })
    }

    /// The best configurations over all layouts, best first, at most `keep`, each of another layout.
    pub(crate) fn ranked(&mut self, gpus: GpuCount, nodes: NodeCount, keep: usize) -> Result<Vec<Choice>, Infeasible> {
        let best = self.found(gpus, nodes, keep)?;
        self.settled(best, gpus, nodes, Infeasible::NoLayout { gpus, nodes })
    }

    /// What is best, not yet predicted; where nothing fits, the best of what needs least, if that is only unlikely to fit.
    pub(crate) fn found(&mut self, gpus: GpuCount, nodes: NodeCount, keep: usize) -> Result<Best, Infeasible> {
        self.model.check_allocation(self.class, gpus, nodes)?;
        Ok(self.fitting_or_nearly(|search| search.weighed(gpus, nodes, keep)))
    }

    /// What is found among all that fits; where nothing does, among what needs least, if that is only unlikely to fit.
    fn fitting_or_nearly(&mut self, weigh: impl Fn(&mut Self) -> Best) -> Best {
        self.memory = self.memory.tolerating(1.0);
        let best = weigh(self);
        if self.tolerate_least_of(&best) { weigh(self) } else { best }
    }

    /// Whether what was found last is unlikely to fit.
    pub(crate) fn tolerates(&self) -> bool {
        self.memory.tolerates()
    }

    /// Lets memory be so far beyond the device's that what needs least fits, where nothing else does and its band allows that; whether so.
    fn tolerate_least_of(&mut self, best: &Best) -> bool {
        let Some(beyond) = best.refusal.as_ref().filter(|_| best.found.is_empty()).and_then(Infeasible::beyond) else {
            return false;
        };
        let tolerable = beyond <= self.model.tolerance(self.class);
        if tolerable {
            // It is tried once: what needs least is likeliest to fit. The need was rounded up.
            self.memory = self.memory.tolerating(beyond * ROUNDED);
        }
        tolerable
    }

    fn weighed(&mut self, gpus: GpuCount, nodes: NodeCount, keep: usize) -> Best {
        let room = self.room(gpus, nodes);
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
        best
    }

    pub(crate) fn room(&self, gpus: GpuCount, nodes: NodeCount) -> Room<'a> {
        Room { shape: self.shape, limits: &self.model.training.layouts, class: self.class, gpus, nodes }
    }

    /// The best micro-batch and batch of a layout that stays; of a job that runs in a micro-batch, within its reach.
    pub(crate) fn best_batch(
        &mut self,
        gpus: GpuCount,
        nodes: NodeCount,
        layout: Layout,
        present: Option<Sequences>,
    ) -> Result<Choice, Infeasible> {
        self.model.check_allocation(self.class, gpus, nodes)?;
        if layout.gpus() != gpus {
            let micro_batch = Sequences(1);
            let smallest = Configuration { layout, micro_batch, global_batch: Sequences(u64::from(layout.dp)) };
            return Err(Infeasible::WrongSize { configuration: smallest, gpus });
        }
        self.model.check_layout(self.class, gpus, nodes, layout)?;
        self.learnt.wanted = self.learnt.wanted_of_a_layout;
        let best = self.fitting_or_nearly(|search| search.weighed_of(Spread { gpus, nodes }, layout, present));
        let (range, largest_micro_batch) = (self.model.training.batch, self.largest_micro_batch());
        let nothing = Infeasible::NoBatch { range, dp: layout.dp, largest_micro_batch };
        let mut found = self.settled(best, gpus, nodes, nothing)?;
        Ok(found.swap_remove(0))
    }

    fn weighed_of(&mut self, spread: Spread, layout: Layout, present: Option<Sequences>) -> Best {
        let mut best = Best::new(1);
        for micro_batch in self.micro_batches() {
            if present.is_some_and(|present| !self.ground.reaches(layout, micro_batch, present)) {
                continue;
            }
            if self.weigh(spread, layout, micro_batch, &mut Units::default(), &mut best) == Fit::Never {
                break;
            }
        }
        best
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

    pub(crate) fn micro_batches(&self) -> impl Iterator<Item = Sequences> + use<> {
        (0..=self.largest_micro_batch().ilog2()).map(|power| Sequences(1 << power))
    }

    fn ceiling(&mut self, room: &Room<'_>, spread: Spread, degrees: Layout, micro_batch: Sequences) -> f64 {
        let least = self.least_terms(room, spread, degrees, micro_batch);
        let of = |terms: Terms| self.ceiling_of(terms.corrected(self.learnt.factors));
        least.into_iter().flatten().map(of).fold(f64::NEG_INFINITY, f64::max)
    }

    /// Terms that no execution of these degrees falls below at this micro-batch, without and with sequence parallelism. Every part is at
    /// its least: no recomputation, the bubble at the most chunks, no gradients to exchange where anything may hide or spare them, the
    /// optimizer spread over all replicas.
    pub(crate) fn least_terms(
        &mut self,
        room: &Room<'_>,
        spread: Spread,
        degrees: Layout,
        micro_batch: Sequences,
    ) -> [Option<Terms>; 2] {
        let (_, _, limits) = room.limits();
        let plain = Execution { cp: degrees.execution.cp, ep: degrees.execution.ep, ..Execution::PLAIN };
        let choices = [limits.sharding.len(), limits.recompute.len(), limits.offload.len()];
        let varied = choices.iter().any(|count| *count > 1) || degrees.execution != plain;
        // Of experts that are whole on their rank, more may hold the same than of all else.
        let replicas = degrees.dp * plain.cp;
        let replicas = if plain.ep > 1 { replicas.max(replicas * degrees.tp / plain.ep) } else { replicas };
        let offloads = limits.offload.iter().any(|offload| *offload != Offload::None);
        let chunks = limits.vpp.last().copied().unwrap_or(1);
        let sequence = limits.sequence_parallel && degrees.tp > 1;
        [Some(false), sequence.then_some(true)].map(|sequence_parallel| {
            let layout = Layout { execution: Execution { sequence_parallel: sequence_parallel?, ..plain }, ..degrees };
            let mut unit = self.unit(spread, layout, micro_batch);
            unit.pipeline_bubble = unit.pipeline_bubble * (1.0 / f64::from(chunks));
            if varied {
                unit.data_collectives = Seconds(0.0);
                unit.optimizer = unit.optimizer * if offloads { 0.0 } else { 1.0 / f64::from(replicas) };
            }
            Some(Terms::of(&unit, u64::from(degrees.dp) * micro_batch.0))
        })
    }

    /// Goodput at the best batch of the range, whether or not the batch divides. Where the norm test chooses, batches beyond its bounds
    /// rank behind whatever they bring.
    pub(crate) fn ceiling_of(&self, line: Line) -> f64 {
        let range = self.model.training.batch;
        let (min, max) =
            self.learnt.wanted.map_or((range.min.0 as f64, range.max.0 as f64), |wanted| wanted.bounds(range));
        let batch = self.learnt.worth.peak(line.intercept, line.slope).max(min).min(max);
        self.goodput(batch, line.at(batch))
    }

    pub(crate) fn goodput(&self, batch: f64, seconds: f64) -> f64 {
        let seq_len = f64::from(self.model.training.work.seq_len());
        batch * seq_len / seconds * self.learnt.worth.at(batch)
    }

    /// Prior step time with one micro-batch.
    fn unit(&mut self, spread: Spread, layout: Layout, micro_batch: Sequences) -> StepTime {
        let once = Configuration { layout, micro_batch, global_batch: Sequences(u64::from(layout.dp) * micro_batch.0) };
        self.prior.step_time(spread, &once, 1)
    }

    /// The time of a layout over its batch; of one whose time is no line, a line that it never falls below.
    pub(crate) fn terms_of(
        &mut self,
        spread: Spread,
        layout: Layout,
        micro_batch: Sequences,
        units: &mut Units,
    ) -> Terms {
        let quantum = u64::from(layout.dp) * micro_batch.0;
        if straight(layout) {
            let unit = self.unit_of(spread, layout, micro_batch, units);
            return Terms::of(&unit, quantum);
        }
        // A micro-batch takes the less time the more of them share what is gathered.
        let most = (self.model.training.batch.max.0 / quantum).max(1);
        let at = Configuration { layout, micro_batch, global_batch: Sequences(most * quantum) };
        let all = self.prior.step_time(spread, &at, most);
        Terms::of(&all, quantum * most)
    }

    fn unit_of(&mut self, spread: Spread, layout: Layout, micro_batch: Sequences, units: &mut Units) -> StepTime {
        units.of(layout, |layout| self.unit(spread, layout, micro_batch))
    }

    /// Weighs every execution of some degrees at a micro-batch; whether any fits, or might.
    fn weigh_all(&mut self, room: &Room<'_>, degrees: Layout, micro_batch: Sequences, best: &mut Best) -> bool {
        let spread = Spread { gpus: room.gpus, nodes: room.nodes };
        let mut fits = false;
        // The last layouts that do nothing again, without and with sequence parallelism.
        let mut plain: [Option<(Layout, Fit)>; 2] = [None; 2];
        let mut units = Units::default();
        let mut never: Vec<Kept> = Vec::new();
        for execution in self.executions.of(room, degrees).iter() {
            // One list serves all numbers of ranks that share experts.
            let layout = Layout { execution: Execution { ep: degrees.execution.ep, ..*execution }, ..degrees };
            let Execution { vpp, schedule, recompute, sequence_parallel, .. } = layout.execution;
            let again = Layout { execution: Execution { recompute: Recompute::None, ..layout.execution }, ..layout };
            let sibling =
                plain[usize::from(sequence_parallel)].filter(|(other, _)| *other == again).map(|(_, fit)| fit);
            // Recomputing takes time, of which the exchange of gradients hides behind it less than all. Where it is not needed at any
            // batch, or would not help even if it cost nothing, it never wins.
            let needless = sibling == Some(Fit::Unknown) || (best.keep == 1 && sibling == Some(Fit::Always));
            let kept_by = Kept::by(&layout.execution);
            if (needless && self.learnt.factors.micro >= self.learnt.factors.step) || never.contains(&kept_by) {
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
        let line = self.terms_of(spread, layout, micro_batch, units).corrected(self.learnt.factors);
        if !best.may_hold(self.ceiling_of(line)) {
            return Fit::Unknown;
        }
        let multiple_of = quantum * interleaved(layout);
        let grid = match self.learnt.wanted {
            None => Rc::clone(self.grids.entry(multiple_of).or_insert_with(|| batch_grid(range, multiple_of).into())),
            Some(wanted) => wanted.grid(range, multiple_of, micro_batch).into(),
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
        if !always && !fits(smallest) {
            best.refuse(|| self.refusal(&at(smallest), smallest.0 / quantum));
            return Fit::Never;
        }
        let fitting = if always { grid.len() } else { grid.partition_point(|batch| fits(*batch)) };
        let grid = without_single_gradients(&grid[..fitting], range, layout, quantum);
        let straight = straight(layout);
        let slowed = self.ground.is_contradicted_at(layout, micro_batch);
        let likely = match self.learnt.wanted {
            Some(_) => grid[grid.len() - 1..].to_vec(),
            None if straight && !slowed => near(grid, self.learnt.worth.peak(line.intercept, line.slope)),
            None => grid.to_vec(),
        };
        for batch in likely {
            let seconds =
                if straight { line.at(batch.0 as f64) } else { self.exact(spread, &at(batch), batch.0 / quantum) };
            let seconds = if slowed {
                seconds * self.ground.slowdown(layout, spread.nodes, micro_batch, batch.0 / quantum)
            } else {
                seconds
            };
            let goodput = self.goodput(batch.0 as f64, seconds);
            best.admit(Rank::of(range, self.learnt.wanted, &at(batch), goodput), at(batch));
        }
        if always { Fit::Always } else { Fit::Sometimes }
    }

    pub(crate) fn fits(&self, configuration: &Configuration, micro_batches: u64) -> bool {
        self.memory.fits(configuration, micro_batches)
    }

    fn refusal(&self, configuration: &Configuration, micro_batches: u64) -> Infeasible {
        let refused = self.memory.check(&self.class.gpu_type, configuration, micro_batches).err();
        refused.expect("what does not fit has a reason")
    }

    /// Corrected seconds of a step.
    fn exact(&mut self, spread: Spread, configuration: &Configuration, micro_batches: u64) -> f64 {
        let time = self.prior.step_time(spread, configuration, micro_batches);
        let factors = self.learnt.factors;
        time.micro().0 * factors.micro + time.step().0 * factors.step + time.overhead.0 + factors.extra
    }
}

/// A batch of a single gradient ranks behind all others, whatever its goodput.
pub(crate) fn without_single_gradients(
    grid: &[Sequences],
    range: BatchRange,
    layout: Layout,
    quantum: u64,
) -> &[Sequences] {
    let single = grid.partition_point(|batch| u64::from(layout.dp) * (batch.0 / quantum) < 2);
    if range.min != range.max && single < grid.len() { &grid[single..] } else { grid }
}

/// Whether its time is a line over the batch. Breadth-first stages gather parameters once per step.
pub(crate) fn straight(layout: Layout) -> bool {
    let Execution { schedule, sharding, .. } = layout.execution;
    layout.pp == 1 || schedule != Schedule::BreadthFirst || sharding < Sharding::Gradients
}

#[cfg(test)]
#[path = "choice_tests.rs"]
mod tests;
