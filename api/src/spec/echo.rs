//! A specification as admitted, defaults filled in, in the shape it is written in: it can be submitted again.

use chrono::{DateTime, SecondsFormat};
use headway_types::spec::{
    ArraySpec, BatchPolicy, Command, ExecutionLimits, GpuRange, Target, TargetCount, Topology, Training, Work,
    family_name,
};
use headway_types::{Bytes, JobSpec, Seconds, Sequences, Timestamp};
use serde_json::{Map, Value, json};

use super::training::UNEVEN_SHARES;

/// The JSON form of a specification, as `read_json` reads it.
#[must_use]
pub fn to_json(spec: &JobSpec) -> Value {
    let role = spec.role();
    let mut resources = json!({ "gpus": gpus(&role.gpus) });
    let bytes = |amount: Option<Bytes>| amount.map(|amount| json!(format!("{amount}B")));
    let per_node = object([
        ("cpus", role.per_node.cpus.map(Value::from)),
        ("memory", bytes(role.per_node.memory)),
        ("shm", bytes(role.per_node.shm)),
        ("local_disk", bytes(role.per_node.local_disk)),
    ]);
    if per_node.as_object().is_some_and(|map| !map.is_empty()) {
        resources["per_node"] = per_node;
    }
    if let Some(nodes) = super::nodes::to_json(&role.nodes) {
        resources["nodes"] = nodes;
    }
    resources["topology"] = match role.nodes.topology {
        Topology::PreferRack => json!({ "prefer": "rack" }),
        Topology::RequireRack => json!({ "require": "rack" }),
    };
    let progress = role.run.progress.as_ref().map(super::progress::to_json);
    let run = object([
        ("per", Some(json!(role.run.per))),
        (
            "command",
            Some(match &role.run.command {
                Command::Shell(line) => json!(line),
                Command::Argv(words) => json!(words),
            }),
        ),
        ("workdir", role.run.workdir.as_ref().map(|dir| json!(dir))),
        ("env", Some(json!(role.run.env))),
        ("secrets", super::secrets::to_json(&role.run)),
        ("hooks", super::hooks::to_json(&role.run.hooks)),
        ("progress", progress.clone().filter(|_| role.training.is_none())),
    ]);
    object([
        ("version", Some(json!(1))),
        // Of an element: what would submit it alone.
        ("name", Some(json!(family_name(&spec.name)))),
        ("project", Some(json!(spec.project))),
        ("priority", Some(json!(spec.priority.0))),
        ("labels", Some(json!(spec.labels))),
        ("resources", Some(resources)),
        ("training", role.training.as_ref().map(|section| training(section, progress))),
        (
            "elastic",
            Some(object([
                ("min_runtime", Some(json!(seconds(spec.elastic.min_runtime)))),
                ("max_resizes_per_hour", Some(json!(spec.elastic.max_resizes_per_hour))),
                ("max_overhead_pct", Some(json!(spec.elastic.max_overhead * 100.0))),
                ("min_share", spec.elastic.min_share.map(|share| json!(share))),
            ])),
        ),
        ("limits", Some(super::limits::to_json(&spec.limits))),
        ("after", (!spec.after.is_empty()).then(|| json!(spec.after))),
        ("array", spec.array.as_ref().map(array)),
        ("deadline", spec.limits.deadline.map(|at| json!(moment(at)))),
        ("budget", spec.limits.budget.map(|budget| json!({ "gpu_hours": budget.0 / 3_600.0 }))),
        ("notify", (!spec.notify.is_empty()).then(|| json!(spec.notify))),
        ("run", Some(run)),
    ])
}

fn array(array: &ArraySpec) -> Value {
    object([("range", Some(json!(array.indices.to_string()))), ("parallel", array.parallel.map(Value::from))])
}

fn gpus(range: &GpuRange) -> Value {
    object([
        ("min", Some(json!(range.min.0))),
        ("max", Some(json!(range.max.0))),
        ("sizes", (!range.sizes.is_empty()).then(|| json!(range.sizes))),
        ("type", (!range.types.is_empty()).then(|| json!(range.types))),
        ("mix", range.mixed.then_some(Value::Bool(true))),
    ])
}

fn training(training: &Training, progress: Option<Value>) -> Value {
    let (model, curve, seq_len) = match &training.work {
        Work::Model(shape) => (Some(json!(shape)), None, None),
        Work::Curve { points, seq_len } => {
            let points: Map<String, Value> =
                points.iter().map(|(gpus, goodput)| (gpus.to_string(), json!(goodput))).collect();
            (None, Some(Value::Object(points)), Some(json!(seq_len)))
        }
    };
    let layouts = &training.layouts;
    // Only `auto` allows any degree, and it leaves the micro-batch free.
    let layouts = match layouts {
        sized if !sized.sizes.is_empty() => {
            super::sizes::to_json(sized, |size| written(&size.tp, &size.pp, None, &size.execution))
        }
        auto if auto.tp.is_empty() && auto.pp.is_empty() => json!("auto"),
        one => written(&one.tp, &one.pp, Some(one.max_micro_batch), &one.execution),
    };
    let checkpoint = &training.checkpoint;
    // The directory is filled in already: what braces are left are its own.
    let dir = checkpoint.dir.as_ref().map(|dir| json!(dir.replace('{', "{{").replace('}', "}}")));
    object([
        ("progress", progress),
        ("model", model),
        ("curve", curve),
        ("seq_len", seq_len),
        ("precision", Some(json!(training.precision))),
        ("reference_batch", Some(json!(sequences(training.reference_batch)))),
        ("batch", Some(batch(training))),
        ("lr_scaling", Some(json!(training.lr_scaling))),
        ("target", training.target.map(target)),
        ("layouts", Some(layouts)),
        (
            "checkpoint",
            Some(object([
                ("dir", dir),
                ("every", Some(json!(seconds(checkpoint.every)))),
                ("grace", Some(json!(seconds(checkpoint.grace)))),
                ("fenced", Some(json!(checkpoint.fenced))),
                ("keep", checkpoint.keep.map(|keep| json!(keep))),
            ])),
        ),
        ("reconfigure", Some(json!(training.reconfigure))),
        ("kappa", Some(json!(training.kappa))),
        ("noise", Some(json!(training.noise))),
    ])
}

fn target(target: Target) -> Value {
    let amount = json!(format!("{} tokens", target.tokens.0));
    match target.count {
        TargetCount::Both => amount,
        count => json!({"tokens": amount, "count": count}),
    }
}

fn batch(training: &Training) -> Value {
    let eta = match training.batch_policy {
        BatchPolicy::Goodput => None,
        BatchPolicy::NormTest { eta } => Some(json!(eta)),
    };
    object([
        ("min", Some(json!(sequences(training.batch.min)))),
        ("max", Some(json!(sequences(training.batch.max)))),
        ("policy", Some(json!(training.batch_policy.to_string()))),
        ("eta", eta),
    ])
}

/// Of what goes beyond degrees only what is not plain.
fn written(tp: &[u32], pp: &[u32], micro_batch: Option<Sequences>, execution: &ExecutionLimits) -> Value {
    let plain = ExecutionLimits::default();
    object([
        ("tp", Some(json!(tp))),
        ("pp", Some(json!(pp))),
        ("micro_batch", micro_batch.map(|micro| json!(micro))),
        ("cp", (execution.cp != plain.cp).then(|| json!(execution.cp))),
        ("ep", (execution.ep != plain.ep).then(|| json!(execution.ep))),
        ("vpp", (execution.vpp != plain.vpp).then(|| json!(execution.vpp))),
        ("schedule", (execution.schedule != plain.schedule).then(|| json!(execution.schedule))),
        ("sharding", (execution.sharding != plain.sharding).then(|| json!(execution.sharding))),
        ("recompute", (execution.recompute != plain.recompute).then(|| json!(execution.recompute))),
        ("sequence_parallel", execution.sequence_parallel.then_some(Value::Bool(true))),
        ("offload", (execution.offload != plain.offload).then(|| json!(execution.offload))),
        ("uneven_stages", execution.uneven_stages.then_some(Value::Bool(true))),
        (UNEVEN_SHARES, execution.uneven_shares.then_some(Value::Bool(true))),
    ])
}

fn moment(at: Timestamp) -> String {
    DateTime::from_timestamp_micros(at.0).unwrap_or_default().to_rfc3339_opts(SecondsFormat::AutoSi, true)
}

fn seconds(time: Seconds) -> String {
    format!("{}s", time.0)
}

fn sequences(batch: Sequences) -> String {
    format!("{batch} sequences")
}

fn object<const N: usize>(entries: [(&str, Option<Value>); N]) -> Value {
    Value::Object(entries.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))).collect())
}
