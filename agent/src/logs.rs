//! Answers requests for workers' output from the files they write to. It reads, nothing else.

mod retention;
mod times;

pub use retention::OutputLimits;
pub(crate) use retention::{prune, trim};
pub(crate) use times::note;

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use headway_api::agent::{LogChunk, LogMark, LogRequest, TAIL_LINES_AT_MOST};
use headway_types::Generation;

use crate::files::Files;

/// Most bytes of one answer, whatever was asked for.
const CHUNK_LIMIT: u64 = 256 * 1024;
/// The beginning of a tail is looked for from the end on, in pieces of so many bytes.
const TAIL_PIECE: u64 = 1024 * 1024;
/// Of output that was trimmed in the middle of a line, the rest of that line is left out if it is no longer than this.
const TORN_LINE: u64 = 64 * 1024;

/// A request that found its generation. Resolving comes first, since the end of the group must be asked *before* the
/// file is read: what is written in between then counts as not yet read.
pub(crate) fn newest_generation(files: &Files, request: &LogRequest) -> Option<Generation> {
    if request.generation != Generation(0) {
        return Some(request.generation);
    }
    let entries = std::fs::read_dir(files.job(request.job)).ok()?;
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.strip_prefix('g')?.parse().ok()).max().map(Generation)
}

/// Reads one piece. `over`: the group had ended before this call.
pub(crate) fn read(files: &Files, request: &LogRequest, generation: Option<Generation>, over: bool) -> LogChunk {
    let found = generation.and_then(|generation| find(files, request, generation));
    let piece = match found {
        Some(path) => read_piece(&path, request).map_err(|error| error.to_string()),
        None if over => Err("there is no output of this group on this node".to_owned()),
        None => Ok(Piece { bytes: Vec::new(), next_offset: request.offset, at_end: true, marks: Vec::new() }),
    };
    let request_id = request.request_id;
    match piece {
        Ok(Piece { bytes, next_offset, at_end, marks }) => {
            let clock_ms = Some(wall_clock_ms());
            LogChunk { request_id, bytes, next_offset, eof: over && at_end, error: None, marks, clock_ms }
        }
        Err(error) => {
            let (bytes, marks) = (Vec::new(), Vec::new());
            let (next_offset, clock_ms) = (request.offset, None);
            LogChunk { request_id, bytes, next_offset, eof: true, error: Some(error), marks, clock_ms }
        }
    }
}

/// The clock that marks are noted by, in milliseconds since 1970.
fn wall_clock_ms() -> i64 {
    crate::clock::now().0 / 1_000
}

/// The file of the wanted rank: by global rank, else by its position on the node.
fn find(files: &Files, request: &LogRequest, generation: Generation) -> Option<PathBuf> {
    let mut ranks: Vec<u32> = std::fs::read_dir(files.group(request.job, generation))
        .ok()?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.strip_prefix("rank-")?.strip_suffix(".log")?.parse().ok())
        .collect();
    ranks.sort_unstable();
    let rank = match request.rank {
        None => *ranks.first()?,
        Some(rank) if ranks.contains(&rank) => rank,
        Some(rank) => *ranks.get(rank as usize)?,
    };
    Some(files.log(request.job, generation, rank))
}

struct Piece {
    bytes: Vec<u8>,
    next_offset: u64,
    at_end: bool,
    marks: Vec<LogMark>,
}

fn read_piece(path: &Path, request: &LogRequest) -> std::io::Result<Piece> {
    let mut file = File::open(path)?;
    let found = file.metadata()?;
    let length = found.len();
    let marks = times::of(path, &found);
    let since = request.since_ms.map_or(0, |since| times::offset_since(&marks, since));
    let offset = match request.tail_lines {
        Some(lines) => tail_offset(&file, length, lines.min(TAIL_LINES_AT_MOST))?.max(since),
        None => first_readable(&file, request.offset.max(since).min(length), length)?,
    };
    file.seek(SeekFrom::Start(offset))?;
    let mut bytes = Vec::new();
    file.take(request.limit_bytes.clamp(1, CHUNK_LIMIT)).read_to_end(&mut bytes)?;
    let next_offset = offset + bytes.len() as u64;
    let marks = times::within(marks, offset, next_offset);
    Ok(Piece { bytes, next_offset, at_end: next_offset >= length, marks })
}

/// The first offset from `offset` on whose output was not given up for want of room.
fn first_kept(file: &File, offset: u64, length: u64) -> std::io::Result<u64> {
    match rustix::fs::seek(file, rustix::fs::SeekFrom::Data(offset)) {
        Ok(kept) => Ok(kept.min(length)),
        Err(rustix::io::Errno::NXIO) => Ok(length),
        // A file system that knows no holes.
        Err(rustix::io::Errno::INVAL) => Ok(offset),
        Err(error) => Err(error.into()),
    }
}

/// Returns the first offset from `offset` on that was not trimmed and, where output before it was, begins a line.
fn first_readable(file: &File, offset: u64, length: u64) -> std::io::Result<u64> {
    let kept = first_kept(file, offset, length)?;
    if kept == offset { Ok(kept) } else { next_line(file, kept) }
}

/// Returns where the first line from `offset` on begins whose beginning is there; `offset` itself where none begins soon.
fn next_line(mut file: &File, offset: u64) -> std::io::Result<u64> {
    file.seek(SeekFrom::Start(offset))?;
    let mut torn = Vec::new();
    file.take(TORN_LINE).read_to_end(&mut torn)?;
    let end = torn.iter().position(|byte| *byte == b'\n');
    Ok(end.map_or(offset, |end| offset + end as u64 + 1))
}

/// Returns where the last `lines` lines begin; of output that was trimmed, at its first whole line at the earliest.
fn tail_offset(file: &File, length: u64, lines: u32) -> std::io::Result<u64> {
    let mut missing = lines;
    // The newline that ends the last line begins none.
    let mut end = length.saturating_sub(1);
    if lines == 0 {
        return Ok(length);
    }
    let mut piece = Vec::new();
    loop {
        let begin = end.saturating_sub(TAIL_PIECE);
        let kept = first_kept(file, begin, length)?.min(end);
        piece.clear();
        let mut from = file;
        from.seek(SeekFrom::Start(kept))?;
        from.take(end - kept).read_to_end(&mut piece)?;
        for (at, _) in piece.iter().enumerate().rev().filter(|(_, byte)| **byte == b'\n') {
            missing -= 1;
            if missing == 0 {
                return Ok(kept + at as u64 + 1);
            }
        }
        if kept > begin {
            return next_line(file, kept);
        }
        if kept == 0 {
            return Ok(0);
        }
        end = kept;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use headway_types::JobId;

    use super::*;

    fn request(offset: u64, limit_bytes: u64, tail_lines: Option<u32>) -> LogRequest {
        let job = JobId(uuid::Uuid::from_u128(1));
        LogRequest {
            request_id: 9,
            job,
            generation: Generation(0),
            rank: None,
            offset,
            limit_bytes,
            tail_lines,
            since_ms: None,
        }
    }

    fn ask(files: &Files, request: &LogRequest, over: bool) -> LogChunk {
        read(files, request, newest_generation(files, request), over)
    }

    #[test]
    fn output_is_read_in_pieces_of_the_newest_generation() {
        let dir = tempfile::tempdir().unwrap();
        let (files, _lock) = Files::open(dir.path(), false).unwrap();
        let job = request(0, 1, None).job;
        for (generation, text) in [(2, "old"), (10, "one\ntwo\nthree\n")] {
            files.make_group(job, Generation(generation), None).unwrap();
            std::fs::write(files.log(job, Generation(generation), 4), text).unwrap();
        }
        let first = ask(&files, &request(0, 4, None), true);
        assert_eq!((first.bytes.as_slice(), first.next_offset, first.eof), (&b"one\n"[..], 4, false));
        let rest = ask(&files, &request(4, 100, None), true);
        assert_eq!((rest.bytes.as_slice(), rest.eof), (&b"two\nthree\n"[..], true));
        assert!(!ask(&files, &request(4, 100, None), false).eof);
        assert_eq!(ask(&files, &request(0, 100, Some(2)), true).bytes, b"two\nthree\n");
        assert_eq!(ask(&files, &request(0, 100, Some(99)), true).bytes, b"one\ntwo\nthree\n");
        let local = LogRequest { rank: Some(0), ..request(0, 3, None) };
        assert_eq!(ask(&files, &local, true).bytes, b"one");
    }

    #[test]
    fn a_tail_has_as_many_lines_as_were_asked_for_however_long_they_are() {
        let dir = tempfile::tempdir().unwrap();
        let (files, _lock) = Files::open(dir.path(), false).unwrap();
        let job = request(0, 1, None).job;
        files.make_group(job, Generation(1), None).unwrap();
        let text: String = (0..40_000).map(|line| format!("line {line:06} {}\n", "x".repeat(68))).collect();
        std::fs::write(files.log(job, Generation(1), 0), &text).unwrap();
        assert!(text.len() as u64 > 3 * TAIL_PIECE);
        for (asked, first) in [(1, 39_999), (13_109, 26_891), (30_000, 10_000), (40_000, 0), (50_000, 0)] {
            let tail = ask(&files, &request(0, 12, Some(asked)), true);
            assert_eq!(String::from_utf8(tail.bytes).unwrap(), format!("line {first:06} "), "{asked} lines");
        }
    }

    #[test]
    fn a_tail_has_no_more_lines_than_one_request_can_name() {
        let dir = tempfile::tempdir().unwrap();
        let (files, _lock) = Files::open(dir.path(), false).unwrap();
        let job = request(0, 1, None).job;
        files.make_group(job, Generation(1), None).unwrap();
        let text: String = (0..TAIL_LINES_AT_MOST + 7).map(|line| format!("{line:06}\n")).collect();
        std::fs::write(files.log(job, Generation(1), 0), text).unwrap();
        for asked in [TAIL_LINES_AT_MOST, TAIL_LINES_AT_MOST + 1, u32::MAX] {
            assert_eq!(ask(&files, &request(0, 7, Some(asked)), true).bytes, b"000007\n", "{asked} lines");
        }
    }

    #[test]
    fn a_group_without_output_is_an_error_only_once_it_is_over() {
        let dir = tempfile::tempdir().unwrap();
        let (files, _lock) = Files::open(dir.path(), false).unwrap();
        assert!(ask(&files, &request(0, 1, None), false).error.is_none());
        assert!(ask(&files, &request(0, 1, None), true).error.is_some());
    }
}
