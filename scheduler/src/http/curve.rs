//! What a job would make of other sizes on the present nodes. Asks the goodput model; holds no model of its own.

use std::collections::BTreeMap;

use headway_api::v1;
use headway_engine::record::Availability;
use headway_engine::view::View;
use headway_goodput::{JobModel, Offer};
use headway_types::spec::GpuRange;
use headway_types::{GpuCount, NodeClass, NodeCount};

/// Sizes shown at most; a reader sees no more on a chart.
const SIZES_AT_MOST: usize = 128;
/// Configurations shown beside the best.
const RUNNER_UPS: usize = 3;

/// Nodes of one class that can be had, and their healthy GPUs.
#[derive(Clone, Debug, PartialEq)]
pub struct Stock {
    pub class: NodeClass,
    pub nodes: NodeCount,
    pub gpus: GpuCount,
}

/// Present classes, the largest first.
pub fn stocks(view: &View) -> Vec<Stock> {
    let mut classes: BTreeMap<NodeClass, (NodeCount, GpuCount)> = BTreeMap::new();
    for node in view.nodes.values().filter(|node| node.node.availability == Availability::Available) {
        let (nodes, gpus) = classes.entry(node.node.inventory.class()).or_default();
        *nodes += NodeCount(1);
        *gpus += node.node.inventory.healthy();
    }
    let mut stocks: Vec<Stock> =
        classes.into_iter().map(|(class, (nodes, gpus))| Stock { class, nodes, gpus }).collect();
    stocks.sort_by(|a, b| b.gpus.cmp(&a.gpus).then_with(|| a.class.cmp(&b.class)));
    stocks
}

/// GPUs of an equal split of the cluster, within what the job accepts.
pub fn fair_share(view: &View, range: &GpuRange, jobs: usize) -> GpuCount {
    let total: u32 = stocks(view).iter().map(|stock| stock.gpus.0).sum();
    let share = GpuCount(total / (jobs.max(1) as u32));
    let allowed = (range.min.0..=range.max.0.min(share.0)).rev().map(GpuCount).find(|size| range.allows(*size));
    allowed.unwrap_or(range.min)
}

/// One point per size the job accepts and `stock` could hold. `fair` gives the speed-up its unit.
pub fn points(model: &JobModel, range: &GpuRange, stock: &Stock, fair: GpuCount, now: GpuCount) -> Vec<v1::CurvePoint> {
    let mut points: Vec<v1::CurvePoint> =
        sizes(range, stock).into_iter().map(|gpus| point(model, &stock.class, gpus, now)).collect();
    let unit = points.iter().rfind(|point| point.gpus <= fair.0 && point.infeasible.is_none()).or(points.first());
    let unit = unit.map_or(0.0, |point| point.goodput_tokens_per_second);
    for point in &mut points {
        point.speed_up = (unit > 0.0).then(|| point.goodput_tokens_per_second / unit);
    }
    points
}

/// Points of a job without a model: the sizes alone.
pub fn unmodelled(range: &GpuRange, stock: &Stock, now: GpuCount) -> Vec<v1::CurvePoint> {
    sizes(range, stock).into_iter().map(|gpus| bare(&stock.class, gpus, now)).collect()
}

/// Up to a node every allowed size, beyond it whole nodes.
fn sizes(range: &GpuRange, stock: &Stock) -> Vec<GpuCount> {
    let per_node = stock.class.gpus_per_node.0.max(1);
    let most = range.max.0.min(stock.gpus.0);
    let whole = |gpus: u32| gpus <= per_node || gpus.is_multiple_of(per_node);
    let all = (range.min.0.max(1)..=most).filter(|gpus| whole(*gpus) && range.allows(GpuCount(*gpus)));
    all.map(GpuCount).take(SIZES_AT_MOST).collect()
}

/// The best configurations at one size.
fn point(model: &JobModel, class: &NodeClass, gpus: GpuCount, now: GpuCount) -> v1::CurvePoint {
    let nodes = nodes(class, gpus);
    let empty = v1::CurvePoint { efficiency: 0.0, ..bare(class, gpus, now) };
    let offers = match model.ranked(class, gpus, nodes, 1 + RUNNER_UPS) {
        Ok(offers) => offers,
        Err(reason) => return v1::CurvePoint { infeasible: Some(reason.to_string()), ..empty },
    };
    let Some((best, others)) = offers.split_first() else { return empty };
    let band = model.band(class, gpus, nodes, best);
    v1::CurvePoint {
        configuration: best.configuration.as_ref().map(Into::into),
        throughput_tokens_per_second: best.prediction.throughput.0,
        efficiency: best.prediction.efficiency,
        goodput_tokens_per_second: best.prediction.goodput.0,
        step_time_seconds: best.configuration.map(|_| best.prediction.step_time.0),
        goodput_low_tokens_per_second: band.map(|(low, _)| low.0),
        goodput_high_tokens_per_second: band.map(|(_, high)| high.0),
        runner_ups: others.iter().filter_map(|other| runner_up(other, best)).collect(),
        ..empty
    }
}

fn runner_up(of: &Offer, best: &Offer) -> Option<v1::RunnerUp> {
    let (goodput, most) = (of.prediction.goodput.0, best.prediction.goodput.0);
    Some(v1::RunnerUp {
        configuration: of.configuration.as_ref()?.into(),
        goodput_tokens_per_second: goodput,
        relative_goodput: if most > 0.0 { goodput / most } else { 0.0 },
    })
}

/// The fewest nodes that hold so many GPUs.
fn nodes(class: &NodeClass, gpus: GpuCount) -> NodeCount {
    NodeCount(gpus.0.div_ceil(class.gpus_per_node.0.max(1)))
}

/// A size of which nothing is known.
fn bare(class: &NodeClass, gpus: GpuCount, now: GpuCount) -> v1::CurvePoint {
    v1::CurvePoint {
        gpus: gpus.0,
        nodes: nodes(class, gpus).0,
        configuration: None,
        throughput_tokens_per_second: 0.0,
        efficiency: 1.0,
        goodput_tokens_per_second: 0.0,
        step_time_seconds: None,
        speed_up: None,
        chosen: gpus == now,
        infeasible: None,
        goodput_low_tokens_per_second: None,
        goodput_high_tokens_per_second: None,
        runner_ups: Vec::new(),
    }
}
