//! From the name a driver gives a GPU to the name the hardware catalog has for it.

use headway_types::{Bytes, GpuType};

/// Parts of drivers' names, the least memory in GiB they go with, and the catalog's name. The first match counts.
const NAMES: [(&str, u64, &str); 21] = [
    ("H200", 0, "H200"),
    ("H100", 0, "H100-80G"),
    ("H800", 0, "H800-80G"),
    ("GB300", 0, "GB300"),
    ("GB200", 0, "GB200"),
    ("B300", 0, "B300"),
    ("B200", 0, "B200"),
    ("A800", 60, "A800-80G"),
    ("L40S", 0, "L40S"),
    ("RTX 4090", 0, "RTX 4090"),
    ("MI210", 0, "MI210"),
    ("MI250X", 0, "MI250X"),
    ("A100", 60, "A100-80G"),
    ("A100", 0, "A100-40G"),
    ("V100", 0, "V100"),
    ("MI300X", 0, "MI300X"),
    ("MI325X", 0, "MI325X"),
    ("MI350X", 0, "MI350X"),
    ("MI355X", 0, "MI355X"),
    ("gfx942", 240, "MI325X"),
    ("gfx942", 150, "MI300X"),
];

/// A name the catalog does not know stays as the driver gives it: such a node is seen, and jobs that measure
/// themselves may run on it.
pub(super) fn of(name: &str, memory: Bytes) -> GpuType {
    let gibibytes = memory.0 >> 30;
    let found = NAMES.iter().find(|(part, least, _)| name.contains(part) && gibibytes >= *least);
    GpuType(found.map_or_else(|| name.trim_start_matches("NVIDIA ").replace(' ', "-"), |(.., known)| (*known).into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drivers_names_become_the_catalogs() {
        for (name, gibibytes, known) in [
            ("NVIDIA H100 80GB HBM3", 79, "H100-80G"),
            ("NVIDIA H200", 139, "H200"),
            ("NVIDIA A100-SXM4-40GB", 39, "A100-40G"),
            ("NVIDIA A100 80GB PCIe", 79, "A100-80G"),
            ("Tesla V100-SXM2-32GB", 31, "V100"),
            ("AMD Instinct MI300X OAM", 191, "MI300X"),
            ("NVIDIA GeForce RTX 4090", 23, "RTX 4090"),
            ("NVIDIA GB200", 183, "GB200"),
            ("NVIDIA GB300", 276, "GB300"),
            ("NVIDIA B300 SXM6 AC", 268, "B300"),
            ("AMD Instinct MI325X", 255, "MI325X"),
            ("AMD Instinct MI355X", 287, "MI355X"),
            ("AMD Instinct MI210", 63, "MI210"),
            ("NVIDIA GeForce RTX 3090", 23, "GeForce-RTX-3090"),
        ] {
            assert_eq!(of(name, Bytes(gibibytes << 30)).0, known);
        }
    }
}
