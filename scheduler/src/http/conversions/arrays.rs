//! Arrays on the wire.

use std::collections::BTreeMap;

use headway_api::v1;
use headway_engine::ArrayDone;
use headway_engine::record::{Array, Job};
use headway_engine::view::View;
use headway_types::JobStateKind;
use headway_types::spec::family_name;

use super::time;

/// An array as this row has it, with what the snapshot knows of its live elements.
pub fn array(of: &Array, view: &View) -> v1::Array {
    let live = view.arrays.get(&of.id);
    let mut by_state: BTreeMap<String, u32> =
        live.into_iter().flat_map(|live| &live.live).map(|(state, count)| (state.to_string(), *count)).collect();
    let ended = [
        (JobStateKind::Succeeded, of.tally.succeeded),
        (JobStateKind::Failed, of.tally.failed),
        (JobStateKind::Cancelled, of.tally.cancelled),
    ];
    by_state.extend(ended.into_iter().filter(|(_, count)| *count > 0).map(|(state, count)| (state.to_string(), count)));
    v1::Array {
        id: of.id.0,
        name: of.name.clone(),
        project: of.project.clone(),
        owner: of.owner.clone(),
        submitted_at: time(of.submitted_at),
        range: of.indices.to_string(),
        count: of.count(),
        parallel: of.parallel,
        by_state,
        waiting_for_array: live.map_or(0, |live| live.waiting),
        version: of.version,
    }
}

pub fn array_done(of: &ArrayDone, view: &View) -> v1::ArrayDone {
    v1::ArrayDone { array: array(&of.array, view), touched: of.touched.len() as u32 }
}

/// Of which array a job is an element.
pub fn job_array(of: &Job) -> Option<v1::JobArray> {
    let element = of.element.as_ref()?;
    Some(v1::JobArray {
        array_id: element.array.0,
        name: family_name(&of.spec.name).to_owned(),
        index: element.index,
        count: element.count,
    })
}
