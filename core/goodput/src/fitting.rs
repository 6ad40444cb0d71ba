//! Whether a configuration fits its device, by the memory model and what the job taught of it. It knows no time.

use headway_types::{Configuration, GpuType, ModelShape, spec};

use crate::architecture::Architecture;
use crate::catalog::{Device, Hardware};
use crate::collective::Cluster;
use crate::infeasible::Infeasible;
use crate::memory::{MemoryUse, USABLE, memory_of};
use crate::peaks::{Learned, PeakBounds};
use crate::step_time::unnamed_software;
use crate::strategy::Strategy;

const MIB: f64 = 1024.0 * 1024.0;

/// One job's memory on one GPU type; on emulated devices it is not checked.
#[derive(Clone, Copy)]
pub(crate) struct Fitting<'a> {
    architecture: Architecture,
    precision: spec::Precision,
    hardware: Option<Hardware>,
    learned: Option<&'a Learned>,
    /// Of the device's memory.
    margin: f64,
}

impl<'a> Fitting<'a> {
    pub(crate) fn new(
        shape: &ModelShape,
        precision: spec::Precision,
        device: &Device,
        learned: Option<&'a Learned>,
    ) -> Self {
        let hardware = match device {
            Device::Catalogued(hardware) => Some(*hardware),
            Device::Emulated(_) => None,
        };
        Self { architecture: Architecture::from(shape), precision, hardware, learned, margin: 1.0 }
    }

    /// The same where memory may be this factor beyond the device's.
    #[must_use]
    pub(crate) fn tolerating(self, margin: f64) -> Self {
        Self { margin, ..self }
    }

    pub(crate) fn tolerates(&self) -> bool {
        self.margin > 1.0
    }

    /// Bytes that a job may use.
    fn room(&self, hardware: &Hardware) -> f64 {
        USABLE * hardware.memory * self.margin
    }

    /// What the memory model says, uncorrected; `None` on emulated devices.
    pub(crate) fn predicted(&self, configuration: &Configuration, cycles: u64) -> Option<MemoryUse> {
        let strategy = Strategy::of_faster(configuration, cycles, self.precision);
        let hardware = self.hardware.as_ref()?;
        Some(memory_of(&self.architecture, &strategy, &Cluster::usual(hardware, unnamed_software(), 1)))
    }

    /// Bytes of the device.
    pub(crate) fn capacity(&self) -> Option<f64> {
        self.hardware.map(|hardware| hardware.memory)
    }

    pub(crate) fn fits(&self, configuration: &Configuration, cycles: u64) -> bool {
        let (Some(predicted), Some(hardware)) = (self.predicted(configuration, cycles), &self.hardware) else {
            return true;
        };
        let needed = self.learned.map_or_else(|| predicted.total(), |learned| learned.planned(&predicted));
        needed <= self.room(hardware) && self.learned.is_none_or(|learned| learned.exhausted_by(&predicted).is_none())
    }

    /// Bounds within which peaks may teach more; `None` where the next report may change anything.
    pub(crate) fn bounds(&self, slack: f64) -> Option<PeakBounds> {
        PeakBounds::around(self.learned, slack)
    }

    pub(crate) fn is_within(&self, bounds: &PeakBounds) -> bool {
        bounds.hold(self.learned)
    }

    /// Whether it fits whatever is learnt within the bounds.
    pub(crate) fn surely_fits(&self, configuration: &Configuration, cycles: u64, within: &PeakBounds) -> bool {
        let predicted = self.predicted(configuration, cycles).zip(self.hardware.as_ref());
        predicted.is_none_or(|(predicted, hardware)| within.most(&predicted) <= self.room(hardware))
    }

    /// Whether it fits with something that may be learnt within the bounds.
    pub(crate) fn may_fit(&self, configuration: &Configuration, cycles: u64, within: &PeakBounds) -> bool {
        let predicted = self.predicted(configuration, cycles).zip(self.hardware.as_ref());
        predicted.is_none_or(|(predicted, hardware)| within.least(&predicted) <= self.room(hardware))
    }

    /// Refuses a configuration that does not fit, with its numbers.
    pub(crate) fn check(
        &self,
        gpu_type: &GpuType,
        configuration: &Configuration,
        cycles: u64,
    ) -> Result<(), Infeasible> {
        let (Some(predicted), Some(hardware)) = (self.predicted(configuration, cycles), &self.hardware) else {
            return Ok(());
        };
        let (configuration, gpu_type) = (*configuration, gpu_type.clone());
        let planned = self.learned.map_or_else(|| predicted.total(), |learned| learned.planned(&predicted));
        let mib = |bytes: f64| libm::ceil(bytes / MIB) as u64;
        if let Some(by) = self.learned.and_then(|learned| learned.exhausted_by(&predicted)) {
            return Err(Infeasible::Exhausted { configuration, gpu_type, by: Box::new(by), needed_mib: mib(planned) });
        }
        if planned <= self.room(hardware) {
            return Ok(());
        }
        let learnt = if self.learned.is_some() { ", corrected by what this job reported" } else { "" };
        Err(Infeasible::Memory {
            configuration,
            gpu_type,
            needed_mib: mib(planned),
            available_mib: mib(USABLE * hardware.memory),
            detail: format!(
                "states {}, activations {}, logits {}, reserve {}{learnt}",
                mib(predicted.states),
                mib(predicted.activations),
                mib(predicted.logits),
                mib(predicted.reserve)
            )
            .into(),
        })
    }
}
