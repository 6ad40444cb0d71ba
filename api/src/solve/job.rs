//! A job of a round: what it asks for, what it is worth, what it has had, what it holds.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{self, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::allocation::Allocation;
use super::count;

/// One job. A name and a number of GPUs are enough: a rigid job.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a mapping of a job")]
pub struct Job {
    pub name: String,
    /// Default: the sizes of its goodput table.
    #[serde(default)]
    pub gpus: Option<GpuRequest>,
    /// Accepted GPU types; empty: any.
    #[serde(default)]
    pub gpu_types: Vec<String>,
    /// Goodput told for each allocation.
    #[serde(default)]
    pub goodput: Option<Ways>,
    /// As in the job specification: goodput is modelled.
    #[serde(default)]
    pub training: Option<Value>,
    #[serde(default)]
    pub priority: Option<PriorityWord>,
    #[serde(default)]
    pub project: String,
    #[serde(default)]
    pub user: String,
    /// What rows of the policy may tell it by.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Since submission.
    #[serde(default)]
    pub age_seconds: f64,
    /// How long it has waited, or had when it last started. Default: its age if it never ran, else 0.
    #[serde(default)]
    pub waited_seconds: Option<f64>,
    /// How long it has run since; 0 while it waits.
    #[serde(default)]
    pub ran_seconds: f64,
    /// How often it has been stopped and started again.
    #[serde(default, deserialize_with = "count::one")]
    pub restarts: u32,
    /// Most GPUs of each type that it ever ran on: Sia lets it have twice that. Default: what it holds.
    #[serde(default)]
    pub most_gpus: BTreeMap<String, u32>,
    #[serde(default)]
    pub attained_gpu_seconds: f64,
    /// Since its GPUs last changed. Default: of a job that holds GPUs `ran_seconds`, else never.
    #[serde(default)]
    pub since_move_seconds: Option<f64>,
    /// Work left, in the unit of its goodput times seconds.
    #[serde(default)]
    pub remaining: Option<f64>,
    /// What it holds now.
    #[serde(default)]
    pub allocation: Option<Allocation>,
    /// Keeps what it holds.
    #[serde(default)]
    pub pinned: Pin,
    /// How long a move of GPUs stops it; default 30.
    #[serde(default)]
    pub restart_seconds: Option<f64>,
    /// Work a move would lose, in seconds.
    #[serde(default)]
    pub rework_seconds: f64,
    /// Of a job with a goodput table; default: it restarts into another size.
    #[serde(default)]
    pub reconfigure: Option<Reconfigure>,
    /// From now.
    #[serde(default)]
    pub deadline_seconds: Option<f64>,
    /// GPU-time it may still use.
    #[serde(default)]
    pub budget_gpu_seconds: Option<f64>,
    /// Running time until it is stopped.
    #[serde(default)]
    pub time_left_seconds: Option<f64>,
    /// GPUs it is owed whenever that is possible.
    #[serde(default, deserialize_with = "count::one")]
    pub floor: u32,
    /// Nodes it must not start on.
    #[serde(default)]
    pub avoid: Vec<String>,
    /// Whether its nodes must share a domain.
    #[serde(default)]
    pub spread: Spread,
    /// Host resources on each of its nodes.
    #[serde(default)]
    pub per_node: HostNeeds,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Spread {
    #[default]
    Prefer,
    Require,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HostNeeds {
    #[serde(default, deserialize_with = "count::maybe")]
    pub cpus: Option<u32>,
    #[serde(default, deserialize_with = "count::maybe")]
    pub memory_bytes: Option<u64>,
    #[serde(default, deserialize_with = "count::maybe")]
    pub shm_bytes: Option<u64>,
    #[serde(default, deserialize_with = "count::maybe")]
    pub local_disk_bytes: Option<u64>,
}

/// Whether a job that has started can take another size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reconfigure {
    Restart,
    Never,
}

/// One way to run.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a mapping of a row of goodput")]
pub struct Way {
    #[serde(deserialize_with = "count::one")]
    pub gpus: u32,
    /// Tokens per second, or any rate that is the same for all rows of the job.
    pub goodput: f64,
    /// Default: the same on every type.
    #[serde(default)]
    pub gpu_type: Option<String>,
    /// Default: as few as hold it.
    #[serde(default, deserialize_with = "count::maybe")]
    pub nodes: Option<u32>,
    #[serde(default)]
    pub watts_per_gpu: Option<f64>,
    /// What the caller calls it; the reply carries it back.
    #[serde(default)]
    pub label: Option<String>,
}

/// A list of rows, or a mapping of GPUs to goodput.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ways(pub Vec<Way>);

/// How many GPUs a job asks for: one number, or a range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GpuRequest {
    Exactly(u32),
    Range(GpuRequestRange),
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GpuRequestRange {
    #[serde(default, deserialize_with = "count::maybe")]
    pub min: Option<u32>,
    #[serde(default, deserialize_with = "count::maybe")]
    pub max: Option<u32>,
    #[serde(deserialize_with = "count::many")]
    pub sizes: Vec<u32>,
}

/// `low`, `normal`, `high`, or 0 to 100.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PriorityWord(pub u8);

/// Whether a job keeps what it holds: `true`, or why.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Pin {
    #[default]
    Free,
    Pinned(Option<String>),
}

impl<'de> Deserialize<'de> for Ways {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Ways;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of rows or a mapping of GPUs to goodput")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut rows: A) -> Result<Ways, A::Error> {
                let mut ways = Vec::new();
                while let Some(way) = rows.next_element()? {
                    ways.push(way);
                }
                Ok(Ways(ways))
            }
            fn visit_map<A: MapAccess<'de>>(self, mut points: A) -> Result<Ways, A::Error> {
                let mut ways = Vec::new();
                while let Some((gpus, goodput)) = points.next_entry()? {
                    ways.push(Way { gpus, goodput, gpu_type: None, nodes: None, watts_per_gpu: None, label: None });
                }
                Ok(Ways(ways))
            }
        }
        deserializer.deserialize_any(Reader)
    }
}

impl<'de> Deserialize<'de> for GpuRequest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = GpuRequest;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number of GPUs or a range as in {\"min\": 2, \"max\": 8}")
            }
            fn visit_u64<E: de::Error>(self, gpus: u64) -> Result<GpuRequest, E> {
                let wrong = || E::invalid_value(de::Unexpected::Unsigned(gpus), &self);
                u32::try_from(gpus).map(GpuRequest::Exactly).map_err(|_| wrong())
            }
            fn visit_f64<E: de::Error>(self, gpus: f64) -> Result<GpuRequest, E> {
                let whole = count::whole(gpus).ok_or_else(|| E::invalid_type(de::Unexpected::Float(gpus), &self))?;
                self.visit_u64(whole)
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<GpuRequest, A::Error> {
                GpuRequestRange::deserialize(de::value::MapAccessDeserializer::new(map)).map(GpuRequest::Range)
            }
        }
        deserializer.deserialize_any(Reader)
    }
}

impl<'de> Deserialize<'de> for PriorityWord {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl Visitor<'_> for Reader {
            type Value = PriorityWord;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("low, normal, high or a whole number from 0 to 100")
            }
            fn visit_u64<E: de::Error>(self, level: u64) -> Result<PriorityWord, E> {
                let fits = u8::try_from(level).ok().filter(|level| *level <= 100);
                fits.map(PriorityWord).ok_or_else(|| E::invalid_value(de::Unexpected::Unsigned(level), &self))
            }
            fn visit_f64<E: de::Error>(self, level: f64) -> Result<PriorityWord, E> {
                let whole = count::whole(level).ok_or_else(|| E::invalid_type(de::Unexpected::Float(level), &self))?;
                self.visit_u64(whole)
            }
            fn visit_str<E: de::Error>(self, word: &str) -> Result<PriorityWord, E> {
                match word {
                    "low" => Ok(PriorityWord(25)),
                    "normal" => Ok(PriorityWord(50)),
                    "high" => Ok(PriorityWord(75)),
                    _ => Err(E::invalid_value(de::Unexpected::Str(word), &self)),
                }
            }
        }
        deserializer.deserialize_any(Reader)
    }
}

impl<'de> Deserialize<'de> for Pin {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl Visitor<'_> for Reader {
            type Value = Pin;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("true, false or a reason in words")
            }
            fn visit_bool<E: de::Error>(self, pinned: bool) -> Result<Pin, E> {
                Ok(if pinned { Pin::Pinned(None) } else { Pin::Free })
            }
            fn visit_str<E: de::Error>(self, reason: &str) -> Result<Pin, E> {
                Ok(Pin::Pinned(Some(reason.into())))
            }
        }
        deserializer.deserialize_any(Reader)
    }
}
