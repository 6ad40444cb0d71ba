//! Lines of several ranks in the order of their times. Of a line that overwrites itself, as progress bars do, it keeps the last
//! state. Pure: pieces of logs in, lines out; it keeps one piece of each rank at most.

use std::collections::VecDeque;

use headway_api::agent::LogMark;
use headway_api::log_text::{last_state, whole_characters};

/// A line that never ends is cut here, in bytes.
const LONGEST_LINE: usize = 64 * 1024;

/// A line, with its newline where it has one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    pub rank: u32,
    /// Milliseconds since 1970, to some seconds; `None`: nobody noted when it was written.
    pub at_ms: Option<i64>,
    pub bytes: Vec<u8>,
}

/// The ranks of one attempt.
#[derive(Debug, Default)]
pub struct Merge {
    lanes: Vec<Lane>,
}

#[derive(Debug)]
struct Lane {
    rank: u32,
    lines: VecDeque<Line>,
    /// A line whose end has not come yet.
    begun: Vec<u8>,
    /// Of what came last.
    at_ms: Option<i64>,
    /// There was nothing more to read when it was last asked.
    at_end: bool,
}

impl Merge {
    pub fn of(ranks: &[u32]) -> Self {
        let lane =
            |rank: &u32| Lane { rank: *rank, lines: VecDeque::new(), begun: Vec::new(), at_ms: None, at_end: false };
        Self { lanes: ranks.iter().map(lane).collect() }
    }

    /// Ranks whose next piece has to be read before another line can be told.
    pub fn hungry(&self) -> Vec<u32> {
        self.lanes.iter().filter(|lane| lane.lines.is_empty() && !lane.at_end).map(|lane| lane.rank).collect()
    }

    /// Every rank may have more.
    pub fn look_again(&mut self) {
        self.lanes.iter_mut().for_each(|lane| lane.at_end = false);
    }

    /// A piece of a rank's log that begins at `offset`. `marks`: how long the log was when.
    pub fn feed(&mut self, rank: u32, offset: u64, bytes: &[u8], marks: &[LogMark], at_end: bool) {
        let Some(lane) = self.lanes.iter_mut().find(|lane| lane.rank == rank) else { return };
        lane.at_end = at_end;
        let mut marks = marks.iter().peekable();
        let mut end = offset;
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            end += part.len() as u64;
            while marks.next_if(|mark| mark.offset < end).is_some() {}
            lane.at_ms = marks.peek().map(|mark| mark.at_ms).or(lane.at_ms);
            lane.begun.extend_from_slice(part);
            if part.ends_with(b"\n") {
                lane.end_line();
            } else if lane.begun.len() >= LONGEST_LINE {
                lane.shorten_line();
            }
        }
    }

    /// The earliest line, once no rank can have an earlier one.
    pub fn take_line(&mut self) -> Option<Line> {
        if self.lanes.iter().any(|lane| lane.lines.is_empty() && !lane.at_end) {
            return None;
        }
        let first = |lane: &Lane| lane.lines.front().map(|line| (line.at_ms, line.rank));
        let lanes = self.lanes.iter_mut().filter(|lane| !lane.lines.is_empty());
        lanes.min_by_key(|lane| first(lane))?.lines.pop_front()
    }

    /// What was begun and will not end, when the ranks are over.
    pub fn rest(&mut self) -> Vec<Line> {
        self.lanes.iter_mut().filter(|lane| !lane.begun.is_empty()).for_each(Lane::end_line);
        self.lanes.iter_mut().flat_map(|lane| std::mem::take(&mut lane.lines)).collect()
    }
}

impl Lane {
    /// Ends the line that was begun, in its last state.
    fn end_line(&mut self) {
        let begun = std::mem::take(&mut self.begun);
        let mut bytes = last_state(&begun).to_vec();
        if begun.ends_with(b"\n") {
            bytes.push(b'\n');
        }
        self.lines.push_back(Line { rank: self.rank, at_ms: self.at_ms, bytes });
    }

    /// Drops former states of a long line. A line that is as long in one state is cut between two characters.
    fn shorten_line(&mut self) {
        let state = last_state(&self.begun).to_vec();
        if state.len() < LONGEST_LINE {
            let returns = self.begun.ends_with(b"\r");
            self.begun = state;
            if returns {
                self.begun.push(b'\r');
            }
            return;
        }
        self.begun = state;
        let rest = self.begun.split_off(whole_characters(&self.begun));
        self.end_line();
        self.begun = rest;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;

    fn marks(of: &[(u64, i64)]) -> Vec<LogMark> {
        of.iter().map(|(offset, at_ms)| LogMark { offset: *offset, at_ms: *at_ms }).collect()
    }

    fn told(merge: &mut Merge) -> Vec<(u32, Option<i64>, String)> {
        std::iter::from_fn(|| merge.take_line())
            .map(|line| (line.rank, line.at_ms, String::from_utf8(line.bytes).unwrap()))
            .collect()
    }

    #[test]
    fn lines_come_in_the_order_of_their_times() {
        let mut merge = Merge::of(&[0, 3]);
        merge.feed(0, 0, b"a\nc\n", &marks(&[(2, 1_000), (4, 3_000)]), true);
        assert_eq!(told(&mut merge), [], "rank 3 may have an earlier one");
        assert_eq!(merge.hungry(), [3]);
        merge.feed(3, 0, b"b\nd", &marks(&[(3, 2_000)]), true);
        let line = |rank, at, text: &str| (rank, Some(at), text.to_owned());
        assert_eq!(told(&mut merge), [line(0, 1_000, "a\n"), line(3, 2_000, "b\n"), line(0, 3_000, "c\n")]);
        assert_eq!(merge.rest(), [Line { rank: 3, at_ms: Some(2_000), bytes: b"d".into() }]);
    }

    #[test]
    fn a_line_without_end_is_cut() {
        let mut merge = Merge::of(&[0]);
        merge.feed(0, 0, &vec![b'x'; LONGEST_LINE], &[], false);
        merge.feed(0, LONGEST_LINE as u64, b"y\n", &[], true);
        assert_eq!(told(&mut merge).len(), 2);
    }

    #[test]
    fn a_progress_bar_is_one_line_in_its_last_state_however_long_it_grows() {
        let mut merge = Merge::of(&[0]);
        let bar: String = (0..5_000).map(|step| format!("\r{step}/5000 {}", "#".repeat(40))).collect();
        let text = format!("begin\r\n{bar}\ndone\n\r7 %\r9 %");
        for (number, piece) in text.as_bytes().chunks(1_000).enumerate() {
            merge.feed(0, 1_000 * number as u64, piece, &[], false);
        }
        let last = format!("4999/5000 {}\n", "#".repeat(40));
        let lines: Vec<String> = told(&mut merge).into_iter().map(|(_, _, line)| line).collect();
        assert_eq!(lines, ["begin\n", last.as_str(), "done\n"]);
        assert_eq!(merge.rest()[0].bytes, b"9 %");
    }

    #[test]
    fn a_long_line_is_cut_between_characters() {
        let mut merge = Merge::of(&[0]);
        let text = format!("x{}\n", "é".repeat(LONGEST_LINE));
        for (number, piece) in text.as_bytes().chunks(1_001).enumerate() {
            merge.feed(0, 1_001 * number as u64, piece, &[], false);
        }
        let whole: String = told(&mut merge).into_iter().map(|(_, _, line)| line).collect();
        assert_eq!(whole, text);
    }

    proptest! {
        #[test]
        fn nothing_is_lost_and_each_rank_keeps_its_order(
            texts in prop::collection::vec("[ab\n]{0,60}", 1..4), piece in 1usize..9,
        ) {
            let ranks: Vec<u32> = (0..texts.len() as u32).collect();
            let mut merge = Merge::of(&ranks);
            let (mut read, mut out) = (vec![0; texts.len()], vec![String::new(); texts.len()]);
            loop {
                let hungry = merge.hungry();
                for rank in &hungry {
                    let (text, from) = (texts[*rank as usize].as_bytes(), read[*rank as usize]);
                    let to = (from + piece).min(text.len());
                    let marks = [LogMark { offset: to as u64, at_ms: to as i64 }];
                    merge.feed(*rank, from as u64, &text[from..to], &marks, to == text.len());
                    read[*rank as usize] = to;
                }
                let mut lines: Vec<Line> = std::iter::from_fn(|| merge.take_line()).collect();
                if hungry.is_empty() {
                    lines.extend(merge.rest());
                }
                for line in lines {
                    out[line.rank as usize].push_str(std::str::from_utf8(&line.bytes).unwrap());
                }
                if hungry.is_empty() {
                    break;
                }
            }
            prop_assert_eq!(out, texts);
        }
    }
}
