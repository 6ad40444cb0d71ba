//! How a job trains: a layout and a batch that occupy its GPUs, that its script can change to, that the recipe allows,
//! and that fit the memory by the goodput model.

use std::sync::Arc;

use headway_goodput::JobModel;
use headway_types::report::Flexibility;
use headway_types::spec::Work;
use headway_types::{Assignment, Configuration, Layout, NodeClass, NodeCount, NodeSlice, Placement, Tier};

use super::delta::Delta;
use super::{Scene, Violation};
use crate::curves::{self, Lack};

pub(super) fn check(scene: &Scene<'_>, delta: &Delta<'_>) -> Result<(), Violation> {
    let Some(to) = delta.to else { return Ok(()) };
    let former = delta.from.and_then(|from| from.configuration);
    if delta.stays() && former == to.configuration {
        return Ok(());
    }
    check_binding(delta, to)?;
    match (delta.job.work.model(), &to.configuration) {
        (None, None) => Ok(()),
        (None, Some(_)) => refuse(delta, "the job is not modelled and takes none"),
        (Some(model), None) => check_none(delta, model),
        (Some(model), Some(configuration)) => check_chosen(scene, delta, to, model, configuration),
    }
}

fn refuse(delta: &Delta<'_>, reason: impl Into<String>) -> Result<(), Violation> {
    Err(Violation::Configuration { job: delta.job.job, reason: reason.into() })
}

/// A script that cannot change layouts keeps the one it runs in, else the one its checkpoints are bound to; where no
/// layout is known, its size.
fn check_binding(delta: &Delta<'_>, to: &Assignment) -> Result<(), Violation> {
    if delta.job.capabilities.layout != Flexibility::Never {
        return Ok(());
    }
    let layout = |at: &Assignment| at.configuration.map(|at| at.layout);
    let bound: Option<Layout> = match delta.from {
        Some(from) => layout(from),
        None => delta.job.needs.layout,
    };
    let kept = match (bound, layout(to), delta.from) {
        (Some(bound), Some(to), _) => bound == to,
        (Some(bound), None, _) => bound.gpus() == to.placement.gpus(),
        (None, _, Some(from)) => from.placement.gpus() == to.placement.gpus() && layout(to).is_none(),
        (None, _, None) => true,
    };
    if kept { Ok(()) } else { Err(Violation::LayoutChanged { job: delta.job.job }) }
}

/// Whether steps of what a job runs in contradicted what was expected of them: nothing keeps it there.
fn is_contradicted(scene: &Scene<'_>, at: &Placement, model: &JobModel, former: &Configuration) -> bool {
    let class = class_of(scene, at);
    class.is_some_and(|class| model.contradiction(&class, at.nodes(), former).is_some())
}

/// What a gang there is valued by.
fn class_of(scene: &Scene<'_>, placement: &Placement) -> Option<NodeClass> {
    let known = |slice: &NodeSlice| Some((&scene.nodes.get(&slice.node)?.class, NodeCount(1)));
    headway_goodput::of_gang(placement.slices().iter().filter_map(known))
}

fn check_none(delta: &Delta<'_>, model: &JobModel) -> Result<(), Violation> {
    match &model.training.work {
        Work::Curve { .. } => Ok(()),
        Work::Model(_) => refuse(delta, "it is modelled and has none"),
    }
}

fn check_chosen(
    scene: &Scene<'_>,
    delta: &Delta<'_>,
    to: &Assignment,
    model: &Arc<JobModel>,
    chosen: &Configuration,
) -> Result<(), Violation> {
    let (job, placement) = (delta.job, &to.placement);
    if chosen.layout.gpus() != placement.gpus() {
        return refuse(delta, format!("{} does not occupy {} GPUs", chosen.layout, placement.gpus()));
    }
    if chosen.cycles().is_none() {
        return refuse(delta, format!("{chosen} does not divide into whole micro-batches"));
    }
    let least_per_node = placement.slices().iter().map(|slice| slice.gpus.len() as u32).min().unwrap_or(0);
    if chosen.layout.tp > least_per_node {
        return refuse(delta, format!("{} spans nodes with its tensor parallelism", chosen.layout));
    }
    let former = delta.from.and_then(|from| from.configuration);
    let batch = chosen.global_batch;
    let kept = former.is_some_and(|former| former.global_batch == batch);
    let unchanging = job.capabilities.batch == Flexibility::Never;
    let pinned = kept || (unchanging && batch == model.training.reference_batch);
    if !pinned && (batch < model.training.batch.min || model.training.batch.max < batch) {
        return refuse(delta, format!("batch {batch} is outside the recipe's range"));
    }
    if let Some(former) = former {
        let tier = former.tier_to(chosen);
        if delta.is_fixed() && tier == Some(Tier::Layout) {
            return Err(Violation::MovedFixed { job: job.job });
        }
        let in_place = delta.stays() && former.layout == chosen.layout;
        if (!kept && unchanging) || (in_place && tier.is_some() && job.capabilities.batch != Flexibility::Live) {
            return Err(Violation::BatchChanged { job: job.job });
        }
        if in_place && tier.is_some() && job.batch_bound.is_some() && !is_contradicted(scene, placement, model, &former)
        {
            return Err(Violation::BatchBound { job: job.job });
        }
    }
    let restarts = !delta.stays() || former.is_none_or(|former| former.layout != chosen.layout);
    let Some(class) = class_of(scene, placement).filter(|_| restarts) else { return Ok(()) };
    let model = if pinned { &curves::with_batch(model, batch) } else { model };
    let shares = chosen.layout.execution.shares;
    match curves::predict(model, &class, placement.gpus(), placement.nodes(), Some(chosen)) {
        Ok(_) => Ok(()),
        // What runs now is proof enough for a mere change of GPUs, but not of which nodes are faster.
        Err(why) if former == Some(*chosen) && (why.lacks != Lack::Layout || shares.are_even()) => Ok(()),
        Err(why) => refuse(delta, why.detail),
    }
}
