//! The hardware catalog: what a GPU of a type can do, as a prior. The built-in entries are `hardware.toml`; a user's file of the same
//! form adds to them or replaces them. A live cluster's classes carry what such a file says (`StatedDevice`), so that no function here
//! needs to be told of files. Never per-job knowledge; that is `correction`.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use headway_types::{Bytes, EmulatedDevice, GpuType, NodeClass, StatedDevice};
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
    /// In 32 bits; where nobody has measured it, an eighth of the half-precision rate.
    pub best_matmul_32bit: f64,
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
    /// What a file says, with the factors fitted to its family. The formulas take the usual share of a data sheet's rates; what a probe
    /// has achieved is that share already.
    #[must_use]
    pub fn of(stated: &StatedDevice, parameters: &Parameters) -> Self {
        let factors = parameters.family.get(&stated.family).copied().unwrap_or_default();
        let shared = &parameters.shared;
        let nominal = |rate: u64, share: f64| rate as f64 / if stated.measured { share } else { 1.0 };
        Self {
            peak: stated.peak_flops as f64,
            best_matmul: stated.matmul_flops as f64,
            best_matmul_8bit: stated.matmul_8bit_flops as f64,
            best_matmul_4bit: stated.matmul_4bit_flops as f64,
            best_matmul_32bit: stated.matmul_32bit_flops as f64,
            memory: stated.memory.0 as f64,
            memory_bandwidth: nominal(stated.memory_bytes_per_second, shared.memory_share),
            intra_node: nominal(stated.link_bytes_per_second, shared.link_share * factors.link_share),
            mesh: stated.mesh,
            domain: stated.domain,
            inter_node: nominal(stated.network_bytes_per_second, shared.network_share),
            multiprocessors: f64::from(stated.multiprocessors),
            factors,
        }
    }

    /// Best matrix rate at a precision; fp32 runs outside the half-precision units.
    #[must_use]
    pub fn matmul_rate(&self, precision: Precision) -> f64 {
        match precision {
            Precision::Bf16 | Precision::Fp16 => self.best_matmul,
            Precision::Fp32 => self.best_matmul_32bit,
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
    matmul_32bit: Option<f64>,
    memory: f64,
    bandwidth: f64,
    link: f64,
    #[serde(default)]
    mesh: bool,
    domain: Option<u32>,
    network: f64,
    multiprocessors: f64,
    #[serde(default)]
    measured: bool,
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
/// Of any quantity in its smallest unit; a thousand times the fastest machine's.
const MOST: f64 = 1e18;

/// GPU types by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Catalog {
    entries: BTreeMap<String, (StatedDevice, Hardware)>,
    /// Names as data sets and drivers write them.
    aliases: BTreeMap<String, String>,
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
            let device = stated(&name, &entry)?;
            let hardware = Hardware::of(&device, parameters);
            for alias in entry.aliases {
                self.aliases.insert(alias, name.clone());
            }
            self.entries.insert(name, (device, hardware));
        }
        Ok(())
    }

    /// This catalog with the entries of another, which go before its own.
    #[must_use]
    pub fn with(mut self, other: &Catalog) -> Self {
        self.entries.extend(other.entries.clone());
        self.aliases.extend(other.aliases.clone());
        self
    }

    /// The entry of a type, by its name or an alias.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<Hardware> {
        self.entries.get(self.canonical(name)?).map(|(_, hardware)| *hardware)
    }

    /// What the entry of a type says, for a class or a node to carry.
    #[must_use]
    pub fn stated(&self, name: &str) -> Option<&StatedDevice> {
        self.entries.get(self.canonical(name)?).map(|(device, _)| device)
    }

    /// The catalog's own name of a type.
    #[must_use]
    pub fn canonical<'a>(&'a self, name: &'a str) -> Option<&'a str> {
        let known = self.entries.contains_key(name).then_some(name);
        known.or_else(|| self.aliases.get(name).map(String::as_str))
    }

    /// What every entry says, under its name and its aliases, for an agent to look up its own in.
    #[must_use]
    pub fn by_name(&self) -> BTreeMap<GpuType, StatedDevice> {
        let names = self.entries.keys().chain(self.aliases.keys());
        names.filter_map(|name| Some((GpuType(name.clone()), self.stated(name)?.clone()))).collect()
    }

    /// The family whose fitted factors a type has.
    #[must_use]
    pub fn family(&self, name: &str) -> Option<&str> {
        self.stated(name).map(|device| device.family.as_str())
    }

    /// Names, ascending.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.entries.keys().map(String::as_str)
    }
}

fn stated(name: &str, entry: &Entry) -> Result<StatedDevice, CatalogError> {
    let eight = entry.matmul_8bit.unwrap_or(entry.matmul);
    let four = entry.matmul_4bit.unwrap_or(eight);
    let whole = |quantity: &'static str, value: f64, unit: f64| {
        // What rounds to nothing would divide by zero, and what is absurd would not fit a whole number.
        let plausible = value.is_finite() && (1.0..=MOST).contains(&(value * unit).round());
        let impossible = || CatalogError::Impossible { gpu_type: name.to_owned(), name: quantity };
        if plausible { Ok((value * unit).round() as u64) } else { Err(impossible()) }
    };
    let device = StatedDevice {
        family: entry.family.clone(),
        peak_flops: whole("peak", entry.peak, TERA)?,
        matmul_flops: whole("matmul", entry.matmul, TERA)?,
        matmul_8bit_flops: whole("matmul_8bit", eight, TERA)?,
        matmul_4bit_flops: whole("matmul_4bit", four, TERA)?,
        matmul_32bit_flops: whole("matmul_32bit", entry.matmul_32bit.unwrap_or(entry.matmul / 8.0), TERA)?,
        memory: Bytes(whole("memory", entry.memory, GIB)?),
        memory_bytes_per_second: whole("bandwidth", entry.bandwidth, TERA)?,
        link_bytes_per_second: whole("link", entry.link, GIGA)?,
        mesh: entry.mesh,
        domain: entry.domain,
        network_bytes_per_second: whole("network", entry.network, GIGA)?,
        multiprocessors: whole("multiprocessors", entry.multiprocessors.min(f64::from(u32::MAX)), 1.0)? as u32,
        measured: entry.measured,
    };
    if entry.matmul > entry.peak {
        return Err(CatalogError::AbovePeak { gpu_type: name.to_owned(), name: "matmul", peak: entry.peak });
    }
    Ok(device)
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

/// What the devices of a class are. An emulated class needs no entry, its speed is told; what a class states of its own goes before
/// the built-in entry.
pub fn device(class: &NodeClass) -> Result<Device, Infeasible> {
    if let Some(emulated) = class.emulated {
        return Ok(Device::Emulated(emulated));
    }
    if let Some(stated) = &class.stated {
        return Ok(Device::Catalogued(Hardware::of(stated, Parameters::built_in())));
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
    use crate::collective::Cluster;
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
    fn what_a_class_states_goes_before_the_built_in_entry() {
        let mut mine = Catalog::built_in().stated("H200").unwrap().clone();
        mine.network_bytes_per_second /= 4;
        let slow = NodeClass { stated: Some(mine), ..class_of("H200", 8) };
        let (Device::Catalogued(slow), Device::Catalogued(usual)) =
            (device(&slow).unwrap(), device(&class_of("H200", 8)).unwrap())
        else {
            panic!("neither is emulated")
        };
        assert_eq!(slow, Hardware { inter_node: usual.inter_node / 4.0, ..usual });
        let unknown = NodeClass { gpu_type: GpuType("Potato-1G".into()), ..class_of("H200", 8) };
        let stated = Catalog::built_in().stated("H200").cloned();
        assert_eq!(device(&NodeClass { stated, ..unknown }).unwrap(), Device::Catalogued(usual));
    }

    #[test]
    fn a_measured_rate_is_not_discounted_once_more() {
        let sheet = Catalog::built_in().stated("H200").unwrap().clone();
        let parameters = Parameters::built_in();
        let profile = &parameters.profile(None);
        let measured = Hardware::of(&StatedDevice { measured: true, ..sheet.clone() }, parameters);
        let achieved = measured.memory_bandwidth * parameters.shared.memory_share;
        assert!((achieved / sheet.memory_bytes_per_second as f64 - 1.0).abs() < 1e-12);
        let cluster = Cluster::usual(&measured, profile, 8);
        assert!((cluster.link_rate(8) / sheet.link_bytes_per_second as f64 - 1.0).abs() < 1e-12);
        assert_eq!(measured.best_matmul, sheet.matmul_flops as f64);
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
        let mut other = Catalog::default();
        other.extend(&good.replace("memory=1", "memory=2"), Parameters::built_in()).unwrap();
        assert_eq!(catalog.with(&other).stated("Mine").unwrap().memory, Bytes(2 << 30));
        let refused = |text: &str| Catalog::default().extend(text, Parameters::built_in()).unwrap_err();
        assert!(matches!(refused(&good.replace("bandwidth=1\n", "")), CatalogError::Syntax(_)));
        let zero = refused(&good.replace("bandwidth=1", "bandwidth=0"));
        assert_eq!(zero.to_string(), "GPU type Mine: bandwidth must be finite and above 0");
        let tiny = refused(&good.replace("memory=1", "memory=1e-12"));
        assert_eq!(tiny.to_string(), "GPU type Mine: memory must be finite and above 0");
        assert!(matches!(refused(&good.replace("matmul=8", "matmul=80")), CatalogError::AbovePeak { .. }));
    }
}
