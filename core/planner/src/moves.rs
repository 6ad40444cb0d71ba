//! Every difference between the present and the plan, with its gain, its cost and its reason in one sentence.

use std::collections::BTreeMap;

use headway_types::plan::MoveKind;
use headway_types::{
    Configuration, GpuCount, GpuType, GpuUuid, JobId, JobVerdict, Move, Placement, Seconds, Tier, TokensPerSecond,
};

use crate::candidate::{Candidate, Options};
use crate::decide::Decision;
use crate::explain::tokens;
use crate::round::Round;

pub(crate) fn moves(
    round: &Round<'_>,
    options: &[Options<'_>],
    decision: &Decision,
    verdicts: &BTreeMap<JobId, JobVerdict>,
) -> Vec<Move> {
    let holders = holders(options);
    options
        .iter()
        .zip(&decision.choice)
        .zip(&decision.placements)
        .filter_map(|((options, &at), placement)| {
            let chosen = &options.candidates[at];
            let kind = kind(options, chosen, placement.as_ref())?;
            let reason = match kind {
                MoveKind::Start => started(round, options, chosen, placement.as_ref(), &holders),
                MoveKind::Preempt => {
                    // Why it gets nothing is told once, by its verdict.
                    let headline = verdicts.get(&options.job.job).map_or("", |verdict| &verdict.headline);
                    format!("{}: {}: {headline}", trigger(round, options), name(options))
                }
                MoveKind::Reconfigure(tier) if tier.is_live() => batch_changed(round, options, chosen),
                MoveKind::Reconfigure(_) => moved(round, options, chosen),
            };
            Some(account(options, chosen, kind, reason))
        })
        .collect()
}

fn kind(options: &Options<'_>, chosen: &Candidate, placement: Option<&Placement>) -> Option<MoveKind> {
    match (&options.job.current, placement) {
        (None, None) => None,
        (None, Some(_)) => Some(MoveKind::Start),
        (Some(_), None) => Some(MoveKind::Preempt),
        (Some(current), Some(placement)) if current.placement != *placement => {
            Some(MoveKind::Reconfigure(Tier::Migration))
        }
        (Some(current), Some(_)) => {
            let (from, to) = (current.configuration?, chosen.configuration?);
            from.tier_to(&to).map(MoveKind::Reconfigure)
        }
    }
}

fn account(options: &Options<'_>, chosen: &Candidate, kind: MoveKind, reason: String) -> Move {
    let current = options.job.current.as_ref();
    let before = options.present.map_or(TokensPerSecond(0.0), |present| present.goodput);
    let after = chosen.prediction.goodput;
    let gains = after.0 > before.0 && kind != MoveKind::Preempt;
    Move {
        job: options.job.job,
        kind,
        from_gpus: current.map_or(GpuCount(0), |current| current.placement.gpus()),
        to_gpus: chosen.gpus,
        from_configuration: current.and_then(|current| current.configuration),
        to_configuration: chosen.configuration,
        goodput_before: before,
        goodput_after: after,
        downtime: chosen.cost,
        // After t seconds (t − d)·G′ tokens are done instead of t·G; equal at t = d·G′/(G′ − G).
        pays_back_after: gains.then(|| Seconds(chosen.cost.0 * after.0 / (after.0 - before.0))),
        reason,
    }
}

/// Who holds which GPU now.
fn holders<'a>(options: &'a [Options<'_>]) -> BTreeMap<&'a GpuUuid, &'a Options<'a>> {
    options
        .iter()
        .flat_map(|options| {
            options.job.current.iter().flat_map(move |at| at.placement.ranks().map(move |(_, gpu)| (gpu, options)))
        })
        .collect()
}

fn name<'a>(options: &'a Options<'_>) -> &'a str {
    &options.job.name
}

/// What set the move off: a draining node under the job, else what set off the round.
fn trigger(round: &Round<'_>, options: &Options<'_>) -> String {
    let draining = options.job.current.iter().flat_map(|current| current.placement.slices()).find_map(|slice| {
        round.cluster.node(slice.node).filter(|node| node.draining).map(|node| format!("node {} drains", node.name))
    });
    draining.unwrap_or_else(|| round.input.trigger.clone())
}

fn described(gpus: GpuCount, gpu_type: Option<&GpuType>, configuration: Option<&Configuration>) -> String {
    let mut gpus = crate::explain::gpus(gpus);
    if let Some(gpu_type) = gpu_type {
        gpus = format!("{gpus} of {gpu_type}");
    }
    match configuration {
        Some(at) => format!("{gpus} ({}, batch {})", at.layout, at.global_batch),
        None => gpus,
    }
}

fn started(
    round: &Round<'_>,
    options: &Options<'_>,
    chosen: &Candidate,
    placement: Option<&Placement>,
    holders: &BTreeMap<&GpuUuid, &Options<'_>>,
) -> String {
    let what = described(chosen.gpus, None, chosen.configuration.as_ref());
    let mut from: Vec<&str> = placement
        .iter()
        .flat_map(|placement| placement.ranks())
        .filter_map(|(_, gpu)| holders.get(gpu).map(|holder| holder.job.name.as_str()))
        .collect();
    from.sort_unstable();
    from.dedup();
    let source =
        if from.is_empty() { String::new() } else { format!(", some of them given up by {}", from.join(" and ")) };
    format!("{}: {} starts on {what}{source}", round.input.trigger, name(options))
}

fn batch_changed(round: &Round<'_>, options: &Options<'_>, chosen: &Candidate) -> String {
    let from = options.job.current.as_ref().and_then(|current| current.configuration);
    let (Some(from), Some(to), Some(change)) = (from, chosen.configuration, options.batch_change) else {
        return "another batch is more goodput".into();
    };
    let noise = options.model.as_ref().and_then(|model| crate::curves::noise_scale(model));
    if let Some(noise) = noise.filter(|_| change.demanded) {
        return format!("GNS is {} tokens: the norm test asks for a batch of {}", tokens(noise), to.global_batch);
    }
    if let Some(left) = contradicted(round, options) {
        return format!("{left}; a batch of {} in micro-batches of {} is better", to.global_batch, to.micro_batch);
    }
    let gain = crate::explain::percent(change.gain);
    if from.global_batch == to.global_batch {
        return format!("a micro-batch of {} is {gain} more goodput than {}", to.micro_batch, from.micro_batch);
    }
    let direction = if to.global_batch > from.global_batch { "rose" } else { "fell" };
    match noise {
        Some(noise) => {
            format!(
                "GNS {direction} to {} tokens: a batch of {} is {gain} more goodput",
                tokens(noise),
                to.global_batch
            )
        }
        None => format!("a batch of {} is {gain} more goodput than {}", to.global_batch, from.global_batch),
    }
}

/// What the steps of the present configuration contradicted, in words.
fn contradicted(round: &Round<'_>, options: &Options<'_>) -> Option<String> {
    let current = options.job.current.as_ref()?;
    let class = round.cluster.alike(round.cluster.class_of_placement(&current.placement)?);
    let contradiction =
        options.model.as_ref()?.contradiction(class, current.placement.nodes(), &current.configuration?)?;
    Some(contradiction.to_string())
}

fn moved(round: &Round<'_>, options: &Options<'_>, chosen: &Candidate) -> String {
    let current = options.job.current.as_ref();
    let from = current.map_or(GpuCount(0), |current| current.placement.gpus());
    let gpu_type = |class: usize| round.cluster.gpu_type(class);
    let held = current.and_then(|current| round.cluster.class_of_placement(&current.placement)).map(gpu_type);
    let taken = chosen.shape.map(|shape| gpu_type(shape.class));
    let types = held.zip(taken).filter(|(held, taken)| held != taken);
    let configuration = current.and_then(|current| current.configuration);
    let before = described(from, types.as_ref().map(|(held, _)| held), configuration.as_ref());
    let after = described(chosen.gpus, types.as_ref().map(|(_, taken)| taken), chosen.configuration.as_ref());
    let was = options.present.map_or(0.0, |present| present.speed_up);
    let verb = match chosen.gpus.cmp(&from) {
        std::cmp::Ordering::Greater => "grows",
        std::cmp::Ordering::Less => "shrinks",
        std::cmp::Ordering::Equal if before == after => {
            return format!("{}: {} moves to other GPUs to make room", trigger(round, options), name(options));
        }
        std::cmp::Ordering::Equal => "changes",
    };
    format!(
        "{}: {} {verb} from {before} to {after}, speed-up {was:.2} to {:.2}",
        trigger(round, options),
        name(options),
        chosen.prediction.speed_up
    )
}
