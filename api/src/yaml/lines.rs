//! On which line of a text each of its values stands, so that whoever is told what is wrong with one finds it.

use std::collections::BTreeMap;

use granit_parser::{Event, Parser};

/// Bytes of a path: what stands deeper, or below longer names, is not told by its own.
const LONGEST_PATH: usize = 1_024;

/// In place of a path that is longer.
const CUT: &str = "…";

/// The line of each value of one document, by its path ("training.batch.min", "jobs[1].name"), counted from 1.
pub type Lines = BTreeMap<String, usize>;

/// The lines of each document of a text, as far as it can be read; those without content are left out, as `documents` does.
#[must_use]
pub fn lines(text: &str) -> Vec<Lines> {
    let mut documents = Vec::new();
    let mut walk = Walk::default();
    // What cannot be read is told by whoever reads it: what stands before is of use all the same.
    for (event, span) in Parser::new_from_str(text).map_while(Result::ok) {
        let line = span.start.line();
        match event {
            Event::DocumentStart(..) => walk = Walk::default(),
            Event::DocumentEnd => documents.push(std::mem::take(&mut walk.lines)),
            Event::Scalar(word, ..) => walk.leaf(&word, line),
            Event::Alias(..) | Event::UnresolvedAlias(..) => walk.leaf("", line),
            Event::MappingStart(..) => walk.open(line, Within::Mapping { key: None }),
            Event::SequenceStart(..) => walk.open(line, Within::List { next: 0 }),
            Event::MappingEnd | Event::SequenceEnd => walk.close(),
            _ => {}
        }
    }
    documents.push(walk.lines);
    documents.retain(|lines| !lines.is_empty());
    documents
}

/// Where in a document the walk is.
#[derive(Default)]
struct Walk {
    lines: Lines,
    around: Vec<(String, Within)>,
}

enum Within {
    /// The key whose value comes next; `None`: a key does.
    Mapping {
        key: Option<String>,
    },
    List {
        next: usize,
    },
}

impl Walk {
    fn leaf(&mut self, word: &str, line: usize) {
        match self.around.last_mut() {
            Some((path, Within::Mapping { key: key @ None })) => {
                let path = match path.len() + word.len() {
                    LONGEST_PATH.. => CUT.to_owned(),
                    _ if path.is_empty() => word.to_owned(),
                    _ => format!("{path}.{word}"),
                };
                self.lines.entry(path.clone()).or_insert(line);
                *key = Some(path);
            }
            _ => drop(self.value(line)),
        }
    }

    fn open(&mut self, line: usize, within: Within) {
        let path = self.value(line);
        self.around.push((path, within));
    }

    fn close(&mut self) {
        self.around.pop();
    }

    /// Path of the value that begins here.
    fn value(&mut self, line: usize) -> String {
        match self.around.last_mut() {
            Some((_, Within::Mapping { key })) => key.take().unwrap_or_default(),
            Some((path, Within::List { next })) => {
                let path = format!("{path}[{next}]");
                *next += 1;
                if path.len() > LONGEST_PATH {
                    return CUT.to_owned();
                }
                self.lines.entry(path.clone()).or_insert(line);
                path
            }
            None => String::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_value_has_its_line() {
        let text = "# first\nname: a\nresources:\n  gpus: {min: 1,\n    max: 4}\nrun: &run\n  command: [a,\n    b]\nagain: *run\n";
        let lines = &lines(text)[0];
        for (path, line) in [
            ("name", 2),
            ("resources", 3),
            ("resources.gpus", 4),
            ("resources.gpus.min", 4),
            ("resources.gpus.max", 5),
            ("run.command", 7),
            ("run.command[1]", 8),
            ("again", 9),
        ] {
            assert_eq!(lines.get(path), Some(&line), "{path}");
        }
    }

    #[test]
    fn a_long_name_is_not_repeated_for_each_value_below_it() {
        let children: String = (0..10_000).map(|child| format!("  c{child}: 1\n")).collect();
        // Only behind a question mark may a name be so long.
        let text = format!("? {}\n:\n{children}short: 1\n", "k".repeat(30_000));
        let found = &lines(&text)[0];
        assert!(found.keys().map(String::len).sum::<usize>() < 200_000, "{} paths", found.len());
        assert_eq!(found.get("short"), Some(&10_003));
    }

    #[test]
    fn documents_are_told_apart_and_empty_ones_left_out() {
        let found = lines("---\n---\njobs:\n- name: a\n- name: b\n---\nname: c\n");
        assert_eq!(found.len(), 2);
        assert_eq!((found[0].get("jobs[1].name"), found[1].get("name")), (Some(&5), Some(&7)));
    }

    #[test]
    fn what_cannot_be_read_has_lines_up_to_there() {
        assert_eq!(lines("a: 1\nb: [1, 2\nc: 3\n")[0].get("a"), Some(&1));
        assert!(lines("").is_empty() && lines("\0").is_empty());
    }
}
