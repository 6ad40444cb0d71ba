//! Keeps workers' output from filling the disk. A log that outgrows its limit loses its oldest blocks where it lies: a
//! hole takes their place, so that offsets stay what they were, the writer notices nothing and no line is lost on the
//! way. Output of groups that the ledger has forgotten goes after a while, or when there is too much of it.

use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use headway_types::{Bytes, Generation, JobId};
use nix::libc::O_NOFOLLOW;
use rustix::fs::{FallocateFlags, fallocate};

use crate::files::Files;

/// Holes begin and end at multiples of this, which is a multiple of every usual block size.
const BLOCK: u64 = 64 * 1024;
/// Forgotten output younger than this stays whatever the disk is like: somebody may be about to read it.
const FRESH: Duration = Duration::from_secs(600);

/// How much output is kept.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OutputLimits {
    /// Of each rank, on disk.
    pub per_rank: Bytes,
    /// Of groups that have been forgotten, for this long.
    pub age: Duration,
    /// Of groups that have been forgotten, all together.
    pub total: Bytes,
}

/// Cuts the logs of a group to size. At least a quarter of the limit goes at once, so that this stays rare.
pub(crate) fn trim(group: &Path, limit: Bytes) -> io::Result<()> {
    for entry in fs::read_dir(group)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "log") {
            trim_log(&path, limit)?;
        }
    }
    Ok(())
}

fn trim_log(path: &Path, limit: Bytes) -> io::Result<()> {
    let file = OpenOptions::new().write(true).custom_flags(O_NOFOLLOW).open(path)?;
    let found = file.metadata()?;
    if found.blocks() * 512 <= limit.0 {
        return Ok(());
    }
    let hole = found.len().saturating_sub(limit.0 / 4 * 3) / BLOCK * BLOCK;
    if hole == 0 {
        return Ok(());
    }
    Ok(fallocate(&file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 0, hole)?)
}

/// Output of one forgotten generation.
struct Forgotten {
    written: SystemTime,
    bytes: u64,
    path: PathBuf,
}

/// Removes output of generations that are not `known`: what is too old, then the oldest until the rest is small enough.
/// A job's working directory goes some time after its last generation. Returns how many generations went.
pub(crate) fn prune(
    files: &Files,
    known: &BTreeSet<(JobId, Generation)>,
    limits: OutputLimits,
    now: SystemTime,
) -> io::Result<usize> {
    let mut forgotten = Vec::new();
    for job in subdirectories(&files.jobs())? {
        let Some(id) = name(&job).and_then(|name| name.parse::<JobId>().ok()) else { continue };
        for path in subdirectories(&job)? {
            let generation = name(&path).and_then(|name| name.strip_prefix('g')?.parse().ok()).map(Generation);
            if generation.is_some_and(|generation| !known.contains(&(id, generation))) {
                let (written, bytes) = weigh(&path)?;
                forgotten.push(Forgotten { written, bytes, path });
            }
        }
    }
    forgotten.sort_by_key(|one| one.written);
    let mut total: u64 = forgotten.iter().map(|one| one.bytes).sum();
    let mut removed = 0;
    for Forgotten { written, bytes, path } in forgotten {
        let age = now.duration_since(written).unwrap_or_default();
        if age < FRESH || (age <= limits.age && total <= limits.total.0) {
            continue;
        }
        fs::remove_dir_all(&path)?;
        total -= bytes;
        removed += 1;
    }
    prune_jobs(files, known, now)?;
    Ok(removed)
}

/// Removes the directories of jobs that have no generation left, unless one is `known` or was there a moment ago: its
/// workers may be about to start in the working directory.
fn prune_jobs(files: &Files, known: &BTreeSet<(JobId, Generation)>, now: SystemTime) -> io::Result<()> {
    for job in subdirectories(&files.jobs())? {
        let Some(id) = name(&job).and_then(|name| name.parse::<JobId>().ok()) else { continue };
        let is_known = known.iter().any(|(known, _)| *known == id);
        let age = now.duration_since(fs::metadata(&job)?.modified()?).unwrap_or_default();
        let has_generations =
            subdirectories(&job)?.iter().any(|path| name(path).is_some_and(|name| name.starts_with('g')));
        if !is_known && !has_generations && age >= FRESH {
            fs::remove_dir_all(&job)?;
        }
    }
    Ok(())
}

fn subdirectories(path: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            found.push(entry.path());
        }
    }
    Ok(found)
}

fn name(path: &Path) -> Option<&str> {
    path.file_name()?.to_str()
}

/// The last write to a generation's files, and what they take on disk.
fn weigh(path: &Path) -> io::Result<(SystemTime, u64)> {
    let mut found = (fs::metadata(path)?.modified()?, 0);
    for entry in fs::read_dir(path)? {
        let metadata = entry?.metadata()?;
        found = (found.0.max(metadata.modified()?), found.1 + metadata.blocks() * 512);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use headway_api::agent::LogRequest;

    use super::*;
    use crate::logs::{newest_generation, read};

    const MIB: u64 = 1 << 20;

    fn job(n: u128) -> JobId {
        JobId(uuid::Uuid::from_u128(n))
    }

    #[test]
    fn a_long_log_loses_its_beginning_and_keeps_its_offsets() {
        let dir = tempfile::tempdir().unwrap();
        let (files, _lock) = Files::open(dir.path(), false).unwrap();
        files.make_group(job(1), Generation(1), None).unwrap();
        let path = files.log(job(1), Generation(1), 0);
        let lines: String = (0..400_000).map(|number| format!("line {number:06}\n")).collect();
        fs::write(&path, &lines).unwrap();
        let length = lines.len() as u64;
        assert!(length > 4 * MIB);
        let group = files.group(job(1), Generation(1));
        trim(&group, Bytes(MIB)).unwrap();
        let trimmed = fs::metadata(&path).unwrap();
        assert_eq!(trimmed.len(), length);
        assert!(trimmed.blocks() * 512 <= MIB, "{} bytes are left", trimmed.blocks() * 512);
        let ask = |offset: u64, tail_lines: Option<u32>| {
            let (generation, rank) = (Generation(0), None);
            let request = LogRequest {
                request_id: 1,
                job: job(1),
                generation,
                rank,
                offset,
                limit_bytes: 26,
                tail_lines,
                since_ms: None,
            };
            read(&files, &request, newest_generation(&files, &request), true)
        };
        let first = ask(0, None);
        assert!(first.bytes.starts_with(b"line "), "trimmed output begins with a whole line");
        assert_eq!(ask(0, Some(400_000)).next_offset, first.next_offset, "and so does a tail that reaches so far back");
        let offset = first.next_offset as usize;
        assert!(offset > 3 * MIB as usize && first.bytes == lines.as_bytes()[offset - 26..offset]);
        assert_eq!(ask(length - 12, None).bytes, b"line 399999\n");
        assert_eq!(ask(0, Some(2)).bytes, b"line 399998\nline 399999\n");
        trim(&group, Bytes(MIB)).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().blocks(), trimmed.blocks());
    }

    #[test]
    fn forgotten_output_goes_by_age_then_by_size_and_known_output_stays() {
        let dir = tempfile::tempdir().unwrap();
        let (files, _lock) = Files::open(dir.path(), false).unwrap();
        let make = |job: JobId, generation: u64| {
            files.make_group(job, Generation(generation), None).unwrap();
            fs::write(files.log(job, Generation(generation), 0), vec![b'x'; MIB as usize]).unwrap();
        };
        for (number, generation) in [(1, 1), (1, 2), (2, 1)] {
            make(job(number), generation);
        }
        let known = BTreeSet::from([(job(1), Generation(2))]);
        let now = SystemTime::now();
        let limits = OutputLimits { per_rank: Bytes(MIB), age: Duration::from_secs(3600), total: Bytes(100 * MIB) };
        assert_eq!(prune(&files, &known, limits, now).unwrap(), 0);
        let small = OutputLimits { total: Bytes(0), ..limits };
        assert_eq!(prune(&files, &known, small, now).unwrap(), 0, "fresh output went");
        let later = now + 2 * FRESH;
        let one = OutputLimits { total: Bytes(MIB * 3 / 2), ..limits };
        assert_eq!(prune(&files, &known, one, later).unwrap(), 1);
        assert_eq!(prune(&files, &known, limits, now + Duration::from_secs(7200)).unwrap(), 1);
        assert!(files.group(job(1), Generation(2)).exists() && files.work(job(1)).exists());
        assert!(!files.group(job(1), Generation(1)).exists() && !files.job(job(2)).exists());
    }

    #[test]
    fn a_working_directory_stays_while_the_ledger_knows_a_group_of_the_job() {
        let dir = tempfile::tempdir().unwrap();
        let (files, _lock) = Files::open(dir.path(), false).unwrap();
        files.make_group(job(1), Generation(1), None).unwrap();
        let later = SystemTime::now() + 2 * FRESH;
        let limits = OutputLimits { per_rank: Bytes(MIB), age: Duration::ZERO, total: Bytes(0) };
        let known = BTreeSet::from([(job(1), Generation(2))]);
        assert_eq!(prune(&files, &known, limits, later).unwrap(), 1);
        assert!(files.work(job(1)).exists());
        assert_eq!(prune(&files, &BTreeSet::new(), limits, later).unwrap(), 0);
        assert!(!files.job(job(1)).exists());
    }
}
