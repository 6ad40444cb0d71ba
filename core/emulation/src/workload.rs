//! What a gang works on, as far as its truth depends on it.

use headway_types::spec::Precision;
use headway_types::{ModelShape, Seconds};

use crate::nature::Nature;
use crate::noise::NoiseCourse;
use crate::random::{Random, Seed};

/// Median and spread (of the logarithm) of a drawn duration: half an hour, most between ten minutes and an hour and a
/// half. Our choice.
const OPAQUE_MEDIAN: f64 = 1_800.0;
const OPAQUE_SPREAD: f64 = 1.0;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Workload {
    /// A script that reports; it trains until it is told to stop.
    Training(Training),
    /// A script that says nothing and exits by itself after so long.
    Opaque { duration: Seconds },
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Training {
    pub shape: ModelShape,
    pub precision: Precision,
    pub noise: NoiseCourse,
}

impl Training {
    /// As its gradients show it: their noise is off the true one by a factor of the job's.
    pub(crate) fn showing(self, job: Seed, nature: &Nature) -> Self {
        let off = Random::new(job.about(b"shown")).around(1.0, nature.noise);
        Self { noise: self.noise.times(off), ..self }
    }
}

/// The hidden duration of an opaque job.
#[must_use]
pub fn opaque_duration(seed: Seed) -> Seconds {
    Seconds(Random::new(seed.about(b"duration")).around(OPAQUE_MEDIAN, OPAQUE_SPREAD))
}
