//! What a single job could train in: the true step time of every layout, micro-batch and batch that its script takes and that fits.

use std::collections::BTreeMap;

use headway_emulation::step::StepTruth;
use headway_emulation::{Nature, Seed};
use headway_goodput::catalog::Device;
use headway_goodput::step_time::Spread;
use headway_types::spec::{BatchRange, LayoutLimits, Precision};
use headway_types::{Configuration, Execution, GpuType, Layout, ModelShape, Sequences};

/// Batches with their step times, ascending.
pub type Times = Vec<(u64, f64)>;

/// A layout with one micro-batch.
#[derive(Clone, Debug, PartialEq)]
pub struct Way {
    pub layout: Layout,
    pub micro_batch: Sequences,
    pub times: Times,
}

/// All of them.
#[derive(Clone, Debug, PartialEq)]
pub struct Options(Vec<Way>);

/// Where a job trains.
#[derive(Clone, Copy, Debug)]
pub struct Site<'a> {
    pub shape: &'a ModelShape,
    pub gpu_type: &'a GpuType,
    pub device: &'a Device,
    pub spread: Spread,
}

impl Options {
    /// By the truth that the workers of a job of this name follow.
    #[must_use]
    pub fn new(
        site: Site<'_>,
        nature: &Nature,
        seed: u64,
        job: &str,
        limits: &LayoutLimits,
        batch: BatchRange,
    ) -> Self {
        let seed = Seed(seed);
        let truth = StepTruth::hidden(seed, nature, seed.about(job.as_bytes()), site.shape, site.gpu_type);
        let mut ways = Vec::new();
        for layout in layouts(site, limits) {
            let mut micro = 1;
            while micro <= limits.max_micro_batch.0 {
                let way = way(site, &truth, layout, Sequences(micro), batch);
                ways.extend(way.filter(|way| !way.times.is_empty()));
                micro *= 2;
            }
        }
        Self(ways)
    }

    #[must_use]
    pub fn ways(&self) -> &[Way] {
        &self.0
    }

    /// The fastest way for each batch, with its step time.
    #[must_use]
    pub fn fastest(&self) -> BTreeMap<u64, (f64, &Way)> {
        let mut fastest: BTreeMap<u64, (f64, &Way)> = BTreeMap::new();
        for way in &self.0 {
            for (batch, time) in &way.times {
                let best = fastest.entry(*batch).or_insert((*time, way));
                if *time < best.0 {
                    *best = (*time, way);
                }
            }
        }
        fastest
    }

    /// The least step time of each batch.
    #[must_use]
    pub fn times(&self) -> Times {
        self.fastest().into_iter().map(|(batch, (time, _))| (batch, time)).collect()
    }

    /// The same within each layout, whatever its micro-batch.
    #[must_use]
    pub fn by_layout(&self) -> BTreeMap<Layout, Times> {
        let mut layouts: BTreeMap<Layout, BTreeMap<u64, f64>> = BTreeMap::new();
        for way in &self.0 {
            let times = layouts.entry(way.layout).or_default();
            for (batch, time) in &way.times {
                let best = times.entry(*batch).or_insert(*time);
                *best = best.min(*time);
            }
        }
        layouts.into_iter().map(|(layout, times)| (layout, times.into_iter().collect())).collect()
    }
}

/// The layouts of a script on all GPUs of its nodes.
fn layouts(site: Site<'_>, limits: &LayoutLimits) -> Vec<Layout> {
    let ModelShape { layers, heads, kv_heads, .. } = *site.shape;
    let gpus = site.spread.gpus.0;
    let per_node = gpus / site.spread.nodes.0.max(1);
    let splits = |tp: u32| heads.is_multiple_of(tp) && kv_heads.is_multiple_of(tp) && per_node.is_multiple_of(tp);
    let mut layouts = Vec::new();
    for tp in limits.tp.iter().copied().filter(|tp| splits(*tp)) {
        for pp in limits.pp.iter().copied().filter(|pp| layers.is_multiple_of(*pp) && gpus.is_multiple_of(tp * pp)) {
            for sharding in &limits.execution.sharding {
                for recompute in &limits.execution.recompute {
                    let execution = Execution { sharding: *sharding, recompute: *recompute, ..Execution::PLAIN };
                    layouts.push(Layout { dp: gpus / (tp * pp), tp, pp, execution });
                }
            }
        }
    }
    layouts
}

fn way(site: Site<'_>, truth: &StepTruth, layout: Layout, micro_batch: Sequences, range: BatchRange) -> Option<Way> {
    let quantum = layout.micro_batches() * micro_batch.0;
    let mut times = Times::new();
    let mut batch = range.min.0.div_ceil(quantum) * quantum;
    while batch <= range.max.0 {
        let at = Configuration { layout, micro_batch, global_batch: Sequences(batch) };
        // More micro-batches never need less memory.
        if truth.memory(site.shape, Precision::Bf16, site.device, &at)?.1 {
            break;
        }
        let time = truth.step_time(site.shape, Precision::Bf16, site.device, site.spread, 0.0, &at)?;
        times.push((batch, time.0));
        batch += quantum;
    }
    Some(Way { layout, micro_batch, times })
}
