//! What is believed of the constants before any measurement, and how far each may move: the file that keeps a fit sane.

use std::collections::BTreeMap;

use headway_goodput::band::Deviation;
use headway_goodput::caution::Caution;
use serde::Deserialize;

/// A constant's value before any measurement, and the deviation of its logarithm.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Belief {
    pub value: f64,
    pub sigma: f64,
}

/// The whole file.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Prior {
    pub shared: BTreeMap<String, Belief>,
    /// Deviation of the logarithm of a GPU family's factor.
    pub family: BTreeMap<String, f64>,
    /// The same of a stack's factor.
    pub stack: BTreeMap<String, f64>,
    /// Relative scatter of a source's step times beyond what any model could know.
    pub noise: BTreeMap<String, f64>,
    /// The same of its memory.
    pub memory_noise: BTreeMap<String, f64>,
    /// Rows of a source that count in full; of more, each counts less.
    pub full_rows: BTreeMap<String, f64>,
    pub deviation: DeviationBelief,
}

/// How far estimates are believed to be off before any held-out measurement.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviationBelief {
    /// Rows that a belief counts for.
    pub rows: f64,
    /// Of a measured stack.
    pub stack: Deviation,
    /// Of unknown software, and added by each other caution.
    pub cautions: BTreeMap<Caution, Deviation>,
}

/// Scatter and rows of a source that the file does not name.
pub const USUAL_NOISE: f64 = 0.05;
pub const USUAL_MEMORY_NOISE: f64 = 0.05;
pub const USUAL_FULL_ROWS: f64 = 60.0;

impl Prior {
    /// The committed priors.
    #[must_use]
    pub fn built_in() -> Self {
        toml::from_str(include_str!("prior.toml")).expect("the committed file is tested to parse")
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use headway_goodput::physics::{Parameters, Physics};

    #[test]
    fn every_constant_and_factor_has_a_prior() {
        let prior = Prior::built_in();
        for name in Physics::NAMES {
            assert!(prior.shared.contains_key(*name), "{name}");
        }
        for stack in Parameters::built_in().stack.values() {
            for name in stack.factors.keys() {
                assert!(prior.stack.contains_key(name), "{name}");
            }
        }
    }
}
