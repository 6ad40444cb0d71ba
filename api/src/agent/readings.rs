//! What GPUs measure of themselves. Nothing is decided by it.

use headway_types::{Bytes, GpuUuid};

use super::from_wire::Read;
use super::{WireError, wire};

/// More GPUs than any node may offer.
const MOST: usize = 256;

/// One GPU; what its driver does not tell is absent.
#[derive(Clone, Debug, PartialEq)]
pub struct GpuReading {
    pub gpu: GpuUuid,
    /// Share of the time since the last reading in which some kernel ran.
    pub busy: Option<f64>,
    pub celsius: Option<f64>,
    pub watts: Option<f64>,
    /// By whomever.
    pub memory_used: Option<Bytes>,
}

impl GpuReading {
    #[must_use]
    pub fn says_nothing(&self) -> bool {
        self.busy.is_none() && self.celsius.is_none() && self.watts.is_none() && self.memory_used.is_none()
    }
}

pub(super) fn to_wire(readings: &[GpuReading]) -> wire::GpuReadings {
    let reading = |one: &GpuReading| wire::GpuReading {
        uuid: one.gpu.0.clone(),
        busy: one.busy,
        temperature_celsius: one.celsius,
        power_watts: one.watts,
        memory_used_bytes: one.memory_used.map(|bytes| bytes.0),
    };
    wire::GpuReadings { gpus: readings.iter().map(reading).collect() }
}

/// What no GPU measures is left out.
pub(super) fn from_wire(readings: wire::GpuReadings) -> Read<Vec<GpuReading>> {
    if readings.gpus.len() > MOST {
        let message = format!("{} readings, {MOST} at most", readings.gpus.len());
        return Err(WireError::Bad { field: "gpus", message });
    }
    let reading = |one: wire::GpuReading| GpuReading {
        gpu: GpuUuid(one.uuid),
        busy: one.busy.filter(|share| (0.0..=1.0).contains(share)),
        celsius: one.temperature_celsius.filter(|degrees| (-100.0..=300.0).contains(degrees)),
        watts: one.power_watts.filter(|watts| (0.0..=10_000.0).contains(watts)),
        memory_used: one.memory_used_bytes.map(Bytes),
    };
    Ok(readings.gpus.into_iter().map(reading).collect())
}
