//! From the engine's records and the snapshot to wire types, and back for what callers may set. Pure functions; the
//! one place where a change of the domain meets the promise of `v1`.

mod access;
mod arrays;
mod history;
mod insight;
mod jobs;
mod nodes;
mod plans;
mod policy;
mod projects;
mod site;
mod sizes;
mod words;

use chrono::{DateTime, Utc};
use headway_api::v1;
use headway_engine::view::View;
use headway_types::{JobId, NodeId, NodeSlice, Timestamp};

pub use access::{browser_session, secret, token, user};
pub use arrays::{array, array_done, job_array};
pub use history::{allocation, checkpoint, delivery, event, series_point, tried, untried};
pub use insight::{counterfactual, predicted_start, stage, unmoved};
pub use jobs::{
    efficiency_report, job_change, job_in, last_failure, live_job, outline, queued_outline, specification, stored_job,
};
pub use nodes::{active_reservation, node};
pub use plans::{Verdicts, left_waiting, outcome, plan, plan_hash, plan_summary};
pub use policy::{patched as patched_policy, policy, policy_settings};
pub use projects::{member, project, project_rules, reservation, reservation_with_cost};
pub use site::known as known_rows;
pub use sizes::{curve_points, validation};
pub use words::{stop_in_words, wish_in_words};

/// Times beyond what the calendar can say (never made by a clock) show as the epoch.
pub fn time(at: Timestamp) -> DateTime<Utc> {
    DateTime::from_timestamp_micros(at.0).unwrap_or_default()
}

pub fn timestamp(at: DateTime<Utc>) -> Timestamp {
    Timestamp(at.timestamp_micros())
}

/// A name for people; the id where the job is not live any more.
pub fn job_name(job: JobId, view: &View) -> String {
    view.jobs.get(&job).map_or_else(|| job.to_string(), |live| live.job.spec.name.clone())
}

/// The id where the node is not known any more.
pub fn node_name(node: NodeId, view: &View) -> String {
    view.nodes.get(&node).map_or_else(|| node.to_string(), |seen| seen.node.inventory.name.clone())
}

fn slice(of: &NodeSlice, view: &View) -> v1::SliceRecord {
    v1::SliceRecord {
        node_id: of.node.0,
        node_name: view.nodes.get(&of.node).map(|node| node.node.inventory.name.clone()),
        gpu_uuids: of.gpus.iter().map(|gpu| gpu.0.clone()).collect(),
        released_at: None,
        release_proof: None,
    }
}

/// A rate or ratio as JSON can carry it: what is not a number is nothing measured.
fn finite(value: f64) -> Option<f64> {
    value.is_finite().then_some(value)
}

/// The name an enum has in JSON, so that wire words and stored words never differ.
fn snake_name(value: &impl serde::Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(name)) => name,
        other => unreachable!("a field-less enum serialises as its name, not {other:?}"),
    }
}
