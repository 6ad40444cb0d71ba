//! The power cap: what jobs draw beyond the idle draw of all GPUs stays within what the cap leaves for them.

use headway_types::{Assignment, NodeSlice};

use super::delta::Delta;
use super::limits::Load;
use super::{Scene, Violation, table};
use crate::policy::PowerCap;

/// What the policy promises of a GPU type it does not name.
const WATTS: f64 = 700.0;
/// Sums of floats may err by this much.
const ROUNDING: f64 = 1e-6;

pub(super) fn check(scene: &Scene<'_>) -> Result<(), Violation> {
    let Some(cap) = &scene.input.policy.power_cap else { return Ok(()) };
    let gpus: usize = scene.input.nodes.iter().map(|node| node.gpus.len()).sum();
    let left = (cap.watts - cap.idle * gpus as f64).max(0.0);
    let mut load = Load { rule: "the power cap".into(), used: 0.0, limit: left + ROUNDING, added_by: None };
    for delta in &scene.deltas {
        let drawn = |at: Option<&Assignment>| at.map_or(0.0, |at| beyond_idle(scene, cap, delta, at));
        let (before, after) = (drawn(delta.from), drawn(delta.to));
        load.used += after;
        if after > before {
            load.added_by.get_or_insert(delta.job.job);
        }
    }
    load.check(scene)
}

fn beyond_idle(scene: &Scene<'_>, cap: &PowerCap, delta: &Delta<'_>, at: &Assignment) -> f64 {
    let slices = at.placement.slices();
    let of_table = table::watts(scene, delta, at);
    let node_of = |slice: &NodeSlice| scene.nodes.get(&slice.node);
    let known = slices.iter().find_map(node_of);
    let draws = slices.iter().map(|slice| {
        let class = node_of(slice).or(known).map(|node| &node.class);
        let of_type = class.and_then(|class| cap.busy.get(&class.gpu_type).copied()).unwrap_or(WATTS);
        (of_table.unwrap_or(of_type) - cap.idle).max(0.0) * slice.gpus.len() as f64
    });
    draws.sum()
}
