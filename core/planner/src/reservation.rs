//! Nodes set aside for some jobs over a span of time, and who may start on them.

use std::collections::{BTreeMap, BTreeSet};

use headway_types::{JobId, NodeId, Timestamp};
use serde::{Deserialize, Serialize};

use crate::ending;
use crate::input::{PlanInput, PlanJob};
use crate::project::Tree;

/// While it lasts, only its members run on its nodes. Before it begins, other jobs start there only if they will have
/// left by then ([`ending`]).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reservation {
    pub name: String,
    /// Why nodes are reserved. Rounds show it and decide nothing by it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    pub nodes: BTreeSet<NodeId>,
    pub from: Timestamp,
    /// First moment at which it holds no more.
    pub until: Timestamp,
    /// Projects (with their sub-projects) whose jobs are members.
    #[serde(default)]
    pub projects: BTreeSet<String>,
    #[serde(default)]
    pub users: BTreeSet<String>,
    #[serde(default)]
    pub jobs: BTreeSet<JobId>,
}

impl Reservation {
    pub(crate) fn admits(&self, tree: &Tree<'_>, job: &PlanJob) -> bool {
        let claim = &job.claim;
        let project = || tree.lineage(&claim.project).any(|name| self.projects.contains(name));
        self.jobs.contains(&job.job) || self.users.contains(&claim.user) || project()
    }
}

/// Who may start on a node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Gate {
    Open,
    /// By these (indices into the round's reservations), ascending. Members may start, and jobs that leave in time.
    Reserved {
        by: Vec<usize>,
    },
}

impl Gate {
    /// Whether a job may start on the nodes.
    pub fn admits(&self, input: &PlanInput, tree: &Tree<'_>, job: &PlanJob) -> bool {
        self.closed_by(input, tree, job).is_none()
    }

    /// The first reservation that keeps a job from starting on the nodes.
    pub fn closed_by<'a>(&self, input: &'a PlanInput, tree: &Tree<'_>, job: &PlanJob) -> Option<&'a Reservation> {
        self.of_others(input, tree, job).find(|one| !ending::may_start(job, input.now, one.from))
    }

    /// The reservation before which a job must have left the nodes.
    pub fn end<'a>(&self, input: &'a PlanInput, tree: &Tree<'_>, job: &PlanJob) -> Option<&'a Reservation> {
        self.of_others(input, tree, job).min_by_key(|one| one.from)
    }

    /// Whether a job that runs on the nodes may stay there for now.
    pub fn tolerates(&self, input: &PlanInput, tree: &Tree<'_>, job: &PlanJob) -> bool {
        self.of_others(input, tree, job).all(|one| !ending::must_leave(job, input.now, one.from))
    }

    /// The reservations of which a job is no member.
    fn of_others<'a>(
        &self,
        input: &'a PlanInput,
        tree: &Tree<'_>,
        job: &PlanJob,
    ) -> impl Iterator<Item = &'a Reservation> {
        let by: &[usize] = match self {
            Gate::Open => &[],
            Gate::Reserved { by } => by,
        };
        by.iter().map(|&one| &input.reservations[one]).filter(|one| !one.admits(tree, job))
    }
}

/// The gate of every node, in their order. Reservations that are over, or still far away, do not matter.
pub(crate) fn gates(input: &PlanInput) -> Vec<Gate> {
    let mut by_node: BTreeMap<NodeId, Vec<usize>> = BTreeMap::new();
    let matters = |one: &Reservation| one.until > input.now && !ending::is_far(input.now, one.from);
    for (index, reservation) in input.reservations.iter().enumerate().filter(|(_, one)| matters(one)) {
        for node in &reservation.nodes {
            by_node.entry(*node).or_default().push(index);
        }
    }
    let gate = |node: NodeId| match by_node.get(&node) {
        None => Gate::Open,
        Some(by) => Gate::Reserved { by: by.clone() },
    };
    input.nodes.iter().map(|node| gate(node.node)).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use headway_types::{Bytes, Plan, Seconds};

    use super::*;
    use crate::builder::{NOW, after, job_id, node, node_id, reservation, rigid, round};
    use crate::curves::CurveCache;
    use crate::ending::Departure;
    use crate::{never_while, verify};

    fn planned(input: &PlanInput) -> Plan {
        let plan = crate::plan(input, &mut CurveCache::new()).unwrap();
        assert_eq!(verify(input, &plan), Ok(()));
        plan
    }

    fn saving(number: u32, gpus: u32) -> PlanJob {
        PlanJob { departure: Departure { saves: true, never: false, takes: Seconds(60.0) }, ..rigid(number, gpus) }
    }

    /// The first node is reserved in so many seconds, for so many.
    fn reserved(nodes: u32, jobs: Vec<PlanJob>, from: f64, lasts: f64) -> PlanInput {
        let from = NOW + Seconds(from);
        let reservations = vec![reservation("r9", &[1], from, from + Seconds(lasts))];
        let nodes = (1..=nodes).map(|number| node(number, "alpha", 4)).collect();
        PlanInput { reservations, ..round(nodes, jobs) }
    }

    #[test]
    fn a_reservation_of_next_year_closes_no_node_and_splits_no_gang() {
        let input = reserved(2, vec![rigid(1, 2), rigid(2, 6)], 3e7, 14_400.0);
        assert_eq!(planned(&input).assignments.len(), 2);
    }

    #[test]
    fn a_job_that_saves_starts_before_a_reservation_and_one_that_does_not_waits() {
        let input = reserved(1, vec![saving(1, 2), rigid(2, 2)], 36_000.0, 14_400.0);
        let plan = planned(&input);
        assert!(plan.assignments.contains_key(&job_id(1)) && !plan.assignments.contains_key(&job_id(2)));
        let next = planned(&after(&input, &plan));
        assert_eq!(next.assignments, plan.assignments, "planning again changes nothing");
    }

    #[test]
    fn a_node_that_is_not_reserved_is_worth_more() {
        for first in [1_000.0, 7_200.0, 36_000.0, 500_000.0] {
            let plan = planned(&reserved(2, vec![saving(1, 4)], first, 14_400.0));
            assert_eq!(plan.assignments[&job_id(1)].placement.first_node(), node_id(2), "{first}");
        }
    }

    #[test]
    fn a_job_leaves_before_a_reservation_begins_and_moves_where_there_is_room() {
        let mut input = reserved(1, vec![saving(1, 4)], 1_000.0, 14_400.0);
        let mut running = after(&input, &planned(&input));
        running.now = NOW + Seconds(939.0);
        assert_eq!(planned(&running).assignments.len(), 1, "it may stay for another second");
        running.now = NOW + Seconds(940.0);
        assert_eq!(planned(&running).assignments.len(), 0);
        running.nodes.push(node(2, "alpha", 4));
        assert_eq!(planned(&running).assignments[&job_id(1)].placement.first_node(), node_id(2));
        input.now = NOW + Seconds(940.0);
        assert_eq!(planned(&input).assignments.len(), 0, "nothing starts there any more");
    }

    /// Four nodes of four GPUs; these are reserved in three days.
    fn partly_reserved(numbers: &[u32], jobs: Vec<PlanJob>) -> PlanInput {
        let from = NOW + Seconds(259_200.0);
        let reservations = vec![reservation("r9", numbers, from, from + Seconds(14_400.0))];
        PlanInput { reservations, ..round((1..=4).map(|number| node(number, "alpha", 4)).collect(), jobs) }
    }

    #[test]
    fn a_gang_takes_open_and_reserved_nodes_together_and_leaves_before_the_reservation() {
        for numbers in [&[3, 4][..], &[1], &[1, 2, 3], &[2]] {
            let input = partly_reserved(numbers, vec![saving(1, 16)]);
            let plan = planned(&input);
            assert!(plan.assignments.contains_key(&job_id(1)), "{numbers:?}");
            let mut next = after(&input, &plan);
            assert_eq!(planned(&next).assignments, plan.assignments, "{numbers:?}: planning again changes nothing");
            next.reservations.clear();
            assert_eq!(
                planned(&next).assignments,
                plan.assignments,
                "{numbers:?}: nor does the end of the reservation"
            );
            next.reservations = input.reservations;
            next.now = NOW + Seconds(259_140.0);
            assert!(planned(&next).assignments.is_empty(), "{numbers:?}");
        }
    }

    #[test]
    fn a_gang_that_cannot_save_takes_no_reserved_node_without_a_limit_that_fits() {
        assert!(planned(&partly_reserved(&[3, 4], vec![rigid(1, 16)])).assignments.is_empty());
        let mut limited = rigid(1, 16);
        limited.bounds.time_left = Some(Seconds(86_400.0));
        assert_eq!(planned(&partly_reserved(&[3, 4], vec![limited])).assignments.len(), 1);
    }

    #[test]
    fn a_gang_that_other_jobs_keep_from_open_nodes_takes_the_reserved_ones_that_are_free() {
        let first = partly_reserved(&[3, 4], vec![saving(2, 4)]);
        let mut next = after(&first, &planned(&first));
        next.jobs.push(saving(1, 12));
        next.jobs.sort_by_key(|job| job.job);
        let plan = planned(&next);
        assert_eq!(plan.assignments.len(), 2);
        assert_eq!(plan.assignments[&job_id(2)], planned(&first).assignments[&job_id(2)], "nobody moves for it");
    }

    #[test]
    fn a_gang_that_runs_stays_where_a_reservation_is_made_on_some_of_its_nodes() {
        let open = partly_reserved(&[], vec![saving(1, 16)]);
        let running = after(&open, &planned(&open));
        let reserved = PlanInput { reservations: partly_reserved(&[1, 3], Vec::new()).reservations, ..running };
        assert_eq!(planned(&reserved).assignments, planned(&open).assignments);
    }

    #[test]
    fn a_gang_for_which_too_few_nodes_are_built_is_told_so_whatever_is_reserved() {
        let mut large = rigid(1, 16);
        large.needs.per_node.memory = Some(Bytes(64 << 30));
        for numbers in [&[][..], &[2, 3]] {
            let mut input = partly_reserved(numbers, vec![large.clone()]);
            input.nodes.iter_mut().for_each(|node| node.host.memory = Some(Bytes(128 << 30)));
            input.nodes[3].host.memory = Some(Bytes(1 << 30));
            let (never, _) = never_while(&input, &[job_id(1)], &mut CurveCache::new(), || true);
            assert!(never.contains_key(&job_id(1)), "{numbers:?}");
        }
    }
}
