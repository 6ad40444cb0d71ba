//! Whether the host runs short of disk or memory. Readings in, conditions out: it raises one at a low mark and drops
//! it at a higher one, so that a host at the edge does not flap.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use headway_types::{Bytes, Condition, ConditionKind};

/// What is left of something.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Space {
    pub(crate) free: Bytes,
    pub(crate) total: Bytes,
}

impl Space {
    fn is_below(self, mark: Mark) -> bool {
        self.free < mark.bytes || (self.free.0 as f64) < mark.share * self.total.0 as f64
    }
}

/// A share of the whole, but never less than so many bytes.
#[derive(Clone, Copy)]
struct Mark {
    bytes: Bytes,
    share: f64,
}

const DISK_LOW: Mark = Mark { bytes: Bytes(256 << 20), share: 0.01 };
const DISK_ENOUGH: Mark = Mark { bytes: Bytes(512 << 20), share: 0.02 };
const MEMORY_LOW: Mark = Mark { bytes: Bytes(0), share: 0.02 };
const MEMORY_ENOUGH: Mark = Mark { bytes: Bytes(0), share: 0.05 };
/// Share of the last minute in which everything waited for memory (PSI `full avg60`), in percent.
const STALL_HIGH: f64 = 20.0;
const STALL_LOW: f64 = 5.0;

/// The host at one moment; what could not be read is left out.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Readings {
    /// The file system of the agent's own directory.
    pub(crate) own: Option<(PathBuf, Space)>,
    pub(crate) shared: Vec<(PathBuf, Space)>,
    pub(crate) memory: Option<Space>,
    pub(crate) stall: Option<f64>,
}

impl Readings {
    /// Looks at the agent's own disk and at the memory of the host; `shared` was looked at before.
    pub(crate) fn take(own: &Path, shared: Vec<(PathBuf, Space)>) -> Self {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        Self {
            own: space(own).map(|space| (own.to_owned(), space)),
            shared,
            memory: memory(&read("/proc/meminfo")),
            stall: stall(&read("/proc/pressure/memory")),
        }
    }
}

/// Looks at shared file systems without waiting for them: one that is dead answers never, and must not hold up the rest.
#[derive(Default)]
pub(crate) struct SharedDisks {
    latest: Arc<Mutex<Vec<(PathBuf, Space)>>>,
    looking: Option<JoinHandle<()>>,
}

impl SharedDisks {
    /// What the last look found; starts the next one unless the last is still under way.
    pub(crate) fn look(&mut self, directories: Vec<PathBuf>) -> Vec<(PathBuf, Space)> {
        if self.looking.as_ref().is_none_or(JoinHandle::is_finished) {
            let latest = Arc::clone(&self.latest);
            let look = move || {
                let found =
                    directories.into_iter().filter_map(|path| space(&path).map(|space| (path, space))).collect();
                *latest.lock().unwrap_or_else(PoisonError::into_inner) = found;
            };
            self.looking = std::thread::Builder::new().name("shared-disks".into()).spawn(look).ok();
        }
        self.latest.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Remembers what was raised. A condition keeps its first message, or each reading would be news.
#[derive(Default)]
pub(crate) struct Pressure {
    disk: Option<Condition>,
    own_disk_is_full: bool,
    memory: Option<Condition>,
}

impl Pressure {
    pub(crate) const KINDS: [ConditionKind; 2] = [ConditionKind::DiskPressure, ConditionKind::MemoryPressure];

    pub(crate) fn update(&mut self, readings: &Readings) -> Vec<Condition> {
        let mark = |raised: bool| if raised { DISK_ENOUGH } else { DISK_LOW };
        let own_mark = mark(self.own_disk_is_full);
        self.own_disk_is_full = readings.own.as_ref().is_some_and(|(_, space)| space.is_below(own_mark));
        let disk_mark = mark(self.disk.is_some());
        let short = readings.own.iter().chain(&readings.shared).find(|(_, space)| space.is_below(disk_mark));
        self.disk = short.map(|(path, space)| {
            let message = Room { space: *space, files: None, read_only: false }.words(path);
            self.disk.take().unwrap_or(Condition { kind: ConditionKind::DiskPressure, message })
        });
        let (memory_mark, stall_mark) =
            if self.memory.is_some() { (MEMORY_ENOUGH, STALL_LOW) } else { (MEMORY_LOW, STALL_HIGH) };
        let short = readings.memory.filter(|space| space.is_below(memory_mark));
        let short = short.map(|space| format!("{} of {} memory left", mebibytes(space.free), mebibytes(space.total)));
        let stalled = readings.stall.filter(|stall| *stall > stall_mark);
        let stalled = stalled.map(|stall| format!("everything waited for memory in {stall:.0} % of the last minute"));
        self.memory = short
            .or(stalled)
            .map(|message| self.memory.take().unwrap_or(Condition { kind: ConditionKind::MemoryPressure, message }));
        self.disk.iter().chain(&self.memory).cloned().collect()
    }

    /// Whether it is the agent's own disk that runs short: removing what lies there makes no room on a shared one.
    pub(crate) fn own_disk_is_full(&self) -> bool {
        self.own_disk_is_full
    }
}

/// What ordinary users can still write below a directory, or the nearest parent that exists.
fn space(path: &Path) -> Option<Space> {
    room(path).map(|room| room.space)
}

/// What is left of a file system, in bytes and in files.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Room {
    pub(crate) space: Space,
    /// How many more there may be; `None` where nobody counts them.
    pub(crate) files: Option<u64>,
    /// Nothing is written there, so it is never full.
    pub(crate) read_only: bool,
}

impl Room {
    /// None is left to speak of: what could not be written a moment ago may have made some since, by going.
    pub(crate) fn is_used_up(&self) -> bool {
        self.space.is_below(DISK_LOW) || self.files == Some(0)
    }

    /// Whether next to nothing fits, on a disk that may be of any size: a home may be 99 % full for years, and a failure
    /// there is still the job's own.
    pub(crate) fn is_full(&self) -> bool {
        let left = DISK_LOW.bytes.0.min((DISK_LOW.share * self.space.total.0 as f64) as u64);
        !self.read_only && (self.space.free.0 < left || self.files == Some(0))
    }

    /// What is said of the file system at a path.
    pub(crate) fn words(&self, path: &Path) -> String {
        let path = path.display();
        match self.files {
            Some(0) => format!("{path} has no room for another file"),
            _ => format!("{path} has {} of {} left", mebibytes(self.space.free), mebibytes(self.space.total)),
        }
    }
}

/// For ordinary users below a directory, or the nearest parent that exists.
pub(crate) fn room(path: &Path) -> Option<Room> {
    let stat = path.ancestors().find_map(|path| rustix::fs::statvfs(path).ok())?;
    let space = Space { free: Bytes(stat.f_bavail * stat.f_frsize), total: Bytes(stat.f_blocks * stat.f_frsize) };
    let read_only = stat.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY);
    Some(Room { space, files: (stat.f_files > 0).then_some(stat.f_favail), read_only })
}

/// How large the file system at a path is; `None` where nothing is there.
pub(crate) fn size_of(path: &Path) -> Option<Bytes> {
    let stat = rustix::fs::statvfs(path).ok()?;
    Some(Bytes(stat.f_blocks * stat.f_frsize))
}

fn memory(meminfo: &str) -> Option<Space> {
    let kibibytes = |name: &str| {
        let line = meminfo.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line?.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()
    };
    Some(Space { free: Bytes(kibibytes("MemAvailable")? * 1024), total: Bytes(kibibytes("MemTotal")? * 1024) })
}

fn stall(pressure: &str) -> Option<f64> {
    let line = pressure.lines().find_map(|line| line.strip_prefix("full "))?;
    line.split_ascii_whitespace().find_map(|word| word.strip_prefix("avg60=")?.parse().ok())
}

fn mebibytes(bytes: Bytes) -> String {
    format!("{} MiB", bytes.0 >> 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk(free_mib: u64) -> Readings {
        let space = Space { free: Bytes(free_mib << 20), total: Bytes(10_000 << 20) };
        Readings { own: Some(("/d".into(), space)), ..Readings::default() }
    }

    #[test]
    fn a_shared_disk_that_runs_short_is_not_the_agents_own() {
        let mut pressure = Pressure::default();
        let shared = |free_mib| disk(free_mib).own.into_iter().collect();
        let readings = Readings { shared: shared(100), ..disk(5_000) };
        assert_eq!(pressure.update(&readings).len(), 1);
        assert!(!pressure.own_disk_is_full());
        pressure.update(&disk(100));
        assert!(pressure.own_disk_is_full());
        pressure.update(&Readings { shared: shared(100), ..disk(600) });
        assert!(!pressure.own_disk_is_full());
    }

    #[test]
    fn a_disk_of_any_size_is_full_when_next_to_nothing_fits() {
        const MIB: u64 = 1 << 20;
        let room = |free: u64, total: u64| Room {
            space: Space { free: Bytes(free * MIB), total: Bytes(total * MIB) },
            files: Some(9),
            read_only: false,
        };
        let (small, large) = (100, 1 << 30);
        assert_eq!([0, 1, 50].map(|free| room(free, small).is_full()), [true, false, false]);
        assert_eq!([255, 256, 1 << 20].map(|free| room(free, large).is_full()), [true, false, false]);
        assert!(Room { files: Some(0), ..room(50, small) }.is_full());
        assert!(!Room { read_only: true, ..room(0, small) }.is_full(), "as an image of software is");
        assert!(!room(0, 0).is_full(), "it has no size");
    }

    #[test]
    fn a_condition_stays_until_there_is_clearly_enough_again() {
        let mut pressure = Pressure::default();
        assert_eq!(pressure.update(&disk(300)), []);
        let raised = pressure.update(&disk(100));
        assert_eq!(raised[0].message, "/d has 100 MiB of 10000 MiB left");
        assert_eq!(pressure.update(&disk(50)), raised, "each reading is not news");
        assert_eq!(pressure.update(&disk(300)), raised);
        assert_eq!(pressure.update(&disk(600)), []);
        assert_eq!(pressure.update(&disk(300)), []);
    }

    #[test]
    fn memory_is_short_by_what_is_left_or_by_who_waits_for_it() {
        let text = "MemTotal:       1000 kB\nMemFree: 1 kB\nMemAvailable:   15 kB\n";
        let short = Readings { memory: memory(text), ..Readings::default() };
        assert_eq!(Pressure::default().update(&short)[0].kind, ConditionKind::MemoryPressure);
        let text = "some avg10=0.00 avg60=9.00 avg300=0.00 total=0\nfull avg10=0.00 avg60=33.50 avg300=0.00 total=0\n";
        let stalled = Readings { stall: stall(text), ..Readings::default() };
        let message = &Pressure::default().update(&stalled)[0].message;
        assert_eq!(message, "everything waited for memory in 34 % of the last minute");
        assert_eq!(Pressure::default().update(&Readings::default()), []);
    }

    #[test]
    fn this_host_can_be_read() {
        let mut shared = SharedDisks::default();
        let directory = PathBuf::from("/tmp/no/such/directory/yet");
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
        while shared.look(vec![directory.clone()]).is_empty() && std::time::Instant::now() < deadline {
            std::thread::yield_now();
        }
        let readings = Readings::take(Path::new("/tmp"), shared.look(vec![directory]));
        assert!(readings.own.is_some() && readings.shared.len() == 1 && readings.memory.is_some(), "{readings:?}");
    }
}
