//! How far an estimate may be from what comes: the deviation of its logarithm, from what held-out measurements showed (docs/goodput.md), wider
//! by each [`Caution`]. It changes no estimate.

use serde::{Deserialize, Serialize};

use crate::caution::Caution;
use crate::physics::Parameters;

/// Deviations of a normal distribution's ninth decile.
pub const NINTH_DECILE: f64 = 1.2816;

/// Standard deviations of the logarithm of an estimated step time and of estimated memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Deviation {
    pub time: f64,
    pub memory: f64,
}

impl Deviation {
    /// Of two independent reasons together.
    #[must_use]
    pub fn and(self, other: Deviation) -> Deviation {
        Deviation { time: libm::hypot(self.time, other.time), memory: libm::hypot(self.memory, other.memory) }
    }
}

/// What of a stack's deviation has been measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measured {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<f64>,
}

impl Measured {
    /// Whether nothing is known.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }
}

/// First and ninth decile of what an estimate stands for: in four of five cases it comes to lie between.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Band {
    pub p10: f64,
    pub p90: f64,
}

impl Band {
    /// Around an estimate whose logarithm has this deviation.
    #[must_use]
    pub fn around(estimate: f64, deviation: f64) -> Band {
        let factor = libm::exp(NINTH_DECILE * deviation);
        Band { p10: estimate / factor, p90: estimate * factor }
    }

    #[must_use]
    pub fn holds(&self, value: f64) -> bool {
        (self.p10..=self.p90).contains(&value)
    }
}

impl Parameters {
    /// Deviation of estimates of a stack that these cautions go with. Where its own was not measured it is that of unknown software: what an
    /// ancestor's constants are worth for another stack its own rows do not show.
    #[must_use]
    pub fn deviation(&self, stack: Option<&str>, cautions: &[Caution]) -> Deviation {
        let measured = stack.and_then(|name| self.stack.get(name)).map(|stack| stack.deviation).unwrap_or_default();
        let unknown = self.deviation_of(Caution::Software);
        let own = Deviation {
            time: measured.time.unwrap_or(unknown.time),
            memory: measured.memory.unwrap_or(unknown.memory),
        };
        let others = cautions.iter().filter(|caution| **caution != Caution::Software);
        others.fold(own, |sum, caution| sum.and(self.deviation_of(*caution)))
    }

    /// Deviation of unknown software, and what each other caution adds.
    #[must_use]
    pub fn deviation_of(&self, caution: Caution) -> Deviation {
        self.deviation.get(&caution).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_band_holds_its_estimate_and_four_fifths_around_it() {
        let band = Band::around(10.0, 0.1);
        assert!(band.holds(10.0) && band.holds(11.3) && !band.holds(11.4) && band.holds(8.8) && !band.holds(8.7));
    }

    #[test]
    fn each_caution_widens_and_unknown_software_more_than_known() {
        let parameters = Parameters::built_in();
        let known = parameters.deviation(Some("nemo"), &[]);
        let unknown = parameters.deviation(None, &[Caution::Software]);
        assert!(unknown.time > known.time, "{unknown:?} {known:?}");
        for caution in [Caution::Hardware, Caution::Experts, Caution::Context, Caution::Offload, Caution::Schedule] {
            assert!(parameters.deviation(Some("nemo"), &[caution]).time > known.time, "{caution:?}");
        }
        let mut unmeasured = parameters.clone();
        unmeasured.stack.get_mut("bridge-26.06").expect("a stack").deviation = Measured::default();
        assert_eq!(unmeasured.deviation(Some("bridge-26.06"), &[]), unknown, "whatever its ancestors'");
        assert_eq!(known.memory, unknown.memory, "no row of it says what it needs");
    }
}
