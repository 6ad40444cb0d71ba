//! Arrays: jobs of one specification that differ in their index.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use super::dependency::Dependent;
use super::job::Job;

/// An array, and how far its elements are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Array {
    pub id: Uuid,
    pub name: String,
    pub project: String,
    pub owner: String,
    pub submitted_at: DateTime<Utc>,
    /// Its indices: "0-99", "0-98:2", "1,3,5-9".
    pub range: String,
    /// Elements.
    pub count: u32,
    /// Elements that may run at once; `null`: all.
    pub parallel: Option<u32>,
    /// Elements by the state they are in; what none is in is absent.
    pub by_state: BTreeMap<String, u32>,
    /// Elements that wait for others of the array alone, since as many run as it allows.
    pub waiting_for_array: u32,
    /// Rises with every stored change; the ETag.
    pub version: u64,
}

/// An array with a page of its elements.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ArrayDetail {
    #[serde(flatten)]
    pub array: Array,
    /// In the order of their indices.
    pub elements: Vec<Job>,
    /// For the next page of elements.
    pub next_cursor: Option<String>,
    /// Jobs that name the array as one that comes before them, the oldest first; at most 100, those that the reader may see.
    pub dependents: Vec<Dependent>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ArrayList {
    pub items: Vec<Array>,
    pub next_cursor: Option<String>,
}

/// What came of something that was done with an array.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ArrayDone {
    #[serde(flatten)]
    pub array: Array,
    /// Elements that it concerned.
    pub touched: u32,
}

/// Body of `PATCH /arrays/{id}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ArrayPatch {
    /// Elements that may run at once; `null`: all.
    #[schema(required = true)]
    #[serde(deserialize_with = "said")]
    pub parallel: Option<u32>,
}

/// Absent is not the same as `null`.
fn said<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<u32>, D::Error> {
    Option::deserialize(from)
}

/// Of which array a job is an element.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct JobArray {
    pub array_id: Uuid,
    pub name: String,
    pub index: u32,
    /// Elements of the array.
    pub count: u32,
}
