//! The planner's only door to the goodput model, and the cache of what came through it. The cache holds nothing that
//! the input does not imply: a round with an empty one decides the same, only later.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub(crate) use headway_goodput::Offer;
use headway_goodput::{Infeasible, JobModel, Searches, Unlearned};
use headway_types::spec::BatchRange;
use headway_types::{Configuration, GpuCount, JobId, Layout, NodeClass, NodeCount, Prediction, Sequences};

use crate::input::PlanInput;

/// Why a shape has no feasible configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub lacks: Lack,
    pub detail: String,
}

/// What another of would lift a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lack {
    Memory,
    Layout,
    Batch,
    /// What the model knows of the GPU type, or of the job.
    Known,
}

/// Searches already made, per training and what its reports taught. Jobs of equal trainings whose own reports taught nothing share theirs.
#[derive(Clone, Debug, Default)]
pub struct CurveCache {
    jobs: BTreeMap<JobId, Known>,
    shared: BTreeMap<Unlearned, usize>,
    curves: Vec<Curves>,
    /// Of `curves`, those that nobody uses.
    vacant: Vec<usize>,
}

/// Whose searches a job's are.
#[derive(Clone, Debug)]
struct Known {
    model: Arc<JobModel>,
    curves: usize,
}

/// One training's searches by class; the classes of a cluster are few.
#[derive(Clone, Debug, Default)]
pub(crate) struct Curves {
    classes: Vec<Searches>,
}

impl CurveCache {
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Forgets the jobs that are not in the round.
    pub(crate) fn begin(&mut self, input: &PlanInput) {
        self.jobs.retain(|id, _| input.jobs.binary_search_by_key(id, |job| job.job).is_ok());
        let used: BTreeSet<usize> = self.jobs.values().map(|known| known.curves).collect();
        self.shared.retain(|_, at| used.contains(at));
        self.vacant = (0..self.curves.len()).filter(|at| !used.contains(at)).collect();
        self.vacant.iter().for_each(|&at| self.curves[at] = Curves::default());
    }

    /// The best of an allocation, or of a layout that the job cannot leave.
    pub(crate) fn best(
        &mut self,
        job: JobId,
        model: &Arc<JobModel>,
        class: &NodeClass,
        gpus: GpuCount,
        nodes: NodeCount,
        only: Option<Layout>,
    ) -> Option<Offer> {
        self.of(job, model).best(model, class, gpus, nodes, only)
    }

    /// The best of the layout that a job runs in, within reach of its micro-batch.
    pub(crate) fn within_reach(
        &mut self,
        job: JobId,
        model: &Arc<JobModel>,
        class: &NodeClass,
        (gpus, nodes): (GpuCount, NodeCount),
        present: &Configuration,
    ) -> Option<Offer> {
        self.of(job, model).within_reach(model, class, (gpus, nodes), present)
    }

    /// Why there is none.
    pub(crate) fn refusal(
        &mut self,
        job: JobId,
        model: &Arc<JobModel>,
        class: &NodeClass,
        gpus: GpuCount,
        nodes: NodeCount,
        only: Option<Layout>,
    ) -> Option<Refusal> {
        let searches = self.of(job, model).on(model, class);
        let why = match only {
            None => searches.refusal(model, gpus, nodes),
            Some(layout) => searches.best_batch(model, gpus, nodes, layout).err(),
        };
        why.map(Refusal::from)
    }

    /// A job's curves, and where they are kept.
    pub(crate) fn curves_of(&mut self, job: JobId, model: &Arc<JobModel>) -> (usize, &Curves) {
        let at = self.place_of(job, model);
        (at, &self.curves[at])
    }

    /// Takes curves out; until they are put back there are none.
    pub(crate) fn lend(&mut self, at: usize) -> Curves {
        std::mem::take(&mut self.curves[at])
    }

    pub(crate) fn put_back(&mut self, at: usize, curves: Curves) {
        self.curves[at] = curves;
    }

    fn of(&mut self, job: JobId, model: &Arc<JobModel>) -> &mut Curves {
        let at = self.place_of(job, model);
        &mut self.curves[at]
    }

    fn place_of(&mut self, job: JobId, model: &Arc<JobModel>) -> usize {
        match self.jobs.get(&job) {
            Some(known) if Arc::ptr_eq(&known.model, model) => known.curves,
            _ => self.renew(job, model),
        }
    }

    /// The searches of a job whose model is another than before.
    fn renew(&mut self, job: JobId, model: &Arc<JobModel>) -> usize {
        let before = self.jobs.remove(&job).filter(|known| known.model.training == model.training);
        let curves = match (model.unlearned(), before) {
            (Some(alike), before) => match self.shared.get(&alike) {
                Some(&at) => at,
                None => {
                    let curves = before.map_or_else(Curves::default, |known| self.followed(&known, model));
                    let at = self.add(curves);
                    self.shared.insert(alike, at);
                    at
                }
            },
            (None, Some(known)) if known.model.unlearned().is_none() => {
                self.curves[known.curves].follow(model);
                known.curves
            }
            // What it shared goes on being the others'.
            (None, Some(known)) => {
                let own = self.followed(&known, model);
                self.add(own)
            }
            (None, None) => self.add(Curves::default()),
        };
        self.jobs.insert(job, Known { model: Arc::clone(model), curves });
        curves
    }

    /// A copy of the searches that a job had, with what its model has learnt since.
    fn followed(&self, known: &Known, model: &JobModel) -> Curves {
        let mut curves = self.curves[known.curves].clone();
        curves.follow(model);
        curves
    }

    fn add(&mut self, curves: Curves) -> usize {
        match self.vacant.pop() {
            Some(at) => {
                self.curves[at] = curves;
                at
            }
            None => {
                self.curves.push(curves);
                self.curves.len() - 1
            }
        }
    }
}

impl Curves {
    pub(crate) fn best(
        &mut self,
        model: &JobModel,
        class: &NodeClass,
        gpus: GpuCount,
        nodes: NodeCount,
        only: Option<Layout>,
    ) -> Option<Offer> {
        let searches = self.on(model, class);
        match only {
            None => searches.best(model, gpus, nodes),
            Some(layout) => searches.best_batch(model, gpus, nodes, layout).ok(),
        }
    }

    pub(crate) fn within_reach(
        &mut self,
        model: &JobModel,
        class: &NodeClass,
        (gpus, nodes): (GpuCount, NodeCount),
        present: &Configuration,
    ) -> Option<Offer> {
        self.on(model, class).best_within_reach(model, gpus, nodes, present).ok()
    }

    /// Whether the same has been searched for.
    pub(crate) fn know_within_reach(
        &self,
        class: &NodeClass,
        gpus: GpuCount,
        nodes: NodeCount,
        present: &Configuration,
    ) -> bool {
        let of_class = self.classes.iter().find(|known| known.are_on(class));
        of_class.is_some_and(|searches| searches.know_within_reach(class, gpus, nodes, present))
    }

    /// Whether the best of an allocation has been searched for.
    pub(crate) fn know(&self, class: &NodeClass, gpus: GpuCount, nodes: NodeCount, only: Option<Layout>) -> bool {
        let of_class = self.classes.iter().find(|known| known.are_on(class));
        of_class.is_some_and(|searches| searches.know(class, gpus, nodes, only))
    }

    fn on(&mut self, model: &JobModel, class: &NodeClass) -> &mut Searches {
        let at = self.classes.iter().position(|known| known.are_on(class)).unwrap_or_else(|| {
            self.classes.push(Searches::new(model, class));
            self.classes.len() - 1
        });
        let searches = &mut self.classes[at];
        searches.divide(class);
        searches
    }

    fn follow(&mut self, model: &JobModel) {
        self.classes.iter_mut().for_each(|of| of.follow(model));
    }
}

/// The model of a script that cannot leave this batch.
pub(crate) fn with_batch(model: &Arc<JobModel>, batch: Sequences) -> Arc<JobModel> {
    let mut pinned = JobModel::clone(model);
    pinned.training.batch = BatchRange { min: batch, max: batch };
    Arc::new(pinned)
}

/// The model of a job that runs at this batch.
pub(crate) fn holding(model: &Arc<JobModel>, batch: Sequences) -> Arc<JobModel> {
    let mut holding = JobModel::clone(model);
    holding.hold_batch(batch);
    Arc::new(holding)
}

/// Measured GNS φ in tokens.
pub(crate) fn noise_scale(model: &JobModel) -> Option<f64> {
    model.noise_scale().map(|(tokens, _)| tokens)
}

/// What a configuration brings; without one, what the user measured for the size.
pub(crate) fn predict(
    model: &JobModel,
    class: &NodeClass,
    gpus: GpuCount,
    nodes: NodeCount,
    configuration: Option<&Configuration>,
) -> Result<Prediction, Refusal> {
    match configuration {
        Some(configuration) => model.predict(class, gpus, nodes, configuration).map_err(Refusal::from),
        None => model.best(class, gpus, nodes).map(|offer| offer.prediction).map_err(Refusal::from),
    }
}

impl From<Infeasible> for Refusal {
    fn from(why: Infeasible) -> Self {
        let lacks = match () {
            () if why.is_memory() => Lack::Memory,
            () if why.is_layout() => Lack::Layout,
            () if why.is_batch() => Lack::Batch,
            () => Lack::Known,
        };
        Self { lacks, detail: why.to_string() }
    }
}
