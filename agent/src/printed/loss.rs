//! Finds losses that are not finite, or far above the usual ones, in what a script prints. It applies the rules of the
//! worker library (`worker/src/headway/anomaly.py`), so that jobs whose output is read are watched like those that report.
//! Pure: losses in, findings out.

/// Weight of the past in the moving means.
const DECAY: f64 = 0.98;
/// Losses that are learnt from before any counts as high.
const LEARNING: u32 = 20;
/// A loss is high from so many mean distances above the mean on.
const DEVIATIONS: f64 = 8.0;
/// Least distance that counts, as a share of the mean.
const LEAST_SHARE: f64 = 0.02;

/// How unusual a loss is, the gravest last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Oddity {
    #[default]
    Usual,
    High,
    NotFinite,
}

/// A loss that is worth an event.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct LossAnomaly {
    pub(crate) step: u64,
    /// `None` if it is not a finite number.
    pub(crate) loss: Option<f64>,
    /// Mean of the losses before it, once there were any.
    pub(crate) usual: Option<f64>,
}

/// Follows a loss by its moving mean and the mean distance from it.
#[derive(Default)]
pub(super) struct LossWatch {
    mean: f64,
    distance: f64,
    seen: u32,
    oddity: Oddity,
}

impl LossWatch {
    /// Returns a finding where the loss is odder than the one before it.
    pub(super) fn see(&mut self, step: u64, loss: f64) -> Option<LossAnomaly> {
        let usual = (self.seen > 0).then_some(self.mean);
        if !loss.is_finite() {
            let rises = self.rises_to(Oddity::NotFinite);
            return rises.then_some(LossAnomaly { step, loss: None, usual });
        }
        let limit = self.mean + DEVIATIONS * self.distance.max(LEAST_SHARE * self.mean.abs());
        let is_high = self.seen >= LEARNING && loss > limit;
        let rises = self.rises_to(if is_high { Oddity::High } else { Oddity::Usual });
        // A high loss counts as the limit, so that a lasting change becomes usual in the end.
        self.learn(if is_high { limit } else { loss });
        rises.then_some(LossAnomaly { step, loss: Some(loss), usual })
    }

    fn rises_to(&mut self, oddity: Oddity) -> bool {
        let before = std::mem::replace(&mut self.oddity, oddity);
        oddity > before
    }

    fn learn(&mut self, loss: f64) {
        self.seen = self.seen.saturating_add(1);
        let weight = (1.0 - DECAY).max(1.0 / f64::from(self.seen));
        let distance = if self.seen > 1 { (loss - self.mean).abs() } else { 0.0 };
        self.distance += weight * (distance - self.distance);
        self.mean += weight * (loss - self.mean);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Steps at which a finding is made.
    fn told(losses: impl IntoIterator<Item = f64>) -> Vec<(u64, Option<f64>)> {
        let mut watch = LossWatch::default();
        let findings = losses.into_iter().zip(1..).filter_map(|(loss, step)| watch.see(step, loss));
        findings.map(|finding| (finding.step, finding.loss)).collect()
    }

    fn falling(steps: u32) -> impl Iterator<Item = f64> {
        (0..steps).map(|step| 2.0 + 4.0 * (-f64::from(step) / 100.0).exp() + 0.05 * f64::from(step % 3))
    }

    #[test]
    fn an_ordinary_run_has_no_odd_loss() {
        assert_eq!(told(falling(500)), []);
    }

    #[test]
    fn a_stretch_is_found_once_where_it_begins() {
        let spike = falling(300).chain([7.0, 7.5, 7.0]).chain(falling(300).skip(250));
        assert_eq!(told(spike), [(301, Some(7.0))]);
        assert_eq!(told([f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 5.0, f64::NAN]), [(1, None), (5, None)]);
    }

    #[test]
    fn a_loss_that_rises_before_it_is_lost_is_found_twice() {
        let diverging = falling(300).chain([9.0, f64::NAN, f64::NAN, 9.0]);
        assert_eq!(told(diverging), [(301, Some(9.0)), (302, None)]);
    }
}
