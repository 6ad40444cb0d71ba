//! Searches of one training on one class, kept from round to round. What layers take, and which configurations can be an allocation's best,
//! does not change with a report; only what is learnt is weighed anew. It holds nothing that the model does not imply: the answers are those
//! of a search from nothing.

use std::collections::BTreeMap;

use headway_types::{Configuration, GpuCount, Layout, NodeClass, NodeCount, Sequences};

use crate::choice::{Choice, Learnt, Search};
use crate::curve::Offer;
use crate::ground::Ground;
use crate::infeasible::Infeasible;
use crate::known::Known;
use crate::model::JobModel;
use crate::peaks::{Learned, PeakBounds};
use crate::shortlist::{Shortlist, nothing_fits};
use crate::step_time::StepTime;

/// See the module. Every question names a model of the same training; [`Self::follow`] says when what it has learnt is another.
#[derive(Clone, Debug)]
pub struct Searches {
    /// Of a gang over two classes in the division that is asked for.
    class: NodeClass,
    known: Result<Known, Infeasible>,
    learnt: Learnt,
    peaks: Option<Learned>,
    ground: Ground,
    lead: f64,
    /// How often what is learnt has changed.
    age: u64,
    allocations: BTreeMap<Allocation, Answered>,
    /// Of this age.
    layouts: BTreeMap<Asked, Result<Offer, Infeasible>>,
    refusals: BTreeMap<Allocation, Option<Infeasible>>,
}

/// GPUs, nodes, and how many of the nodes are faster.
type Allocation = (GpuCount, NodeCount, NodeCount);

/// A layout that stays, and the micro-batch within whose reach it stays.
type Asked = (Allocation, Layout, Option<Sequences>);

/// What is known of an allocation, as of an age.
#[derive(Clone, Debug)]
struct Answered {
    age: u64,
    found: Found,
    /// It is unlikely to fit.
    unlikely: bool,
}

#[derive(Clone, Debug)]
enum Found {
    /// The first answer. Most models never change again: their jobs wait.
    Once(Choice),
    Again(Box<Again>),
    Nothing {
        /// Within which nothing fits either.
        peaks: Option<PeakBounds>,
    },
}

/// An answer that has been asked for with different models.
#[derive(Clone, Debug)]
struct Again {
    choice: Choice,
    /// The choice's.
    prior: StepTime,
    list: Option<Shortlist>,
}

impl Searches {
    #[must_use]
    pub fn new(model: &JobModel, class: &NodeClass) -> Self {
        Self {
            class: class.clone(),
            known: model.prior_times(class).map(Known::new),
            learnt: Learnt::of(model, class),
            peaks: model.learned_peaks(class).cloned(),
            ground: model.ground(class),
            lead: model.lead_learnt(class),
            age: 0,
            allocations: BTreeMap::new(),
            layouts: BTreeMap::new(),
            refusals: BTreeMap::new(),
        }
    }

    /// Whether they are of a class, however its nodes are divided.
    #[must_use]
    pub fn are_on(&self, class: &NodeClass) -> bool {
        let alike = match (&self.class.ahead, &class.ahead) {
            (None, None) => true,
            (Some(own), Some(other)) => own.class == other.class,
            _ => false,
        };
        let NodeClass { gpu_type, gpus_per_node, emulated, fabric, stated, ahead: _ } = &self.class;
        alike
            && *gpu_type == class.gpu_type
            && *gpus_per_node == class.gpus_per_node
            && *emulated == class.emulated
            && *fabric == class.fabric
            && *stated == class.stated
    }

    /// Questions are about this division of the class from now on.
    pub fn divide(&mut self, class: &NodeClass) {
        if self.class.ahead != class.ahead {
            self.class.ahead.clone_from(&class.ahead);
        }
    }

    fn allocation(&self, gpus: GpuCount, nodes: NodeCount) -> Allocation {
        (gpus, nodes, faster_of(&self.class))
    }

    /// The model has changed, its training has not.
    pub fn follow(&mut self, model: &JobModel) {
        let lead = model.lead_learnt(&self.class);
        if lead != self.lead {
            *self = Self { age: self.age + 1, ..Self::new(model, &self.class) };
            return;
        }
        let (learnt, peaks) = (Learnt::of(model, &self.class), model.learned_peaks(&self.class));
        let ground = model.ground(&self.class);
        if learnt != self.learnt || peaks != self.peaks.as_ref() || ground != self.ground {
            (self.learnt, self.peaks, self.ground) = (learnt, peaks.cloned(), ground);
            self.age += 1;
            self.layouts.clear();
            self.refusals.clear();
        }
    }

    /// Whether the best of an allocation, or of a layout there, has been searched for since what is learnt last changed.
    #[must_use]
    pub fn know(&self, class: &NodeClass, gpus: GpuCount, nodes: NodeCount, only: Option<Layout>) -> bool {
        let at = (gpus, nodes, faster_of(class));
        match only {
            None => self.allocations.get(&at).is_some_and(|known| known.age == self.age),
            Some(layout) => self.layouts.contains_key(&(at, layout, None)),
        }
    }

    /// The same of the best within reach of a job that runs in a configuration.
    #[must_use]
    pub fn know_within_reach(&self, class: &NodeClass, gpus: GpuCount, nodes: NodeCount, of: &Configuration) -> bool {
        self.layouts.contains_key(&((gpus, nodes, faster_of(class)), of.layout, Some(of.micro_batch)))
    }

    /// The best of an allocation; `None` where nothing is feasible.
    pub fn best(&mut self, model: &JobModel, gpus: GpuCount, nodes: NodeCount) -> Option<Offer> {
        if model.shape().is_none() {
            return model.best(&self.class, gpus, nodes).ok();
        }
        let at = self.allocation(gpus, nodes);
        let known = self.allocations.get(&at);
        let current = known.filter(|known| known.age == self.age);
        let (choice, unlikely) = match current {
            Some(known) => (known.found.choice(), known.unlikely),
            None => {
                let (found, unlikely) = self.find(model, gpus, nodes)?;
                let choice = found.choice();
                self.allocations.insert(at, Answered { age: self.age, found, unlikely });
                (choice, unlikely)
            }
        };
        choice.map(|(configuration, prediction)| Offer { configuration: Some(configuration), prediction, unlikely })
    }

    /// Why nothing is feasible on an allocation.
    pub fn refusal(&mut self, model: &JobModel, gpus: GpuCount, nodes: NodeCount) -> Option<Infeasible> {
        self.best(model, gpus, nodes).is_none().then_some(())?;
        let refuse = || model.best(&self.class, gpus, nodes).err();
        self.refusals.entry(self.allocation(gpus, nodes)).or_insert_with(refuse).clone()
    }

    /// The best micro-batch and global batch of a layout that stays.
    pub fn best_batch(
        &mut self,
        model: &JobModel,
        gpus: GpuCount,
        nodes: NodeCount,
        layout: Layout,
    ) -> Result<Offer, Infeasible> {
        self.best_of((self.allocation(gpus, nodes), layout, None), model)
    }

    /// The same for a job that runs in a configuration: of its layout, in a micro-batch that was measured, or next to such a one.
    pub fn best_within_reach(
        &mut self,
        model: &JobModel,
        gpus: GpuCount,
        nodes: NodeCount,
        of: &Configuration,
    ) -> Result<Offer, Infeasible> {
        self.best_of((self.allocation(gpus, nodes), of.layout, Some(of.micro_batch)), model)
    }

    fn best_of(&mut self, key: Asked, model: &JobModel) -> Result<Offer, Infeasible> {
        let ((gpus, nodes, _), layout, present) = key;
        if let Some(known) = self.layouts.get(&key) {
            return known.clone();
        }
        let known = self.known.as_mut().map_err(|why| why.clone())?;
        let mut search = Search::with(model, &self.class, known, self.learnt)?;
        let found = search.best_batch(gpus, nodes, layout, present).map(|(configuration, prediction)| Offer {
            configuration: Some(configuration),
            prediction,
            unlikely: search.tolerates(),
        });
        self.layouts.insert(key, found.clone());
        found
    }

    /// And whether it is unlikely to fit; `None` where the class is not known.
    fn find(&mut self, model: &JobModel, gpus: GpuCount, nodes: NodeCount) -> Option<(Found, bool)> {
        let mut search = Search::with(model, &self.class, self.known.as_mut().ok()?, self.learnt).ok()?;
        let known = self.allocations.remove(&(gpus, nodes, faster_of(&self.class)));
        let asked_before = known.is_some();
        match known.map(|known| known.found) {
            Some(Found::Again(mut again)) => {
                if let Some(configuration) = again.list.as_ref().and_then(|list| list.best(&search)) {
                    again.take(model, &self.class, (gpus, nodes), configuration)?;
                    return Some((Found::Again(again), false));
                }
            }
            Some(Found::Nothing { peaks: Some(peaks) }) if search.memory.is_within(&peaks) => {
                return Some((Found::Nothing { peaks: Some(peaks) }, false));
            }
            Some(Found::Once(_) | Found::Nothing { .. }) | None => {}
        }
        let best = search.found(gpus, nodes, 1).ok();
        let unlikely = search.tolerates();
        // A list is of what fits: of the rest a peak that comes as predicted changes the answer.
        let list = best.as_ref().filter(|_| asked_before && !unlikely);
        let list = list.and_then(|best| Shortlist::around(&mut search, gpus, nodes, best));
        let Some((_, configuration)) = best.and_then(|best| best.found.into_iter().next()) else {
            let peaks = if asked_before { nothing_fits(&mut search, gpus, nodes) } else { None };
            return Some((Found::Nothing { peaks }, false));
        };
        let again = Again::new(model, &self.class, (gpus, nodes), configuration, list)?;
        let found = if asked_before { Found::Again(Box::new(again)) } else { Found::Once(again.choice) };
        Some((found, unlikely))
    }
}

fn faster_of(class: &NodeClass) -> NodeCount {
    class.ahead.as_ref().map_or(NodeCount(0), |ahead| ahead.nodes)
}

impl Found {
    fn choice(&self) -> Option<Choice> {
        match self {
            Found::Once(choice) => Some(*choice),
            Found::Again(again) => Some(again.choice),
            Found::Nothing { .. } => None,
        }
    }
}

impl Again {
    fn new(
        model: &JobModel,
        class: &NodeClass,
        (gpus, nodes): (GpuCount, NodeCount),
        configuration: Configuration,
        list: Option<Shortlist>,
    ) -> Option<Self> {
        let prior = model.prior_step_time(class, gpus, nodes, &configuration).ok()?;
        let prediction = model.corrected_prediction(class, nodes, &configuration, &prior);
        Some(Self { choice: (configuration, prediction), prior, list })
    }

    /// The model predicts anew.
    fn take(
        &mut self,
        model: &JobModel,
        class: &NodeClass,
        (gpus, nodes): (GpuCount, NodeCount),
        configuration: Configuration,
    ) -> Option<()> {
        if configuration != self.choice.0 {
            self.prior = model.prior_step_time(class, gpus, nodes, &configuration).ok()?;
        }
        self.choice = (configuration, model.corrected_prediction(class, nodes, &configuration, &self.prior));
        Some(())
    }
}

#[cfg(test)]
#[path = "searches_tests.rs"]
mod tests;
