//! `training`: what makes a job tunable. Without it a job is scheduled as it is.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use headway_types::spec::{
    BatchPolicy, BatchRange, CheckpointPolicy, ExecutionLimits, LayoutLimits, LrScaling, NoiseKind, Precision, Target,
    TargetCount, Training, Work,
};
use headway_types::{Capabilities, GpuCount, Seconds, Sequences};
use serde_json::Value;

use super::quantity::{self, Amount};
use super::section::{COUNT_AT_MOST, Findings, Section, Word, one_or_many, text, whole};
use super::{model, sizes, template};

const KNOWN: &[&str] = &[
    "model",
    "curve",
    "seq_len",
    "precision",
    "reference_batch",
    "batch",
    "lr_scaling",
    "target",
    "layouts",
    "checkpoint",
    "progress",
    "reconfigure",
    "kappa",
    "noise",
];

/// What of a layout a script can be told beyond degrees: keys of `layouts`, and placeholders.
pub(super) const EXECUTION: [&str; 9] =
    ["cp", "ep", "vpp", "schedule", "sharding", "recompute", "sequence_parallel", "offload", "uneven_stages"];

/// A key of `layouts` whose placeholder is `shares`.
pub(super) const UNEVEN_SHARES: &str = "uneven_shares";

/// Larger degrees of tensor or pipeline parallelism are a mistake.
const LARGEST_DEGREE: u32 = 1024;

/// Reads `training`. `job_name` fills `{job_name}` of the checkpoint directory.
pub(super) fn read(path: &str, value: &Value, job_name: &str, findings: &Findings) -> Option<Training> {
    let section = Section::open(path, value, KNOWN, &["roles"], findings)?;
    let work = work(&section);
    let precision = section.word_or("precision", Precision::Bf16);
    let checkpoint = checkpoint(&section, job_name);
    let reconfigure = reconfigure(&section);
    let kappa = kappa(&section);
    let noise = section.word_or("noise", NoiseKind::Raw);
    // The square root is what adaptive optimizers call for (Malladi et al. 2022).
    let lr_scaling = section.word_or("lr_scaling", LrScaling::Sqrt);
    section.require("reference_batch", "the batch the recipe was validated at, as in reference_batch: 4Mi tokens");
    // Batches are counted in sequences of this length.
    let work = work?;
    let seq_len = work.seq_len();
    let reference_batch = batch_of(&section, "reference_batch", seq_len);
    let target = target(&section, seq_len);
    let reference_batch = reference_batch?;
    let (batch, batch_policy) = batch(&section, reference_batch, seq_len)?;
    // A micro-batch is a count with a bound, whatever the batch it is part of.
    let layouts = layouts(&section, batch.max.min(Sequences(u64::from(COUNT_AT_MOST))))?;
    Some(Training {
        work,
        precision: precision?,
        reference_batch,
        batch,
        batch_policy,
        lr_scaling: lr_scaling?,
        target,
        layouts,
        checkpoint,
        reconfigure,
        kappa,
        noise: noise?,
    })
}

fn work(section: &Section<'_>) -> Option<Work> {
    match (section.get("model"), section.get("curve")) {
        (Some(value), None) => {
            if section.has("seq_len") {
                section.wrong_hint("seq_len", "belongs to the model", "write model: {preset: …, seq_len: …}");
            }
            model::read(value, &section.field("model"), section.findings()).map(Work::Model)
        }
        (None, Some(value)) => {
            section.require("seq_len", "tokens per sequence, to count progress in tokens");
            let seq_len = section.whole("seq_len", 1);
            Some(Work::Curve { points: curve(section, value)?, seq_len: seq_len? })
        }
        (Some(_), Some(_)) => {
            section.wrong("curve", "stands instead of model, not beside it");
            None
        }
        (None, None) => {
            section.wrong_hint(
                "model",
                "is required",
                "a preset as in model: llama-3-8b, a mapping of dimensions, or a measured curve",
            );
            None
        }
    }
}

fn curve(section: &Section<'_>, value: &Value) -> Option<BTreeMap<GpuCount, f64>> {
    let Value::Object(map) = value else {
        section.wrong_hint("curve", "must be a mapping of GPUs to relative goodput", "as in curve: {8: 1.0, 16: 1.9}");
        return None;
    };
    let mut points = BTreeMap::new();
    for (gpus, goodput) in map {
        let count = gpus.parse::<u32>().ok().filter(|count| *count >= 1);
        let goodput = goodput.as_f64().filter(|goodput| *goodput > 0.0);
        match (count, goodput) {
            (Some(count), Some(goodput)) => {
                points.insert(GpuCount(count), goodput);
            }
            _ => section.wrong(&format!("curve.{gpus}"), "must be a number of GPUs and a goodput above 0"),
        }
    }
    if map.is_empty() {
        section.wrong("curve", "must name one size at least");
    }
    (!points.is_empty()).then_some(points)
}

/// An amount, or an amount with what counts towards it.
fn target(training: &Section<'_>, seq_len: u32) -> Option<Target> {
    let value = training.get("target")?;
    if !value.is_object() {
        return Some(training.quantity("target", Amount::parse)?.tokens(seq_len).into());
    }
    let path = training.field("target");
    let section = Section::open(&path, value, &["tokens", "count"], &[], training.findings())?;
    section.require("tokens", "how much there is to do, as in target: {tokens: 300B tokens, count: both}");
    let count = section.word_or("count", TargetCount::default());
    let tokens =
        section.quantity("tokens", |text| Amount::parse(text).or_else(|error| Amount::bare(text).ok_or(error)));
    Some(Target { tokens: tokens?.tokens(seq_len), count: count? })
}

fn batch_of(section: &Section<'_>, key: &str, seq_len: u32) -> Option<Sequences> {
    section.quantity(key, |text| Amount::parse(text)?.sequences(seq_len))
}

/// The norm test's η where none is given: small models need less strictness than the paper's 0.05 to 0.3.
const ETA: f64 = 0.5;

/// Fixed at the reference where it is not given.
fn batch(training: &Section<'_>, reference: Sequences, seq_len: u32) -> Option<(BatchRange, BatchPolicy)> {
    let Some(value) = training.get("batch") else {
        return Some((BatchRange { min: reference, max: reference }, BatchPolicy::Goodput));
    };
    let path = training.field("batch");
    let section = Section::open(&path, value, &["min", "max", "policy", "eta"], &[], training.findings())?;
    let bound = |key| if section.has(key) { batch_of(&section, key, seq_len) } else { Some(reference) };
    let (min, max) = (bound("min"), bound("max"));
    let policy = batch_policy(&section);
    let (min, max) = (min?, max?);
    if min > reference {
        section.wrong("min", format!("{min} sequences are more than the reference batch, {reference} sequences"));
    }
    if max < reference {
        section.wrong("max", format!("{max} sequences are fewer than the reference batch, {reference} sequences"));
    }
    let policy = policy?;
    if policy != BatchPolicy::Goodput && max <= reference {
        section.wrong_hint(
            "max",
            "leaves the norm test nothing",
            "it only raises the batch: give a max above the reference",
        );
    }
    Some((BatchRange { min, max }, policy))
}

fn batch_policy(section: &Section<'_>) -> Option<BatchPolicy> {
    let choices = [("goodput", false), ("norm_test", true)];
    let norm_test = if section.has("policy") { section.choice("policy", &choices)? } else { false };
    if !norm_test {
        if section.has("eta") {
            section.wrong_hint("eta", "belongs to the norm test", "write batch: {…, policy: norm_test, eta: 0.3}");
        }
        return Some(BatchPolicy::Goodput);
    }
    let eta = if section.has("eta") { section.number("eta")? } else { ETA };
    match eta.try_into() {
        Ok(eta) => Some(BatchPolicy::NormTest { eta }),
        Err(error) => {
            let hint = "the relative error of a step's gradient that is borne: smaller means larger batches";
            section.wrong_hint("eta", format!("{error}"), hint);
            None
        }
    }
}

/// Data parallelism only where nothing is said, and of what goes beyond degrees only what is said: no script is told what it cannot do.
fn layouts(training: &Section<'_>, largest: Sequences) -> Option<LayoutLimits> {
    match training.get("layouts") {
        None => Some(LayoutLimits::degrees(vec![1], vec![1], largest)),
        Some(Value::String(word)) if word == "auto" => Some(LayoutLimits::degrees(Vec::new(), Vec::new(), largest)),
        Some(Value::Array(_)) => {
            let example = "as in layouts: {8: {tp: 2}, 16: {tp: 4, pp: 2}}";
            training.wrong_hint("layouts", "by size are a mapping, not a list", example);
            None
        }
        Some(Value::Object(map)) if map.keys().any(|key| sizes::is_size(key)) => sizes::read(training, map, largest),
        Some(value @ Value::Object(_)) => {
            let path = training.field("layouts");
            let known = [&["tp", "pp", "micro_batch", UNEVEN_SHARES], &EXECUTION[..]].concat();
            let section = Section::open(&path, value, &known, &[], training.findings())?;
            let (tp, pp) = (degrees(&section, "tp"), degrees(&section, "pp"));
            let micro = if section.has("micro_batch") {
                section.whole("micro_batch", 1).map(|micro| Sequences(u64::from(micro)))
            } else {
                Some(largest)
            };
            let execution = execution(&section, degrees);
            Some(LayoutLimits {
                tp: tp?,
                pp: pp?,
                max_micro_batch: micro?,
                execution: execution?,
                sizes: BTreeMap::new(),
            })
        }
        Some(_) => {
            training.wrong_hint(
                "layouts",
                "must be auto or a mapping",
                "as in layouts: {tp: [1, 2, 4], pp: 1, micro_batch: 16, sharding: [none, optimizer]}",
            );
            None
        }
    }
}

pub(super) fn execution(section: &Section<'_>, degrees: Degrees) -> Option<ExecutionLimits> {
    let (cp, ep, vpp) = (degrees(section, "cp"), degrees(section, "ep"), degrees(section, "vpp"));
    let schedule = words(section, "schedule");
    let sharding = words(section, "sharding");
    let recompute = words(section, "recompute");
    let offload = words(section, "offload");
    let flag = |key| section.flag(key).unwrap_or(false);
    let (sequence_parallel, uneven_stages) = (flag("sequence_parallel"), flag("uneven_stages"));
    let uneven_shares = flag(UNEVEN_SHARES);
    Some(ExecutionLimits {
        cp: cp?,
        ep: ep?,
        vpp: vpp?,
        schedule: schedule?,
        sharding: sharding?,
        recompute: recompute?,
        sequence_parallel,
        offload: offload?,
        uneven_stages,
        uneven_shares,
    })
}

/// One or several of some words. Absent: the first.
fn words<T: Word + Ord + Default>(section: &Section<'_>, key: &str) -> Option<Vec<T>> {
    let Some(value) = section.get(key) else { return Some(vec![T::default()]) };
    let read = |value: &Value| {
        let word = text(value, &section.field(key), section.findings())?;
        let found = T::VARIANTS.iter().copied().find(|one| (*one).into() == word);
        if found.is_none() {
            let names: Vec<&str> = T::VARIANTS.iter().map(|one| (*one).into()).collect();
            section.wrong(key, format!("must be one or several of {}, not \"{word}\"", names.join(", ")));
        }
        found
    };
    let mut chosen: Vec<T> = one_or_many(value).iter().map(read).collect::<Option<_>>()?;
    chosen.sort_unstable();
    chosen.dedup();
    if chosen.is_empty() {
        section.wrong(key, "must name one at least");
    }
    Some(chosen)
}

/// How degrees are read.
pub(super) type Degrees = fn(&Section<'_>, &str) -> Option<Vec<u32>>;

/// Degrees by name, or the powers of two up to one number. Absent: 1.
fn degrees(section: &Section<'_>, key: &str) -> Option<Vec<u32>> {
    let Some(value) = section.get(key) else { return Some(vec![1]) };
    let field = section.field(key);
    let read = |value| whole(value, 1, &field, section.findings());
    let mut degrees: Vec<u32> = one_or_many(value).iter().map(read).collect::<Option<_>>()?;
    if let (false, [largest]) = (value.is_array(), degrees.as_slice()) {
        let largest = *largest;
        degrees = (0..u32::BITS).map(|power| 1 << power).take_while(|degree| *degree < largest).collect();
        degrees.push(largest);
    }
    checked(section, key, degrees)
}

/// Degrees by name and no others. Absent: 1.
pub(super) fn exact(section: &Section<'_>, key: &str) -> Option<Vec<u32>> {
    let Some(value) = section.get(key) else { return Some(vec![1]) };
    let field = section.field(key);
    let read = |value| whole(value, 1, &field, section.findings());
    checked(section, key, one_or_many(value).iter().map(read).collect::<Option<_>>()?)
}

fn checked(section: &Section<'_>, key: &str, mut degrees: Vec<u32>) -> Option<Vec<u32>> {
    degrees.sort_unstable();
    degrees.dedup();
    if degrees.is_empty() {
        section.wrong(key, "must name one degree at least");
    }
    if degrees.last().is_some_and(|degree| *degree > LARGEST_DEGREE) {
        section.wrong(key, format!("must be {LARGEST_DEGREE} at most"));
    }
    Some(degrees)
}

fn checkpoint(training: &Section<'_>, job_name: &str) -> CheckpointPolicy {
    let mut policy = CheckpointPolicy::default();
    let Some(value) = training.get("checkpoint") else { return policy };
    let path = training.field("checkpoint");
    let known = ["dir", "every", "grace", "fenced", "keep"];
    let Some(section) = Section::open(&path, value, &known, &["signal", "resharding"], training.findings()) else {
        return policy;
    };
    policy.dir = dir(&section, job_name);
    let positive = |key, default: Seconds| section.quantity(key, quantity::duration).unwrap_or(default);
    policy.every = positive("every", policy.every);
    policy.grace = positive("grace", policy.grace);
    policy.fenced = section.flag("fenced").unwrap_or(policy.fenced);
    policy.keep = kept(&section);
    policy
}

/// How many checkpoints are kept.
fn kept(section: &Section<'_>) -> Option<NonZeroU32> {
    if section.get("keep").and_then(Value::as_f64) == Some(0.0) {
        let hint = "remove it to keep all checkpoints, or give 1 to keep the newest alone";
        section.wrong_hint("keep", "must be 1 at least: a job restarts from its newest checkpoint", hint);
        return None;
    }
    section.whole("keep", 1).and_then(NonZeroU32::new)
}

/// What a shell would know of the job, as people write directories for one, and the placeholders that mean the same here.
const SHELLS: [(&str, &str); 2] = [("${JOB_NAME}", "{job_name}"), ("${JOB_ID}", "{job_id}")];

/// An absolute directory with the job's name filled in. Its id it has once it is admitted, and below `dir` a directory that is called by it: where the
/// id comes last, that one is meant.
fn dir(section: &Section<'_>, job_name: &str) -> Option<String> {
    let text = section.text("dir")?;
    let hint = "${JOB_NAME} is filled in, and ${JOB_ID} where it comes last, since each job saves below its id; nothing else is";
    let text = SHELLS.iter().fold(text, |text, (shells, ours)| text.replace(shells, ours));
    let text = match text.strip_suffix("/{job_id}") {
        Some("") => "/".to_owned(),
        Some(parent) => parent.to_owned(),
        None => text,
    };
    if !text.starts_with('/') {
        section.wrong("dir", format!("must be an absolute path, not \"{text}\": every node has to see it"));
    } else if text.contains('$') {
        section.wrong_hint("dir", "is not read by a shell", hint);
    }
    let values = BTreeMap::from([("job_name".to_owned(), job_name.to_owned())]);
    match template::render(&text, &values) {
        Ok(dir) => Some(dir),
        Err(error) => {
            section.wrong_hint("dir", error.to_string(), hint);
            None
        }
    }
}

fn reconfigure(training: &Section<'_>) -> Capabilities {
    let unknown = Capabilities::UNKNOWN_SCRIPT;
    let Some(value) = training.get("reconfigure") else { return unknown };
    let path = training.field("reconfigure");
    let Some(section) = Section::open(&path, value, &["batch", "layout"], &[], training.findings()) else {
        return unknown;
    };
    Capabilities {
        batch: section.word("batch").unwrap_or(unknown.batch),
        layout: section.word("layout").unwrap_or(unknown.layout),
    }
}

fn kappa(section: &Section<'_>) -> f64 {
    let Some(kappa) = section.number("kappa") else { return 1.0 };
    if kappa <= 0.0 {
        section.wrong("kappa", format!("must be more than 0, not {kappa}"));
    }
    kappa
}
