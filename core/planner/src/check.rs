//! What a round must promise before anything is computed with it: order, no GPU twice, and numbers that are numbers within
//! bounds in which nothing overflows. What is wrong with a job alone is no error of the round: `sound` leaves that job
//! out. Contradictions of another kind (a floor above a quota, a reservation of unknown nodes, a size no node has) are no
//! errors: the round says what it could not keep.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::RangeInclusive;

use headway_goodput::JobModel;
use headway_solver::ProgramError;
use headway_types::offer::{FASTEST, LONGEST_NODE_WORD, MOST_GPUS_PER_NODE};
use headway_types::spec::{Training, Work};
use headway_types::{Assignment, GpuUuid, JobId, Layout, NodeId, Prediction, StatedDevice};

use crate::input::{PlanInput, PlanJob, PlanNode, PlanWork};
use crate::policy::Policy;
use crate::project::PlanProject;
use crate::site::SiteRow;
use crate::table::GoodputTable;

/// Bounds of what can be added up. They are far beyond every cluster.
const NODES: usize = 1 << 18;
const GPUS: u32 = 1 << 30;
const JOBS: usize = 1 << 24;
const BATCH: u64 = 1 << 32;
const DIMENSION: u32 = 1 << 24;
/// Thirty thousand years in seconds.
const LONG: f64 = 1e12;
const WATTS: f64 = 1e6;
const GOODPUT: f64 = 1e18;
const MUCH: f64 = 1e30;
/// Rows of a site, and letters of what they name. A round looks at every row for every job.
const SITE_ROWS: usize = 64;
const LETTERS: usize = 256;

/// Why a round has no plan. All of these are broken promises of the caller.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PlanError {
    #[error("node {0} appears twice or out of order in the round")]
    NodesNotAscending(NodeId),
    #[error("job {0} appears twice or out of order in the round")]
    JobsNotAscending(JobId),
    #[error("project {0} appears twice or out of order in the round")]
    ProjectsNotAscending(String),
    #[error("GPU {0} is offered twice in the round")]
    RepeatedGpu(GpuUuid),
    #[error("GPU {gpu} is held by job {first} and by job {second}")]
    HeldTwice { gpu: GpuUuid, first: JobId, second: JobId },
    #[error("{wrong}, of {of}")]
    Field { of: String, wrong: WrongField },
    #[error("the round is too large to add up")]
    TooLarge(#[source] ProgramError),
}

/// A value that nothing can be computed with, by the name of its field.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} is {value}, it must be {must}")]
pub struct WrongField {
    pub field: &'static str,
    pub value: String,
    pub must: String,
}

/// Of the round itself; jobs and nodes are looked at one by one ([`check_job`], [`check_node`]).
///
/// # Errors
/// The first promise that is broken.
pub(crate) fn check_round(input: &PlanInput) -> Result<(), PlanError> {
    let of = |of: String| move |wrong| PlanError::Field { of, wrong };
    check_order(input)?;
    check_size(input).map_err(of("the round".into()))?;
    check_policy(&input.policy).map_err(of("the policy".into()))?;
    for project in &input.projects {
        check_project(project).map_err(of(format!("project {}", project.name)))?;
    }
    check_gpus(input)
}

fn check_order(input: &PlanInput) -> Result<(), PlanError> {
    if let Some(pair) = input.nodes.windows(2).find(|pair| pair[0].node >= pair[1].node) {
        return Err(PlanError::NodesNotAscending(pair[1].node));
    }
    if let Some(pair) = input.jobs.windows(2).find(|pair| pair[0].job >= pair[1].job) {
        return Err(PlanError::JobsNotAscending(pair[1].job));
    }
    if let Some(pair) = input.projects.windows(2).find(|pair| pair[0].name >= pair[1].name) {
        return Err(PlanError::ProjectsNotAscending(pair[1].name.clone()));
    }
    Ok(())
}

fn check_size(input: &PlanInput) -> Result<(), WrongField> {
    whole("nodes", input.nodes.len() as u64, 0..=NODES as u64)?;
    whole("jobs", input.jobs.len() as u64, 0..=JOBS as u64)
}

/// Each GPU is offered once and held once.
fn check_gpus(input: &PlanInput) -> Result<(), PlanError> {
    let mut offered = BTreeSet::new();
    if let Some(gpu) = input.nodes.iter().flat_map(|node| &node.gpus).find(|gpu| !offered.insert(*gpu)) {
        return Err(PlanError::RepeatedGpu(gpu.clone()));
    }
    let mut held: BTreeMap<&GpuUuid, JobId> = BTreeMap::new();
    for job in &input.jobs {
        for (_, gpu) in job.current.iter().flat_map(|current| current.placement.ranks()) {
            if let Some(first) = held.insert(gpu, job.job) {
                return Err(PlanError::HeldTwice { gpu: gpu.clone(), first, second: job.job });
            }
        }
    }
    Ok(())
}

/// Whether an operator may set this. A round of an older policy, or one asked for with another gain, is decided all the same.
///
/// # Errors
/// The first field that is wrong.
pub fn check_settings(policy: &Policy) -> Result<(), WrongField> {
    check_policy(policy)?;
    refuse_unless(policy.fresh_gain >= policy.min_gain, "fresh_gain", &policy.fresh_gain, || {
        format!("at least min_gain, {}: right after a move the next must gain no less than later", policy.min_gain)
    })
}

fn check_policy(policy: &Policy) -> Result<(), WrongField> {
    number("power", policy.power, -2.0..=2.0)?;
    number("epsilon", policy.epsilon, 0.01..=10.0)?;
    number("horizon", policy.horizon.0, 1e-3..=LONG)?;
    number("min_gain", policy.min_gain, 0.0..=LONG)?;
    number("fresh_gain", policy.fresh_gain, 0.0..=LONG)?;
    number("min_return", policy.min_return, 0.0..=1.0)?;
    number("shortest_first", policy.shortest_first, 0.0..=0.99)?;
    number("patience_share", policy.patience_share, 0.0..=10.0)?;
    number("turn", policy.turn.0, 1.0..=LONG)?;
    number("settling", policy.settling.0, 0.0..=LONG)?;
    number("min_batch_gain", policy.min_batch_gain, 0.0..=LONG)?;
    number("service_exponent", policy.service_exponent, 0.0..=8.0)?;
    optional("patience", policy.patience.map(|it| it.0), 0.0..=LONG)?;
    number("domain_loss", policy.domain_loss, 0.0..=1.0)?;
    number("tolerance", policy.tolerance, 0.0..=1.0)?;
    check_rows(&policy.rows)?;
    let Some(cap) = &policy.power_cap else { return Ok(()) };
    number("power_cap.watts", cap.watts, 0.0..=1e15)?;
    number("power_cap.idle", cap.idle, 0.0..=WATTS)?;
    cap.busy.values().try_for_each(|&watts| number("power_cap.busy", watts, 0.0..=WATTS))
}

/// Whether a site may state these rows, whatever the cluster is.
///
/// # Errors
/// The first field that is wrong.
pub fn check_rows(rows: &[SiteRow]) -> Result<(), WrongField> {
    whole("rows", rows.len() as u64, 0..=SITE_ROWS as u64)?;
    let mut names = BTreeSet::new();
    for row in rows {
        word("rows.name", &row.name)?;
        refuse_unless(names.insert(&row.name), "rows.name", &row.name, || "another name for each row".into())?;
        let amount = &row.amount;
        let label = amount.label.as_ref();
        let gpu_type = amount.gpu_type.as_ref().map(|of| &of.0);
        let named = [gpu_type, amount.project.as_ref(), label.map(|of| &of.key), amount.node.as_ref()];
        named.iter().flatten().try_for_each(|name| word("rows.amount", name))?;
        let length = label.map_or(0, |of| of.value.chars().count());
        whole("rows.amount.label", length as u64, 0..=LETTERS as u64)?;
        let names_some = named.iter().any(Option::is_some);
        let must = || "at least one of gpu_type, project, label and node".into();
        refuse_unless(names_some, "rows.amount", &format_args!("empty in {}", row.name), must)?;
    }
    Ok(())
}

fn word(field: &'static str, word: &str) -> Result<(), WrongField> {
    let good = (1..=LETTERS).contains(&word.chars().count()) && !word.chars().any(char::is_control);
    refuse_unless(good, field, &word.escape_debug(), || format!("1 to {LETTERS} letters that can be printed"))
}

/// # Errors
/// The first field that nothing can be computed with.
pub(crate) fn check_node(node: &PlanNode) -> Result<(), WrongField> {
    let (class, built) = (&node.class, node.class.gpus_per_node.0);
    whole("class.gpus_per_node", built.into(), 0..=MOST_GPUS_PER_NODE.into())?;
    whole("gpus", node.gpus.len() as u64, 0..=built.into())?;
    for (field, word) in [("class.gpu_type", &class.gpu_type.0), ("class.fabric.domain", &class.fabric.domain)] {
        let must = || format!("at most {} bytes long", 4 * LONGEST_NODE_WORD);
        let told = || format!("{} bytes long", word.len());
        refuse_unless(word.len() <= 4 * LONGEST_NODE_WORD, field, &told(), must)?;
    }
    if let Some(device) = &class.emulated {
        whole("class.emulated.flop_per_second", device.flop_per_second, 1..=FASTEST)?;
        whole("class.emulated.link_bytes_per_second", device.link_bytes_per_second, 1..=FASTEST)?;
    }
    let stated = class.stated.as_ref().map_or(Ok(()), StatedDevice::check);
    stated.map_err(|error| WrongField { field: "class.stated", value: error.to_string(), must: "within bounds".into() })
}

fn check_project(project: &PlanProject) -> Result<(), WrongField> {
    number("weight", project.weight, 0.0..=MUCH)?;
    number("usage", project.usage, 0.0..=MUCH)
}

/// # Errors
/// The first field that nothing can be computed with.
pub(crate) fn check_job(job: &PlanJob) -> Result<(), WrongField> {
    whole("range.max", job.range.max.0.into(), job.range.min.0.max(1).into()..=u32::MAX.into())?;
    number("downtime.batch", job.downtime.batch.0, 0.0..=LONG)?;
    number("downtime.micro_batch", job.downtime.micro_batch.0, 0.0..=LONG)?;
    optional("downtime.layout", job.downtime.layout.map(|it| it.0), 0.0..=LONG)?;
    number("downtime.restart", job.downtime.restart.0, 0.0..=LONG)?;
    number("rework", job.rework.0, 0.0..=LONG)?;
    optional("remaining", job.remaining.map(|it| it.0), 0.0..=MUCH)?;
    number("claim.waited", job.claim.waited.0, 0.0..=LONG)?;
    number("claim.ran", job.claim.ran.0, 0.0..=LONG)?;
    number("claim.attained", job.claim.attained.0, 0.0..=MUCH)?;
    optional("claim.since_move", job.claim.since_move.map(|it| it.0), 0.0..=LONG)?;
    // Overspent and overdue are facts, not mistakes.
    optional("bounds.budget_left", job.bounds.budget_left.map(|it| it.0), -MUCH..=MUCH)?;
    optional("bounds.time_left", job.bounds.time_left.map(|it| it.0), -LONG..=LONG)?;
    number("departure.takes", job.departure.takes.0, 0.0..=LONG)?;
    layout("needs.layout", job.needs.layout)?;
    job.current.as_ref().map_or(Ok(()), check_current)?;
    match &job.work {
        PlanWork::Opaque => Ok(()),
        PlanWork::Model(model) => check_model(model),
        PlanWork::Table(table) => check_table(table),
    }
}

fn check_current(current: &Assignment) -> Result<(), WrongField> {
    if let Some(at) = &current.configuration {
        layout("current.configuration.layout", Some(at.layout))?;
        whole("current.configuration.micro_batch", at.micro_batch.0, 1..=BATCH)?;
        whole("current.configuration.global_batch", at.global_batch.0, 1..=BATCH)?;
    }
    let Prediction { step_time, throughput, efficiency, goodput, speed_up } = current.predicted;
    number("current.predicted.step_time", step_time.0, 0.0..=LONG)?;
    number("current.predicted.throughput", throughput.0, 0.0..=GOODPUT)?;
    number("current.predicted.efficiency", efficiency, 0.0..=GOODPUT)?;
    number("current.predicted.goodput", goodput.0, 0.0..=GOODPUT)?;
    number("current.predicted.speed_up", speed_up, 0.0..=MUCH)
}

fn check_table(table: &GoodputTable) -> Result<(), WrongField> {
    table.rows.iter().try_for_each(|row| {
        number("table.goodput", row.goodput, 0.0..=GOODPUT)?;
        optional("table.watts_per_gpu", row.watts_per_gpu, 0.0..=WATTS)
    })
}

fn check_model(model: &JobModel) -> Result<(), WrongField> {
    let Training { work, reference_batch, batch, layouts, kappa, .. } = &model.training;
    whole("training.reference_batch", reference_batch.0, 1..=BATCH)?;
    whole("training.batch.max", batch.max.0, batch.min.0.max(1)..=BATCH)?;
    whole("training.layouts.max_micro_batch", layouts.max_micro_batch.0, 0..=BATCH)?;
    number("training.kappa", *kappa, 1e-12..=1e12)?;
    match work {
        Work::Curve { points, seq_len } => {
            whole("training.work.seq_len", (*seq_len).into(), 1..=DIMENSION.into())?;
            points.values().try_for_each(|&goodput| number("training.work.points", goodput, 0.0..=GOODPUT))
        }
        Work::Model(shape) => {
            // A model without ordinary FFNs has none of any width.
            let ffn_hidden = if shape.dense_layers() > 0 { shape.ffn_hidden } else { shape.ffn_hidden.max(1) };
            let dimensions = [
                ("training.work.layers", shape.layers),
                ("training.work.hidden", shape.hidden),
                ("training.work.heads", shape.heads),
                ("training.work.kv_heads", shape.kv_heads),
                ("training.work.ffn_hidden", ffn_hidden),
                ("training.work.vocab", shape.vocab),
                ("training.work.seq_len", shape.seq_len),
            ];
            dimensions.into_iter().try_for_each(|(field, size)| whole(field, size.into(), 1..=DIMENSION.into()))?;
            match (shape.kinds, shape.check()) {
                (Some(_), Err(error)) => Err(WrongField {
                    field: "training.work.kinds",
                    value: error.to_string(),
                    must: "kinds of layers that the model can have".into(),
                }),
                _ => Ok(()),
            }
        }
    }
}

fn number(field: &'static str, value: f64, within: RangeInclusive<f64>) -> Result<(), WrongField> {
    let must = || format!("a number from {} to {}", within.start(), within.end());
    refuse_unless(within.contains(&value), field, &value, must)
}

fn optional(field: &'static str, value: Option<f64>, within: RangeInclusive<f64>) -> Result<(), WrongField> {
    value.map_or(Ok(()), |value| number(field, value, within))
}

fn whole(field: &'static str, value: u64, within: RangeInclusive<u64>) -> Result<(), WrongField> {
    let must = || format!("from {} to {}", within.start(), within.end());
    refuse_unless(within.contains(&value), field, &value, must)
}

fn layout(field: &'static str, layout: Option<Layout>) -> Result<(), WrongField> {
    let Some(layout) = layout else { return Ok(()) };
    let good = (1..=GPUS).contains(&layout.gpus().0);
    refuse_unless(good, field, &layout, || "degrees of at least 1 whose product can be counted".into())
}

fn refuse_unless(
    good: bool,
    field: &'static str,
    value: &dyn fmt::Display,
    must: impl FnOnce() -> String,
) -> Result<(), WrongField> {
    if good { Ok(()) } else { Err(WrongField { field, value: value.to_string(), must: must() }) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use headway_types::{Experts, LayerKinds, ModelShape, example};

    use super::*;
    use crate::builder::model_of;

    fn check(shape: ModelShape) -> Result<(), WrongField> {
        check_model(&model_of(Work::Model(shape)))
    }

    #[test]
    fn a_model_may_be_without_ordinary_ffns() {
        let experts = Experts { count: 8, active: 2, ffn_hidden: 64, shared_ffn_hidden: 0, dense_layers: 0 };
        let shape = ModelShape { ffn_hidden: 0, ..example::llama3_8b() };
        assert_eq!(check(ModelShape { experts: Some(experts), ..shape }), Ok(()));
        let bare = LayerKinds { without_ffn: 32, ..LayerKinds::default() };
        assert_eq!(check(ModelShape { kinds: Some(bare), ..shape }), Ok(()));
        assert_eq!(check(shape).unwrap_err().field, "training.work.ffn_hidden");
        let many = LayerKinds { ffn_only: 33, ..LayerKinds::default() };
        let many = ModelShape { kinds: Some(many), ..example::llama3_8b() };
        assert_eq!(check(many).unwrap_err().field, "training.work.kinds");
    }
}
