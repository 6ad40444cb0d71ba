//! The built-in hardware catalog: what a GPU of a type can do, as a prior. Never per-job knowledge; that is `correction`.

use headway_types::spec::Precision;
use headway_types::{EmulatedDevice, GpuType, NodeClass};

use crate::infeasible::Infeasible;

/// What one GPU of a type offers. Rates are per GPU and per direction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hardware {
    /// Dense half-precision peak of the data sheet, FLOP/s.
    pub peak: f64,
    /// Best measured half-precision matrix multiplication, FLOP/s (data sheets promise up to twice as much).
    pub best_matmul: f64,
    /// Device memory, bytes.
    pub memory: f64,
    /// Memory bandwidth, bytes/s.
    pub memory_bandwidth: f64,
    /// Scale-up link (NVLink, xGMI), bytes/s.
    pub intra_node: f64,
    /// Network per GPU in the usual build, bytes/s.
    pub inter_node: f64,
}

impl Hardware {
    /// Best matrix rate at a precision; fp32 runs outside the half-precision units at an eighth of them.
    #[must_use]
    pub fn matmul_rate(&self, precision: Precision) -> f64 {
        match precision {
            Precision::Bf16 | Precision::Fp16 => self.best_matmul,
            Precision::Fp32 => self.best_matmul / 8.0,
        }
    }
}

/// What the devices of a class are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Device {
    Catalogued(Hardware),
    Emulated(EmulatedDevice),
}

const TERA: f64 = 1e12;
const GIGA: f64 = 1e9;
const GIB: f64 = 1024.0 * 1024.0 * 1024.0;

const fn hardware(peak: f64, matmul: f64, memory: f64, bandwidth: f64, intra: f64, inter: f64) -> Hardware {
    Hardware {
        peak: peak * TERA,
        best_matmul: matmul * TERA,
        memory: memory * GIB,
        memory_bandwidth: bandwidth * TERA,
        intra_node: intra * GIGA,
        inter_node: inter * GIGA,
    }
}

/// Data sheets and measured best matrix rates (stas00/ml-engineering). The H200 shares the H100's compute die. Full-mesh MI300X
/// links reach about 192 GB/s in a group, not the 448 GB/s their sum promises. The V100's matrix rate is 80 % of its peak.
const CATALOG: [(&str, Hardware); 7] = [
    ("A100-40G", hardware(312.0, 271.0, 40.0, 1.555, 300.0, 25.0)),
    ("A100-80G", hardware(312.0, 271.0, 80.0, 2.039, 300.0, 25.0)),
    ("B200", hardware(2250.0, 1745.0, 179.0, 8.0, 900.0, 50.0)),
    ("H100-80G", hardware(989.0, 794.5, 80.0, 3.35, 450.0, 50.0)),
    ("H200", hardware(989.0, 794.5, 140.0, 4.8, 450.0, 50.0)),
    ("MI300X", hardware(1300.0, 668.0, 192.0, 5.3, 192.0, 50.0)),
    ("V100", hardware(125.0, 100.0, 32.0, 0.9, 150.0, 12.5)),
];

/// The catalog's entry for a GPU type.
#[must_use]
pub fn find(gpu_type: &GpuType) -> Option<Hardware> {
    CATALOG.iter().find(|(name, _)| *name == gpu_type.0).map(|(_, hardware)| *hardware)
}

/// Names the catalog knows, ascending.
pub fn names() -> impl Iterator<Item = &'static str> {
    CATALOG.iter().map(|(name, _)| *name)
}

/// What the devices of a class are; an emulated class needs no entry, its speed is stated.
pub fn device(class: &NodeClass) -> Result<Device, Infeasible> {
    if let Some(emulated) = class.emulated {
        return Ok(Device::Emulated(emulated));
    }
    find(&class.gpu_type)
        .map(Device::Catalogued)
        .ok_or_else(|| Infeasible::UnknownGpuType { gpu_type: class.gpu_type.clone() })
}

/// Peak FLOP/s of one device of the class, for utilisation; an emulated device's stated rate is its peak.
pub fn peak_flop_per_second(class: &NodeClass) -> Result<headway_types::FlopPerSecond, Infeasible> {
    Ok(headway_types::FlopPerSecond(match device(class)? {
        Device::Catalogued(hardware) => hardware.peak,
        Device::Emulated(emulated) => emulated.flop_per_second as f64,
    }))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::examples::{class_of, emulated_class};

    #[test]
    fn no_entry_promises_more_than_its_peak() {
        for (name, entry) in CATALOG {
            assert!(entry.best_matmul < entry.peak, "{name}");
            assert!(entry.inter_node < entry.intra_node, "{name}");
        }
    }

    #[test]
    fn an_unknown_gpu_type_is_named_beside_the_known_ones() {
        let refusal = device(&class_of("Potato-1G", 8)).unwrap_err().to_string();
        assert!(refusal.contains("Potato-1G") && refusal.contains("H100-80G"), "{refusal}");
    }

    #[test]
    fn an_emulated_class_is_as_fast_as_it_says() {
        assert_eq!(peak_flop_per_second(&emulated_class(4)).unwrap().0, 1e9);
    }
}
