//! A specification in TOML: read into the same tree as YAML and JSON, with the line of each value.

use serde_json::Value;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::SpecError;
use crate::yaml::Lines;

/// Longest text, as for YAML.
const BYTES: usize = 2 << 20;
/// Deeper than any specification: a bound on what a text can make the stack hold.
const DEPTH: usize = 32;

/// Reads the document of a text in TOML.
pub fn document_toml(text: &str) -> Result<(Value, Lines), SpecError> {
    let wrong = |message: String| SpecError::whole(format!("not TOML: {message}"));
    if text.len() > BYTES {
        return Err(wrong(format!("it has {} bytes, and at most {BYTES} are read", text.len())));
    }
    let table = DeTable::parse(text).map_err(|error| wrong(told(text, &error)))?;
    let mut reader = Reader { starts: starts(text), lines: Lines::new() };
    let value = reader.table("", table.get_ref(), 0).map_err(wrong)?;
    Ok((value, reader.lines))
}

fn told(text: &str, error: &toml::de::Error) -> String {
    let message = error.message().replace('\n', ", ");
    match error.span() {
        Some(span) => format!("line {}: {message}", line(&starts(text), span.start)),
        None => message,
    }
}

/// Offsets at which lines begin, but for the first.
fn starts(text: &str) -> Vec<usize> {
    text.match_indices('\n').map(|(at, _)| at + 1).collect()
}

fn line(starts: &[usize], offset: usize) -> usize {
    starts.partition_point(|start| *start <= offset) + 1
}

struct Reader {
    starts: Vec<usize>,
    lines: Lines,
}

impl Reader {
    fn table(&mut self, path: &str, table: &DeTable<'_>, depth: usize) -> Result<Value, String> {
        if depth > DEPTH {
            return Err(format!("it is nested deeper than {DEPTH}"));
        }
        let mut map = serde_json::Map::new();
        for (key, value) in table {
            let name = key.get_ref().to_string();
            let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
            self.lines.insert(path.clone(), line(&self.starts, key.span().start));
            map.insert(name, self.value(&path, value, depth + 1)?);
        }
        Ok(Value::Object(map))
    }

    fn value(&mut self, path: &str, value: &Spanned<DeValue<'_>>, depth: usize) -> Result<Value, String> {
        let at = || format!("line {}: {path}", line(&self.starts, value.span().start));
        match value.get_ref() {
            DeValue::String(text) => Ok(Value::from(text.as_ref())),
            DeValue::Boolean(flag) => Ok(Value::from(*flag)),
            DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix())
                .map(Value::from)
                .map_err(|_| format!("{} is larger than any whole number that is read", at())),
            DeValue::Float(number) => {
                let number: Option<f64> = number.as_str().parse().ok();
                let number = number.and_then(serde_json::Number::from_f64).map(Value::Number);
                number.ok_or_else(|| format!("{} is no finite number", at()))
            }
            // As a specification in YAML writes it.
            DeValue::Datetime(at) => Ok(Value::from(at.to_string())),
            DeValue::Array(values) if depth <= DEPTH => {
                let mut list = Vec::with_capacity(values.len());
                for (index, value) in values.iter().enumerate() {
                    let path = format!("{path}[{index}]");
                    self.lines.insert(path.clone(), line(&self.starts, value.span().start));
                    list.push(self.value(&path, value, depth + 1)?);
                }
                Ok(Value::Array(list))
            }
            DeValue::Array(_) => Err(format!("it is nested deeper than {DEPTH}")),
            DeValue::Table(table) => self.table(path, table, depth),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::{read_json, read_yaml};
    use super::*;

    #[test]
    fn the_same_specification_reads_alike_in_toml_and_yaml() {
        let toml = "version = 1\nname = 'a'\ndeadline = 2026-12-24T18:00:00Z\n[resources]\ngpus = 8\n\
                    [run]\ncommand = ['python', 'train.py']\nenv = {A = 'b', N = 0x10, F = 1.5}\n";
        let yaml = "{version: 1, name: a, deadline: '2026-12-24T18:00:00Z', resources: {gpus: 8}, \
                    run: {command: [python, train.py], env: {A: b, N: 16, F: 1.5}}}";
        let (value, lines) = document_toml(toml).unwrap();
        assert_eq!(read_json(&value).unwrap(), read_yaml(yaml).unwrap());
        assert_eq!((lines["deadline"], lines["resources.gpus"], lines["run.command[1]"]), (3, 5, 7));
    }

    #[test]
    fn what_is_no_toml_is_told_with_its_line() {
        for (text, line) in [("a = 1\nb: 2\n", "line 2"), ("a = 1\na = 2\n", "line 2"), ("\n\nx = nan\n", "line 3")] {
            let error = document_toml(text).unwrap_err();
            assert!(error.message.starts_with(&format!("not TOML: {line}")), "{text:?}: {}", error.message);
        }
        assert!(document_toml(&format!("a = {}1{}", "[".repeat(200), "]".repeat(200))).is_err());
    }
}
