//! Executions of some degrees in groups that differ only in chunks and schedule: at a micro-batch these take the same for each micro-batch and keep
//! the same of it, and only have more or fewer of them in flight.

use std::sync::Arc;

use headway_types::spec::BatchRange;
use headway_types::{Configuration, Execution, Layout, Offload, Recompute, Schedule, Sequences, Sharding};
use strum::VariantArray;

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    /// With one chunk and the schedule that keeps least, whether or not the script offers these; of any number of ranks that share experts, and of any
    /// uneven shares.
    plainest: Execution,
    /// Chunks with schedules, the plainest first.
    pub orders: Arc<[Order]>,
}

/// Chunks of a stage, and in which order a stage goes through them.
pub(crate) type Order = (u32, Schedule);

/// Of one whole stage that holds as few micro-batches as there can be.
pub(crate) const LEAST: Order = (1, Schedule::OneForwardOneBackward);

impl Group {
    /// The layout of some degrees that takes and needs least.
    pub fn least(&self, degrees: Layout) -> Layout {
        self.ordered(degrees, LEAST)
    }

    pub fn ordered(&self, degrees: Layout, (vpp, schedule): Order) -> Layout {
        let Execution { ep, shares, .. } = degrees.execution;
        Layout { execution: Execution { vpp, schedule, ep, shares, ..self.plainest }, ..degrees }
    }

    /// The configuration at a micro-batch that needs least, and its micro-batches: as few as the range allows. Its batch may be beyond the range, where
    /// one micro-batch of each replica is.
    pub fn smallest(&self, degrees: Layout, micro_batch: Sequences, range: BatchRange) -> (Configuration, u64) {
        let quantum = degrees.micro_batches() * micro_batch.0;
        let count = range.min.0.div_ceil(quantum).max(1);
        let (layout, global_batch) = (self.least(degrees), Sequences(count * quantum));
        (Configuration { layout, micro_batch, global_batch }, count)
    }

    pub fn chunks(&self) -> u32 {
        self.orders.iter().map(|(vpp, _)| *vpp).max().unwrap_or(1)
    }

    pub fn is_plain(&self) -> bool {
        self.plainest.recompute == Recompute::None
    }

    /// What it takes no less time than: selective recomputation may cost nothing.
    fn recompute(&self) -> Recompute {
        if self.plainest.recompute == Recompute::Full { Recompute::Full } else { Recompute::None }
    }

    /// The same of sharding: breadth first, parameters are gathered as rarely as there are few micro-batches.
    fn sharding(&self) -> Sharding {
        let rarely = self.orders.iter().any(|(_, schedule)| *schedule == Schedule::BreadthFirst);
        if rarely || self.plainest.sharding < Sharding::Gradients { Sharding::None } else { self.plainest.sharding }
    }

    /// Whether it does again what another keeps, and is the same otherwise.
    pub fn repeats(&self, other: &Group) -> bool {
        !self.is_plain() && other.plainest == Execution { recompute: Recompute::None, ..self.plainest }
    }
}

/// Groups that there can be.
pub(crate) const MOST: usize = 2 * Offload::VARIANTS.len() * Sharding::VARIANTS.len() * Recompute::VARIANTS.len();

/// Groups of some degrees, [`MOST`] at most; those that recompute follow the one that does not.
#[derive(Debug)]
pub(crate) struct Groups {
    pub all: Vec<Group>,
    /// The most chunks of a stage.
    pub chunks: u32,
    /// Without and with sequence parallelism; `None` where no group is so.
    pub least: [Option<Least>; 2],
}

/// What no group of some does less of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Least {
    pub recompute: Recompute,
    pub sharding: Sharding,
}

impl Groups {
    pub fn of(executions: impl Iterator<Item = Execution>) -> Self {
        let mut found: Vec<(Execution, Vec<Order>)> = Vec::new();
        for execution in executions {
            let plainest = Execution { vpp: LEAST.0, schedule: LEAST.1, ..execution };
            let order = (execution.vpp, execution.schedule);
            match found.iter_mut().find(|(other, _)| *other == plainest) {
                Some((_, orders)) => orders.push(order),
                None => found.push((plainest, vec![order])),
            }
        }
        found.sort_by_key(|(it, _)| (it.offload, it.sharding, it.sequence_parallel, it.recompute));
        Self::from(
            found.into_iter().map(|(plainest, orders)| Group { plainest, orders: orders.into() }).collect::<Vec<_>>(),
        )
    }

    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }
}

impl From<Vec<Group>> for Groups {
    fn from(all: Vec<Group>) -> Self {
        let chunks = all.iter().map(Group::chunks).max().unwrap_or(1);
        let least = [false, true].map(|sequence_parallel| {
            let alike = || all.iter().filter(|group| group.plainest.sequence_parallel == sequence_parallel);
            Some(Least {
                recompute: alike().map(|group| group.recompute()).min()?,
                sharding: alike().map(|group| group.sharding()).min()?,
            })
        });
        Self { all, chunks, least }
    }
}
