//! What a round must promise before anything is computed with it: order, no GPU twice, and numbers that are numbers within
//! bounds in which nothing overflows. Contradictions of another kind (a floor above a quota, a reservation of unknown
//! nodes, a size no node has) are no errors: the round says what it could not keep.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::RangeInclusive;

use headway_goodput::JobModel;
use headway_solver::ProgramError;
use headway_types::spec::{Training, Work};
use headway_types::{Assignment, GpuUuid, JobId, Layout, NodeId, Prediction};

use crate::input::{PlanInput, PlanJob, PlanNode, PlanWork};
use crate::policy::Policy;
use crate::project::PlanProject;
use crate::table::GoodputTable;

/// Bounds of what can be added up. They are far beyond every cluster.
const NODES: usize = 1 << 18;
const GPUS_PER_NODE: u32 = 1 << 12;
const GPUS: u32 = 1 << 30;
const JOBS: usize = 1 << 24;
const BATCH: u64 = 1 << 32;
const DIMENSION: u32 = 1 << 24;
/// Thirty thousand years in seconds.
const LONG: f64 = 1e12;
const WATTS: f64 = 1e6;
const GOODPUT: f64 = 1e18;
const MUCH: f64 = 1e30;

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
    #[error("{field} of {of} is {value}, it must be {must}")]
    Field { of: String, field: &'static str, value: String, must: String },
    #[error("the round is too large to add up")]
    TooLarge(#[source] ProgramError),
}

/// # Errors
/// The first promise that is broken.
pub(crate) fn check(input: &PlanInput) -> Result<(), PlanError> {
    check_order(input)?;
    check_policy(&input.policy)?;
    input.nodes.iter().try_for_each(check_node)?;
    input.jobs.iter().try_for_each(check_job)?;
    input.projects.iter().try_for_each(check_project)?;
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
    let of = Fields::of("the round");
    of.whole("nodes", input.nodes.len() as u64, 0..=NODES as u64)?;
    of.whole("jobs", input.jobs.len() as u64, 0..=JOBS as u64)
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

fn check_policy(policy: &Policy) -> Result<(), PlanError> {
    let of = Fields::of("the policy");
    of.number("power", policy.power, -2.0..=2.0)?;
    of.number("epsilon", policy.epsilon, 0.01..=10.0)?;
    of.number("horizon", policy.horizon.0, 1e-3..=LONG)?;
    of.number("min_gain", policy.min_gain, 0.0..=LONG)?;
    of.number("fresh_gain", policy.fresh_gain, 0.0..=LONG)?;
    of.number("settling", policy.settling.0, 0.0..=LONG)?;
    of.number("min_batch_gain", policy.min_batch_gain, 0.0..=LONG)?;
    of.number("service_exponent", policy.service_exponent, 0.0..=8.0)?;
    of.optional("patience", policy.patience.map(|it| it.0), 0.0..=LONG)?;
    of.number("domain_loss", policy.domain_loss, 0.0..=1.0)?;
    of.number("tolerance", policy.tolerance, 0.0..=1.0)?;
    let Some(cap) = &policy.power_cap else { return Ok(()) };
    of.number("power_cap.watts", cap.watts, 0.0..=1e15)?;
    of.number("power_cap.idle", cap.idle, 0.0..=WATTS)?;
    cap.busy.values().try_for_each(|&watts| of.number("power_cap.busy", watts, 0.0..=WATTS))
}

fn check_node(node: &PlanNode) -> Result<(), PlanError> {
    let of = Fields { of: format_args!("node {}", node.name) };
    let built = node.class.gpus_per_node.0;
    of.whole("class.gpus_per_node", built.into(), 0..=GPUS_PER_NODE.into())?;
    of.whole("gpus", node.gpus.len() as u64, 0..=built.into())?;
    let Some(device) = &node.class.emulated else { return Ok(()) };
    of.whole("class.emulated.flop_per_second", device.flop_per_second, 1..=u64::MAX)?;
    of.whole("class.emulated.link_bytes_per_second", device.link_bytes_per_second, 1..=u64::MAX)
}

fn check_project(project: &PlanProject) -> Result<(), PlanError> {
    let of = Fields { of: format_args!("project {}", project.name) };
    of.number("weight", project.weight, 0.0..=MUCH)?;
    of.number("usage", project.usage, 0.0..=MUCH)
}

fn check_job(job: &PlanJob) -> Result<(), PlanError> {
    let of = Fields { of: format_args!("job {}", job.name) };
    of.whole("range.max", job.range.max.0.into(), job.range.min.0.max(1).into()..=u32::MAX.into())?;
    of.number("downtime.batch", job.downtime.batch.0, 0.0..=LONG)?;
    of.number("downtime.micro_batch", job.downtime.micro_batch.0, 0.0..=LONG)?;
    of.optional("downtime.layout", job.downtime.layout.map(|it| it.0), 0.0..=LONG)?;
    of.number("downtime.restart", job.downtime.restart.0, 0.0..=LONG)?;
    of.number("rework", job.rework.0, 0.0..=LONG)?;
    of.optional("remaining", job.remaining.map(|it| it.0), 0.0..=MUCH)?;
    of.number("claim.waited", job.claim.waited.0, 0.0..=LONG)?;
    of.number("claim.ran", job.claim.ran.0, 0.0..=LONG)?;
    of.number("claim.attained", job.claim.attained.0, 0.0..=MUCH)?;
    of.optional("claim.since_move", job.claim.since_move.map(|it| it.0), 0.0..=LONG)?;
    // Overspent and overdue are facts, not mistakes.
    of.optional("bounds.budget_left", job.bounds.budget_left.map(|it| it.0), -MUCH..=MUCH)?;
    of.optional("bounds.time_left", job.bounds.time_left.map(|it| it.0), -LONG..=LONG)?;
    of.layout("needs.layout", job.needs.layout)?;
    job.current.as_ref().map_or(Ok(()), |current| check_current(&of, current))?;
    match &job.work {
        PlanWork::Opaque => Ok(()),
        PlanWork::Model(model) => check_model(&of, model),
        PlanWork::Table(table) => check_table(&of, table),
    }
}

fn check_current<N: fmt::Display>(of: &Fields<N>, current: &Assignment) -> Result<(), PlanError> {
    if let Some(at) = &current.configuration {
        of.layout("current.configuration.layout", Some(at.layout))?;
        of.whole("current.configuration.micro_batch", at.micro_batch.0, 1..=BATCH)?;
        of.whole("current.configuration.global_batch", at.global_batch.0, 1..=BATCH)?;
    }
    let Prediction { step_time, throughput, efficiency, goodput, speed_up } = current.predicted;
    of.number("current.predicted.step_time", step_time.0, 0.0..=LONG)?;
    of.number("current.predicted.throughput", throughput.0, 0.0..=GOODPUT)?;
    of.number("current.predicted.efficiency", efficiency, 0.0..=GOODPUT)?;
    of.number("current.predicted.goodput", goodput.0, 0.0..=GOODPUT)?;
    of.number("current.predicted.speed_up", speed_up, 0.0..=MUCH)
}

fn check_table<N: fmt::Display>(of: &Fields<N>, table: &GoodputTable) -> Result<(), PlanError> {
    table.rows.iter().try_for_each(|row| {
        of.number("table.goodput", row.goodput, 0.0..=GOODPUT)?;
        of.optional("table.watts_per_gpu", row.watts_per_gpu, 0.0..=WATTS)
    })
}

fn check_model<N: fmt::Display>(of: &Fields<N>, model: &JobModel) -> Result<(), PlanError> {
    let Training { work, reference_batch, batch, layouts, kappa, .. } = &model.training;
    of.whole("training.reference_batch", reference_batch.0, 1..=BATCH)?;
    of.whole("training.batch.max", batch.max.0, batch.min.0.max(1)..=BATCH)?;
    of.whole("training.layouts.max_micro_batch", layouts.max_micro_batch.0, 0..=BATCH)?;
    of.number("training.kappa", *kappa, 1e-12..=1e12)?;
    match work {
        Work::Curve { points, seq_len } => {
            of.whole("training.work.seq_len", (*seq_len).into(), 1..=DIMENSION.into())?;
            points.values().try_for_each(|&goodput| of.number("training.work.points", goodput, 0.0..=GOODPUT))
        }
        Work::Model(shape) => {
            let dimensions = [
                ("training.work.layers", shape.layers),
                ("training.work.hidden", shape.hidden),
                ("training.work.heads", shape.heads),
                ("training.work.kv_heads", shape.kv_heads),
                ("training.work.ffn_hidden", shape.ffn_hidden),
                ("training.work.vocab", shape.vocab),
                ("training.work.seq_len", shape.seq_len),
            ];
            dimensions.into_iter().try_for_each(|(field, size)| of.whole(field, size.into(), 1..=DIMENSION.into()))
        }
    }
}

/// Whose fields are looked at.
struct Fields<N> {
    of: N,
}

impl Fields<&'static str> {
    fn of(of: &'static str) -> Self {
        Self { of }
    }
}

impl<N: fmt::Display> Fields<N> {
    fn number(&self, field: &'static str, value: f64, within: RangeInclusive<f64>) -> Result<(), PlanError> {
        let must = || format!("a number from {} to {}", within.start(), within.end());
        self.refuse_unless(within.contains(&value), field, &value, must)
    }

    fn optional(&self, field: &'static str, value: Option<f64>, within: RangeInclusive<f64>) -> Result<(), PlanError> {
        value.map_or(Ok(()), |value| self.number(field, value, within))
    }

    fn whole(&self, field: &'static str, value: u64, within: RangeInclusive<u64>) -> Result<(), PlanError> {
        let must = || format!("from {} to {}", within.start(), within.end());
        self.refuse_unless(within.contains(&value), field, &value, must)
    }

    fn layout(&self, field: &'static str, layout: Option<Layout>) -> Result<(), PlanError> {
        let Some(layout) = layout else { return Ok(()) };
        let good = (1..=GPUS).contains(&layout.gpus().0);
        self.refuse_unless(good, field, &layout, || "degrees of at least 1 whose product can be counted".into())
    }

    fn refuse_unless(
        &self,
        good: bool,
        field: &'static str,
        value: &dyn fmt::Display,
        must: impl FnOnce() -> String,
    ) -> Result<(), PlanError> {
        if good {
            return Ok(());
        }
        Err(PlanError::Field { of: self.of.to_string(), field, value: value.to_string(), must: must() })
    }
}
