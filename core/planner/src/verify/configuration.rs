//! How a job trains: a layout and a batch that occupy its GPUs, that its script can change to, that the recipe allows,
//! and that fit the memory by the goodput model.

use std::sync::Arc;

use headway_goodput::JobModel;
use headway_types::report::Flexibility;
use headway_types::spec::Work;
use headway_types::{Assignment, Configuration, Layout, Tier};

use super::turn::Turn;
use super::{Scene, Violation};
use crate::curves;

pub(super) fn check(scene: &Scene<'_>, turn: &Turn<'_>) -> Result<(), Violation> {
    let Some(to) = turn.to else { return Ok(()) };
    let former = turn.from.and_then(|from| from.configuration);
    if turn.stays() && former == to.configuration {
        return Ok(());
    }
    check_binding(turn, to)?;
    match (turn.job.work.model(), &to.configuration) {
        (None, None) => Ok(()),
        (None, Some(_)) => refuse(turn, "the job is not modelled and takes none"),
        (Some(model), None) => check_none(turn, model),
        (Some(model), Some(configuration)) => check_chosen(scene, turn, to, model, configuration),
    }
}

fn refuse(turn: &Turn<'_>, reason: impl Into<String>) -> Result<(), Violation> {
    Err(Violation::Configuration { job: turn.job.job, reason: reason.into() })
}

/// A script that cannot change layouts keeps the one it runs in, else the one its checkpoints are bound to; where no
/// layout is known, its size.
fn check_binding(turn: &Turn<'_>, to: &Assignment) -> Result<(), Violation> {
    if turn.job.capabilities.layout != Flexibility::Never {
        return Ok(());
    }
    let layout = |at: &Assignment| at.configuration.map(|at| at.layout);
    let bound: Option<Layout> = match turn.from {
        Some(from) => layout(from),
        None => turn.job.needs.layout,
    };
    let kept = match (bound, layout(to), turn.from) {
        (Some(bound), Some(to), _) => bound == to,
        (Some(bound), None, _) => bound.gpus() == to.placement.gpus(),
        (None, _, Some(from)) => from.placement.gpus() == to.placement.gpus() && layout(to).is_none(),
        (None, _, None) => true,
    };
    if kept { Ok(()) } else { Err(Violation::LayoutChanged { job: turn.job.job }) }
}

fn check_none(turn: &Turn<'_>, model: &JobModel) -> Result<(), Violation> {
    match &model.training.work {
        Work::Curve { .. } => Ok(()),
        Work::Model(_) => refuse(turn, "it is modelled and has none"),
    }
}

fn check_chosen(
    scene: &Scene<'_>,
    turn: &Turn<'_>,
    to: &Assignment,
    model: &Arc<JobModel>,
    chosen: &Configuration,
) -> Result<(), Violation> {
    let (job, placement) = (turn.job, &to.placement);
    if chosen.layout.gpus() != placement.gpus() {
        return refuse(turn, format!("{} does not occupy {} GPUs", chosen.layout, placement.gpus()));
    }
    if chosen.accumulation().is_none() {
        return refuse(turn, format!("{chosen} does not divide into whole micro-batches"));
    }
    let least_per_node = placement.slices().iter().map(|slice| slice.gpus.len() as u32).min().unwrap_or(0);
    if chosen.layout.tp > least_per_node {
        return refuse(turn, format!("{} spans nodes with its tensor parallelism", chosen.layout));
    }
    let former = turn.from.and_then(|from| from.configuration);
    let batch = chosen.global_batch;
    let kept = former.is_some_and(|former| former.global_batch == batch);
    let unchanging = job.capabilities.batch == Flexibility::Never;
    let pinned = kept || (unchanging && batch == model.training.reference_batch);
    if !pinned && (batch < model.training.batch.min || model.training.batch.max < batch) {
        return refuse(turn, format!("batch {batch} is outside the recipe's range"));
    }
    if let Some(former) = former {
        let tier = former.tier_to(chosen);
        if turn.is_fixed() && tier == Some(Tier::Layout) {
            return Err(Violation::MovedFixed { job: job.job });
        }
        let in_place = turn.stays() && former.layout == chosen.layout;
        if (!kept && unchanging) || (in_place && tier.is_some() && job.capabilities.batch != Flexibility::Live) {
            return Err(Violation::BatchChanged { job: job.job });
        }
    }
    let restarts = !turn.stays() || former.is_none_or(|former| former.layout != chosen.layout);
    let Some(node) = scene.nodes.get(&placement.first_node()).filter(|_| restarts) else { return Ok(()) };
    let model = if pinned { &curves::with_batch(model, batch) } else { model };
    match curves::predict(model, &node.class, placement.gpus(), placement.nodes(), Some(chosen)) {
        Ok(_) => Ok(()),
        // What runs now is proof enough for a mere change of GPUs.
        Err(_) if former == Some(*chosen) => Ok(()),
        Err(why) => refuse(turn, why.detail),
    }
}
