//! What each size would bring a job, were nobody else on the nodes, and why it could have none: the candidates of a round,
//! told to people. Rounds do not ask it.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use headway_goodput::JobModel;
use headway_types::{GpuCount, GpuType, JobId, NodeClass, NodeCount, TokensPerSecond};

use crate::candidate::{self, Way};
use crate::check::check_job;
use crate::cluster::{Cluster, Shape};
use crate::curves::{CurveCache, Offer};
use crate::explain;
use crate::input::{PlanInput, PlanJob};
use crate::project::Tree;
use crate::round::Round;

/// Sizes told in full at most; a reader sees no more on a chart.
const TOLD: usize = 128;
/// Configurations told beside the best.
const RUNNERS_UP: usize = 3;

/// The sizes of a job.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sizes {
    /// All it could run at, ascending.
    pub feasible: Vec<GpuCount>,
    /// What they bring, ascending by GPUs, and those among them that cannot be. Of very many sizes some are left out.
    pub points: Vec<SizePoint>,
    /// Why it can run at none.
    pub obstacle: Option<String>,
}

/// One size, where it brings most.
#[derive(Clone, Debug, PartialEq)]
pub struct SizePoint {
    pub gpu_type: GpuType,
    pub gpus: GpuCount,
    pub nodes: NodeCount,
    /// Or why the size cannot be had.
    pub gain: Result<SizeGain, String>,
}

/// What a size brings.
#[derive(Clone, Debug, PartialEq)]
pub struct SizeGain {
    pub best: Offer,
    /// The next best layouts, each at its best batch, best first.
    pub others: Vec<Offer>,
    /// First and last decile of the goodput, by what reports have taught.
    pub band: Option<(TokensPerSecond, TokensPerSecond)>,
}

/// The sizes of some jobs of a round. Jobs that are alike are looked at once.
#[must_use]
pub fn sizes(input: &PlanInput, of: &[JobId], curves: &mut CurveCache) -> BTreeMap<JobId, Sizes> {
    sizes_while(input, of, curves, || true)
}

/// The same, where there may be too many of them: `go_on` is asked before each that is like none before it; its
/// first no ends the work, and the rest are left out.
#[must_use]
pub fn sizes_while(
    input: &PlanInput,
    of: &[JobId],
    curves: &mut CurveCache,
    mut go_on: impl FnMut() -> bool,
) -> BTreeMap<JobId, Sizes> {
    let (cluster, tree) = (Cluster::new(input), Tree::new(&input.projects));
    let round = Round::new(input, &cluster, &tree);
    let mut known: Vec<(PlanJob, Sizes)> = Vec::new();
    let mut told = BTreeMap::new();
    for job in of.iter().filter_map(|job| input.job(*job)) {
        let mut anonymous = PlanJob { name: String::new(), ..job.clone() };
        if !input.reservations.iter().any(|one| one.jobs.contains(&job.job)) {
            anonymous.job = of[0];
        }
        if let Some((_, sizes)) = known.iter().find(|(one, _)| *one == anonymous) {
            told.insert(job.job, sizes.clone());
            continue;
        }
        if !go_on() {
            break;
        }
        let sizes = of_job(&round, job, curves);
        known.push((anonymous, sizes.clone()));
        told.insert(job.job, sizes);
    }
    told
}

fn of_job(round: &Round<'_>, job: &PlanJob, curves: &mut CurveCache) -> Sizes {
    if let Err(wrong) = check_job(job) {
        return Sizes { obstacle: Some(wrong.to_string()), ..Sizes::default() };
    }
    let options = candidate::options(round, job, curves);
    let speed_ups: BTreeMap<GpuCount, f64> = options.sizes.iter().copied().collect();
    let mut shapes: BTreeMap<GpuCount, Vec<Shape>> = BTreeMap::new();
    let suits = |one: &Shape| round.cluster.could_hold(job, &job.needs, *one);
    for shape in candidate::open_shapes(round, job).into_iter().filter(suits) {
        shapes.entry(shape.gpus).or_default().push(shape);
    }
    let now = job.current.as_ref().map(|current| current.placement.gpus());
    let told = worth_telling(round, &shapes, now);
    let points = shapes.iter().filter(|(gpus, _)| told.contains(gpus)).filter_map(|(gpus, shapes)| {
        let mut point = point(round, job, options.model.as_ref(), shapes, curves)?;
        if let Ok(gain) = &mut point.gain {
            gain.best.prediction.speed_up = speed_ups.get(gpus).copied().unwrap_or_default();
        }
        Some(point)
    });
    let points = points.collect();
    let obstacle = options.obstacle.as_ref().map(|obstacle| explain::obstructed(round, job, obstacle).0);
    Sizes { feasible: speed_ups.into_keys().collect(), points, obstacle }
}

/// All sizes where they are few; else of those beyond a node the whole nodes, and of these as many as are told.
fn worth_telling(
    round: &Round<'_>,
    shapes: &BTreeMap<GpuCount, Vec<Shape>>,
    now: Option<GpuCount>,
) -> BTreeSet<GpuCount> {
    let whole =
        |shape: &Shape| shape.nodes.0 == 1 || shape.per_node() == round.cluster.alike(shape.class).gpus_per_node.0;
    let many = shapes.len() > TOLD;
    let sizes = shapes.iter().filter(|(_, shapes)| !many || shapes.iter().any(whole)).map(|(gpus, _)| *gpus);
    let sizes: Vec<GpuCount> = sizes.collect();
    let step = sizes.len().div_ceil(TOLD).max(1);
    sizes.iter().copied().step_by(step).chain(sizes.last().copied()).chain(now).collect()
}

/// A size in the shape that brings most.
fn point(
    round: &Round<'_>,
    job: &PlanJob,
    model: Option<&Arc<JobModel>>,
    shapes: &[Shape],
    curves: &mut CurveCache,
) -> Option<SizePoint> {
    let bound = candidate::bound_layout(job);
    let mut refusal = None;
    let mut best: Option<Way> = None;
    for &shape in shapes {
        let ways = candidate::ways(round, job, model, shape, bound, curves);
        if ways.is_empty() && refusal.is_none() {
            let why = candidate::refusal(round, job, model, shape, bound, curves);
            refusal = why.map(|refused| (shape, refused.detail));
        }
        let goodput = |way: &Way| way.offer.prediction.goodput.0;
        best = best.into_iter().chain(ways).reduce(|a, b| if goodput(&b) > goodput(&a) { b } else { a });
    }
    let of = |shape: Shape, gain| SizePoint {
        gpu_type: round.cluster.gpu_type(shape.class),
        gpus: shape.gpus,
        nodes: shape.nodes,
        gain,
    };
    let Some(best) = best else { return refusal.map(|(shape, why)| of(shape, Err(why))) };
    let class = model.map(|model| round.cluster.valued_by(best.shape, model));
    let (gpus, nodes) = (best.shape.gpus, best.shape.nodes);
    let tuned = model.filter(|_| bound.is_none() && best.offer.configuration.is_some());
    let ranked =
        |(model, class): (&Arc<JobModel>, &Cow<'_, NodeClass>)| model.ranked(class, gpus, nodes, 1 + RUNNERS_UP).ok();
    let others = tuned.zip(class.as_ref()).and_then(ranked).unwrap_or_default();
    let gain = SizeGain {
        best: best.offer,
        others: others.into_iter().skip(1).collect(),
        band: model.zip(class).and_then(|(model, class)| model.band(&class, gpus, nodes, &best.offer)),
    };
    Some(of(best.shape, Ok(gain)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use headway_types::report::{Capabilities, Flexibility};

    use super::*;
    use crate::builder::{after, job, job_id, node, round, table};

    fn of(input: &PlanInput) -> Sizes {
        sizes(input, &[job_id(1)], &mut CurveCache::new()).remove(&job_id(1)).unwrap()
    }

    #[test]
    fn of_very_many_sizes_whole_nodes_are_told() {
        let rows: Vec<_> = (1..=1_280).map(|gpus| (gpus, f64::from(gpus), None)).collect();
        let work = crate::input::PlanWork::Table(Arc::new(table("alpha", &rows)));
        let asked = PlanJob { work, ..job(1, 1, 1_280) };
        let sizes = of(&round((1..=160).map(|number| node(number, "alpha", 8)).collect(), vec![asked]));
        assert!(sizes.feasible.len() > TOLD && sizes.points.len() <= TOLD, "{}", sizes.feasible.len());
        assert!(sizes.points.iter().skip(8).all(|point| point.gpus.0.is_multiple_of(8)));
        assert_eq!(sizes.points.last().map(|point| point.gpus), sizes.feasible.last().copied());
    }

    #[test]
    fn each_size_is_told_where_it_brings_most() {
        let nodes = vec![node(1, "alpha", 8), node(2, "alpha", 8), node(3, "beta", 4)];
        let mut asked = job(1, 1, 16);
        asked.work = crate::input::PlanWork::Table(Arc::new(crate::table::GoodputTable {
            rows: [("alpha", 4, 10.0), ("beta", 4, 20.0), ("alpha", 16, 30.0)]
                .into_iter()
                .flat_map(|(gpu_type, gpus, goodput)| crate::builder::table(gpu_type, &[(gpus, goodput, None)]).rows)
                .collect(),
        }));
        let told = of(&round(nodes, vec![asked])).points;
        let told: Vec<_> = told.iter().map(|point| (point.gpus.0, point.gpu_type.0.as_str())).collect();
        assert_eq!(told, [(4, "beta"), (16, "alpha")]);
    }

    #[test]
    fn a_script_that_cannot_leave_its_layout_has_one_size() {
        let mut fixed = job(1, 1, 4);
        fixed.capabilities = Capabilities { layout: Flexibility::Never, ..fixed.capabilities };
        let start = round(vec![node(1, "alpha", 4)], vec![fixed]);
        let plan = crate::plan(&start, &mut CurveCache::new()).unwrap();
        let has = plan.assignments[&job_id(1)].placement.gpus();
        let sizes = of(&after(&start, &plan));
        assert_eq!(sizes.feasible, [has]);
        let refused: Vec<&SizePoint> = sizes.points.iter().filter(|point| point.gain.is_err()).collect();
        assert!(refused.len() == 3 && refused.iter().all(|point| point.gpus != has));
    }

    #[test]
    fn whoever_has_waited_long_enough_is_told_of_the_first_and_of_those_like_them() {
        let jobs = vec![job(1, 1, 4), job(2, 1, 4), job(3, 1, 2), job(4, 1, 4)];
        let ids: Vec<JobId> = jobs.iter().map(|job| job.job).collect();
        let input = round(vec![node(1, "alpha", 4)], jobs);
        let mut asked = 0;
        let told = sizes_while(&input, &ids, &mut CurveCache::new(), || {
            asked += 1;
            asked < 2
        });
        assert_eq!(told.into_keys().collect::<Vec<_>>(), ids[..2]);
    }

    #[test]
    fn what_no_round_can_compute_with_has_no_size_and_says_why() {
        let mut wrong = job(1, 1, 4);
        wrong.downtime.restart.0 = f64::NAN;
        let sizes = of(&round(vec![node(1, "alpha", 4)], vec![wrong]));
        assert!(sizes.feasible.is_empty() && sizes.obstacle.unwrap().contains("downtime.restart"));
    }
}
