//! Goodput curves: for each allocation the best configuration, or why there is none. `choice` finds it.

use headway_types::spec::GpuRange;
use headway_types::{Configuration, GpuCount, Layout, NodeClass, NodeCount, Prediction, TokensPerSecond};
use serde::{Deserialize, Serialize};

use crate::choice::Search;
use crate::infeasible::Infeasible;
use crate::known::Known;
use crate::model::JobModel;

/// Standard deviations from the median to the last decile.
const LAST_DECILE: f64 = 1.2816;

/// The best that an allocation offers.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Offer {
    /// `None` where the goodput was measured by the user and the script chooses.
    pub configuration: Option<Configuration>,
    /// Its `speed_up` is 0: the planner knows the fair share.
    pub prediction: Prediction,
    /// Nothing fits by the estimate, and this may: [`JobModel::unlikely_to_fit`].
    #[serde(default)]
    pub unlikely: bool,
}

impl Offer {
    /// Of what is measured or known to fit.
    #[must_use]
    pub fn likely(configuration: Option<Configuration>, prediction: Prediction) -> Self {
        Self { configuration, prediction, unlikely: false }
    }
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
        let mut known = self.prior_times(class).map(Known::new);
        let mut search = known.as_mut().map_err(|why| why.clone()).and_then(|known| Search::new(self, class, known));
        let points = sizes
            .map(|gpus| {
                let nodes = NodeCount(gpus.0.div_ceil(per_node));
                let offer = self.offers(search.as_mut(), gpus, nodes, 1).map(|mut best| best.swap_remove(0));
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
        self.ranked(class, gpus, nodes, 1).map(|mut best| best.swap_remove(0))
    }

    /// The best configurations of an allocation, best first: at least one and at most `keep`, each of another layout.
    pub fn ranked(
        &self,
        class: &NodeClass,
        gpus: GpuCount,
        nodes: NodeCount,
        keep: usize,
    ) -> Result<Vec<Offer>, Infeasible> {
        match self.prior_times(class).map(Known::new) {
            Ok(mut known) => self.offers(Search::new(self, class, &mut known).as_mut(), gpus, nodes, keep),
            Err(mut why) => self.offers(Err(&mut why), gpus, nodes, keep),
        }
    }

    /// First and last decile of an offer's goodput, by the uncertainty of its step time; `None` where the user measured it.
    #[must_use]
    pub fn band(
        &self,
        class: &NodeClass,
        gpus: GpuCount,
        nodes: NodeCount,
        offer: &Offer,
    ) -> Option<(TokensPerSecond, TokensPerSecond)> {
        let error = self.step_time(class, gpus, nodes, offer.configuration.as_ref()?).ok()?.relative_error;
        let width = libm::exp(LAST_DECILE * error);
        let goodput = offer.prediction.goodput;
        Some((goodput * (1.0 / width), goodput * width))
    }

    fn offers(
        &self,
        search: Result<&mut Search<'_>, &mut Infeasible>,
        gpus: GpuCount,
        nodes: NodeCount,
        keep: usize,
    ) -> Result<Vec<Offer>, Infeasible> {
        if self.shape().is_none() {
            return self.measured(gpus).map(|prediction| vec![Offer::likely(None, prediction)]);
        }
        let search = search.map_err(|why| why.clone())?;
        let found = search.ranked(gpus, nodes, keep.max(1))?;
        let unlikely = search.tolerates();
        let offer = |(configuration, prediction)| Offer { configuration: Some(configuration), prediction, unlikely };
        Ok(found.into_iter().map(offer).collect())
    }

    /// The best micro-batch and global batch of a layout that stays.
    pub fn best_batch(
        &self,
        class: &NodeClass,
        gpus: GpuCount,
        nodes: NodeCount,
        layout: Layout,
    ) -> Result<(Configuration, Prediction), Infeasible> {
        Search::new(self, class, &mut Known::new(self.prior_times(class)?))?.best_batch(gpus, nodes, layout, None)
    }
}

#[cfg(test)]
#[path = "curve_tests.rs"]
mod tests;
