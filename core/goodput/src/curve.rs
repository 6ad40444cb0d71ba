//! Goodput curves: for each allocation the best configuration, or why there is none. The search is exact over its grid and
//! keeps no memory.

use headway_types::spec::{BatchRange, GpuRange};
use headway_types::{
    Configuration, GpuCount, Layout, ModelShape, NodeClass, NodeCount, Prediction, Sequences, TokensPerSecond,
};
use serde::{Deserialize, Serialize};

use crate::catalog::{self, Device};
use crate::infeasible::Infeasible;
use crate::model::JobModel;
use crate::step_time::{PriorTimes, Spread};

/// Steps of the batch grid: two per doubling. Goodput is flat at its optimum, and few distinct batches mean few changes.
const GRID: f64 = core::f64::consts::SQRT_2;

/// The best that an allocation offers.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Offer {
    /// `None` where the goodput was measured by the user and the script chooses.
    pub configuration: Option<Configuration>,
    /// Its `speed_up` is 0: the planner knows the fair share.
    pub prediction: Prediction,
}

/// Goodput of one job over the sizes of one node class.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Curve {
    pub class: NodeClass,
    /// Ascending by GPUs.
    pub points: Vec<CurvePoint>,
}

/// One size of a curve.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CurvePoint {
    pub gpus: GpuCount,
    pub nodes: NodeCount,
    pub offer: Result<Offer, Infeasible>,
    /// Goodput gained per GPU over the next smaller feasible size (over nothing at the first).
    pub marginal: Option<TokensPerSecond>,
}

impl JobModel {
    /// The curve over all sizes `range` allows, each on as few nodes as hold it.
    #[must_use]
    pub fn curve(&self, class: &NodeClass, range: &GpuRange) -> Curve {
        let per_node = class.gpus_per_node.0.max(1);
        let sizes = (range.min.0.max(1)..=range.max.0).map(GpuCount).filter(|gpus| range.allows(*gpus));
        let mut below = (GpuCount(0), TokensPerSecond(0.0));
        let mut search = Search::new(self, class);
        let points = sizes
            .map(|gpus| {
                let nodes = NodeCount(gpus.0.div_ceil(per_node));
                let offer = search.best(gpus, nodes);
                let marginal = offer.as_ref().ok().map(|offer| {
                    let goodput = offer.prediction.goodput;
                    let gain = (goodput - below.1) * (1.0 / f64::from(gpus.0 - below.0.0));
                    below = (gpus, goodput);
                    gain
                });
                CurvePoint { gpus, nodes, offer, marginal }
            })
            .collect();
        Curve { class: class.clone(), points }
    }

    /// The best configuration of an allocation over all layouts.
    pub fn best(&self, class: &NodeClass, gpus: GpuCount, nodes: NodeCount) -> Result<Offer, Infeasible> {
        Search::new(self, class).best(gpus, nodes)
    }

    /// The best micro-batch and global batch of a layout that stays.
    pub fn best_batch(
        &self,
        class: &NodeClass,
        gpus: GpuCount,
        nodes: NodeCount,
        layout: Layout,
    ) -> Result<(Configuration, Prediction), Infeasible> {
        Search::new(self, class).best_batch(gpus, nodes, layout)
    }

    /// Order among feasible configurations, greater is better. Where the batch may vary, a step must have two small batches,
    /// or φ could never be measured; then goodput, quantised so that equals tie; then fewer, larger micro-batches.
    fn rank(
        &self,
        configuration: &Configuration,
        prediction: &Prediction,
    ) -> (bool, i64, u64, core::cmp::Reverse<u64>) {
        let BatchRange { min, max } = self.training.batch;
        let small_batches = u64::from(configuration.layout.dp) * configuration.accumulation().unwrap_or(0);
        let goodput = (libm::log(prediction.goodput.0.max(f64::MIN_POSITIVE)) * 1e6).round() as i64;
        let batch = core::cmp::Reverse(configuration.global_batch.0);
        (min == max || small_batches >= 2, goodput, configuration.micro_batch.0, batch)
    }
}

/// A search over one class: its device, and what layers take there, are found once.
struct Search<'a> {
    model: &'a JobModel,
    class: &'a NodeClass,
    prior: Option<(PriorTimes, Device)>,
}

impl<'a> Search<'a> {
    fn new(model: &'a JobModel, class: &'a NodeClass) -> Self {
        let prior = model.shape().zip(catalog::device(class).ok());
        let prior = prior.map(|(shape, device)| (PriorTimes::new(shape, model.training.precision, device), device));
        Self { model, class, prior }
    }

    fn best(&mut self, gpus: GpuCount, nodes: NodeCount) -> Result<Offer, Infeasible> {
        let (model, class) = (self.model, self.class);
        let Some(shape) = model.shape() else {
            return model.measured(gpus).map(|prediction| Offer { configuration: None, prediction });
        };
        model.check_allocation(class, gpus, nodes)?;
        let found = layouts(model, shape, class, gpus, nodes).map(|layout| self.best_batch(gpus, nodes, layout));
        let (configuration, prediction) =
            best_of(found, |(configuration, prediction)| model.rank(configuration, prediction))
                .unwrap_or(Err(Infeasible::NoLayout { gpus, nodes }))?;
        Ok(Offer { configuration: Some(configuration), prediction })
    }

    /// The best of a layout over micro-batches. Memory only grows with the micro-batch, so after one that fits at no batch no larger
    /// one is tried.
    fn best_batch(
        &mut self,
        gpus: GpuCount,
        nodes: NodeCount,
        layout: Layout,
    ) -> Result<(Configuration, Prediction), Infeasible> {
        let model = self.model;
        let largest = model.training.layouts.max_micro_batch.0.max(1);
        let mut best: Option<Result<(Configuration, Prediction), Infeasible>> = None;
        for power in 0..=largest.ilog2() {
            let found = self.at_micro_batch(gpus, nodes, layout, Sequences(1 << power));
            let hopeless = matches!(&found, Some(Err(refusal)) if refusal.is_memory());
            best = best_of(best.into_iter().chain(found), |(configuration, prediction)| {
                model.rank(configuration, prediction)
            });
            if hopeless {
                break;
            }
        }
        let range = model.training.batch;
        let (configuration, _) =
            best.unwrap_or(Err(Infeasible::NoBatch { range, dp: layout.dp, largest_micro_batch: largest }))?;
        // Once more by the way every other question takes, so that both give the same number to the last digit.
        let prediction = model.predict(self.class, gpus, nodes, &configuration)?;
        Ok((configuration, prediction))
    }

    /// The best batch of a layout and micro-batch. Step time is a + b·B, so goodput B/((a + bB)(φκ + B)) has one peak, at
    /// √(a·φκ/b): only its neighbours on the grid can win, and the bounds where the neighbours are refused.
    fn at_micro_batch(
        &mut self,
        gpus: GpuCount,
        nodes: NodeCount,
        layout: Layout,
        micro_batch: Sequences,
    ) -> Option<Result<(Configuration, Prediction), Infeasible>> {
        let model = self.model;
        let quantum = u64::from(layout.dp) * micro_batch.0;
        let mut grid = batch_grid(model.training.batch, quantum);
        let smallest = Configuration { layout, micro_batch, global_batch: *grid.first()? };
        let refused = model.check_layout(self.class, gpus, nodes, layout).err();
        let refused =
            refused.or((layout.gpus() != gpus).then_some(Infeasible::WrongSize { configuration: smallest, gpus }));
        let Some((prior, device)) = self.prior.as_mut().filter(|_| refused.is_none()) else {
            return Some(Err(refused.unwrap_or(Infeasible::UnknownGpuType { gpu_type: self.class.gpu_type.clone() })));
        };
        let once = Configuration { layout, micro_batch, global_batch: Sequences(quantum) };
        let unit = prior.step_time(Spread { gpus, nodes }, &once, 1);
        let time = |batch: u64| model.corrected(&self.class.gpu_type, &unit.repeated(batch / quantum)).time;
        let slope = (time(2 * quantum).0 - time(quantum).0) / quantum as f64;
        let intercept = (time(quantum).0 - slope * quantum as f64).max(0.0);
        let seq_len = model.training.work.seq_len();
        let critical = model.critical_batch().0 / f64::from(seq_len);
        let peak = (intercept * critical / slope).sqrt();
        // More micro-batches never need less memory, so what fits is the beginning of the grid.
        let fits = |batch: Sequences| {
            let configuration = Configuration { layout, micro_batch, global_batch: batch };
            model.check_memory(self.class, device, &configuration, batch.0 / quantum)
        };
        if let Err(refusal) = fits(smallest.global_batch) {
            return Some(Err(refusal));
        }
        grid.truncate(grid.partition_point(|batch| fits(*batch).is_ok()));
        // A batch of a single gradient ranks behind all others, whatever its goodput (`rank`).
        let single = grid.partition_point(|batch| u64::from(layout.dp) * (batch.0 / quantum) < 2);
        if model.training.batch.min != model.training.batch.max && single < grid.len() {
            grid.drain(..single);
        }
        let found = near(&grid, peak).into_iter().map(|global_batch| {
            let configuration = Configuration { layout, micro_batch, global_batch };
            Ok((configuration, model.prediction(global_batch, time(global_batch.0))))
        });
        best_of(found, |(configuration, prediction)| model.rank(configuration, prediction))
    }
}

/// The neighbours of a peak on an ascending grid, and its ends.
fn near(grid: &[Sequences], peak: f64) -> Vec<Sequences> {
    let above = grid.iter().position(|batch| batch.0 as f64 >= peak).unwrap_or(grid.len());
    let near = [above.saturating_sub(1), above, 0, grid.len().saturating_sub(1)];
    let mut likely: Vec<Sequences> = near.iter().filter_map(|index| grid.get(*index).copied()).collect();
    likely.sort();
    likely.dedup();
    likely
}

/// The greatest feasible item, or the refusal nearest to feasible; `None` where there was nothing to try.
fn best_of<T, K: Ord>(
    found: impl Iterator<Item = Result<T, Infeasible>>,
    rank: impl Fn(&T) -> K,
) -> Option<Result<T, Infeasible>> {
    let mut best: Option<Result<T, Infeasible>> = None;
    for item in found {
        let better = match (&best, &item) {
            (None, _) | (Some(Err(_)), Ok(_)) => true,
            (Some(Err(old)), Err(new)) => old.yields_to(new),
            (Some(Ok(_)), Err(_)) => false,
            (Some(Ok(old)), Ok(new)) => rank(new) > rank(old),
        };
        if better {
            best = Some(item);
        }
    }
    best
}

/// Global batches to consider, ascending: multiples of `quantum` in the range, near a geometric grid, and the outermost.
fn batch_grid(range: BatchRange, quantum: u64) -> Vec<Sequences> {
    if quantum == 0 {
        return Vec::new();
    }
    let (lowest, highest) = (range.min.0.max(1).div_ceil(quantum) * quantum, range.max.0 / quantum * quantum);
    if lowest > highest {
        return Vec::new();
    }
    let mut grid = vec![lowest];
    let mut target = range.min.0.max(1) as f64;
    while target < highest as f64 {
        let multiple = (target / quantum as f64).round() as u64 * quantum;
        grid.push(multiple.clamp(lowest, highest));
        target *= GRID;
    }
    grid.push(highest);
    grid.sort_unstable();
    grid.dedup();
    grid.into_iter().map(Sequences).collect()
}

/// Layouts of exactly `gpus` GPUs that the job and the class allow, least tensor and pipeline parallelism first.
fn layouts<'a>(
    model: &'a JobModel,
    shape: &'a ModelShape,
    class: &'a NodeClass,
    gpus: GpuCount,
    nodes: NodeCount,
) -> impl Iterator<Item = Layout> + 'a {
    let tensor = 1..=class.gpus_per_node.0.min(shape.kv_heads);
    tensor
        .flat_map(move |tp| (1..=shape.layers.min(gpus.0)).map(move |pp| (tp, pp)))
        .filter(move |(tp, pp)| gpus.0.is_multiple_of(tp * pp))
        .map(move |(tp, pp)| Layout { dp: gpus.0 / (tp * pp), tp, pp })
        .filter(move |layout| model.check_layout(class, gpus, nodes, *layout).is_ok())
}

#[cfg(test)]
#[path = "curve_tests.rs"]
mod tests;
