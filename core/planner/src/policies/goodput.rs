//! Ours: the work done, weighted by how much hangs on each job, with the cost of moves (docs/planner.md). Candidates are made
//! with this worth.

use std::collections::BTreeMap;

use headway_types::GpuCount;

use super::Approach;
use crate::candidate::{Candidate, Options};
use crate::round::Round;
use crate::value;

pub(super) struct Goodput;

impl Approach for Goodput {
    /// Withdraws sizes whose further GPUs bring too little, but what the job holds, is owed, or needs for its deadline.
    fn appraise(&self, round: &Round<'_>, options: &mut Options<'_>) {
        let returns = returns_too_small(round, options, round.input.policy.min_return);
        if returns.is_empty() {
            return;
        }
        let job = options.job;
        let held = job.current.as_ref().map_or(GpuCount(0), |current| current.placement.gpus());
        let too_small = |one: &Candidate| one.shape.and_then(|shape| returns.get(&(shape.class, one.gpus)));
        let in_time = |one: &Candidate| value::in_time(job, round.input.now, one.cost, one.prediction.goodput);
        let late = !options.candidates.iter().any(|one| too_small(one).is_none() && in_time(one) == Some(true));
        let keep = |one: &Candidate| {
            let needed = one.gpus <= job.claim.floor || one.gpus == held || (late && in_time(one) == Some(true));
            too_small(one).is_none() || needed
        };
        let spared = options.candidates.iter().filter(|one| one.gpus > held && !keep(one));
        options.spared = spared.filter_map(|one| Some((one.gpus, *too_small(one)?))).min_by_key(|(gpus, _)| *gpus);
        options.candidates.retain(keep);
    }
}

/// Of sizes in a class that bring less than `least` per GPU beyond the last that does not: what each brings, as a share of
/// what one GPU brings where they bring most.
fn returns_too_small(round: &Round<'_>, options: &Options<'_>, least: f64) -> BTreeMap<(usize, GpuCount), f64> {
    let mut goodputs: BTreeMap<usize, BTreeMap<GpuCount, f64>> = BTreeMap::new();
    for one in options.candidates.iter().filter(|one| one.prediction.goodput.0 > 0.0) {
        if let Some(shape) = one.shape {
            let best = goodputs.entry(shape.class).or_default().entry(one.gpus).or_default();
            *best = best.max(one.prediction.goodput.0);
        }
    }
    let mut returns = BTreeMap::new();
    for (&class, own) in &goodputs {
        // Nodes of two classes are held against what either brings alone.
        let mut sizes = own.clone();
        for (gpus, goodput) in round.cluster.members(class).iter().filter_map(|of| goodputs.get(of)).flatten() {
            let best = sizes.entry(*gpus).or_default();
            *best = best.max(*goodput);
        }
        let most = sizes.iter().map(|(gpus, goodput)| goodput / f64::from(gpus.0)).fold(0.0, f64::max);
        let mut last: Option<(GpuCount, f64)> = None;
        for (gpus, goodput) in sizes {
            let each = last.map(|(had, before)| (goodput - before) / f64::from(gpus.0 - had.0) / most);
            match each.filter(|each| *each < least) {
                Some(each) if own.contains_key(&gpus) => {
                    returns.insert((class, gpus), each);
                }
                Some(_) => {}
                None => last = Some((gpus, goodput)),
            }
        }
    }
    returns
}
