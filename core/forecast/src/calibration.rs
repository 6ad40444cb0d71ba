//! How far predicted starts were off, and bands that hold what they promise: split conformal prediction with residuals
//! normalised by the predicted spread (Papadopoulos et al. 2002; Lei et al. 2018, section 5.2), in logarithms of waiting
//! times, quantile by quantile. Until enough has come true it leans on a prior that is wider than the futures say.

use std::collections::VecDeque;

use headway_types::quantile::at_rank;
use headway_types::{Seconds, Timestamp};
use serde::{Deserialize, Serialize};

use crate::start::Start;

/// Waits are compared beyond this: seconds do not matter.
const GRAIN: f64 = 30.0;
/// Residuals kept.
const KEPT: usize = 200;
/// Residuals that the prior counts for.
const PRIOR: usize = 10;
/// The prior's σ: futures know less than they think.
const PRIOR_SPREAD: f64 = 1.5;
/// Least spread (σ of the logarithm) that is taken for granted: futures that all agree are not certain.
const LEAST_SPREAD: f64 = 0.1;
/// p90 is so many σ above p10 in a normal distribution.
const BAND: f64 = 2.563;

/// Residuals of the newest starts that came true, in units of the spread predicted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Calibration {
    residuals: VecDeque<f64>,
}

impl Calibration {
    /// A start predicted at a moment has come.
    pub fn learn(&mut self, at: Timestamp, predicted: Start, came: Timestamp) {
        let Some((middle, spread)) = shape(at, predicted) else { return };
        if self.residuals.len() == KEPT {
            self.residuals.pop_front();
        }
        self.residuals.push_back((log_wait(at, came) - middle) / spread);
    }

    /// The band that as many starts as promised fell into lately.
    pub fn apply(&self, at: Timestamp, rolled: Start) -> Start {
        let Some((middle, spread)) = shape(at, rolled) else { return rolled };
        let prior = (0..PRIOR).map(|rank| PRIOR_SPREAD * normal_quantile((rank as f64 + 0.5) / PRIOR as f64));
        let mut residuals: Vec<f64> = self.residuals.iter().copied().chain(prior).collect();
        residuals.sort_by(f64::total_cmp);
        let moment = |share: f64| {
            // The conformal rank: (n + 1)·share of n values, of which the first is the 0th here.
            let rank = (residuals.len() + 1) as f64 * share - 1.0;
            let residual = at_rank(&residuals, rank).unwrap_or_default();
            let wait = libm::exp(middle + spread * residual) - GRAIN;
            at + Seconds(wait.max(0.0))
        };
        Start { p10: moment(0.1), p50: Some(moment(0.5)), p90: rolled.p90.map(|_| moment(0.9)) }
    }
}

/// Middle and spread of what was predicted, in logarithms; nothing where half of the futures saw no start.
fn shape(at: Timestamp, of: Start) -> Option<(f64, f64)> {
    let middle = log_wait(at, of.p50?);
    let below = middle - log_wait(at, of.p10);
    let spread = match of.p90 {
        Some(p90) => (log_wait(at, p90) - log_wait(at, of.p10)) / BAND,
        None => 2.0 * below / BAND,
    };
    Some((middle, spread.max(LEAST_SPREAD)))
}

fn log_wait(at: Timestamp, start: Timestamp) -> f64 {
    libm::log(start.since(at).0.max(0.0) + GRAIN)
}

/// Inverse of the normal distribution (Abramowitz and Stegun 26.2.23; off by less than 4.5·10⁻⁴).
fn normal_quantile(share: f64) -> f64 {
    let tail = share.min(1.0 - share);
    let t = libm::sqrt(-2.0 * libm::log(tail));
    let above = 2.515_517 + t * (0.802_853 + t * 0.010_328);
    let below = 1.0 + t * (1.432_788 + t * (0.189_269 + t * 0.001_308));
    let value = t - above / below;
    if share < 0.5 { -value } else { value }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_700_000_000_000_000);

    fn said(p10: f64, p50: f64, p90: f64) -> Start {
        let at = |seconds: f64| NOW + Seconds(seconds);
        Start { p10: at(p10), p50: Some(at(p50)), p90: Some(at(p90)) }
    }

    /// A deterministic spread of values within 0 and 1.
    fn evenly(count: usize) -> impl Iterator<Item = f64> {
        (0..count).map(|number| (number as f64 * 0.618_033_988_75).fract())
    }

    #[test]
    fn nothing_learnt_widens_what_is_said() {
        let band = Calibration::default().apply(NOW, said(500.0, 600.0, 720.0));
        assert!(band.p10 < NOW + Seconds(500.0) && band.p90 > Some(NOW + Seconds(720.0)), "{band:?}");
        let middle = band.p50.map_or(0.0, |at| at.since(NOW).0);
        assert!((middle - 600.0).abs() < 5.0, "{middle}");
    }

    #[test]
    fn a_band_that_held_too_few_starts_holds_four_fifths_of_those_to_come() {
        // Starts come at half to twice the middle, while futures say 10 % around it, and too late.
        let mut calibration = Calibration::default();
        let come = |share: f64| 900.0 * libm::exp((share - 0.5) * 1.4);
        for share in evenly(200) {
            calibration.learn(NOW, said(1_000.0, 1_100.0, 1_200.0), NOW + Seconds(come(share)));
        }
        let band = calibration.apply(NOW, said(1_000.0, 1_100.0, 1_200.0));
        let inside = evenly(1_000).filter(|share| {
            let start = NOW + Seconds(come(*share));
            band.p10 <= start && band.p90.is_some_and(|p90| start <= p90)
        });
        assert!((770..=830).contains(&inside.count()), "{band:?}");
    }

    #[test]
    fn a_half_that_nobody_saw_is_left_as_it_is() {
        let open = Start { p50: None, p90: None, ..said(100.0, 200.0, 300.0) };
        assert_eq!(Calibration::default().apply(NOW, open), open);
    }
}
