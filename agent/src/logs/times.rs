//! When output was written. Workers write to files of their own, which say nothing of time: so every few seconds it is noted how long a log that
//! has grown is by now, beside it and in as little room as one likes.

use std::fs::{self, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use headway_api::agent::LogMark;
use nix::libc::{O_NOFOLLOW, O_NONBLOCK};

/// Bytes of a mark: length of the log, then milliseconds since 1970.
const MARK: usize = 16;
/// Marks of one log; when there are as many, every second goes.
const MOST: usize = 1 << 15;

/// Notes how long the logs of a group are at this moment, in milliseconds since 1970.
pub(crate) fn note(group: &Path, at_ms: i64) -> io::Result<()> {
    for entry in fs::read_dir(group)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "log") {
            note_log(&path, at_ms)?;
        }
    }
    Ok(())
}

/// Every few seconds for as long as a job runs: only the last mark is read.
fn note_log(log: &Path, at_ms: i64) -> io::Result<()> {
    let length = fs::symlink_metadata(log)?.len();
    if length == 0 {
        return Ok(());
    }
    let mut file = OpenOptions::new();
    let file = careful(file.read(true).write(true).create(true).truncate(false).mode(0o600)).open(beside(log))?;
    let found = file.metadata()?;
    if !found.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{} is no file", beside(log).display())));
    }
    let count = found.len() / MARK as u64;
    let mut last = [0; MARK];
    if count > 0 {
        file.read_exact_at(&mut last, (count - 1) * MARK as u64)?;
    }
    if mark(&last).offset >= length {
        return Ok(());
    }
    let new = LogMark { offset: length, at_ms };
    if count < MOST as u64 {
        // Over what was not written whole, if anything.
        return file.write_all_at(&bytes(&[new]), count * MARK as u64);
    }
    let mut marks: Vec<LogMark> = read(log).into_iter().skip(1).step_by(2).collect();
    marks.push(new);
    file.set_len(0)?;
    file.write_all_at(&bytes(&marks), 0)
}

fn bytes(marks: &[LogMark]) -> Vec<u8> {
    marks.iter().flat_map(|mark| [mark.offset.to_le_bytes(), mark.at_ms.to_le_bytes()]).flatten().collect()
}

fn mark(bytes: &[u8]) -> LogMark {
    let word = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_le_bytes);
    LogMark { offset: word(&bytes[..8]), at_ms: word(&bytes[8..]) as i64 }
}

/// The directory is the job's user's, who could leave anything under this name.
fn careful(file: &mut OpenOptions) -> &mut OpenOptions {
    file.custom_flags(O_NOFOLLOW | O_NONBLOCK)
}

/// Of a log, oldest first; none where nobody noted any.
pub(crate) fn read(log: &Path) -> Vec<LogMark> {
    let file = careful(OpenOptions::new().read(true)).open(beside(log));
    let mut bytes = Vec::new();
    let whole = file.and_then(|file| file.take((MOST * MARK) as u64).read_to_end(&mut bytes));
    if whole.is_err() {
        return Vec::new();
    }
    // What was not written whole counts for nothing.
    bytes.chunks_exact(MARK).map(mark).collect()
}

/// Those of a log, and the last thing that is known of it: when it was written to last.
pub(crate) fn of(log: &Path, found: &fs::Metadata) -> Vec<LogMark> {
    let mut marks = read(log);
    let at_ms = found.mtime() * 1_000 + found.mtime_nsec() / 1_000_000;
    if found.len() > marks.last().map_or(0, |last| last.offset) {
        marks.push(LogMark { offset: found.len(), at_ms });
    }
    marks
}

/// What says when the bytes from here to there were written.
pub(crate) fn within(marks: Vec<LogMark>, from: u64, to: u64) -> Vec<LogMark> {
    let first = marks.partition_point(|mark| mark.offset <= from);
    let last = marks.partition_point(|mark| mark.offset < to) + 1;
    marks.into_iter().take(last).skip(first).collect()
}

/// Where what was written since a moment begins, at the latest.
pub(crate) fn offset_since(marks: &[LogMark], since_ms: i64) -> u64 {
    marks.iter().take_while(|mark| mark.at_ms <= since_ms).last().map_or(0, |mark| mark.offset)
}

fn beside(log: &Path) -> PathBuf {
    log.with_extension("times")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn what_grew_since_a_moment_begins_where_the_log_ended_then() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("rank-0.log");
        for (text, at_ms) in [("one\n", 1_000), ("one\n", 2_000), ("one\ntwo\n", 3_000)] {
            fs::write(&log, text).unwrap();
            note(dir.path(), at_ms).unwrap();
        }
        let marks = read(&log);
        assert_eq!(marks, [LogMark { offset: 4, at_ms: 1_000 }, LogMark { offset: 8, at_ms: 3_000 }]);
        for (since, offset) in [(0, 0), (1_000, 4), (2_500, 4), (3_000, 8)] {
            assert_eq!(offset_since(&marks, since), offset, "{since}");
        }
    }

    #[test]
    fn a_mark_that_was_not_written_whole_spoils_none_that_follow() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("rank-0.log");
        fs::write(&log, "one\n").unwrap();
        note(dir.path(), 1_000).unwrap();
        let mut torn = fs::read(beside(&log)).unwrap();
        torn.extend([0xff; MARK - 1]);
        fs::write(beside(&log), torn).unwrap();
        fs::write(&log, "one\ntwo\n").unwrap();
        note(dir.path(), 2_000).unwrap();
        assert_eq!(read(&log), [LogMark { offset: 4, at_ms: 1_000 }, LogMark { offset: 8, at_ms: 2_000 }]);
    }

    #[test]
    fn what_else_has_the_name_of_the_marks_holds_nobody_up() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("rank-0.log");
        fs::write(&log, "one\n").unwrap();
        nix::unistd::mkfifo(&beside(&log), nix::sys::stat::Mode::S_IRWXU).unwrap();
        let (ended, end) = std::sync::mpsc::channel();
        let group = dir.path().to_owned();
        std::thread::spawn(move || ended.send(note(&group, 1_000)));
        let noted = end.recv_timeout(std::time::Duration::from_secs(20)).expect("it does not wait for a reader");
        assert_eq!(noted.unwrap_err().kind(), io::ErrorKind::InvalidInput);
        assert_eq!(read(&log), []);
    }

    #[test]
    fn marks_take_no_more_room_however_long_a_job_runs() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("rank-0.log");
        let full: Vec<u8> = (0..MOST as u64).flat_map(|n| [n.to_le_bytes(), n.to_le_bytes()]).flatten().collect();
        fs::write(beside(&log), full).unwrap();
        fs::write(&log, vec![b'x'; MOST + 1]).unwrap();
        note(dir.path(), 1 << 40).unwrap();
        let marks = read(&log);
        assert_eq!(marks.len(), MOST / 2 + 1);
        assert_eq!(within(marks.clone(), 0, 2), marks[..2], "one that lies behind the bytes says when they were there");
        assert!(marks.is_sorted_by_key(|mark| mark.offset));
    }
}
