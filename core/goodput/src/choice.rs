//! The best configurations of one allocation, found by branch and bound: layouts and micro-batches in the order of what they could bring
//! at most, until the rest cannot beat what is found. Exact over the grid of batches; what it keeps from allocation to allocation
//! (`known`) only saves time. What stays true while reports teach more is in `shortlist`.

use std::sync::Arc;

use headway_types::{
    Configuration, Execution, GpuCount, Layout, ModelShape, NodeClass, NodeCount, Prediction, Sequences,
};

use crate::batches::Wanted;
use crate::correction::Factors;
use crate::efficiency::Worth;
use crate::fitting::Fitting;
use crate::ground::Ground;
use crate::groups::{Group, Groups, Least};
use crate::infeasible::{Cycle, Infeasible};
use crate::known::Known;
use crate::layouts::Room;
use crate::model::JobModel;
use crate::rank::{Best, Rank};
use crate::step_time::Spread;
use crate::terms::{Line, Terms};
use crate::weigh::{Fit, Units, in_chunks};

/// More than a need in MiB is rounded by.
const ROUNDED: f64 = 1.001;

/// A configuration with what it brings.
pub(crate) type Choice = (Configuration, Prediction);

/// A search over one class: its device, and what layers take there, are found once.
pub(crate) struct Search<'a> {
    pub model: &'a JobModel,
    pub class: &'a NodeClass,
    pub shape: &'a ModelShape,
    pub known: &'a mut Known,
    pub memory: Fitting<'a>,
    pub learnt: Learnt,
    pub ground: Ground,
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

type ByMicroBatch = Vec<(Sequences, Arc<Groups>)>;

/// One micro-batch size of some degrees, and the most any execution of them could bring.
struct Frame {
    ceiling: f64,
    degrees: usize,
    micro_batch: Sequences,
    among: Arc<Groups>,
}

impl<'a> Search<'a> {
    /// A search for the configurations of a model on a class; `known` is of the model's training there.
    pub(crate) fn new(model: &'a JobModel, class: &'a NodeClass, known: &'a mut Known) -> Result<Self, Infeasible> {
        Self::with(model, class, known, Learnt::of(model, class))
    }

    /// The same where it is known what the model has learnt.
    pub(crate) fn with(
        model: &'a JobModel,
        class: &'a NodeClass,
        known: &'a mut Known,
        learnt: Learnt,
    ) -> Result<Self, Infeasible> {
        let Some(shape) = model.shape() else { return Err(Infeasible::Opaque) };
        let memory = model.fitting(class, known.prior.device()).ok_or(Infeasible::Opaque)?;
        Ok(Self { model, class, shape, known, memory, learnt, ground: model.ground(class) })
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
        if self.memory.tolerates() {
            return self.weighed_among(gpus, nodes, keep, Self::barely_fitting);
        }
        self.known.follow(&self.memory);
        let best = self.weighed_among(gpus, nodes, keep, Self::fitting);
        if best.found.is_empty() { self.refused(gpus, nodes) } else { best }
    }

    /// Where nothing fits: what needs least, which is of each layout the smallest micro-batch.
    fn refused(&mut self, gpus: GpuCount, nodes: NodeCount) -> Best {
        let (room, mut best) = (self.room(gpus, nodes), Best::new(1));
        for degrees in room.degrees() {
            let all = self.known.executions(&room, degrees);
            self.weigh_all(Spread { gpus, nodes }, degrees, Sequences(1), &all, &mut best);
        }
        best
    }

    /// Executions of degrees that may fit, by micro-batch.
    fn fitting(&mut self, room: &Room<'_>, degrees: Layout) -> ByMicroBatch {
        let (micro_batches, range) = (self.micro_batches(), self.model.training.batch);
        self.known.may_fit(room, &self.memory, degrees, micro_batches, range)
    }

    /// The same where hardly any does.
    fn barely_fitting(&mut self, room: &Room<'_>, degrees: Layout) -> ByMicroBatch {
        let (all, range) = (self.known.executions(room, degrees), self.model.training.batch);
        let may_fit = |group: &&Group, micro_batch: Sequences| {
            let (at, count) = group.smallest(degrees, micro_batch, range);
            self.fits(&at, count)
        };
        let each = self.micro_batches().map(|micro_batch| {
            let may = all.all.iter().filter(|group| may_fit(group, micro_batch)).cloned();
            (micro_batch, Arc::new(Groups::from(may.collect::<Vec<_>>())))
        });
        // Memory only grows with the micro-batch.
        each.take_while(|(_, may)| !may.is_empty()).collect()
    }

    fn weighed_among(
        &mut self,
        gpus: GpuCount,
        nodes: NodeCount,
        keep: usize,
        among: impl Fn(&mut Self, &Room<'_>, Layout) -> ByMicroBatch,
    ) -> Best {
        let room = self.room(gpus, nodes);
        let degrees = room.degrees();
        let spread = Spread { gpus, nodes };
        let mut frames = Vec::with_capacity(4 * degrees.len());
        for (index, layout) in degrees.iter().enumerate() {
            for (micro_batch, among) in among(self, &room, *layout) {
                let ceiling = self.ceiling(&room, *layout, micro_batch, &among);
                frames.push(Frame { ceiling, degrees: index, micro_batch, among });
            }
        }
        frames.sort_by(|left, right| {
            let order = (left.degrees, left.micro_batch).cmp(&(right.degrees, right.micro_batch));
            right.ceiling.total_cmp(&left.ceiling).then(order)
        });
        let mut best = Best::new(keep);
        // Memory only grows with the micro-batch: above one that fits in no way, none does.
        let mut largest = vec![Sequences(u64::MAX); degrees.len()];
        for Frame { ceiling, degrees: index, micro_batch, among } in frames {
            if !best.may_hold(ceiling) {
                break;
            }
            if micro_batch > largest[index] {
                continue;
            }
            if !self.weigh_all(spread, degrees[index], micro_batch, &among, &mut best) {
                largest[index] = micro_batch;
            }
        }
        best
    }

    pub(crate) fn room(&self, gpus: GpuCount, nodes: NodeCount) -> Room<'a> {
        let (limits, lead) = (&self.model.training.layouts, self.known.lead);
        Room { shape: self.shape, limits, class: self.class, gpus, nodes, lead }
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
            let smallest = Configuration { layout, micro_batch, global_batch: Sequences(layout.micro_batches()) };
            return Err(Infeasible::WrongSize { configuration: smallest, gpus });
        }
        self.model.check_layout(self.class, gpus, nodes, layout)?;
        self.learnt.wanted = self.learnt.wanted_of_a_layout;
        let best = self.fitting_or_nearly(|search| search.weighed_of(Spread { gpus, nodes }, layout, present));
        let (range, largest_micro_batch) = (self.model.training.batch, self.largest_micro_batch());
        let nothing = Infeasible::NoBatch { range, cycle: Cycle::of(layout), largest_micro_batch };
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

    pub(crate) fn largest_micro_batch(&self) -> u64 {
        self.model.training.layouts.max_micro_batch.0.max(1)
    }

    pub(crate) fn micro_batches(&self) -> impl Iterator<Item = Sequences> + use<> {
        (0..=self.largest_micro_batch().ilog2()).map(|power| Sequences(1 << power))
    }

    fn ceiling(&mut self, room: &Room<'_>, degrees: Layout, micro_batch: Sequences, among: &Groups) -> f64 {
        let least = self.least_terms(room, degrees, micro_batch, among);
        let of = |terms: Terms| self.ceiling_of(terms.corrected(self.learnt.factors));
        least.into_iter().flatten().map(of).fold(f64::NEG_INFINITY, f64::max)
    }

    /// Terms that none of these groups of some degrees falls below at this micro-batch, without and with sequence parallelism. Every part
    /// is at its least: no more recomputation and sharding than all need, the bubble at the most chunks, and where there is any choice nothing
    /// that is paid once per step.
    pub(crate) fn least_terms(
        &mut self,
        room: &Room<'_>,
        degrees: Layout,
        micro_batch: Sequences,
        among: &Groups,
    ) -> [Option<Terms>; 2] {
        let spread = Spread { gpus: room.gpus, nodes: room.nodes };
        let (_, _, limits) = room.limits();
        let Execution { cp, ep, shares, .. } = degrees.execution;
        let plain = Execution { cp, ep, shares, ..Execution::PLAIN };
        let choices = [limits.sharding.len(), limits.recompute.len(), limits.offload.len()];
        let varied = choices.iter().any(|count| *count > 1) || degrees.execution != plain;
        [false, true].map(|sequence_parallel| {
            let Least { recompute, sharding } = among.least[usize::from(sequence_parallel)]?;
            let execution = Execution { sequence_parallel, recompute, sharding, ..plain };
            let layout = Layout { execution, ..degrees };
            let quantum = degrees.micro_batches() * micro_batch.0;
            let once = Configuration { layout, micro_batch, global_batch: Sequences(quantum) };
            let prior = &mut self.known.prior;
            let unit = if varied { prior.micro_time(spread, &once, 1) } else { prior.step_time(spread, &once, 1) };
            Some(Terms::of(&in_chunks(unit, 1, among.chunks), quantum))
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
}

#[cfg(test)]
#[path = "choice_tests.rs"]
mod tests;
