//! What one search of a training on a class finds that the next may use, whatever its allocation: what layers take, batches by what they are
//! multiples of, and which executions may fit. It decides nothing: a search without it finds the same.

use std::collections::BTreeMap;
use std::sync::Arc;

use headway_types::spec::BatchRange;
use headway_types::{Execution, Layout, Sequences};

use crate::batches::batch_grid;
use crate::fitting::Fitting;
use crate::groups::{Group, Groups, MOST};
use crate::layouts::{Lead, Room, is_alone};
use crate::peaks::PeakBounds;
use crate::step_time::PriorTimes;

/// How far the logarithms of what peaks teach may move before it is asked anew what may fit. It is also what keeps more replicas from seeming to
/// need more: the fullest stage is found before peaks correct it, and another may be the fullest then.
const SLACK: f64 = 0.03;

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    pub prior: PriorTimes,
    /// How many times as fast as the slower nodes of a gang over two classes the faster ones are, at least and at most; 1 of any other.
    pub lead: Lead,
    /// Of the training's range.
    grids: BTreeMap<u64, Arc<[Sequences]>>,
    listed: BTreeMap<ListKey, Listed>,
    sieves: BTreeMap<SieveKey, Vec<Sieve>>,
    /// What is sieved holds within these.
    within: Option<PeakBounds>,
}

/// All that executions of degrees depend on where nothing is said of single sizes: pp, cp, and whether there is tensor parallelism, a replica
/// is alone and shares are even.
type ListKey = (u32, u32, bool, bool, bool);

/// tp, pp, cp and ep, packed, since they are looked up for every size; and whether a replica is alone and shares are even, which without pipelines
/// changes no need of memory.
type SieveKey = (u128, bool, bool);

const _: () = assert!(MOST <= u128::BITS as usize, "each group has a bit");

/// Executions of degrees, and the parts of them that have been asked for, by which groups they have.
#[derive(Clone, Debug)]
struct Listed {
    all: Arc<Groups>,
    parts: Vec<(u128, Arc<Groups>)>,
}

/// For each group of degrees, the power of two of replicas from which on it may fit at a micro-batch: more of them only shard more, and take fewer
/// micro-batches each.
#[derive(Clone, Debug)]
struct Sieve {
    micro_batch: Sequences,
    from: Box<[u8]>,
}

/// Of groups that fit no number of replicas.
const NEVER: u8 = u8::MAX;

impl Known {
    pub fn new(mut prior: PriorTimes) -> Self {
        let (grids, listed, sieves) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { lead: prior.lead(), prior, grids, listed, sieves, within: None }
    }

    /// Batches of the range to try, multiples of `quantum`.
    pub fn grid(&mut self, range: BatchRange, quantum: u64) -> Arc<[Sequences]> {
        Arc::clone(self.grids.entry(quantum).or_insert_with(|| batch_grid(range, quantum).into()))
    }

    /// As [`Room::executions`] lists them, which is asked once for all sizes that are alike. One list serves all numbers of ranks that
    /// share experts.
    pub fn executions(&mut self, room: &Room<'_>, degrees: Layout) -> Arc<Groups> {
        if !room.limits.sizes.is_empty() {
            return Arc::new(list(room, degrees));
        }
        Arc::clone(&listed(&mut self.listed, room, degrees).all)
    }

    /// Forgets what was sieved where peaks have taught too much since.
    pub fn follow(&mut self, memory: &Fitting<'_>) {
        if !self.within.as_ref().is_some_and(|within| memory.is_within(within)) {
            self.within = memory.bounds(SLACK);
            self.sieves.clear();
            self.listed.values_mut().for_each(|listed| listed.parts.clear());
        }
    }

    /// Those that may fit at each micro-batch, as long as there are any; all where nobody can say so for more than one report.
    pub fn may_fit(
        &mut self,
        room: &Room<'_>,
        memory: &Fitting<'_>,
        degrees: Layout,
        micro_batches: impl Iterator<Item = Sequences>,
        range: BatchRange,
    ) -> Vec<(Sequences, Arc<Groups>)> {
        let Some(within) = self.within.filter(|_| room.limits.sizes.is_empty()) else {
            let all = self.executions(room, degrees);
            return micro_batches.map(|micro_batch| (micro_batch, Arc::clone(&all))).collect();
        };
        let Execution { cp, ep, shares, .. } = degrees.execution;
        let packed = [degrees.tp, degrees.pp, cp, ep].into_iter().fold(0, |packed, it| packed << 32 | u128::from(it));
        let key = (packed, is_alone(&degrees), shares.are_even());
        if !self.sieves.contains_key(&key) {
            let all = self.executions(room, degrees);
            self.sieves.insert(key, Sieve::each(&all, memory, degrees, micro_batches, range, &within));
        }
        let (sieves, listed) = (self.sieves.get(&key).into_iter().flatten(), listed(&mut self.listed, room, degrees));
        let replicas = degrees.dp.ilog2();
        let each = sieves.map(|sieve| (sieve.micro_batch, listed.part(sieve.at(replicas))));
        each.take_while(|(_, may)| !may.is_empty()).collect()
    }
}

fn listed<'l>(known: &'l mut BTreeMap<ListKey, Listed>, room: &Room<'_>, degrees: Layout) -> &'l mut Listed {
    let Execution { cp, shares, .. } = degrees.execution;
    let key = (degrees.pp, cp, degrees.tp == 1, is_alone(&degrees), shares.are_even());
    known.entry(key).or_insert_with(|| Listed { all: Arc::new(list(room, degrees)), parts: Vec::new() })
}

fn list(room: &Room<'_>, degrees: Layout) -> Groups {
    Groups::of(room.executions(degrees).map(|layout| layout.execution))
}

impl Listed {
    /// The groups whose bits are set.
    fn part(&mut self, bits: u128) -> Arc<Groups> {
        if let Some((_, part)) = self.parts.iter().find(|(other, _)| *other == bits) {
            return Arc::clone(part);
        }
        let within = self.all.all.iter().enumerate().filter(|(index, _)| bits >> index & 1 == 1);
        let part = Arc::new(Groups::from(within.map(|(_, group)| group.clone()).collect::<Vec<_>>()));
        self.parts.push((bits, Arc::clone(&part)));
        part
    }
}

impl Sieve {
    /// One for each micro-batch at which anything may fit. Memory only grows with it.
    fn each(
        groups: &Groups,
        memory: &Fitting<'_>,
        degrees: Layout,
        micro_batches: impl Iterator<Item = Sequences>,
        range: BatchRange,
        within: &PeakBounds,
    ) -> Vec<Self> {
        let alone = is_alone(&degrees);
        let mut from: Box<[u8]> = groups.all.iter().map(|_| 0).collect();
        let mut sieves = Vec::new();
        for micro_batch in micro_batches {
            let may_fit = |group: &Group, doublings: u8| {
                let dp = if alone { 1 } else { (2 << doublings) - 1 };
                let (at, count) = group.smallest(Layout { dp, ..degrees }, micro_batch, range);
                memory.may_fit(&at, count, within)
            };
            let most = (range.max.0 / micro_batch.0).max(1).ilog2().min(u32::BITS - 2) as u8;
            let most = if alone { 0 } else { most };
            for (group, from) in groups.all.iter().zip(&mut from) {
                *from = first_that_holds(*from, most, |doublings| may_fit(group, doublings)).unwrap_or(NEVER);
            }
            if from.iter().all(|from| *from == NEVER) {
                break;
            }
            sieves.push(Self { micro_batch, from: from.clone() });
        }
        sieves
    }

    /// Bits of the groups that may fit so many replicas.
    fn at(&self, doublings: u32) -> u128 {
        let reached = self.from.iter().enumerate().filter(|(_, from)| u32::from(**from) <= doublings);
        reached.fold(0, |bits, (index, _)| bits | 1 << index)
    }
}

/// The least number in a range from which on something holds.
fn first_that_holds(mut from: u8, to: u8, holds: impl Fn(u8) -> bool) -> Option<u8> {
    if from > to || !holds(to) {
        return None;
    }
    if holds(from) {
        return Some(from);
    }
    let mut known = to;
    while from < known {
        let middle = from + (known - from) / 2;
        if holds(middle) {
            known = middle;
        } else {
            from = middle + 1;
        }
    }
    Some(known)
}
