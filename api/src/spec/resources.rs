//! `resources`: how many GPUs of which type, what each node must have beside them, and which nodes.

use headway_types::spec::{ExecutionLimits, GpuRange, NodeChoice, NodeResources, Role, Topology, Work};
use headway_types::{GpuCount, GpuType, Sharding};
use serde_json::Value;

use super::section::{Section, one_or_many, text, whole};
use super::{nodes, quantity};

const EXAMPLE: &str = "as in resources: {gpus: 8} or resources: {gpus: {min: 2, max: 8}}";

/// Reads `resources` of the whole specification.
pub(super) fn read(spec: &Section<'_>) -> Option<(GpuRange, NodeResources, NodeChoice)> {
    let value = spec.require("resources", EXAMPLE)?;
    let path = spec.field("resources");
    let known = ["gpus", "per_node", "nodes", "topology"];
    let section = Section::open(&path, value, &known, &[], spec.findings())?;
    let per_node = per_node(&section);
    let nodes = NodeChoice { topology: topology(&section), ..nodes::read(&section) };
    section.require("gpus", EXAMPLE)?;
    Some((gpus(&section)?, per_node, nodes))
}

fn topology(resources: &Section<'_>) -> Topology {
    let Some(value) = resources.get("topology") else { return Topology::default() };
    let path = resources.field("topology");
    let Some(section) = Section::open(&path, value, &["prefer", "require"], &[], resources.findings()) else {
        return Topology::default();
    };
    match (section.has("prefer"), section.has("require")) {
        (true, false) => section.choice("prefer", &[("rack", Topology::PreferRack)]),
        (false, true) => section.choice("require", &[("rack", Topology::RequireRack)]),
        _ => {
            let example = "as in topology: {prefer: rack} or topology: {require: rack}";
            resources.wrong_hint("topology", "must either prefer or require", example);
            None
        }
    }
    .unwrap_or_default()
}

fn per_node(resources: &Section<'_>) -> NodeResources {
    let Some(value) = resources.get("per_node") else { return NodeResources::default() };
    let path = resources.field("per_node");
    let known = ["cpus", "memory", "shm", "local_disk"];
    let Some(section) = Section::open(&path, value, &known, &[], resources.findings()) else {
        return NodeResources::default();
    };
    let bytes = |name| section.quantity(name, quantity::bytes);
    NodeResources {
        cpus: section.whole("cpus", 1),
        memory: bytes("memory"),
        shm: bytes("shm"),
        local_disk: bytes("local_disk"),
    }
}

fn gpus(resources: &Section<'_>) -> Option<GpuRange> {
    let value = resources.get("gpus")?;
    if !value.is_object() {
        let count = GpuCount(resources.whole("gpus", 1)?);
        return Some(GpuRange { min: count, max: count, sizes: Vec::new(), types: Vec::new(), mixed: false });
    }
    let path = resources.field("gpus");
    let section = Section::open(&path, value, &["min", "max", "sizes", "type", "mix"], &[], resources.findings())?;
    let types = types(&section);
    let mixed = section.flag("mix").unwrap_or(false);
    let sizes = sizes(&section)?;
    let min = bound(&section, "min", Some(GpuCount(1)))?;
    if sizes.is_empty() {
        section.require("max", EXAMPLE)?;
    }
    let max = bound(&section, "max", sizes.last().copied())?;
    if min > max {
        section.wrong("min", format!("{min} is more than max, {max}"));
        return None;
    }
    if sizes.is_empty() {
        return Some(GpuRange { min, max, sizes, types, mixed });
    }
    let sizes: Vec<GpuCount> = sizes.into_iter().filter(|size| (min..=max).contains(size)).collect();
    let (Some(min), Some(max)) = (sizes.first().copied(), sizes.last().copied()) else {
        section.wrong("sizes", format!("no size lies between min, {min}, and max, {max}"));
        return None;
    };
    Some(GpuRange { min, max, sizes, types, mixed })
}

/// What nobody can foresee is not chosen, and two classes are not one rack.
pub(super) fn check_mix(spec: &Section<'_>, role: &Role) {
    check_shares(spec, role);
    if !role.gpus.mixed {
        return;
    }
    if !matches!(role.training.as_ref().map(|training| &training.work), Some(Work::Model(_))) {
        let hint = "add training.model, or leave mix out";
        spec.wrong_hint(
            "resources.gpus.mix",
            "needs a model that foresees what a step takes on two kinds of nodes",
            hint,
        );
    }
    if role.nodes.topology == Topology::RequireRack {
        spec.wrong("resources.gpus.mix", "contradicts topology: {require: rack}: nodes of two kinds are not one rack");
    }
}

/// Shares are uneven between two kinds of nodes, and only where replicas do each micro-batch by themselves.
fn check_shares(spec: &Section<'_>, role: &Role) {
    let Some(training) = &role.training else { return };
    let named = training.layouts.sizes.values().map(|size| &size.execution);
    let uneven: Vec<&ExecutionLimits> =
        named.chain([&training.layouts.execution]).filter(|limits| limits.uneven_shares).collect();
    if !uneven.is_empty() && !role.gpus.mixed {
        let hint = "add mix: true to resources.gpus, or leave it out";
        spec.wrong_hint("training.layouts.uneven_shares", "is for gangs over two kinds of nodes", hint);
    }
    let single = |degrees: &[u32]| degrees.is_empty() || degrees.contains(&1);
    let layouts = &training.layouts;
    let stages =
        layouts.sizes.values().map(|size| (&size.pp, &size.execution)).chain([(&layouts.pp, &layouts.execution)]);
    if stages.filter(|(_, limits)| limits.uneven_shares).any(|(pp, limits)| !single(pp) || !single(&limits.ep)) {
        spec.wrong_hint(
            "training.layouts.uneven_shares",
            "is never possible with pipelines or with experts that are spread over replicas",
            "add 1 to pp and to ep, or leave uneven_shares out",
        );
    }
    if uneven.iter().any(|limits| limits.sharding.iter().all(|sharding| *sharding >= Sharding::Gradients)) {
        spec.wrong_hint(
            "training.layouts.uneven_shares",
            "is never possible with sharded gradients or parameters, which replicas exchange in each micro-batch",
            "add none or optimizer to sharding, or leave uneven_shares out",
        );
    }
}

fn bound(section: &Section<'_>, key: &str, default: Option<GpuCount>) -> Option<GpuCount> {
    if section.has(key) { section.whole(key, 1).map(GpuCount) } else { default }
}

/// Ascending, each once.
fn sizes(section: &Section<'_>) -> Option<Vec<GpuCount>> {
    let Some(value) = section.get("sizes") else { return Some(Vec::new()) };
    let Value::Array(values) = value else {
        section.wrong_hint("sizes", "must be a list", "as in sizes: [8, 16, 32]");
        return None;
    };
    let read = |(index, value)| whole(value, 1, &section.field(&format!("sizes[{index}]")), section.findings());
    let mut sizes: Vec<GpuCount> =
        values.iter().enumerate().map(read).map(|size| size.map(GpuCount)).collect::<Option<_>>()?;
    sizes.sort_unstable();
    sizes.dedup();
    Some(sizes)
}

fn types(section: &Section<'_>) -> Vec<GpuType> {
    let Some(value) = section.get("type") else { return Vec::new() };
    let field = section.field("type");
    one_or_many(value).iter().filter_map(|one| text(one, &field, section.findings())).map(GpuType).collect()
}
