//! Section `array`: one specification, many jobs.

use headway_types::spec::{ArraySpec, IndexError, Indices};
use serde_json::Value;

use super::section::{COUNT_AT_MOST, Findings, Section, kind, whole};

const EXAMPLE: &str = "as in array: {range: 0-99, parallel: 8}";

/// A mapping; outer `None` where something is wrong.
pub(super) fn read(job: &Section<'_>) -> Option<Option<ArraySpec>> {
    let Some(value) = job.get("array") else { return Some(None) };
    let path = job.field("array");
    // What is written as Slurm writes it stands for the range alone.
    if let Value::String(text) = value {
        return written(text, &path, job.findings()).map(Some);
    }
    let section = Section::open(&path, value, &["range", "parallel"], &[], job.findings())?;
    let range = section.require("range", EXAMPLE)?;
    let field = section.field("range");
    let read = match range {
        Value::String(text) => written(text, &field, section.findings()),
        Value::Number(_) => whole(range, 0, &field, section.findings())
            .map(|only| ArraySpec { indices: Indices::only(only), parallel: None }),
        Value::Array(list) => indices_of(list, &field, section.findings()),
        other => {
            section.wrong_hint("range", format!("must be a range or a list of indices, not {}", kind(other)), EXAMPLE);
            None
        }
    };
    let parallel = section.has("parallel").then(|| section.whole("parallel", 1));
    let read = read?;
    match (parallel, read.parallel) {
        (None, _) => Some(Some(read)),
        (Some(_), Some(_)) => {
            section.wrong_hint("parallel", "is said twice", "the range says it already, behind %");
            None
        }
        (Some(parallel), None) => Some(Some(ArraySpec { parallel: Some(parallel?), ..read })),
    }
}

/// "0-99", "0-99%8".
fn written(text: &str, field: &str, findings: &Findings) -> Option<ArraySpec> {
    let (range, parallel) = match text.split_once('%') {
        Some((range, parallel)) => (range, Some(parallel)),
        None => (text, None),
    };
    let parallel = match parallel.map(str::trim).map(|text| (text, text.parse::<u32>())) {
        None => None,
        Some((_, Ok(parallel))) if (1..=COUNT_AT_MOST).contains(&parallel) => Some(parallel),
        Some((text, _)) => {
            let message = format!("behind % stands how many run at once, 1 to {COUNT_AT_MOST}, not \"{text}\"");
            findings.hint(field, message, "as in 0-99%8");
            return None;
        }
    };
    let indices = told(range.parse(), field, findings)?;
    Some(ArraySpec { indices, parallel })
}

fn indices_of(list: &[Value], field: &str, findings: &Findings) -> Option<ArraySpec> {
    let index = |(place, value): (usize, &Value)| whole(value, 0, &format!("{field}[{place}]"), findings);
    // Every one is read before the first bad one ends it.
    let indices: Vec<Option<u32>> = list.iter().enumerate().map(index).collect();
    let indices = indices.into_iter().collect::<Option<Vec<u32>>>()?;
    Some(ArraySpec { indices: told(Indices::try_new(indices), field, findings)?, parallel: None })
}

fn told(read: Result<Indices, IndexError>, field: &str, findings: &Findings) -> Option<Indices> {
    read.map_err(|wrong| findings.hint(field, wrong.to_string(), EXAMPLE)).ok()
}
