//! One micro-batch of some degrees in a search: its groups of executions, their times and batches, and whether they fit. Which of them are worth it,
//! and in which order, is `choice`'s business.

use std::sync::Arc;

use headway_types::spec::BatchRange;
use headway_types::{Configuration, Execution, Layout, Schedule, Sequences, Sharding};

use crate::batches::{interleaved, near};
use crate::choice::Search;
use crate::groups::{Group, Groups, LEAST, Order};
use crate::infeasible::{Cycle, Infeasible};
use crate::rank::{Best, Rank};
use crate::step_time::{Spread, StepTime};
use crate::terms::Terms;

/// At which of its batches a layout fits at a micro-batch.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fit {
    Never,
    Sometimes,
    Always,
    /// It was not looked at, since it could not win.
    Unknown,
}

/// Prior step times of a group in one chunk at a micro-batch: with one of them, which knows no schedule, and breadth first with as many as there can
/// be.
#[derive(Default)]
pub(crate) struct Units {
    one: Option<StepTime>,
    most: Option<StepTime>,
}

impl Search<'_> {
    /// Weighs all groups of some degrees at a micro-batch; whether any execution fits, or might.
    pub(crate) fn weigh_all(
        &mut self,
        spread: Spread,
        degrees: Layout,
        micro_batch: Sequences,
        among: &Groups,
        best: &mut Best,
    ) -> bool {
        let mut fits = false;
        let mut plain: (Option<&Group>, Vec<(Order, Fit)>) = (None, Vec::new());
        for group in &among.all {
            let kept = match plain.0 {
                Some(other) if group.repeats(other) => &plain.1[..],
                _ => &[],
            };
            let weighed = self.weigh_group(spread, degrees, micro_batch, (group, kept), best);
            fits |= weighed.iter().any(|(_, fit)| *fit != Fit::Never);
            if group.is_plain() {
                plain = (Some(group), weighed);
            }
        }
        fits
    }

    /// Weighs a group at a micro-batch, where it is known how those fit that keep what it does again.
    fn weigh_group(
        &mut self,
        spread: Spread,
        degrees: Layout,
        micro_batch: Sequences,
        (group, plain): (&Group, &[(Order, Fit)]),
        best: &mut Best,
    ) -> Vec<(Order, Fit)> {
        let mut weighed = Vec::with_capacity(group.orders.len());
        let (mut units, mut hopeless) = (Units::default(), [None; 2]);
        for &order in group.orders.iter() {
            // Recomputing takes time, of which the exchange of gradients hides behind it less than all. Where it is not needed at any
            // batch, or would not help even if it cost nothing, it never wins.
            let kept = plain.iter().find(|(other, _)| *other == order).map(|(_, fit)| *fit);
            let needless = kept == Some(Fit::Unknown) || (best.keep == 1 && kept == Some(Fit::Always));
            if needless && self.learnt.factors.micro >= self.learnt.factors.step {
                continue;
            }
            let layout = group.ordered(degrees, order);
            let beaten = *hopeless[usize::from(straight(layout))].get_or_insert_with(|| {
                let least = self.least_of(group, spread, layout, micro_batch);
                !best.may_hold(self.ceiling_of(least.corrected(self.learnt.factors)))
            });
            let fit = if beaten { Fit::Unknown } else { self.weigh(spread, layout, micro_batch, &mut units, best) };
            weighed.push((order, fit));
            // The others only keep more.
            if fit == Fit::Never && order == LEAST {
                break;
            }
        }
        weighed
    }

    /// Weighs a layout at a micro-batch; `units` are of its group.
    pub(crate) fn weigh(
        &mut self,
        spread: Spread,
        layout: Layout,
        micro_batch: Sequences,
        units: &mut Units,
        best: &mut Best,
    ) -> Fit {
        let range = self.model.training.batch;
        let quantum = layout.micro_batches() * micro_batch.0;
        let line = self.terms_of(spread, layout, micro_batch, units).corrected(self.learnt.factors);
        if !best.may_hold(self.ceiling_of(line)) {
            return Fit::Unknown;
        }
        let multiple_of = quantum * interleaved(layout);
        let grid: Arc<[Sequences]> = match self.learnt.wanted {
            None => self.known.grid(range, multiple_of),
            Some(wanted) => wanted.grid(range, multiple_of, micro_batch).into(),
        };
        let (Some(&smallest), Some(&largest)) = (grid.first(), grid.last()) else {
            let largest_micro_batch = self.largest_micro_batch();
            best.refuse(|| Infeasible::NoBatch { range, cycle: Cycle::of(layout), largest_micro_batch });
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
        let time = self.known.prior.step_time(spread, configuration, micro_batches);
        let factors = self.learnt.factors;
        time.micro().0 * factors.micro + time.step().0 * factors.step + time.overhead.0 + factors.extra
    }

    /// The time of a layout over its batch; of one whose time is no line, a line that it never falls below. `units` are of its group.
    pub(crate) fn terms_of(
        &mut self,
        spread: Spread,
        layout: Layout,
        micro_batch: Sequences,
        units: &mut Units,
    ) -> Terms {
        let (at, micro_batches) = self.in_one_chunk(layout, micro_batch);
        let unit = if micro_batches == 1 { &mut units.one } else { &mut units.most };
        let unit = *unit.get_or_insert_with(|| self.known.prior.step_time(spread, &at, micro_batches));
        let chunks = layout.execution.vpp;
        Terms::of(&in_chunks(unit, chunks, chunks), at.global_batch.0)
    }

    /// Terms that no execution of a group falls below that is as straight as this one of it: without what is paid once per step.
    fn least_of(&mut self, group: &Group, spread: Spread, layout: Layout, micro_batch: Sequences) -> Terms {
        let (at, micro_batches) = self.in_one_chunk(layout, micro_batch);
        let unit = self.known.prior.micro_time(spread, &at, micro_batches);
        Terms::of(&in_chunks(unit, 1, group.chunks()), at.global_batch.0)
    }

    /// One micro-batch of a layout, in one chunk, which knows no schedule; breadth first as many as there can be: the more of them share what is
    /// gathered, the less time one takes.
    fn in_one_chunk(&self, layout: Layout, micro_batch: Sequences) -> (Configuration, u64) {
        let quantum = layout.micro_batches() * micro_batch.0;
        let (micro_batches, schedule) = if straight(layout) {
            (1, LEAST.1)
        } else {
            ((self.model.training.batch.max.0 / quantum).max(1), layout.execution.schedule)
        };
        let layout = Layout { execution: Execution { vpp: LEAST.0, schedule, ..layout.execution }, ..layout };
        (Configuration { layout, micro_batch, global_batch: Sequences(micro_batches * quantum) }, micro_batches)
    }
}

/// Step time in one chunk as it is in several, which multiply the transfers and divide the bubble.
pub(crate) fn in_chunks(unit: StepTime, multiply: u32, divide: u32) -> StepTime {
    StepTime {
        pipeline_bubble: unit.pipeline_bubble * (1.0 / f64::from(divide)),
        pipeline_transfers: unit.pipeline_transfers * f64::from(multiply),
        ..unit
    }
}

/// A batch of a single gradient ranks behind all others, whatever its goodput.
pub(crate) fn without_single_gradients(
    grid: &[Sequences],
    range: BatchRange,
    layout: Layout,
    quantum: u64,
) -> &[Sequences] {
    let single = grid.partition_point(|batch| layout.micro_batches() * (batch.0 / quantum) < 2);
    if range.min != range.max && single < grid.len() { &grid[single..] } else { grid }
}

/// Whether its time is a line over the batch. Breadth-first stages gather parameters once per step.
pub(crate) fn straight(layout: Layout) -> bool {
    let Execution { schedule, sharding, .. } = layout.execution;
    layout.pp == 1 || schedule != Schedule::BreadthFirst || sharding < Sharding::Gradients
}
