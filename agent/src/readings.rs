//! What GPUs measure of themselves, for people to look at: how much each was used since this was last told, its heat, power and memory as they
//! were seen last. Nothing is decided by it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use headway_api::agent::GpuReading;
use headway_types::GpuUuid;

use crate::gpu::Device;

#[derive(Clone, Default)]
pub(crate) struct Readings(Arc<Mutex<BTreeMap<GpuUuid, Seen>>>);

struct Seen {
    newest: GpuReading,
    busy: f64,
    looks: f64,
}

impl Readings {
    pub(crate) fn take_in(&self, devices: &[Device]) {
        let mut readings = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for device in devices {
            let newest = GpuReading {
                gpu: device.gpu.uuid.clone(),
                busy: device.busy,
                celsius: device.celsius,
                watts: device.watts,
                memory_used: device.used,
            };
            if newest.says_nothing() {
                continue;
            }
            let (busy, looks) = readings.get(&newest.gpu).map_or((0.0, 0.0), |seen| (seen.busy, seen.looks));
            let (busy, looks) = newest.busy.map_or((busy, looks), |now| (busy + now, looks + 1.0));
            readings.insert(newest.gpu.clone(), Seen { newest, busy, looks });
        }
    }

    /// What is new since this was last called; of GPUs that say nothing, nothing.
    pub(crate) fn take(&self) -> Vec<GpuReading> {
        let seen = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        let told = |Seen { newest, busy, looks }| GpuReading { busy: (looks > 0.0).then(|| busy / looks), ..newest };
        seen.into_values().map(told).collect()
    }
}

#[cfg(test)]
mod tests {
    use headway_types::Bytes;

    use super::*;

    #[test]
    fn use_is_the_mean_of_all_looks_and_heat_that_of_the_last() {
        let inventory = crate::node::tests::fixture::inventory(2);
        let device = |index: usize, busy, celsius: Option<f64>| Device {
            gpu: inventory.gpus[index].clone(),
            gpu_type: inventory.gpu_type.clone(),
            slowed: None,
            used: celsius.map(|_| Bytes(7)),
            busy,
            celsius,
            watts: None,
            processes: Vec::new(),
            files: Vec::new(),
            own: Vec::new(),
        };
        let readings = Readings::default();
        readings.take_in(&[device(0, Some(1.0), Some(60.0)), device(1, None, None)]);
        readings.take_in(&[device(0, Some(0.5), Some(64.0)), device(1, None, None)]);
        let told = readings.take();
        assert_eq!(told.len(), 1, "what says nothing is not told of");
        assert_eq!((told[0].busy, told[0].celsius, told[0].memory_used), (Some(0.75), Some(64.0), Some(Bytes(7))));
        assert!(readings.take().is_empty());
    }
}
