//! GPUs by node. A reply's allocation is a document's: a caller hands back what it was given.

use std::fmt;

use serde::de::{self, MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::count;
use crate::v1::Configuration;

/// What a job holds or gets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a mapping of an allocation")]
pub struct Allocation {
    /// By node, in rank order.
    #[serde(with = "by_node")]
    pub nodes: Vec<(String, Held)>,
    /// In a reply always there; in a document checked where it is.
    #[serde(default)]
    pub gpu_type: Option<String>,
    #[serde(default, deserialize_with = "count::maybe")]
    pub gpus: Option<u32>,
    /// Of the row of the job's goodput table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Of a job with `training`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub configuration: Option<Configuration>,
    #[serde(default)]
    pub goodput: Option<f64>,
}

/// GPUs of one node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Held {
    /// By index on the node; so in replies.
    Indices(Vec<u32>),
    /// Any so many that no other job names.
    Count(u32),
}

impl<'de> Deserialize<'de> for Held {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Held;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number of GPUs or a list of their indices")
            }
            fn visit_u64<E: de::Error>(self, count: u64) -> Result<Held, E> {
                let wrong = || E::invalid_value(de::Unexpected::Unsigned(count), &self);
                u32::try_from(count).map(Held::Count).map_err(|_| wrong())
            }
            fn visit_f64<E: de::Error>(self, count: f64) -> Result<Held, E> {
                let whole = count::whole(count).ok_or_else(|| E::invalid_type(de::Unexpected::Float(count), &self))?;
                self.visit_u64(whole)
            }
            fn visit_seq<A: de::SeqAccess<'de>>(self, items: A) -> Result<Held, A::Error> {
                Vec::deserialize(de::value::SeqAccessDeserializer::new(items)).map(Held::Indices)
            }
        }
        deserializer.deserialize_any(Reader)
    }
}

/// A mapping that keeps its order.
mod by_node {
    use super::*;

    pub fn serialize<S: Serializer>(nodes: &[(String, Held)], serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(nodes.len()))?;
        nodes.iter().try_for_each(|(node, held)| map.serialize_entry(node, held))?;
        map.end()
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<(String, Held)>, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Vec<(String, Held)>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a mapping of nodes to GPUs")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut nodes = Vec::with_capacity(map.size_hint().unwrap_or(0).min(4096));
                while let Some(entry) = map.next_entry()? {
                    nodes.push(entry);
                }
                Ok(nodes)
            }
        }
        deserializer.deserialize_map(Reader)
    }
}
