//! The device filter: processes of a group cannot open GPUs that it was not granted, whatever they do to their environment. A program of the kernel's
//! (eBPF), attached to the group's cgroup, answers every open of a device file there. It stays as long as the cgroup, also while no agent runs.
//!
//! `bpftool` loads and attaches it, in a mount namespace that nothing is left of. Whether a node's kernel lets it is tried, never assumed.

mod program;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{Seek, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use headway_types::GpuUuid;
use rustix::fs::{MemfdFlags, memfd_create};
use tokio::process::Command;

use super::{Cgroups, end, joining};
use program::{Device, NAME, object};

const TOOLS: [&str; 5] = ["/usr/sbin", "/usr/bin", "/sbin", "/bin", "/usr/local/sbin"];
/// What the tools that run here find others by.
const PATH: &str = "/usr/sbin:/usr/bin:/sbin:/bin";
/// How long a tool may take; it takes milliseconds.
const PATIENCE: Duration = Duration::from_secs(20);
/// What of a tool's complaint is told, in characters.
const TOLD: usize = 300;
/// Loads the program from standard input and attaches it. A program needs a name in a file system of its own until it is attached; that
/// goes with the namespace.
const ATTACH: &str = r#"
set -e
mount -t bpf bpf "$1"
"$3" prog load /dev/stdin "$1/filter"
exec "$3" cgroup attach "$2" device pinned "$1/filter" multi
"#;
/// Where it is tried, beside the groups.
const TRIAL: &str = "filter-trial";
/// Every node has it and nothing needs it: what is denied in a trial.
const DENIED_IN_TRIAL: (&str, Device) = ("/dev/zero", Device { major: 1, minor: 5 });
const TRY: &str = "true </dev/null || exit 4; true </dev/zero && exit 3; exit 0";
/// NVIDIA's own number, which never changes.
const NVIDIA: u32 = 195;

/// The device files of each GPU that it shares with no other.
pub(crate) type GpuFiles = BTreeMap<GpuUuid, Vec<PathBuf>>;

/// A filter that has shown that it works here.
#[derive(Clone, Debug)]
pub(crate) struct DeviceFilter {
    tools: Tools,
    gpus: GpuFiles,
}

#[derive(Clone, Debug)]
struct Tools {
    unshare: PathBuf,
    bpftool: PathBuf,
    /// An empty directory, to mount on where nobody else sees it.
    mount: PathBuf,
}

impl DeviceFilter {
    /// Tries it on a cgroup made for that. The error says to operators what is missing. `mount`: a directory of the agent's own.
    pub(crate) async fn prove(cgroups: &Cgroups, mount: PathBuf, gpus: GpuFiles) -> Result<Self, String> {
        let filter = Self { tools: Tools::find(mount)?, gpus };
        let (file, denied) = DENIED_IN_TRIAL;
        fs::File::open(file).map_err(|error| format!("nothing to try the filter on: {file}: {error}"))?;
        let trial = cgroups.workers.join(TRIAL);
        // What a former agent may have left.
        end(&trial).await;
        fs::create_dir(&trial).map_err(|error| format!("making {}: {error}", trial.display()))?;
        let tried = filter.holds(&trial, denied).await;
        end(&trial).await;
        tried.map(|()| filter)
    }

    /// Whether a process of the cgroup is kept from what is denied there, and from nothing else.
    async fn holds(&self, trial: &Path, denied: Device) -> Result<(), String> {
        self.attach(trial, &[denied].into()).await?;
        let mut words = joining(trial);
        words.extend(["/bin/sh", "-c", TRY].map(String::from));
        let output = run(Command::new(&words[0]).args(&words[1..]).stdin(Stdio::null())).await?;
        match output.status.code() {
            Some(0) => Ok(()),
            Some(3) => Err("a filter was attached, and what it denies could be opened all the same".to_owned()),
            _ => Err(format!(
                "a filter was attached, and a process in its cgroup failed ({}){}",
                output.status,
                said(&output.stderr)
            )),
        }
    }

    /// Denies a cgroup the GPUs that it is not granted; once, however often it is asked to.
    pub(crate) async fn confine(&self, cgroup: &Path, granted: &[GpuUuid]) -> Result<(), String> {
        let denied = self.denied(granted);
        if denied.is_empty() || self.is_confined(cgroup).await? {
            return Ok(());
        }
        self.attach(cgroup, &denied).await
    }

    fn denied(&self, granted: &[GpuUuid]) -> BTreeSet<Device> {
        let of = |granted_ones: bool| {
            let gpus = self.gpus.iter().filter(move |(uuid, _)| granted.contains(uuid) == granted_ones);
            gpus.flat_map(|(_, files)| files).filter_map(|file| device(file)).collect::<BTreeSet<Device>>()
        };
        &of(false) - &of(true)
    }

    async fn is_confined(&self, cgroup: &Path) -> Result<bool, String> {
        let shown = run(Command::new(&self.tools.bpftool).args(["cgroup", "show"]).arg(cgroup)).await?;
        if !shown.status.success() {
            return Err(format!("bpftool cgroup show ended with {}{}", shown.status, said(&shown.stderr)));
        }
        Ok(String::from_utf8_lossy(&shown.stdout).contains(NAME))
    }

    async fn attach(&self, cgroup: &Path, denied: &BTreeSet<Device>) -> Result<(), String> {
        let Tools { unshare, bpftool, mount } = &self.tools;
        let program = in_memory(&object(denied)?).map_err(|error| format!("keeping the filter in memory: {error}"))?;
        let mut command = Command::new(unshare);
        command.args(["--mount", "--", "/bin/sh", "-c", ATTACH, "filter"]).args([mount, cgroup, bpftool]);
        let output = run(command.stdin(program)).await?;
        if output.status.success() {
            return Ok(());
        }
        Err(format!("the kernel takes no device filter here{}", said(&output.stderr)))
    }
}

impl Tools {
    fn find(mount: PathBuf) -> Result<Self, String> {
        let find = |name: &str, package: &str| {
            let places = TOOLS.iter().map(|directory| Path::new(directory).join(name));
            let missing = || format!("{name} is not installed (apt-get install {package})");
            places.into_iter().find(|path| path.exists()).ok_or_else(missing)
        };
        let (unshare, bpftool) = (find("unshare", "util-linux")?, find("bpftool", "bpftool")?);
        Ok(Self { unshare, bpftool, mount })
    }
}

/// Ends it where it takes too long.
async fn run(command: &mut Command) -> Result<std::process::Output, String> {
    command.env_clear().env("PATH", PATH).current_dir("/").kill_on_drop(true);
    match tokio::time::timeout(PATIENCE, command.output()).await {
        Ok(Ok(output)) => Ok(output),
        Ok(Err(error)) => Err(format!("{}: {error}", command.as_std().get_program().display())),
        Err(_) => Err(format!("{} took more than {} s", command.as_std().get_program().display(), PATIENCE.as_secs())),
    }
}

/// ": operation not permitted", of what a tool complained of last.
fn said(complaints: &[u8]) -> String {
    let text = String::from_utf8_lossy(complaints);
    let last = text.lines().rev().find(|line| !line.trim().is_empty());
    last.map_or_else(String::new, |line| format!(": {}", line.trim().chars().take(TOLD).collect::<String>()))
}

fn in_memory(bytes: &[u8]) -> std::io::Result<fs::File> {
    let mut file = fs::File::from(memfd_create("headway-filter", MemfdFlags::CLOEXEC)?);
    file.write_all(bytes)?;
    file.rewind()?;
    Ok(file)
}

/// The number that the kernel knows a device file by. NVIDIA's files may be made at any time, by numbers that stand in their names.
fn device(file: &Path) -> Option<Device> {
    match fs::metadata(file) {
        Ok(found) if found.file_type().is_char_device() => {
            let number = found.rdev();
            Some(Device { major: rustix::fs::major(number), minor: rustix::fs::minor(number) })
        }
        Ok(_) => None,
        Err(_) => {
            let minor = file.file_name()?.to_str()?.strip_prefix("nvidia")?.parse().ok()?;
            Some(Device { major: NVIDIA, minor })
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use headway_types::{Generation, JobId, NodeId};

    use super::super::tests::{Real, open};
    use super::*;

    fn gpu(name: &str) -> GpuUuid {
        GpuUuid(name.into())
    }

    /// Two GPUs of a driver that is not there: to open one fails with ENXIO where it is allowed, with EPERM where it is not.
    fn made_gpus(dir: &Path) -> Option<GpuFiles> {
        let make = |minor: u64| {
            let path = dir.join(format!("nvidia{minor}"));
            let (kind, mode) = (rustix::fs::FileType::CharacterDevice, rustix::fs::Mode::from_raw_mode(0o666));
            rustix::fs::mknodat(rustix::fs::CWD, &path, kind, mode, rustix::fs::makedev(NVIDIA, minor as u32)).ok()?;
            Some((gpu(&format!("GPU-{minor}")), vec![path]))
        };
        [6, 7].map(make).into_iter().collect()
    }

    /// What a process in the cgroup is told of each file.
    async fn opened(cgroup: &Path, files: &GpuFiles) -> Vec<String> {
        let mut words = joining(cgroup);
        // A child of a child, with an environment of its own choosing.
        let script = "for file; do env -i CUDA_VISIBLE_DEVICES=0,1,2 sh -c 'true <\"$1\"' sh \"$file\" 2>&1; done";
        words.extend(["/bin/sh", "-c", script, "sh"].map(String::from));
        let paths: Vec<&PathBuf> = files.values().flatten().collect();
        let output = Command::new(&words[0]).args(&words[1..]).args(paths).output().await.unwrap();
        String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
    }

    #[tokio::test]
    async fn a_group_opens_the_gpus_it_was_granted_and_no_others_while_no_agent_runs_too() {
        let dir = tempfile::tempdir().unwrap();
        let node = NodeId(uuid::Uuid::from_u128(4));
        let (job, generation) = (JobId(uuid::Uuid::from_u128(3)), Generation(1));
        let (real, gpus) = match (Real::make("filter"), made_gpus(dir.path())) {
            (Some(real), Some(gpus)) => (real, gpus),
            (real, _) => {
                let lacks = if real.is_none() {
                    "no cgroup (version 2) may be made here"
                } else {
                    "no device file may be made here"
                };
                return eprintln!("SKIPPED: not isolated: {lacks}");
            }
        };
        let cgroups = open(&real.0, node);
        let filter = match DeviceFilter::prove(&cgroups, dir.path().into(), gpus.clone()).await {
            Ok(filter) => filter,
            Err(reason) => {
                assert!(!reason.is_empty());
                return eprintln!("SKIPPED: not isolated: {reason}");
            }
        };
        assert!(!real.0.join(format!("workers-{node}/{TRIAL}")).exists());
        let (one, other) = ("No such device", "Operation not permitted");
        let group = cgroups.make_group(job, generation).unwrap();
        filter.confine(&group, &[gpu("GPU-6")]).await.unwrap();
        let rank = cgroups.words(job, generation, 0).unwrap().pop().unwrap();
        let said = opened(Path::new(&rank), &gpus).await;
        assert!(said[0].contains(one) && said[1].contains(other), "{said:?}");

        // The next agent finds it filtered and adds nothing.
        drop(cgroups);
        let cgroups = open(&real.0, node);
        filter.confine(&group, &[gpu("GPU-6")]).await.unwrap();
        let shown = Command::new(&filter.tools.bpftool).args(["cgroup", "show"]).arg(&group).output().await.unwrap();
        assert_eq!(String::from_utf8_lossy(&shown.stdout).matches(NAME).count(), 1);
        let said = opened(Path::new(&rank), &gpus).await;
        assert!(said[0].contains(one) && said[1].contains(other), "{said:?}");

        // A group without a filter shows that it is the filter which denies; and a warm interpreter has no GPU at all.
        let free = cgroups.make_group(job, Generation(2)).unwrap();
        assert!(opened(&free, &gpus).await.iter().all(|line| line.contains(one)));
        filter.confine(&free, &[]).await.unwrap();
        assert!(opened(&free, &gpus).await.iter().all(|line| line.contains(other)));
        cgroups.end_group(job, generation).await;
        cgroups.end_group(job, Generation(2)).await;
        assert!(!group.exists() && !free.exists());
    }

    #[tokio::test]
    async fn where_no_filter_can_be_the_reason_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let cgroups = open(dir.path(), NodeId(uuid::Uuid::from_u128(4)));
        // A directory that is no cgroup takes no filter, whatever the kernel and whoever asks.
        let reason = DeviceFilter::prove(&cgroups, dir.path().into(), GpuFiles::new()).await.unwrap_err();
        assert!(reason.contains("no device filter here: ") || reason.contains("is not installed"), "{reason}");
    }

    #[test]
    fn files_that_gpus_share_are_never_denied_and_files_to_come_are() {
        let tools = Tools { unshare: PathBuf::new(), bpftool: PathBuf::new(), mount: PathBuf::new() };
        let files = |names: &[&str]| names.iter().map(PathBuf::from).collect();
        let gpus = [
            (gpu("a"), files(&["/none/nvidia0", "/dev/null"])),
            (gpu("b"), files(&["/none/nvidia11", "/dev/null"])),
            (gpu("c"), files(&["/none/renderD128", "/none"])),
        ];
        let filter = DeviceFilter { tools, gpus: gpus.into() };
        assert_eq!(filter.denied(&[gpu("a")]), [Device { major: 195, minor: 11 }].into());
        assert_eq!(filter.denied(&[gpu("a"), gpu("b"), gpu("c")]), BTreeSet::new());
    }
}
