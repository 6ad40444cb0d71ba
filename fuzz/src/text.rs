//! Edits of texts: words, lines, brackets, and bytes that no text has.

use std::ops::Range;

use crate::{Edit, LONGEST, choose};

/// What confuses readers of numbers, dates, quantities and marks, whatever the format.
#[rustfmt::skip]
const ODD: &[&str] = &[
    "", "0", "-1", "-0", "1", "00", "0x7f", "1e3", "1e-400", "1e300", "1e999", "-1e999", "NaN", ".nan", "inf",
    "-.inf", "255", "256", "65536", "2147483648", "4294967295", "4294967296", "9007199254740993",
    "9223372036854775807", "9223372036854775808", "18446744073709551615", "18446744073709551616",
    "340282366920938463463374607431768211456", "0.1", "null", "~", "true", "no", "[]", "{}", "''", "\"\"", "[[]]",
    "{a: [{}]}", "1h", "99999999999999h", "1e300d", "16TiB", "99999999999999999999Gi", "1.5.2", "0-4294967295",
    "0-9%0", "9-0", "0-1:0", "2026-12-24T18:00:00Z", "9999-12-31T23:59:60+23:59",
    "00000000-0000-0000-0000-000000000001", "a[0]", "a[4294967296]", "ü", "日本", "e\u{301}", "$HOME",
];
/// What ends or opens something.
#[rustfmt::skip]
const MARKS: &[&str] = &[
    "\0", "\u{feff}", "\u{2028}", "\u{85}", "\r", "\n", "\t", " ", "---\n", "...\n", "&a ", "*a", "<<: ", "!!binary ",
    "!a ", "? ", ": ", "- ", "| ", "> ", "|+9\n", "#", "'", "\"", "\"\"\"", "\\", "\\u", "\\uD800", "\\x", "{", "}",
    "[", "]", ",", "=", "[[", "{{", "}}", "{dp}", "@", "%", "%YAML 9\n", "`", "$(", "\u{1b}[2J", "\u{202e}",
    "\u{1f469}\u{200d}\u{1f680}",
];

/// A seed after these edits. `seeds`: of what else there is.
pub fn edited(seed: &[u8], edits: &[Edit], seeds: &[Vec<u8>], words: &[&str]) -> Vec<u8> {
    let mut text = seed.to_vec();
    for one in edits {
        edit(&mut text, *one, seeds, words);
        text.truncate(LONGEST);
    }
    text
}

fn edit(text: &mut Vec<u8>, Edit { kind, at, with, much }: Edit, seeds: &[Vec<u8>], words: &[&str]) {
    let other = choose(seeds, much);
    let (word, line, place) = (word_at(text, at), line_at(text, at), place(text, at));
    let known: &[u8] = if words.is_empty() { b"" } else { choose(words, with).as_bytes() };
    let odd = choose(ODD, with).as_bytes();
    match kind % 32 {
        0..=3 => put(text, word, known),
        4..=8 => put(text, word, odd),
        9 => put(text, word, b""),
        10 => put(text, word.start..word.start, known),
        11 => put(text, word.start..word.start, odd),
        12 | 13 => put(text, word, &other[word_at(other, with)]),
        14 => {
            let again = text[line.clone()].to_vec();
            put(text, line.end..line.end, &again);
        }
        15 => put(text, line, b""),
        16 | 17 => put(text, line.start..line.start, &other[line_at(other, with)]),
        18 => {
            let moved: Vec<u8> = text.drain(line).collect();
            let to = line_at(text, with).start;
            put(text, to..to, &moved);
        }
        19 => {
            text.truncate(line.start);
            text.extend_from_slice(&other[line_at(other, with).start..]);
        }
        20 => put(text, line.start..line.start, &b"         "[..with as usize % 9]),
        21 => {
            let spaces = text[line.clone()].iter().take_while(|byte| **byte == b' ').count();
            put(text, line.start..line.start + spaces.min(1 + with as usize % 4), b"");
        }
        22 => {
            if let Some(byte) = text.get_mut(place) {
                *byte ^= 1 << (with % 8);
            }
        }
        23 | 24 => put(text, place..place, choose(MARKS, with).as_bytes()),
        25 => text.truncate(place),
        26 => put(text, place..(place + 1 + with as usize % 16).min(text.len()), b""),
        27 => {
            let copied = text[place..(place + 1 + much as usize % 64).min(text.len())].to_vec();
            let to = self::place(text, with);
            put(text, to..to, &copied);
        }
        28 => {
            let second = word_at(text, with);
            if word.end <= second.start {
                let (first, last) = (text[word.clone()].to_vec(), text[second.clone()].to_vec());
                put(text, second, &first);
                put(text, word, &last);
            }
        }
        // Much of the same, now and then: what takes longer than it is long shows itself.
        29 | 30 if much.is_multiple_of(16) => {
            let piece = if kind % 32 == 29 { text[word].to_vec() } else { text[line.clone()].to_vec() };
            let room = LONGEST.saturating_sub(text.len()) >> (with % 12);
            let times = room / piece.len().max(1);
            put(text, line.start..line.start, &piece.repeat(times));
        }
        31 if much.is_multiple_of(16) => {
            let mark = choose(MARKS, with).as_bytes();
            put(text, place..place, &mark.repeat(1 << (much / 16 % 13)));
        }
        _ => put(text, place..place, odd),
    }
}

fn put(text: &mut Vec<u8>, range: Range<usize>, by: &[u8]) {
    text.splice(range, by.iter().copied());
}

/// Somewhere in the text, its end among it.
fn place(text: &[u8], at: u32) -> usize {
    at as usize % (text.len() + 1)
}

fn is_of_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.') || byte >= 128
}

/// The word around a place, or the one byte that is none.
fn word_at(text: &[u8], at: u32) -> Range<usize> {
    let place = place(text, at);
    let before = text[..place].iter().rev().take_while(|byte| is_of_word(**byte)).count();
    let behind = text[place..].iter().take_while(|byte| is_of_word(**byte)).count();
    if before + behind > 0 { place - before..place + behind } else { place..(place + 1).min(text.len()) }
}

/// The line around a place, with its end.
fn line_at(text: &[u8], at: u32) -> Range<usize> {
    let place = place(text, at);
    let start = text[..place].iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    let end = text[place..].iter().position(|byte| *byte == b'\n').map_or(text.len(), |end| place + end + 1);
    start..end
}
