//! Work whose goodput its user measured by size: the curve as it is told, and the scale that reports give it.

use headway_types::spec::Work;
use headway_types::{GpuCount, Prediction, Seconds, TokensPerSecond};

use crate::infeasible::Infeasible;
use crate::model::JobModel;

/// Weight of the newest report in a measured curve's absolute scale.
const NEWEST: f64 = 0.2;

impl JobModel {
    /// A user's curve at a size: linear between its points, proportional below the first, level above the last.
    pub(crate) fn measured(&self, gpus: GpuCount) -> Result<Prediction, Infeasible> {
        let relative = self.relative_goodput(gpus).ok_or(Infeasible::NoCurve)?;
        let goodput = TokensPerSecond(relative * self.curve_scale.unwrap_or(1.0));
        Ok(Prediction { step_time: Seconds(0.0), throughput: goodput, efficiency: 1.0, goodput, speed_up: 0.0 })
    }

    fn relative_goodput(&self, gpus: GpuCount) -> Option<f64> {
        let Work::Curve { points, .. } = &self.training.work else { return None };
        let below = points.range(..=gpus).next_back().map_or((0.0, 0.0), |(at, value)| (f64::from(at.0), *value));
        let value = match points.range(gpus..).next() {
            Some((at, value)) if f64::from(at.0) > below.0 => {
                let share = (f64::from(gpus.0) - below.0) / (f64::from(at.0) - below.0);
                below.1 + share * (value - below.1)
            }
            _ => below.1,
        };
        (value.is_finite() && value > 0.0).then_some(value)
    }

    pub(crate) fn observe_rate(&mut self, gpus: GpuCount, tokens_per_second: f64) {
        let Some(relative) = self.relative_goodput(gpus) else { return };
        let scale = tokens_per_second / relative;
        if scale.is_finite() && scale > 0.0 {
            let old = self.curve_scale.unwrap_or(scale);
            self.curve_scale = Some(libm::exp(libm::log(old) + NEWEST * (libm::log(scale) - libm::log(old))));
        }
    }
}
