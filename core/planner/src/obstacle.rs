//! Why a job has no shape to start on: for ever, or as long as nodes are broken or closed, and what would suit it
//! instead. Asked only of such jobs.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;

use headway_goodput::JobModel;
use headway_types::spec::{GpuRange, HostResource, NodeSelector};
use headway_types::{GpuCount, GpuType, Layout, NodeCount, Timestamp};

use crate::candidate;
use crate::claim::{Needs, Spread};
use crate::cluster::{Class, Shape};
use crate::curves::{CurveCache, Lack, Refusal};
use crate::explain::span;
use crate::input::PlanJob;
use crate::reservation::Reservation;
use crate::round::Round;

/// Why a job has no shape to start on. Of these, `never` tells the ones that no node of this cluster lifts by coming back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Obstacle {
    WrongType,
    /// The cluster as built has too few GPUs of the accepted types.
    TooLarge {
        built: GpuCount,
    },
    /// Enough are built, too few are usable now.
    NotUsable {
        /// Of the nodes that admit it, in the class that has most.
        usable: GpuCount,
        /// On nodes that reservations of others keep from it, if there are any.
        reserved: GpuCount,
        by: Vec<Closed>,
    },
    /// All nodes of accepted types are reserved for others.
    Reserved {
        by: Vec<Closed>,
    },
    /// No host of the cluster as built has what the job needs besides GPUs.
    HostTooSmall {
        lacking: Vec<HostResource>,
    },
    /// Nodes of accepted types have the GPUs, but no host of those that are there what the job needs besides, were nobody else on them.
    Host {
        lacking: Vec<HostResource>,
    },
    /// No host of the cluster as built that could hold it is among those it asks for.
    NotAskedFor,
    /// The nodes it asks for cannot hold it as they are; others could.
    AskedFor,
    /// The nodes that could hold it are among those it must not use.
    Avoided,
    /// Rows of the site leave too little on the nodes that could hold it, were nobody else there.
    Ruled {
        by: Vec<String>,
    },
    /// No configuration is feasible: the model's own words, and what of the cluster as built the model would fit.
    Infeasible {
        refusal: Refusal,
        fits: Vec<Fit>,
    },
}

/// Characters of a reservation's reason that a sentence has room for. A longer one is left out.
const LONGEST_REASON: usize = 60;

/// A reservation that keeps a job from the nodes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Closed {
    pub name: String,
    /// The reason of the reservation, if it fits into a sentence.
    pub reason: Option<String>,
    pub from: Timestamp,
    pub until: Timestamp,
}

impl Closed {
    pub fn new(by: &Reservation) -> Self {
        let fits = |reason: &&String| reason.chars().count() <= LONGEST_REASON && !reason.contains(char::is_control);
        let reason = by.reason.as_ref().filter(fits).cloned();
        Self { name: by.name.clone(), reason, from: by.from, until: by.until }
    }

    /// "r9 (begins in 5.0 h)", "r9 (ends in 30 min: PSU swap)".
    pub fn in_words(&self, now: Timestamp) -> String {
        let when = if self.from > now {
            format!("begins in {}", span(self.from.since(now)))
        } else {
            format!("ends in {}", span(self.until.since(now)))
        };
        let why = self.reason.as_deref().map_or(String::new(), |reason| format!(": {reason}"));
        format!("{} ({when}{why})", self.name)
    }
}

/// The smallest size of a GPU type that a model would fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fit {
    pub gpu_type: GpuType,
    pub gpus: GpuCount,
    pub layout: Option<Layout>,
}

impl Fit {
    /// "16 GPUs of A100-40G (dp1 tp8 pp2), more than it asks for".
    pub fn in_words(&self, asked: &GpuRange) -> String {
        let layout = self.layout.map_or(String::new(), |layout| format!(" ({layout})"));
        let but = match () {
            () if !asked.accepts(&self.gpu_type) => ", a type it does not accept",
            () if self.gpus > asked.max => ", more than it asks for",
            () if self.gpus < asked.min => ", fewer than it asks for",
            () if !asked.allows(self.gpus) => ", a size it does not allow",
            () => "",
        };
        format!("{} of {}{layout}{but}", crate::explain::gpus(self.gpus), self.gpu_type)
    }
}

/// What keeps a job from all shapes: for ever, or for as long as nodes are as they are.
pub(crate) fn obstacle(
    round: &Round<'_>,
    job: &PlanJob,
    model: Option<&Arc<JobModel>>,
    curves: &mut CurveCache,
) -> Obstacle {
    let cluster = round.cluster;
    if let Some(never) = never(round, job, model, curves) {
        return never;
    }
    let by = closed(round, job);
    let admitted: BTreeSet<usize> = round.admitted(job).collect();
    let bound = candidate::bound_layout(job);
    let mut suits = |shape: &Shape| candidate::refusal(round, job, model, *shape, bound, curves).is_none();
    let is_open = |shape: &Shape| {
        let enough = cluster.is_mix(shape.class) || shape.nodes.0 as usize <= cluster.classes[shape.class].nodes.len();
        enough && cluster.members(shape.class).iter().all(|class| admitted.contains(class))
    };
    let open = candidate::built_shapes(round, job).into_iter().filter(is_open);
    if !by.is_empty() && !open.into_iter().any(|shape| suits(&shape)) {
        return Obstacle::Reserved { by };
    }
    kept_out(round, job).unwrap_or_else(|| too_few_usable(round, job))
}

/// The reservations that keep a job from classes it accepts.
fn closed(round: &Round<'_>, job: &PlanJob) -> Vec<Closed> {
    let closed: BTreeSet<Closed> =
        accepted(round, job).filter_map(|class| round.closed_by(job, class)).map(Closed::new).collect();
    closed.into_iter().collect()
}

fn accepted<'r>(round: &'r Round<'_>, job: &PlanJob) -> impl Iterator<Item = usize> + use<'r> {
    let types = job.range.clone();
    let classes = &round.cluster.classes;
    (0..classes.len()).filter(move |&class| types.accepts(&classes[class].alike.gpu_type))
}

/// Enough is built, and too little of it is there now.
pub(crate) fn too_few_usable(round: &Round<'_>, job: &PlanJob) -> Obstacle {
    let (closed_classes, admitting): (Vec<usize>, Vec<usize>) =
        accepted(round, job).partition(|&class| round.closed_by(job, class).is_some());
    let open = |class: usize| round.cluster.open(class);
    let usable = admitting.into_iter().map(open).max().unwrap_or_default();
    let reserved = GpuCount(closed_classes.into_iter().map(|class| open(class).0).sum());
    let by = if reserved.0 > 0 { closed(round, job) } else { Vec::new() };
    Obstacle::NotUsable { usable, reserved, by }
}

/// What keeps a job from running on the cluster as built, were every node whole, there and free: only other nodes or another
/// specification lift it. Of a cluster that has no node yet nobody knows.
pub(crate) fn never(
    round: &Round<'_>,
    job: &PlanJob,
    model: Option<&Arc<JobModel>>,
    curves: &mut CurveCache,
) -> Option<Obstacle> {
    let cluster = round.cluster;
    let accepted = || cluster.classes.iter().filter(|class| job.range.accepts(&class.alike.gpu_type));
    if !cluster.classes.is_empty() && accepted().next().is_none() {
        return Some(Obstacle::WrongType);
    }
    let shapes = candidate::built_shapes(round, job);
    if shapes.is_empty() {
        let most = |class: &Class| match job.needs.spread {
            Spread::Require => GpuCount(class.largest_domain() * class.whole()),
            Spread::Prefer => class.nominal(),
        };
        let mut built: Vec<GpuCount> = accepted().map(most).collect();
        built.sort_unstable_by_key(|gpus| Reverse(*gpus));
        let together = if candidate::may_mix(job) { 2 } else { 1 };
        let built = built.into_iter().take(together).map(|gpus| gpus.0).sum();
        return Some(Obstacle::TooLarge { built: GpuCount(built) });
    }
    let (bound, mut refusals, mut hosted) = (candidate::bound_layout(job), Vec::new(), Vec::new());
    for shape in shapes {
        match candidate::refusal(round, job, model, shape, bound, curves) {
            Some(refusal) => refusals.push(refusal),
            None if cluster.hosts_as_built(&job.needs, shape) => return None,
            None => hosted.push(shape),
        }
    }
    let anywhere = Needs { only: NodeSelector::default(), ..job.needs.clone() };
    if hosted.iter().any(|shape| cluster.hosts_as_built(&anywhere, *shape)) {
        return Some(Obstacle::NotAskedFor);
    }
    if !hosted.is_empty() {
        let hosts = accepted().flat_map(|class| &class.nodes).map(|&node| cluster.nodes[node].host);
        let lacking: BTreeSet<HostResource> = hosts.flat_map(|host| host.lacks(job.needs.per_node)).collect();
        return Some(Obstacle::HostTooSmall { lacking: lacking.into_iter().collect() });
    }
    // Of memory the last says most: the largest shape needs least per GPU.
    let says_most = refusals.iter().rfind(|refusal| refusal.lacks == Lack::Memory).or(refusals.first());
    says_most.cloned().map(|refusal| {
        let memory = refusal.lacks == Lack::Memory;
        Obstacle::Infeasible { fits: if memory { would_fit(round, job, model, curves) } else { Vec::new() }, refusal }
    })
}

/// What keeps a job from shapes that nodes have room for: hosts, before the nodes it avoids.
fn kept_out(round: &Round<'_>, job: &PlanJob) -> Option<Obstacle> {
    let (cluster, shapes) = (round.cluster, candidate::open_shapes(round, job));
    let holds = |needs: &Needs| shapes.iter().any(|shape| cluster.could_hold(job, needs, *shape));
    let willing = Needs { avoid: BTreeSet::new(), ..job.needs.clone() };
    if holds(&willing) {
        return Some(Obstacle::Avoided);
    }
    if holds(&Needs { only: NodeSelector::default(), ..willing }) {
        return Some(Obstacle::AskedFor);
    }
    let parts = shapes.iter().flat_map(|shape| cluster.parts(*shape));
    let nodes = parts.flat_map(|part| {
        let roomy = move |node: &&usize| cluster.open_on(**node) >= part.per_node();
        cluster.classes[part.class].nodes.iter().filter(roomy)
    });
    let lacking: BTreeSet<HostResource> =
        nodes.flat_map(|&node| cluster.nodes[node].host.lacks(job.needs.per_node)).collect();
    if !lacking.is_empty() {
        return Some(Obstacle::Host { lacking: lacking.into_iter().collect() });
    }
    let rows = cluster.site.dividing_rows_of(job).iter();
    let by: Vec<String> = rows.map(|&row| round.input.policy.rows[row].name.clone()).collect();
    (!shapes.is_empty() && !by.is_empty()).then_some(Obstacle::Ruled { by })
}

/// For each GPU type the smallest size, of those that double, that the model would fit on the cluster as built, whatever
/// the job accepts.
pub(crate) fn would_fit(
    round: &Round<'_>,
    job: &PlanJob,
    model: Option<&Arc<JobModel>>,
    curves: &mut CurveCache,
) -> Vec<Fit> {
    let Some(model) = model else { return Vec::new() };
    let mut fits: Vec<Fit> = Vec::new();
    for of in &round.cluster.classes {
        let sizes = (0..32).map(|power| GpuCount(1 << power)).take_while(|gpus| *gpus <= of.nominal());
        let found = sizes.into_iter().find_map(|gpus| {
            let nodes = NodeCount(gpus.0.div_ceil(of.whole().max(1)));
            let offer = curves.best(job.job, model, &of.alike, gpus, nodes, None).filter(|offer| !offer.unlikely)?;
            let layout = offer.configuration.map(|at| at.layout);
            Some(Fit { gpu_type: of.alike.gpu_type.clone(), gpus, layout })
        });
        fits.extend(found.filter(|fit| fits.iter().all(|other| other.gpu_type != fit.gpu_type)));
    }
    fits
}

#[cfg(test)]
mod tests {
    use headway_types::Seconds;

    use super::*;
    use crate::builder::{NOW, reservation};

    #[test]
    fn the_reason_of_a_reservation_is_told_if_it_is_short() {
        let told = |reason: &str| {
            let mut by = reservation("r9", &[1], NOW, NOW + Seconds(10_800.0));
            by.reason = Some(reason.into());
            Closed::new(&by).in_words(NOW)
        };
        assert_eq!(told("PSU swap"), "r9 (ends in 3.0 h: PSU swap)");
        assert_eq!(told(&"word ".repeat(13)), "r9 (ends in 3.0 h)");
        assert_eq!(told("two\nlines"), "r9 (ends in 3.0 h)");
    }
}
