//! From all GPUs of the cluster to those a job could start on now: where its possibilities are lost. Asked by people, not
//! by rounds.

use std::collections::BTreeSet;

use headway_types::spec::HostResource;
use headway_types::{GpuCount, JobId, Plan};
use serde::{Deserialize, Serialize};

use crate::candidate;
use crate::check::check_job;
use crate::cluster::Cluster;
use crate::curves::CurveCache;
use crate::explain::{gpus, list};
use crate::free::{Free, Seeker};
use crate::input::{PlanInput, PlanJob};
use crate::project::Tree;
use crate::round::Round;

/// What is left after one more condition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stage {
    /// "of a type it accepts".
    pub name: String,
    pub left: u32,
    pub of: Counted,
    /// "96 GPUs on 12 nodes", "4, 8 and 16 GPUs".
    pub detail: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Counted {
    Gpus,
    Sizes,
}

/// The funnel of a job in the round that made `plan` out of `input`; `None` for a job the round does not know. What the
/// job itself holds counts as free.
pub fn funnel(input: &PlanInput, plan: &Plan, curves: &mut CurveCache, job: JobId) -> Option<Vec<Stage>> {
    let of = &input.jobs[input.jobs.binary_search_by_key(&job, |one| one.job).ok()?];
    let (cluster, tree) = (Cluster::new(input), Tree::new(&input.projects));
    let round = Round::new(input, &cluster, &tree);
    let mut stages = nodes(&round, of);
    if check_job(of).is_ok() {
        stages.extend(sizes(&round, plan, of, curves));
    }
    Some(stages)
}

/// Conditions that whole nodes meet or do not.
fn nodes(round: &Round<'_>, job: &PlanJob) -> Vec<Stage> {
    let cluster = round.cluster;
    let admitted: BTreeSet<usize> = round.admitted(job).collect();
    let built = |node: usize| cluster.nodes[node].class.gpus_per_node.0;
    let accepted = |node: usize| job.range.accepts(&cluster.nodes[node].class.gpu_type);
    let needs = job.needs.per_node;
    let roomy = |node: usize| cluster.nodes[node].host.lacks(needs).next().is_none();
    let needed: Vec<&str> =
        HostResource::ALL.into_iter().filter(|of| needs.amount(*of).is_some()).map(HostResource::in_words).collect();
    let mut left: Vec<usize> = (0..cluster.nodes.len()).collect();
    let mut stages = vec![on_nodes("in the cluster", &left, built)];
    let mut keep = |name: &str, always: bool, meets: &dyn Fn(usize) -> bool, count: &dyn Fn(usize) -> u32| {
        let before = left.len();
        left.retain(|&node| meets(node));
        if always || left.len() < before {
            stages.push(on_nodes(name, &left, count));
        }
    };
    keep("of a type it accepts", true, &accepted, &built);
    keep("not set aside for others", false, &|node| admitted.contains(&cluster.class_of(node)), &built);
    keep("usable now", true, &|node| cluster.open_on(node) > 0, &|node| cluster.open_on(node));
    let open = |node: usize| cluster.open_on(node);
    let asked = |node: usize| job.needs.only.takes(&cluster.nodes[node].name, &cluster.nodes[node].labels);
    keep("on nodes it asks for", false, &asked, &open);
    let own = |node: usize| cluster.nodes[node].takes_owner(&job.claim.user);
    keep("on nodes that run jobs of its owner", false, &own, &open);
    keep("on nodes it need not avoid", false, &|node| !job.needs.avoid.contains(&cluster.nodes[node].node), &open);
    keep(&format!("on nodes with enough {}", list(&needed)), false, &roomy, &open);
    stages
}

fn on_nodes(name: &str, nodes: &[usize], count: impl Fn(usize) -> u32) -> Stage {
    let total: u32 = nodes.iter().map(|&node| count(node)).sum();
    let on = if nodes.len() == 1 { "1 node".into() } else { format!("{} nodes", nodes.len()) };
    Stage { name: name.into(), left: total, of: Counted::Gpus, detail: format!("{} on {on}", gpus(GpuCount(total))) }
}

/// Sizes it allows, of these what has a shape, what can run there, what rules leave, and what fits now.
fn sizes(round: &Round<'_>, plan: &Plan, job: &PlanJob, curves: &mut CurveCache) -> Vec<Stage> {
    let all: BTreeSet<GpuCount> = candidate::allowed_sizes(round, job).collect();
    let shapes = candidate::open_shapes(round, job);
    let shaped: BTreeSet<GpuCount> = shapes.iter().map(|shape| shape.gpus).collect();
    let options = candidate::options(round, job, curves);
    let runs: BTreeSet<GpuCount> = options.sizes.iter().map(|(gpus, _)| *gpus).collect();
    let (mut free, mut used) = (Free::new(round.cluster), vec![0; round.rows.capacity.len()]);
    for other in round.input.jobs.iter().filter(|other| other.job != job.job) {
        if let Some(at) = plan.assignments.get(&other.job) {
            free.take(other, &round.cluster.known_slots(&at.placement), false);
            for part in round.rows.of_placement(other, &at.placement, None) {
                used[part.row as usize] += part.amount;
            }
        }
    }
    let seeker = Seeker { job, current: &[], outlasts_promise: false };
    let placed = shapes.iter().filter(|shape| runs.contains(&shape.gpus) && free.find(**shape, seeker).is_some());
    let placed: Vec<_> = placed.collect();
    let room: BTreeSet<GpuCount> = placed.iter().map(|shape| shape.gpus).collect();
    let ruled = placed.iter().filter(|shape| {
        let uses = round.rows.of_shape(job, ***shape, None, false);
        uses.iter().all(|part| {
            let row = part.row as usize;
            !round.rows.is_rule(row) || used[row] + part.amount <= round.rows.capacity[row]
        })
    });
    let ruled: BTreeSet<GpuCount> = ruled.map(|shape| shape.gpus).collect();
    vec![
        of_sizes("sizes it allows", &all),
        of_sizes("sizes with enough usable GPUs", &shaped),
        of_sizes("sizes it can run at there", &runs),
        of_sizes("sizes with room beside the plan", &room),
        of_sizes("sizes that quotas and limits leave", &ruled),
    ]
}

fn of_sizes(name: &str, sizes: &BTreeSet<GpuCount>) -> Stage {
    let detail = match (sizes.first(), sizes.last()) {
        (None, _) | (_, None) => "none".into(),
        (_, Some(most)) if sizes.len() <= 6 => {
            let named: Vec<String> = sizes.iter().map(ToString::to_string).collect();
            let word = if most.0 == 1 { "GPU" } else { "GPUs" };
            format!("{} {word}", named.join(", "))
        }
        (Some(least), Some(most)) => format!("{} sizes from {least} to {most} GPUs", sizes.len()),
    };
    Stage { name: name.into(), left: sizes.len() as u32, of: Counted::Sizes, detail }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use headway_types::GpuType;

    use super::*;
    use crate::builder::{after, job, job_id, node, rigid, round};
    use crate::project::PlanProject;

    #[test]
    fn a_funnel_tells_where_possibilities_are_lost() {
        let start = round(vec![node(1, "alpha", 8), node(2, "alpha", 8), node(3, "beta", 8)], vec![rigid(1, 8)]);
        let first = crate::plan(&start, &mut CurveCache::new()).unwrap();
        let mut input = after(&start, &first);
        let mut waits = job(2, 2, 24);
        waits.range.types = vec![GpuType("alpha".into())];
        waits.claim.project = "nlp".into();
        input.projects = vec![PlanProject { name: "nlp".into(), quota: Some(GpuCount(4)), ..PlanProject::default() }];
        input.jobs.push(waits);
        input.jobs.iter_mut().for_each(|job| job.claim.project = "nlp".into());
        input.nodes[1].gpus.truncate(6);
        let plan = crate::plan(&input, &mut CurveCache::new()).unwrap();
        let stages = funnel(&input, &plan, &mut CurveCache::new(), job_id(2)).unwrap();
        let told: Vec<String> =
            stages.iter().map(|one| format!("{:>3} {}: {}", one.left, one.name, one.detail)).collect();
        insta::assert_snapshot!(told.join("\n"));
    }

    #[test]
    fn a_job_the_round_does_not_know_has_none() {
        let input = round(vec![node(1, "alpha", 8)], vec![rigid(1, 8)]);
        let plan = crate::plan(&input, &mut CurveCache::new()).unwrap();
        assert_eq!(funnel(&input, &plan, &mut CurveCache::new(), job_id(2)), None);
    }
}
