//! Why a job has no shape to start on: for ever, or as long as nodes are broken or closed. Asked only of such jobs.

use headway_types::GpuCount;

use crate::curves::Refusal;
use crate::input::PlanJob;
use crate::round::Round;

/// Why a job has no shape to start on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Obstacle {
    WrongType,
    /// The cluster as built has too few GPUs of the accepted types.
    TooLarge {
        built: GpuCount,
    },
    /// Enough are built, too few are usable now.
    NotUsable {
        usable: GpuCount,
    },
    /// No configuration is feasible; the model's own words.
    Infeasible(Refusal),
}

/// `nominal` tells for each shape on the cluster as built whether the job is refused there.
pub(crate) fn obstacle(round: &Round<'_>, job: &PlanJob, nominal: Vec<Option<Refusal>>) -> Obstacle {
    let cluster = round.cluster;
    let accepted = || (0..cluster.classes.len()).filter(|&c| job.range.accepts(&cluster.classes[c].alike.gpu_type));
    if !cluster.classes.is_empty() && accepted().next().is_none() {
        return Obstacle::WrongType;
    }
    if nominal.is_empty() {
        return Obstacle::TooLarge {
            built: accepted().map(|class| cluster.classes[class].nominal()).max().unwrap_or_default(),
        };
    }
    let refusals: Option<Vec<Refusal>> = nominal.into_iter().collect();
    // Of memory the last says most: the largest shape needs least per GPU.
    match refusals.and_then(|all| all.iter().rfind(|refusal| refusal.memory).or(all.first()).cloned()) {
        Some(refusal) => Obstacle::Infeasible(refusal),
        None => Obstacle::NotUsable { usable: accepted().map(|class| cluster.open(class)).max().unwrap_or_default() },
    }
}
