//! The hardware catalog: what a GPU of a type can do, as a prior. The built-in entries are `hardware.toml`; a user's file of the same
//! form adds to them or replaces them. Never per-job knowledge; that is `correction`.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use headway_types::{EmulatedDevice, GpuType, NodeClass};
use serde::Deserialize;

use crate::infeasible::Infeasible;
use crate::physics::{FamilyFactors, Parameters};
use crate::strategy::Precision;

/// What one GPU of a type offers. Rates are per GPU and per direction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hardware {
    /// Dense half-precision peak of the data sheet, FLOP/s.
    pub peak: f64,
    /// Best measured half-precision matrix multiplication, FLOP/s (data sheets promise up to twice as much).
    pub best_matmul: f64,
    /// The same in 8 and in 4 bits; of hardware without them, the half-precision rate.
    pub best_matmul_8bit: f64,
    pub best_matmul_4bit: f64,
    /// Device memory, bytes.
    pub memory: f64,
    /// Memory bandwidth, bytes/s.
    pub memory_bandwidth: f64,
    /// Scale-up link (NVLink, xGMI, PCIe), bytes/s; of a mesh, to one peer.
    pub intra_node: f64,
    /// Whether each pair of GPUs has a link of its own instead of a switch.
    pub mesh: bool,
    /// GPUs the scale-up network joins, where it is more than a node.
    pub domain: Option<u32>,
    /// Network per GPU in the usual build, bytes/s.
    pub inter_node: f64,
    /// Streaming multiprocessors or compute units.
    pub multiprocessors: f64,
    /// Fitted factors of its family.
    pub factors: FamilyFactors,
}

impl Hardware {
    /// Best matrix rate at a precision; fp32 runs outside the half-precision units at an eighth of them.
    #[must_use]
    pub fn matmul_rate(&self, precision: Precision) -> f64 {
        match precision {
            Precision::Bf16 | Precision::Fp16 => self.best_matmul,
            Precision::Fp32 => self.best_matmul / 8.0,
            Precision::Fp8 => self.best_matmul_8bit,
            Precision::Fp4 => self.best_matmul_4bit,
        }
    }

    /// Whether its matrix units know the precision.
    #[must_use]
    pub fn supports(&self, precision: Precision) -> bool {
        match precision {
            Precision::Fp8 => self.best_matmul_8bit > self.best_matmul,
            Precision::Fp4 => self.best_matmul_4bit > self.best_matmul_8bit,
            Precision::Bf16 | Precision::Fp16 | Precision::Fp32 => true,
        }
    }
}

/// What the devices of a class are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Device {
    Catalogued(Hardware),
    Emulated(EmulatedDevice),
}

/// One entry of a catalog file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    family: String,
    #[serde(default)]
    aliases: Vec<String>,
    peak: f64,
    matmul: f64,
    matmul_8bit: Option<f64>,
    matmul_4bit: Option<f64>,
    memory: f64,
    bandwidth: f64,
    link: f64,
    #[serde(default)]
    mesh: bool,
    domain: Option<u32>,
    network: f64,
    multiprocessors: f64,
}

/// Why a catalog file is refused.
#[derive(Debug, thiserror::Error)]
pub enum CatalogError {
    #[error("reading the hardware catalog")]
    Syntax(#[from] toml::de::Error),
    #[error("GPU type {gpu_type}: {name} must be finite and above 0")]
    Impossible { gpu_type: String, name: &'static str },
    #[error("GPU type {gpu_type}: {name} is above the peak of {peak} TFLOP/s")]
    AbovePeak { gpu_type: String, name: &'static str, peak: f64 },
}

const TERA: f64 = 1e12;
const GIGA: f64 = 1e9;
const GIB: f64 = 1024.0 * 1024.0 * 1024.0;

/// GPU types by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Catalog {
    entries: BTreeMap<String, Hardware>,
    /// Names as data sets and drivers write them.
    aliases: BTreeMap<String, String>,
    /// Family of each type, for a fit.
    families: BTreeMap<String, String>,
}

impl Catalog {
    /// The committed catalog with the committed parameters.
    #[must_use]
    pub fn built_in() -> &'static Catalog {
        static BUILT_IN: LazyLock<Catalog> = LazyLock::new(|| {
            let mut catalog = Catalog::default();
            catalog
                .extend(include_str!("hardware.toml"), Parameters::built_in())
                .expect("the committed catalog is tested to parse");
            catalog
        });
        &BUILT_IN
    }

    /// Adds the entries of a file; an entry of the same name is replaced.
    pub fn extend(&mut self, text: &str, parameters: &Parameters) -> Result<(), CatalogError> {
        let entries: BTreeMap<String, Entry> = toml::from_str(text)?;
        for (name, entry) in entries {
            let factors = parameters.family.get(&entry.family).copied().unwrap_or_default();
            self.entries.insert(name.clone(), hardware(&name, &entry, factors)?);
            self.families.insert(name.clone(), entry.family);
            for alias in entry.aliases {
                self.aliases.insert(alias, name.clone());
            }
        }
        Ok(())
    }

    /// The entry of a type, by its name or an alias.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<Hardware> {
        self.entries.get(self.canonical(name)?).copied()
    }

    /// The catalog's own name of a type.
    #[must_use]
    pub fn canonical<'a>(&'a self, name: &'a str) -> Option<&'a str> {
        let known = self.entries.contains_key(name).then_some(name);
        known.or_else(|| self.aliases.get(name).map(String::as_str))
    }

    /// The family whose fitted factors a type has.
    #[must_use]
    pub fn family(&self, name: &str) -> Option<&str> {
        self.families.get(self.canonical(name)?).map(String::as_str)
    }

    /// Names, ascending.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.entries.keys().map(String::as_str)
    }
}

fn hardware(name: &str, entry: &Entry, factors: FamilyFactors) -> Result<Hardware, CatalogError> {
    let eight = entry.matmul_8bit.unwrap_or(entry.matmul);
    let four = entry.matmul_4bit.unwrap_or(eight);
    let quantities = [
        ("peak", entry.peak),
        ("matmul", entry.matmul),
        ("matmul_8bit", eight),
        ("matmul_4bit", four),
        ("memory", entry.memory),
        ("bandwidth", entry.bandwidth),
        ("link", entry.link),
        ("network", entry.network),
        ("multiprocessors", entry.multiprocessors),
    ];
    if let Some((quantity, _)) = quantities.iter().find(|(_, value)| !(value.is_finite() && *value > 0.0)) {
        return Err(CatalogError::Impossible { gpu_type: name.to_owned(), name: quantity });
    }
    if entry.matmul > entry.peak {
        return Err(CatalogError::AbovePeak { gpu_type: name.to_owned(), name: "matmul", peak: entry.peak });
    }
    Ok(Hardware {
        peak: entry.peak * TERA,
        best_matmul: entry.matmul * TERA,
        best_matmul_8bit: eight * TERA,
        best_matmul_4bit: four * TERA,
        memory: entry.memory * GIB,
        memory_bandwidth: entry.bandwidth * TERA,
        intra_node: entry.link * GIGA,
        mesh: entry.mesh,
        domain: entry.domain,
        inter_node: entry.network * GIGA,
        multiprocessors: entry.multiprocessors,
        factors,
    })
}

/// The built-in catalog's entry for a GPU type.
#[must_use]
pub fn find(gpu_type: &GpuType) -> Option<Hardware> {
    Catalog::built_in().find(&gpu_type.0)
}

/// Names the built-in catalog knows, ascending.
pub fn names() -> impl Iterator<Item = &'static str> {
    Catalog::built_in().names()
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
        let catalog = Catalog::built_in();
        assert!(catalog.names().count() >= 16);
        for name in catalog.names() {
            let entry = catalog.find(name).unwrap();
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

    #[test]
    fn data_sets_names_lead_to_the_same_entry() {
        let catalog = Catalog::built_in();
        assert_eq!(catalog.find("H100-80"), catalog.find("H100-80G"));
        assert_eq!(catalog.canonical("MI300X-192"), Some("MI300X"));
        assert_eq!(catalog.family("H200-141"), Some("H100"));
    }

    #[test]
    fn a_users_entry_is_added_and_a_wrong_one_refused_by_name() {
        let good =
            "[Mine]\nfamily='none'\npeak=10\nmatmul=8\nmemory=1\nbandwidth=1\nlink=9\nnetwork=1\nmultiprocessors=8";
        let mut catalog = Catalog::built_in().clone();
        catalog.extend(good, Parameters::built_in()).unwrap();
        assert_eq!(catalog.find("Mine").unwrap().factors, FamilyFactors::default());
        let refused = |text: &str| Catalog::default().extend(text, Parameters::built_in()).unwrap_err();
        assert!(matches!(refused(&good.replace("bandwidth=1\n", "")), CatalogError::Syntax(_)));
        let zero = refused(&good.replace("bandwidth=1", "bandwidth=0"));
        assert_eq!(zero.to_string(), "GPU type Mine: bandwidth must be finite and above 0");
        assert!(matches!(refused(&good.replace("matmul=8", "matmul=80")), CatalogError::AbovePeak { .. }));
    }
}
