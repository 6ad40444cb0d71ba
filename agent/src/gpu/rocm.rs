//! AMD's GPUs through sysfs: the compute topology of amdkfd names them, their DRM nodes tell memory and RAS errors.
//! Throttling has no stable file there, so such GPUs are never shown as slowed down.

use std::fs;
use std::path::{Path, PathBuf};

use headway_types::{Bytes, Gpu, GpuHealth, GpuUuid};

use super::{Device, Source, drm, model};

pub(super) struct Amd {
    root: PathBuf,
    known: Vec<Device>,
}

impl Amd {
    /// `root` holds `sys` and `dev`; `None` if there is no GPU.
    pub(super) fn open(root: &Path) -> Option<Self> {
        let known = find(root);
        (!known.is_empty()).then(|| Self { root: root.to_owned(), known })
    }
}

impl Source for Amd {
    /// GPUs that are gone are left out.
    fn look(&mut self) -> Vec<Device> {
        let now = find(&self.root);
        let index = |device: &Device| self.known.iter().position(|known| known.gpu.uuid == device.gpu.uuid);
        now.into_iter()
            .filter_map(|mut device| {
                device.gpu.index = index(&device)? as u32;
                Some(device)
            })
            .collect()
    }
}

fn find(root: &Path) -> Vec<Device> {
    let Ok(nodes) = fs::read_dir(root.join("sys/class/kfd/kfd/topology/nodes")) else { return Vec::new() };
    let mut nodes: Vec<(u32, PathBuf)> = nodes
        .filter_map(|entry| {
            let path = entry.ok()?.path();
            Some((path.file_name()?.to_str()?.parse().ok()?, path))
        })
        .collect();
    // HIP counts devices in the order of the topology.
    nodes.sort();
    let mut devices = Vec::new();
    for (_, node) in nodes {
        devices.extend(describe(root, &node, devices.len() as u32));
    }
    devices
}

/// `None` for a node that is a processor.
fn describe(root: &Path, node: &Path, index: u32) -> Option<Device> {
    let properties = fs::read_to_string(node.join("properties")).ok()?;
    let property = |name: &str| -> Option<u64> {
        properties.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
    };
    property("simd_count").filter(|count| *count > 0)?;
    let minor = property("drm_render_minor").filter(|minor| *minor > 0)?;
    let device = root.join(format!("sys/class/drm/renderD{minor}/device"));
    let text = |name: &str| fs::read_to_string(device.join(name)).ok();
    // One directory, whose number means nothing.
    let hwmon = |name: &str| -> Option<f64> {
        let sensors = fs::read_dir(device.join("hwmon")).ok()?.flatten().next()?.path();
        fs::read_to_string(sensors.join(name)).ok()?.trim().parse().ok()
    };
    let memory = Bytes(text("mem_info_vram_total")?.trim().parse().ok()?);
    let target = property("gfx_target_version").unwrap_or(0);
    let (major, middle, last) = (target / 10_000, target / 100 % 100, target % 100);
    let name = text("product_name").filter(|name| !name.trim().is_empty());
    let name = name.unwrap_or_else(|| format!("gfx{major}{middle:x}{last:x}"));
    let uncorrected = text("ras/umc_err_count")
        .and_then(|text| text.lines().find_map(|line| line.strip_prefix("ue:")?.trim().parse::<u64>().ok()));
    let health = match uncorrected {
        Some(errors @ 1..) => GpuHealth::Broken(format!("{errors} uncorrectable memory errors since the last reset")),
        _ => GpuHealth::Healthy,
    };
    let uuid = GpuUuid(format!("GPU-{:016x}", property("unique_id").unwrap_or(minor)));
    Some(Device {
        gpu: Gpu { uuid, index, memory, health },
        gpu_type: model::of(name.trim(), memory),
        slowed: None,
        used: text("mem_info_vram_used").and_then(|text| text.trim().parse().ok()).map(Bytes),
        busy: text("gpu_busy_percent")
            .and_then(|text| text.trim().parse::<u32>().ok())
            .map(|percent| f64::from(percent.min(100)) / 100.0),
        celsius: hwmon("temp1_input").map(|millidegrees| millidegrees / 1e3),
        watts: hwmon("power1_average").or_else(|| hwmon("power1_input")).map(|microwatts| microwatts / 1e6),
        processes: Vec::new(),
        files: vec![root.join("dev/kfd"), root.join(format!("dev/dri/renderD{minor}"))],
        own: std::iter::once(root.join(format!("dev/dri/renderD{minor}"))).chain(drm::files(root, &device)).collect(),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn add(root: &Path, node: u32, minor: u32) {
        let nodes = root.join(format!("sys/class/kfd/kfd/topology/nodes/{node}"));
        fs::create_dir_all(&nodes).unwrap();
        let properties = format!(
            "cpu_cores_count 0\nsimd_count {}\ngfx_target_version 90402\ndrm_render_minor {minor}\nunique_id {}\n",
            minor, minor
        );
        fs::write(nodes.join("properties"), properties).unwrap();
        let device = root.join(format!("sys/class/drm/renderD{minor}/device"));
        fs::create_dir_all(device.join("ras")).unwrap();
        fs::write(device.join("mem_info_vram_total"), format!("{}\n", 192_u64 << 30)).unwrap();
        fs::write(device.join("mem_info_vram_used"), format!("{}\n", 3_u64 << 30)).unwrap();
        fs::write(device.join("ras/umc_err_count"), "ue: 0\nce: 4\n").unwrap();
        fs::create_dir_all(device.join("hwmon/hwmon4")).unwrap();
        fs::write(device.join("hwmon/hwmon4/temp1_input"), "61000\n").unwrap();
        fs::write(device.join("hwmon/hwmon4/power1_average"), "412000000\n").unwrap();
    }

    #[test]
    fn gpus_are_found_beside_processors_and_break_with_their_memory() {
        let dir = tempfile::tempdir().unwrap();
        assert!(Amd::open(dir.path()).is_none());
        for (node, minor) in [(0, 0), (1, 128), (2, 129), (10, 130)] {
            add(dir.path(), node, minor);
        }
        let mut amd = Amd::open(dir.path()).unwrap();
        let found = amd.look();
        let names: Vec<_> = found.iter().map(|device| (device.gpu.index, device.gpu.uuid.0.as_str())).collect();
        assert_eq!(names, [(0, "GPU-0000000000000080"), (1, "GPU-0000000000000081"), (2, "GPU-0000000000000082")]);
        assert_eq!((found[0].gpu_type.0.as_str(), found[0].used), ("MI300X", Some(Bytes(3 << 30))));
        assert_eq!((found[0].celsius, found[0].watts), (Some(61.0), Some(412.0)));
        let device = dir.path().join("sys/class/drm/renderD129/device");
        fs::write(device.join("ras/umc_err_count"), "ue: 2\nce: 4\n").unwrap();
        assert!(matches!(&amd.look()[1].gpu.health, GpuHealth::Broken(cause) if cause.contains("2 uncorrectable")));
        fs::remove_dir_all(dir.path().join("sys/class/kfd/kfd/topology/nodes/1")).unwrap();
        let left: Vec<u32> = amd.look().iter().map(|device| device.gpu.index).collect();
        assert_eq!(left, [1, 2], "a GPU that is gone must not shift the others");
    }
}
