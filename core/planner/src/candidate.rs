//! What each job could get this round: nothing, what it has, and the best configuration per shape. A candidate's
//! value already holds the cost of getting there, so that the integer program stays linear.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use headway_goodput::JobModel;
use headway_solver::Use;
use headway_types::report::Flexibility;
use headway_types::spec::BatchPolicy;
use headway_types::{Configuration, GpuCount, Layout, NodeClass, NodeCount, Prediction, Seconds, TokensPerSecond};

use crate::claim::Spread;
use crate::cluster::{Class, Reach, Shape};
use crate::curves::{self, CurveCache, Lack, Offer, Refusal};
use crate::input::{Freedom, PlanJob, PlanWork};
use crate::live::{LiveBatch, Untried};
use crate::maker::Maker;
use crate::obstacle::{self, Obstacle};
use crate::round::Round;
use crate::table;
use crate::value;
use crate::value::Quanta;

/// One choice for one job.
#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    pub gpus: GpuCount,
    /// Where it would be placed; `None`: nothing, or exactly where the job is.
    pub shape: Option<Shape>,
    pub configuration: Option<Configuration>,
    pub label: Option<String>,
    pub prediction: Prediction,
    /// Keeps GPUs and layout.
    pub stays: bool,
    /// Standstill including work redone.
    pub cost: Seconds,
    pub uses: Vec<Use>,
    /// Whether the job still holds these GPUs after the moment that the round promises to another job.
    pub outlasts_promise: bool,
    /// What it must gain beyond its cost, in the units of `value`; the value is net of it once jobs are weighed.
    pub charge: f64,
    pub value: Quanta,
}

/// What an allocation brings, and how to run it.
#[derive(Clone, Debug)]
pub(crate) struct Way {
    pub shape: Shape,
    pub offer: Offer,
    pub label: Option<String>,
    pub watts_per_gpu: Option<f64>,
}

/// A live change that was worth making, or was too small.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BatchChange {
    pub to: Configuration,
    /// Relative gain of goodput.
    pub gain: f64,
    /// What it must gain: more where no step was measured in its micro-batches.
    pub asked: f64,
    /// The norm test asks for it, whatever the gain.
    pub demanded: bool,
    pub taken: bool,
}

/// What a job's work is measured by: what it could have were it free to choose, or its worth would change as it starts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Measure {
    /// Goodput of a GPU at the size where that is greatest; 0 where nobody knows.
    pub per_gpu: f64,
    /// How many such GPUs do what its fair share does.
    pub share: f64,
    /// Share of its time that a job which waits will train there, and not start; 1 of a job that runs. Its work counts the
    /// start, so that it is not held against a short job.
    pub useful: f64,
    pub least: GpuCount,
    /// Goodput of that; 0 where nobody knows.
    pub least_goodput: TokensPerSecond,
    /// Speed-up of that.
    pub least_speed_up: f64,
}

/// One job with everything it could get.
pub(crate) struct Options<'a> {
    pub job: &'a PlanJob,
    pub model: Option<Arc<JobModel>>,
    /// Never empty. Of a job that may be without GPUs the first is "nothing".
    pub candidates: Vec<Candidate>,
    /// What staying as it is means.
    pub incumbent: usize,
    pub batch_change: Option<BatchChange>,
    pub untried: Option<Untried>,
    pub obstacle: Option<Obstacle>,
    /// What the job does now, where it holds GPUs.
    pub present: Option<Prediction>,
    /// What that is worth.
    pub present_value: Quanta,
    /// It could stay as it is, but for what people force on it.
    pub forced_off: bool,
    pub measure: Measure,
    /// How much hangs on it, and by how much its values were multiplied for that and to compare it with others (`urgency`).
    pub urgency: f64,
    pub scale: f64,
    /// What a move of it must gain beyond its cost, whatever its urgency.
    pub move_penalty: f64,
    /// The next larger size that would bring less than the policy asks of a further GPU, and what each would bring, as a
    /// share of what its most productive GPU does.
    pub spared: Option<(GpuCount, f64)>,
    /// Speed-up per size before any limit on reconfiguring it now, ascending by GPUs: what sizes would bring.
    pub sizes: Vec<(GpuCount, f64)>,
    /// Limits that are overdrawn and forbid whatever it could get.
    pub barred: Vec<usize>,
    /// Its deadline cannot be met any more by anything it could get.
    pub late: bool,
}

impl Options<'_> {
    /// Whether the job keeps what it has unless something that is owed takes it.
    pub fn keeps_its_place(&self) -> bool {
        let stays = self.candidates.get(self.incumbent).is_some_and(|one| one.stays);
        stays && matches!(self.job.freedom, Freedom::Settled { .. })
    }
}

pub(crate) fn options<'a>(round: &Round<'a>, job: &'a PlanJob, curves: &mut CurveCache) -> Options<'a> {
    let model = job.work.model().map(|model| effective_model(round, job, model));
    let shapes = open_shapes(round, job);
    let bound = bound_layout(job);
    let mut ways_of = |bound: Option<Layout>| -> Vec<Way> {
        let suited = shapes.iter().filter(|shape| round.cluster.could_hold(job, &job.needs, **shape));
        suited.flat_map(|&shape| ways(round, job, model.as_ref(), shape, bound, curves)).collect()
    };
    // What a job is measured by is what it could have had when it was free to choose, or its worth would change as it
    // starts.
    let (mut unbound, mut of_bound) = (ways_of(None), bound.map(|layout| ways_of(Some(layout))));
    let risky = drop_needless_risks(round, job, model.as_ref(), None, &mut unbound, curves);
    let risky = match (&mut of_bound, bound) {
        (Some(ways), Some(_)) => drop_needless_risks(round, job, model.as_ref(), bound, ways, curves),
        _ => risky,
    };
    let reference = reference_goodput(round, job, &unbound);
    let measure = measure(round, job, reference, &unbound);
    let mut ways = of_bound.unwrap_or(unbound);
    drop_needless_mixes(round, &mut ways);
    let live_batch = model.as_ref().and_then(|model| LiveBatch::of(round, job, model, curves));
    let untried = live_batch.as_ref().and_then(|live| live.untried(round));
    let maker = Maker::new(round, job, reference, measure, model.as_ref(), live_batch);
    let obstacle = ways.is_empty().then(|| match risky {
        true => obstacle::too_few_usable(round, job),
        false => obstacle::obstacle(round, job, model.as_ref(), curves),
    });

    let mut candidates = Vec::new();
    let fixed = matches!(job.freedom, Freedom::Fixed { .. });
    let stay = maker.stay(&ways);
    if !fixed || stay.is_none() {
        candidates.push(maker.nothing());
    }
    let mut incumbent = 0;
    let mut batch_change = None;
    if let Some((candidate, change)) = stay {
        incumbent = candidates.len();
        candidates.push(candidate);
        batch_change = change;
    }
    let sizes = sizes(&maker, &ways);
    // A settled job that can stay has no other place to go: it keeps what it has, or gives it up to what is owed. One that
    // must leave has to start again anyway, so it may go to any place.
    let can_stay = candidates.get(incumbent).is_some_and(|one| one.stays);
    let settled = can_stay && matches!(job.freedom, Freedom::Settled { .. });
    if !fixed && !settled {
        candidates.extend(ways.into_iter().filter_map(|way| maker.place(way)));
    }
    let late = maker.settle(&mut candidates);
    let (present, present_value, barred) = (maker.present, maker.present_value(), Vec::new());
    let (urgency, scale, move_penalty, spared) = (1.0, 1.0, maker.move_penalty, None);
    Options {
        job,
        model,
        candidates,
        incumbent,
        batch_change,
        untried,
        obstacle,
        present,
        present_value,
        forced_off: false,
        measure,
        urgency,
        scale,
        move_penalty,
        spared,
        sizes,
        barred,
        late,
    }
}

/// What is unlikely to fit is tried where nothing else could be had were every node whole, open and free: else the job waits for that, or stays where it
/// is. Whether there was such a risk to drop.
fn drop_needless_risks(
    round: &Round<'_>,
    job: &PlanJob,
    model: Option<&Arc<JobModel>>,
    bound: Option<Layout>,
    open: &mut Vec<Way>,
    curves: &mut CurveCache,
) -> bool {
    let is_likely = |way: &Way| !way.offer.unlikely;
    if open.iter().all(is_likely) {
        return false;
    }
    let mut is_sound = |shape: Shape| ways(round, job, model, shape, bound, curves).iter().any(is_likely);
    let held = |shape: &Shape| round.cluster.hosts_as_built(&job.needs, *shape);
    let needless = open.iter().any(is_likely) || built_shapes(round, job).into_iter().filter(held).any(&mut is_sound);
    if needless {
        open.retain(is_likely);
    }
    needless
}

/// Nodes of two classes where those of one of them would do as much alone.
fn drop_needless_mixes(round: &Round<'_>, ways: &mut Vec<Way>) {
    let goodput = |way: &Way| way.offer.prediction.goodput.0;
    let mut alone: BTreeMap<(usize, GpuCount), f64> = BTreeMap::new();
    for way in ways.iter().filter(|way| !round.cluster.is_mix(way.shape.class)) {
        let best = alone.entry((way.shape.class, way.shape.gpus)).or_default();
        *best = best.max(goodput(way));
    }
    let does_as_much = |way: &Way, part: Shape| {
        let smaller = alone.range((part.class, GpuCount(0))..=(part.class, part.gpus));
        smaller.map(|(_, best)| *best).any(|best| best >= goodput(way))
    };
    ways.retain(|way| {
        !round.cluster.is_mix(way.shape.class) || !round.cluster.parts(way.shape).any(|part| does_as_much(way, part))
    });
}

/// The model as the round's policy tunes it, with its batch pinned where the script cannot change it, and held where the norm test never
/// lowers it: what was ordered counts before the first report of it.
pub(crate) fn effective_model(round: &Round<'_>, job: &PlanJob, model: &Arc<JobModel>) -> Arc<JobModel> {
    let model = &round.approach.narrowed(model).unwrap_or_else(|| Arc::clone(model));
    let now = job.current.as_ref().and_then(|current| current.configuration).map(|at| at.global_batch);
    match (job.capabilities.batch, now) {
        (Flexibility::Never, now) => curves::with_batch(model, now.unwrap_or(model.training.reference_batch)),
        (_, Some(now)) if model.training.batch_policy != BatchPolicy::Goodput => curves::holding(model, now),
        _ => Arc::clone(model),
    }
}

/// Where and how a job runs that takes another batch live.
pub(crate) struct InPlace<'r> {
    pub class: Cow<'r, NodeClass>,
    pub gpus: GpuCount,
    pub nodes: NodeCount,
    pub present: Configuration,
}

pub(crate) fn in_place<'r>(round: &'r Round<'_>, job: &PlanJob, model: &JobModel) -> Option<InPlace<'r>> {
    let current = job.current.as_ref().filter(|_| job.capabilities.batch == Flexibility::Live)?;
    let class = round.cluster.placement_valued_by(&current.placement, model)?;
    let (gpus, nodes, present) = (current.placement.gpus(), current.placement.nodes(), current.configuration?);
    Some(InPlace { class, gpus, nodes, present })
}

/// Every shape of every size the job accepts, on some classes. Rigid jobs have one size.
fn shapes_on(
    round: &Round<'_>,
    job: &PlanJob,
    classes: &[usize],
    shapes_of: impl Fn(usize, GpuCount) -> Vec<Shape>,
) -> Vec<Shape> {
    let only_domains = job.needs.spread == Spread::Require;
    classes
        .iter()
        .flat_map(|&class| {
            let largest = job.range.max.min(round.cluster.classes[class].nominal());
            sizes_between(job, job.least(), largest)
                .flat_map(|gpus| shapes_of(class, gpus))
                .filter(|shape| !only_domains || shape.reach == Reach::Domain || shape.nodes.0 == 1)
                .collect::<Vec<_>>()
        })
        .collect()
}

/// The shapes that nodes have room for now, were they empty.
pub(crate) fn open_shapes(round: &Round<'_>, job: &PlanJob) -> Vec<Shape> {
    let admitted: Vec<usize> = round.admitted(job).collect();
    let mut shapes = shapes_on(round, job, &admitted, |class, gpus| round.cluster.shapes(class, gpus));
    shapes.extend(mixed_shapes(round, job, &admitted, Class::with_room));
    shapes.extend(divided_shapes(round, job, &admitted));
    shapes
}

/// Whether a job may have nodes of two classes: it says so, a model foresees what comes of it, and it need not lie in one domain.
pub(crate) fn may_mix(job: &PlanJob) -> bool {
    job.range.mixed && job.work.model().is_some() && job.needs.spread == Spread::Prefer
}

/// Returns a job's shapes over two classes of two kinds, where it may mix them.
fn mixed_shapes(
    round: &Round<'_>,
    job: &PlanJob,
    classes: &[usize],
    nodes_of: impl Fn(&Class, u32) -> u32 + Copy,
) -> Vec<Shape> {
    if !may_mix(job) || is_divided_by_site(round, job) {
        return Vec::new();
    }
    let mixes = round.cluster.mixes_of(classes, false);
    let sizes = sizes_on(round, job, classes.iter().copied());
    sizes.flat_map(|gpus| round.cluster.mixed_shapes(&mixes, gpus, bound_layout(job), nodes_of)).collect()
}

/// Returns a job's shapes over two classes of one kind, which a reservation divides. A job of several sizes has them only
/// for sizes that neither class can hold: where one can, the job may have fewer nodes there instead.
fn divided_shapes(round: &Round<'_>, job: &PlanJob, classes: &[usize]) -> Vec<Shape> {
    let cluster = round.cluster;
    let may_span = |class: &usize| job.needs.spread == Spread::Prefer || !cluster.has_domains(*class);
    let mixes: Vec<usize> = cluster.mixes_of(classes, true).into_iter().filter(may_span).collect();
    if mixes.is_empty() || is_divided_by_site(round, job) {
        return Vec::new();
    }
    let can_hold = |class: usize, shape: &Shape| cluster.classes[class].with_room(shape.per_node()) >= shape.nodes.0;
    let is_needed =
        |shape: &Shape| job.has_one_size() || !cluster.members(shape.class).iter().any(|&class| can_hold(class, shape));
    let sizes = sizes_on(round, job, classes.iter().copied());
    let shapes = sizes.flat_map(|gpus| cluster.mixed_shapes(&mixes, gpus, bound_layout(job), Class::with_room));
    shapes.filter(is_needed).collect()
}

/// Whether a row of the site that divides a class counts a job. Such rows are counted class by class, so that the job stays
/// in one.
fn is_divided_by_site(round: &Round<'_>, job: &PlanJob) -> bool {
    !round.cluster.site.dividing_rows_of(job).is_empty()
}

/// Returns the sizes that a job allows on all of these classes together.
fn sizes_on<'j>(
    round: &Round<'_>,
    job: &'j PlanJob,
    classes: impl Iterator<Item = usize>,
) -> Box<dyn Iterator<Item = GpuCount> + 'j> {
    let built: u32 = classes.map(|class| round.cluster.classes[class].gpus().0).sum();
    sizes_between(job, job.least(), job.range.max.min(GpuCount(built)))
}

/// The shapes there would be were every node whole, open and free, and set aside for nobody.
pub(crate) fn built_shapes(round: &Round<'_>, job: &PlanJob) -> Vec<Shape> {
    let accepted = |class: &usize| job.range.accepts(&round.cluster.classes[*class].alike.gpu_type);
    let classes: Vec<usize> = (0..round.cluster.classes.len()).filter(accepted).collect();
    let mut shapes = shapes_on(round, job, &classes, |class, gpus| round.cluster.nominal_shapes(class, gpus));
    shapes.extend(mixed_shapes(round, job, &classes, |class, _| class.nodes.len() as u32));
    shapes
}

/// The sizes the job allows on the cluster as built.
pub(crate) fn allowed_sizes<'j>(round: &Round<'_>, job: &'j PlanJob) -> impl Iterator<Item = GpuCount> + 'j {
    sizes_on(round, job, 0..round.cluster.classes.len())
}

/// The sizes the job allows within bounds; a list of sizes is walked, not the span it covers.
fn sizes_between(job: &PlanJob, least: GpuCount, most: GpuCount) -> Box<dyn Iterator<Item = GpuCount> + '_> {
    if let PlanWork::Table(table) = &job.work {
        let sizes = table.sizes().filter(move |gpus| (least..=most).contains(gpus) && job.range.allows(*gpus));
        return Box::new(sizes.collect::<Vec<_>>().into_iter());
    }
    if job.range.sizes.is_empty() {
        Box::new((least.0..=most.0).map(GpuCount))
    } else {
        Box::new(job.range.sizes.iter().copied().filter(move |gpus| (least..=most).contains(gpus)))
    }
}

/// How the job could run on a shape: one way where it is modelled, any number where a table tells, none where nothing is feasible.
pub(crate) fn ways(
    round: &Round<'_>,
    job: &PlanJob,
    model: Option<&Arc<JobModel>>,
    shape: Shape,
    bound: Option<Layout>,
    curves: &mut CurveCache,
) -> Vec<Way> {
    let one = |offer| vec![Way { shape, offer, label: None, watts_per_gpu: None }];
    if bound.is_some_and(|layout| layout.gpus() != shape.gpus) {
        return Vec::new();
    }
    match (&job.work, model) {
        (PlanWork::Table(table), _) => table::ways(table, round.cluster.alike(shape.class), shape),
        (_, None) => one(Offer::likely(None, unmeasured())),
        (_, Some(model)) => {
            let class = round.cluster.valued_by(shape, model);
            curves.best(job.job, model, &class, shape.gpus, shape.nodes, bound).map(one).unwrap_or_default()
        }
    }
}

/// Why it could not.
pub(crate) fn refusal(
    round: &Round<'_>,
    job: &PlanJob,
    model: Option<&Arc<JobModel>>,
    shape: Shape,
    bound: Option<Layout>,
    curves: &mut CurveCache,
) -> Option<Refusal> {
    if let Some(layout) = bound.filter(|layout| layout.gpus() != shape.gpus) {
        let detail = format!("its script cannot leave the layout {layout}, which takes {}", layout.gpus().words());
        return Some(Refusal { lacks: Lack::Layout, detail });
    }
    let model = model.filter(|_| !matches!(job.work, PlanWork::Table(_)))?;
    let class = round.cluster.valued_by(shape, model);
    curves.refusal(job.job, model, &class, shape.gpus, shape.nodes, bound)
}

/// The layout a job cannot leave: the one it runs in, or the one its checkpoints are bound to.
pub(crate) fn bound_layout(job: &PlanJob) -> Option<Layout> {
    let now = job.current.as_ref().and_then(|current| current.configuration).map(|at| at.layout);
    now.or(job.needs.layout).filter(|_| job.capabilities.layout == Flexibility::Never)
}

/// An opaque job's prediction: no rate is modelled, and its speed-up is 1 by definition.
pub(crate) fn unmeasured() -> Prediction {
    Prediction {
        step_time: Seconds(0.0),
        throughput: TokensPerSecond(0.0),
        efficiency: 0.0,
        goodput: TokensPerSecond(0.0),
        speed_up: 1.0,
    }
}

/// Goodput of the fair share: an equal split of the usable GPUs among the jobs, but at least the job's minimum,
/// rounded down to a size that is feasible for it (up, where none is small enough), on its best class.
fn reference_goodput(round: &Round<'_>, job: &PlanJob, ways: &[Way]) -> TokensPerSecond {
    let share = round.fair_share.max(job.range.min);
    let sizes = || ways.iter().map(|way| way.shape.gpus);
    let Some(size) = sizes().filter(|gpus| *gpus <= share).max().or_else(|| sizes().min()) else {
        return TokensPerSecond(0.0);
    };
    let of_size = ways.iter().filter(|way| way.shape.gpus == size);
    TokensPerSecond(of_size.map(|way| way.offer.prediction.goodput.0).fold(0.0, f64::max))
}

fn measure(round: &Round<'_>, job: &PlanJob, reference: TokensPerSecond, ways: &[Way]) -> Measure {
    let goodput = |way: &Way| way.offer.prediction.goodput;
    let per_gpu = |way: &Way| goodput(way).0 / f64::from(way.shape.gpus.0);
    let useful = |goodput| {
        let start = if job.current.is_none() { job.start_cost() } else { Seconds(0.0) };
        value::useful_share(&round.input.policy, job, round.input.now, start, goodput, None)
    };
    let best = |of: &dyn Fn(&Way) -> f64| ways.iter().map(of).fold(0.0, f64::max);
    let with_start = best(&|way| per_gpu(way) * useful(goodput(way)));
    let per_gpu = best(&per_gpu);
    let measured = per_gpu > 0.0 && reference.0 > 0.0;
    let share = if measured { reference.0 / per_gpu } else { f64::from(job.least().0) };
    let useful = if measured { with_start / per_gpu } else { useful(TokensPerSecond(0.0)) };
    let least = ways.iter().map(|way| way.shape.gpus).min().unwrap_or(job.least());
    let of_least = ways.iter().filter(|way| way.shape.gpus == least).map(|way| goodput(way).0);
    let least_goodput = TokensPerSecond(of_least.fold(0.0, f64::max));
    let least_speed_up = if measured { least_goodput.0 / reference.0 } else { 1.0 };
    Measure { per_gpu, share, useful, least, least_goodput, least_speed_up }
}

fn sizes(maker: &Maker<'_, '_>, ways: &[Way]) -> Vec<(GpuCount, f64)> {
    let mut best = BTreeMap::new();
    for way in ways {
        let speed_up = maker.with_speed_up(way.offer.prediction).speed_up;
        let entry = best.entry(way.shape.gpus).or_insert(speed_up);
        *entry = entry.max(speed_up);
    }
    best.into_iter().collect()
}
