//! A job or a node as the stream tells it: whole, or only what has changed of it as far as a reader can see (a JSON merge patch, RFC 7396). Pure.

use std::borrow::Cow;
use std::fmt::Write;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::LazyLock;

use headway_api::v1;
use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::PartialSchema;
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::Schema;
use uuid::Uuid;

/// What is measured or counts up while a job trains: each of its reports changes all of these a little.
const MEASURED: [&str; 17] = [
    "credit_tokens",
    "efficiency",
    "eta_seconds",
    "goodput_tokens_per_second",
    "loss",
    "lost_gpu_hours",
    "noise_error",
    "noise_high_tokens",
    "noise_low_tokens",
    "noise_scale_tokens",
    "progress_fraction",
    "progress_tokens",
    "samples_seen",
    "seen_tokens",
    "step",
    "throughput_tokens_per_second",
    "used_gpu_hours",
];
const ID: &str = "id";
const ABSENT: &str = "null";

/// The fields of a kind of row, in order.
pub struct Kind {
    names: Vec<String>,
    measured: Vec<bool>,
}

pub static JOB: LazyLock<Kind> = LazyLock::new(|| Kind::of(v1::Job::schema()));
pub static NODE: LazyLock<Kind> = LazyLock::new(|| Kind::of(v1::Node::schema()));

impl Kind {
    /// As the document tells them.
    fn of(schema: RefOr<Schema>) -> Self {
        let RefOr::T(Schema::Object(row)) = schema else { unreachable!("rows are objects") };
        let mut names: Vec<String> = row.properties.keys().cloned().collect();
        names.sort();
        let measured = names.iter().map(|name| MEASURED.contains(&name.as_str())).collect();
        Self { names, measured }
    }

    /// Those that a reader wants, by their places; a row is nobody's without its id.
    pub fn columns(&self, wanted: impl Fn(&str) -> bool) -> Vec<usize> {
        let named = |column: &usize| self.names[*column] == ID || wanted(&self.names[*column]);
        (0..self.names.len()).filter(named).collect()
    }
}

/// How much of a measured number has to change for its reader to see it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Acuity {
    /// Any change is told, to the last digit.
    Exact,
    /// A hundredth of it is, to four digits.
    Hundredth,
}

/// Rendered once, told to many.
pub struct Row {
    pub id: Uuid,
    kind: &'static Kind,
    /// The JSON of each field; none where the field is left out.
    texts: Vec<Option<Box<str>>>,
    marks: Vec<u64>,
}

/// What a reader was last told of a row, a word for each column. Two rows that differ in a field have other words for it, but for a chance of one in 2⁶⁴.
pub struct Told(Box<[u64]>);

impl Row {
    pub fn of(kind: &'static Kind, id: Uuid, value: &impl Serialize) -> Self {
        let Ok(Value::Object(mut fields)) = serde_json::to_value(value) else { unreachable!("rows are objects") };
        let (texts, marks) =
            kind.names.iter().zip(&kind.measured).map(|(name, measured)| field(&mut fields, name, *measured)).unzip();
        Self { id, kind, texts, marks }
    }

    pub fn whole(&self, columns: &[usize]) -> String {
        self.object(columns.iter().filter_map(|column| Some((*column, self.texts[*column].as_deref()?.into()))))
    }

    pub fn told(&self, columns: &[usize]) -> Told {
        Told(columns.iter().map(|column| self.marks[*column]).collect())
    }

    /// What has changed since the reader was told, with the id of the row; `None` where nothing has. The reader counts as told.
    pub fn patch(&self, columns: &[usize], told: &mut Told, acuity: Acuity) -> Option<String> {
        let mut changed = Vec::new();
        for (column, told) in columns.iter().zip(&mut told.0) {
            let now = self.marks[*column];
            let seen = now != *told
                && (acuity == Acuity::Exact
                    || !self.kind.measured[*column]
                    || differ(f64::from_bits(*told), f64::from_bits(now)));
            if seen {
                *told = now;
            }
            if seen || self.kind.names[*column] == ID {
                changed.push((*column, seen));
            }
        }
        let text = |column: usize| self.told_to(column, acuity);
        changed
            .iter()
            .any(|(_, seen)| *seen)
            .then(|| self.object(changed.iter().map(|(column, _)| (*column, text(*column)))))
    }

    /// A field as a patch tells it: no field at all is `null`, which takes it away.
    fn told_to(&self, column: usize, acuity: Acuity) -> Cow<'_, str> {
        let text = self.texts[column].as_deref().unwrap_or(ABSENT);
        let whole_number = !text.contains(['.', 'e', 'E']);
        if acuity == Acuity::Exact || !self.kind.measured[column] || whole_number {
            return text.into();
        }
        rounded(f64::from_bits(self.marks[column])).into()
    }

    fn object<'a>(&self, fields: impl Iterator<Item = (usize, Cow<'a, str>)>) -> String {
        let mut text = String::from("{");
        for (column, value) in fields {
            let comma = if text.len() > 1 { "," } else { "" };
            write!(text, "{comma}\"{}\":{value}", self.kind.names[column]).expect("a string takes all");
        }
        text.push('}');
        text
    }
}

/// A field's JSON and its word.
fn field(of: &mut Map<String, Value>, name: &str, measured: bool) -> (Option<Box<str>>, u64) {
    let value = of.remove(name);
    let text = value.as_ref().map(|value| value.to_string().into_boxed_str());
    let mark = match measured {
        true => value.as_ref().and_then(Value::as_f64).unwrap_or(f64::NAN).to_bits(),
        false => {
            let mut hasher = DefaultHasher::new();
            text.as_deref().unwrap_or(ABSENT).hash(&mut hasher);
            hasher.finish()
        }
    };
    (text, mark)
}

/// Whether a reader sees that one is not the other; what is absent is not a number.
fn differ(told: f64, now: f64) -> bool {
    if told.is_nan() || now.is_nan() {
        return told.is_nan() != now.is_nan();
    }
    (now - told).abs() > told.abs().min(now.abs()) / 100.0
}

/// To four digits, as short as JSON has it.
fn rounded(value: f64) -> String {
    let value: f64 = format!("{value:.3e}").parse().expect("a number as it was written");
    let [plain, short] = [format!("{value}"), format!("{value:e}")];
    if plain.len() <= short.len() { plain } else { short }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::http::conversions;
    use crate::http::fixtures;

    /// RFC 7396, for objects whose members are values.
    fn merge(target: &mut Map<String, Value>, patch: &str) {
        for (name, value) in serde_json::from_str::<Map<String, Value>>(patch).unwrap() {
            match value {
                Value::Null => target.remove(&name),
                value => target.insert(name, value),
            };
        }
    }

    fn object(text: &str) -> Map<String, Value> {
        serde_json::from_str(text).unwrap()
    }

    fn job(step: u64, rate: Option<f64>, gpus: u32) -> v1::Job {
        let view = fixtures::running();
        let job = conversions::live_job(view.jobs.values().next().unwrap(), &view);
        v1::Job { step: Some(step), goodput_tokens_per_second: rate, gpus, ..job }
    }

    fn shown(job: &v1::Job) -> Row {
        Row::of(&JOB, job.id, job)
    }

    fn close(name: &str, told: &Value, now: &Value) -> bool {
        match (told.as_f64(), now.as_f64(), MEASURED.contains(&name)) {
            (Some(told), Some(now), true) => (told - now).abs() <= told.abs().max(now.abs()) * 0.011,
            _ => told == now,
        }
    }

    proptest! {
        #[test]
        fn a_row_and_its_patches_come_to_the_row_as_it_is(
            changes in proptest::collection::vec((0u64..3_000, proptest::option::of(1.0f64..1e9), 0u32..4), 1..20),
            exact in any::<bool>(),
        ) {
            let acuity = if exact { Acuity::Exact } else { Acuity::Hundredth };
            let columns = JOB.columns(|_| true);
            let first = shown(&job(1, None, 1));
            let mut reader = object(&first.whole(&columns));
            let mut told = first.told(&columns);
            for (step, rate, gpus) in changes {
                let now = shown(&job(step, rate, gpus));
                if let Some(patch) = now.patch(&columns, &mut told, acuity) {
                    merge(&mut reader, &patch);
                }
                for (name, value) in object(&now.whole(&columns)) {
                    let shown = reader.get(&name).unwrap_or(&Value::Null);
                    prop_assert!(if exact { *shown == value } else { close(&name, shown, &value) }, "{name}: {shown} is {value}");
                }
                prop_assert!(now.patch(&columns, &mut told, acuity).is_none(), "what was told is told once");
            }
        }
    }

    #[test]
    fn noise_is_no_change_and_what_is_seen_is_told_short() {
        let columns = JOB.columns(|_| true);
        let row = |step, rate| shown(&job(step, Some(rate), 8));
        let mut told = row(1_000, 900.123_456).told(&columns);
        assert_eq!(row(1_001, 902.7).patch(&columns, &mut told, Acuity::Hundredth), None);
        let patch = object(&row(1_002, 1_234_567.89).patch(&columns, &mut told, Acuity::Hundredth).unwrap());
        assert_eq!(patch["goodput_tokens_per_second"], json!(1_235_000));
        assert_eq!(patch.keys().collect::<Vec<_>>(), ["goodput_tokens_per_second", "id"]);
        let patch = object(&row(1_003, 1_234_567.89).patch(&columns, &mut told, Acuity::Exact).unwrap());
        assert_eq!(patch["step"], 1_003);
    }

    #[test]
    fn a_reader_of_some_fields_hears_of_those_and_the_id() {
        let columns = JOB.columns(|name| name == "state" || name == "gpus");
        let row = shown(&job(1, None, 8));
        assert_eq!(object(&row.whole(&columns)).keys().collect::<Vec<_>>(), ["gpus", "id", "state"]);
        let mut told = row.told(&columns);
        assert_eq!(shown(&job(900, Some(4.0), 8)).patch(&columns, &mut told, Acuity::Exact), None);
    }

    #[test]
    fn a_whole_row_is_what_a_page_gets() {
        let job = job(7, Some(0.1), 8);
        let told: v1::Job = serde_json::from_str(&shown(&job).whole(&JOB.columns(|_| true))).unwrap();
        assert_eq!(told, job);
    }
}
