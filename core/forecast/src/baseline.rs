//! The static rival: every live job an equal share of the GPUs, its reference batch, and never a change. Its layout is the best for
//! that share, so that the gain shown is that of co-adaptation and not of a badly tuned opponent.

use std::collections::BTreeMap;

use headway_goodput::{JobModel, Offer};
use headway_types::spec::{BatchRange, GpuRange};
use headway_types::{Configuration, GpuCount, JobId, NodeClass, NodeCount, TokensPerSecond};

/// Nodes of one class, all GPUs of which may be used.
#[derive(Clone, Debug, PartialEq)]
pub struct Stock {
    pub class: NodeClass,
    pub nodes: NodeCount,
}

/// A job that takes part in the split.
#[derive(Clone, Copy, Debug)]
pub struct SplitJob<'a> {
    pub job: JobId,
    pub model: &'a JobModel,
    pub range: &'a GpuRange,
}

/// What a static split is predicted to give one job.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Baseline {
    /// Zero: the split leaves it waiting.
    pub gpus: GpuCount,
    pub configuration: Option<Configuration>,
    pub goodput: TokensPerSecond,
}

impl Baseline {
    const WAITING: Baseline = Baseline { gpus: GpuCount(0), configuration: None, goodput: TokensPerSecond(0.0) };
}

/// Goodput over that of a static split.
#[derive(Clone, Debug, PartialEq)]
pub struct Gain {
    /// Present over baseline goodput, of jobs that the split would run.
    pub jobs: BTreeMap<JobId, f64>,
    /// Mean of these: comparable across models, as a sum of tokens would not be.
    pub mean: Option<f64>,
    /// Jobs that make progress now and would wait under the split.
    pub only_now: Vec<JobId>,
}

/// Splits all GPUs evenly among `jobs`, in the order of their ids, rounding down to what each accepts and what is possible. A job
/// whose smallest size is above the share gets that size while GPUs last.
#[must_use]
pub fn static_equal_split(stocks: &[Stock], jobs: &[SplitJob<'_>]) -> BTreeMap<JobId, Baseline> {
    let total: u32 = stocks.iter().map(|stock| stock.class.gpus_per_node.0 * stock.nodes.0).sum();
    let share = GpuCount(total / (jobs.len() as u32).max(1));
    let mut left: Vec<GpuCount> =
        stocks.iter().map(|stock| GpuCount(stock.class.gpus_per_node.0 * stock.nodes.0)).collect();
    let mut ordered: Vec<&SplitJob<'_>> = jobs.iter().collect();
    ordered.sort_by_key(|job| job.job);
    ordered.into_iter().map(|job| (job.job, take_share(stocks, &mut left, job, share))).collect()
}

/// Compares present goodput, measured or predicted, with a static split.
#[must_use]
pub fn gain(split: &BTreeMap<JobId, Baseline>, present: &BTreeMap<JobId, TokensPerSecond>) -> Gain {
    let mut jobs = BTreeMap::new();
    let mut only_now = Vec::new();
    for (job, baseline) in split {
        let now = present.get(job).map_or(0.0, |goodput| goodput.0);
        if baseline.goodput.0 > 0.0 {
            jobs.insert(*job, now / baseline.goodput.0);
        } else if now > 0.0 {
            only_now.push(*job);
        }
    }
    let mean = (!jobs.is_empty()).then(|| jobs.values().sum::<f64>() / jobs.len() as f64);
    Gain { jobs, mean, only_now }
}

fn take_share(stocks: &[Stock], left: &mut [GpuCount], job: &SplitJob<'_>, share: GpuCount) -> Baseline {
    let mut fixed = job.model.clone();
    let batch = fixed.training.reference_batch;
    fixed.training.batch = BatchRange { min: batch, max: batch };
    let wanted = share.max(job.range.min).min(job.range.max);
    // The class with most GPUs left first; equal ones in the order given.
    let mut classes: Vec<usize> = (0..stocks.len()).collect();
    classes.sort_by_key(|&index| core::cmp::Reverse(left[index]));
    for gpus in (job.range.min.0.max(1)..=wanted.0).rev().map(GpuCount).filter(|gpus| job.range.allows(*gpus)) {
        let roomy = |index: &&usize| left[**index] >= gpus && job.range.accepts(&stocks[**index].class.gpu_type);
        let offer = classes.iter().filter(roomy).find_map(|&index| Some((index, best(&fixed, &stocks[index], gpus)?)));
        if let Some((index, offer)) = offer {
            left[index] = left[index].saturating_sub(gpus);
            return Baseline { gpus, configuration: offer.configuration, goodput: offer.prediction.goodput };
        }
    }
    Baseline::WAITING
}

/// The best layout of a size on as few nodes as hold it.
fn best(model: &JobModel, stock: &Stock, gpus: GpuCount) -> Option<Offer> {
    let nodes = NodeCount(gpus.0.div_ceil(stock.class.gpus_per_node.0.max(1)));
    model.best(&stock.class, gpus, nodes).ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use headway_types::report::Capabilities;
    use headway_types::spec::{
        BatchPolicy, CheckpointPolicy, LayoutLimits, LrScaling, NoiseKind, Precision, Training, Work,
    };
    use headway_types::{EmulatedDevice, Fabric, GpuType, IdSource, ModelShape, Sequences, Timestamp};

    fn stock(nodes: u32) -> Stock {
        let device = EmulatedDevice { flop_per_second: 1_000_000_000, link_bytes_per_second: 4_000_000 };
        let class = NodeClass {
            gpu_type: GpuType("emulated".into()),
            gpus_per_node: GpuCount(4),
            emulated: Some(device),
            fabric: Fabric { domain: "rack1".into() },
            stated: None,
        };
        Stock { class, nodes: NodeCount(nodes) }
    }

    fn model(reference: u64) -> JobModel {
        let shape = ModelShape {
            layers: 4,
            hidden: 64,
            heads: 4,
            kv_heads: 4,
            ffn_hidden: 172,
            gated: true,
            vocab: 256,
            seq_len: 64,
            tied: false,
        };
        JobModel::new(Training {
            work: Work::Model(shape),
            precision: Precision::Fp32,
            reference_batch: Sequences(reference),
            batch: BatchRange { min: Sequences(8), max: Sequences(256) },
            batch_policy: BatchPolicy::default(),
            lr_scaling: LrScaling::Sqrt,
            target: None,
            layouts: LayoutLimits::degrees(vec![1], vec![1], Sequences(8)),
            checkpoint: CheckpointPolicy::default(),
            reconfigure: Capabilities::UNKNOWN_SCRIPT,
            kappa: 1.0,
            noise: NoiseKind::default(),
        })
    }

    fn range(min: u32, max: u32) -> GpuRange {
        GpuRange { min: GpuCount(min), max: GpuCount(max), sizes: vec![], types: vec![] }
    }

    fn ids(count: usize) -> Vec<JobId> {
        let mut source = IdSource::seeded(1);
        (0..count).map(|index| source.job(Timestamp(index as i64 * 1_000_000))).collect()
    }

    #[test]
    fn every_job_gets_its_share_at_its_reference_batch() {
        let (model, range, ids) = (model(16), range(1, 8), ids(2));
        let jobs: Vec<_> = ids.iter().map(|&job| SplitJob { job, model: &model, range: &range }).collect();
        let split = static_equal_split(&[stock(2)], &jobs);
        for baseline in split.values() {
            assert_eq!(baseline.gpus, GpuCount(4));
            assert_eq!(baseline.configuration.unwrap().global_batch, Sequences(16));
        }
    }

    #[test]
    fn a_share_that_does_not_divide_the_batch_is_rounded_down() {
        let (model, range, ids) = (model(16), range(1, 8), ids(1));
        let split = static_equal_split(
            &[Stock { nodes: NodeCount(1), class: NodeClass { gpus_per_node: GpuCount(3), ..stock(1).class } }],
            &[SplitJob { job: ids[0], model: &model, range: &range }],
        );
        assert_eq!(split[&ids[0]].gpus, GpuCount(2));
    }

    #[test]
    fn a_split_never_gives_more_than_there_is() {
        let (model, range, ids) = (model(16), range(4, 8), ids(3));
        let jobs: Vec<_> = ids.iter().map(|&job| SplitJob { job, model: &model, range: &range }).collect();
        let split = static_equal_split(&[stock(2)], &jobs);
        let sizes: Vec<u32> = split.values().map(|baseline| baseline.gpus.0).collect();
        assert_eq!(sizes, [4, 4, 0]);
    }

    #[test]
    fn gain_is_a_mean_of_ratios_and_names_who_would_wait() {
        let ids = ids(3);
        let running = Baseline { gpus: GpuCount(4), configuration: None, goodput: TokensPerSecond(100.0) };
        let split = BTreeMap::from([(ids[0], running), (ids[1], running), (ids[2], Baseline::WAITING)]);
        let present = BTreeMap::from([(ids[0], TokensPerSecond(300.0)), (ids[2], TokensPerSecond(50.0))]);
        let gain = gain(&split, &present);
        assert_eq!(gain.mean, Some(1.5));
        assert_eq!(gain.jobs[&ids[1]], 0.0);
        assert_eq!(gain.only_now, [ids[2]]);
    }
}
