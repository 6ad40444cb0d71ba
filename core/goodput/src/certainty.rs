//! How sure a job's model is of what it predicts: what nobody has confirmed, how far off that may be, and what is unlikely to fit and yet not
//! impossible. It changes no prediction.

use headway_types::{Configuration, NodeClass};

use crate::architecture::Architecture;
use crate::band::{Deviation, NINTH_DECILE};
use crate::catalog::{self, Catalog, Device};
use crate::caution::{Caution, cautions};
use crate::memory::USABLE;
use crate::model::JobModel;
use crate::physics::Parameters;
use crate::strategy::Strategy;

impl JobModel {
    /// What of a prediction no measurement has confirmed; nothing on emulated devices, which nobody measures, and of a curve of the user's.
    #[must_use]
    pub fn cautions(&self, class: &NodeClass, configuration: &Configuration) -> Vec<Caution> {
        let strategy =
            configuration.cycles().map(|cycles| Strategy::of_faster(configuration, cycles, self.training.precision));
        strategy.map_or_else(Vec::new, |strategy| self.cautions_of(class, &strategy))
    }

    fn cautions_of(&self, class: &NodeClass, strategy: &Strategy) -> Vec<Caution> {
        let Some(shape) = self.shape().filter(|_| class.emulated.is_none()) else { return Vec::new() };
        let architecture = Architecture::from(shape);
        cautions(&architecture, strategy, &class.gpu_type.0, Catalog::built_in(), Parameters::built_in(), None)
    }

    /// How far off held-out measurements showed the prior to be of what these cautions go with; `None` where there is nothing to be sure of.
    pub(crate) fn prior_deviation(&self, class: &NodeClass, configuration: &Configuration) -> Option<Deviation> {
        let cautions = self.cautions(class, configuration);
        (!cautions.is_empty()).then(|| Parameters::built_in().deviation(None, &cautions))
    }

    /// By what factor memory may be beyond the device's before a configuration is refused: the first decile of an estimate that no peak has
    /// corrected, 1 of any other.
    pub(crate) fn tolerance(&self, class: &NodeClass) -> f64 {
        if self.learned_peaks(class).is_some() {
            return 1.0;
        }
        let cautions = self.cautions_of(class, &Strategy::single());
        libm::exp(NINTH_DECILE * Parameters::built_in().deviation(None, &cautions).memory)
    }

    /// Bytes per GPU that a configuration is thought to need and those that a job may use, where it is unlikely to fit. Such a one is tried only where
    /// nothing else is possible, and once: running out of memory teaches.
    #[must_use]
    pub fn unlikely_to_fit(&self, class: &NodeClass, configuration: &Configuration) -> Option<(f64, f64)> {
        let Ok(Device::Catalogued(hardware)) = catalog::device(class) else { return None };
        let (needed, usable) = (self.memory(class, configuration)?.bytes, USABLE * hardware.memory);
        (self.learned_peaks(class).is_none() && needed > usable).then_some((needed, usable))
    }
}
