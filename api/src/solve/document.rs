//! A round: nodes, jobs, projects, reservations and what is to be achieved.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::count;
use super::job::Job;
use super::policy::Policy;

/// One round. Times are seconds before or after its own moment; it knows no clock.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a round")]
pub struct Document {
    #[serde(deserialize_with = "count::one")]
    pub version: u32,
    /// Anything; the reply carries it back.
    #[serde(default)]
    pub round: Option<Value>,
    /// Why the round runs, in words; begins the reasons of moves.
    #[serde(default)]
    pub trigger: Option<String>,
    pub nodes: Vec<NodeGroup>,
    /// Those that want GPUs now. Of equals the first goes first.
    #[serde(default)]
    pub jobs: Vec<Job>,
    #[serde(default)]
    pub projects: Vec<Project>,
    #[serde(default)]
    pub reservations: Vec<Reservation>,
    #[serde(default)]
    pub policy: Policy,
}

/// Nodes that are alike.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a mapping of a group of nodes")]
pub struct NodeGroup {
    pub gpu_type: String,
    #[serde(deserialize_with = "count::one")]
    pub gpus_per_node: u32,
    /// How many; they are called `<name>-0`, `<name>-1`, … Default 1.
    #[serde(default, deserialize_with = "count::maybe")]
    pub count: Option<u32>,
    /// Default: the GPU type, and the domain where one is given.
    #[serde(default)]
    pub name: Option<String>,
    /// Their names, instead of `count` and `name`.
    #[serde(default)]
    pub names: Option<Vec<String>>,
    /// Rack, leaf or pod: nodes of one domain talk at full bandwidth.
    #[serde(default)]
    pub domain: Option<String>,
    /// Node → indices of GPUs that must not be used.
    #[serde(default)]
    pub broken: BTreeMap<String, Vec<u32>>,
    /// Nodes that jobs should leave and none starts on.
    #[serde(default)]
    pub draining: Vec<String>,
    /// Of each node; what is not said is not counted.
    #[serde(default, deserialize_with = "count::maybe")]
    pub cpus: Option<u32>,
    #[serde(default, deserialize_with = "count::maybe")]
    pub memory_bytes: Option<u64>,
    #[serde(default, deserialize_with = "count::maybe")]
    pub shm_bytes: Option<u64>,
    #[serde(default, deserialize_with = "count::maybe")]
    pub local_disk_bytes: Option<u64>,
}

/// A project. What its jobs and its sub-projects hold counts together.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a mapping of a project")]
pub struct Project {
    pub name: String,
    #[serde(default)]
    pub parent: Option<String>,
    /// GPUs it may use of right; default: no limit.
    #[serde(default, deserialize_with = "count::maybe")]
    pub quota: Option<u32>,
    /// GPUs beyond the quota while nobody with a right to them waits.
    #[serde(default, deserialize_with = "count::one")]
    pub borrow: u32,
    /// GPUs its jobs are sure of while they ask for them.
    #[serde(default, deserialize_with = "count::one")]
    pub floor: u32,
    /// Share relative to its siblings; default 1.
    #[serde(default)]
    pub weight: Option<f64>,
    /// GPU-time used, decayed, in any unit that is the same for all projects.
    #[serde(default)]
    pub usage: f64,
    /// Most GPUs one of its users may hold.
    #[serde(default, deserialize_with = "count::maybe")]
    pub max_per_user: Option<u32>,
}

/// Nodes set aside for some jobs.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a mapping of a reservation")]
pub struct Reservation {
    pub name: String,
    pub nodes: Vec<String>,
    /// From now; default 0. Negative: it has begun.
    #[serde(default)]
    pub from_seconds: f64,
    pub until_seconds: f64,
    #[serde(default)]
    pub projects: Vec<String>,
    #[serde(default)]
    pub users: Vec<String>,
    /// A job that is not in the round does not matter.
    #[serde(default)]
    pub jobs: Vec<String>,
}
