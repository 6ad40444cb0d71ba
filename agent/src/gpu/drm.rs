//! A GPU's files of the kernel's graphics interface, by which it can be reached past its driver's own. Reads sysfs, nothing else.

use std::fs;
use std::path::{Path, PathBuf};

/// `root` holds `dev`; `device`: the GPU in sysfs.
pub(super) fn files(root: &Path, device: &Path) -> Vec<PathBuf> {
    let names = fs::read_dir(device.join("drm")).into_iter().flatten().flatten().map(|entry| entry.file_name());
    let files = names.filter(|name| {
        let name = name.to_string_lossy();
        ["card", "renderD", "controlD"].iter().any(|kind| {
            let number = name.strip_prefix(kind);
            number.is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
        })
    });
    files.map(|name| root.join("dev/dri").join(name)).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn only_cards_and_renderers_are_files_of_a_gpu() {
        let root = tempfile::tempdir().unwrap();
        let device = root.path().join("sys/device");
        for name in ["card1", "card1-DP-1", "renderD129", "version"] {
            fs::create_dir_all(device.join("drm").join(name)).unwrap();
        }
        let mut found = files(root.path(), &device);
        found.sort();
        assert_eq!(found, ["card1", "renderD129"].map(|name| root.path().join("dev/dri").join(name)));
        assert_eq!(files(root.path(), Path::new("/none")), Vec::<PathBuf>::new());
    }
}
