//! What a reservation costs: the GPUs that it takes from others, the jobs that have to leave for it, and those that stay.

use std::collections::{BTreeMap, BTreeSet};

use headway_planner::leaves_at;
use headway_types::{GpuCount, JobId, NodeId, ReservationId, Timestamp};

use crate::record::{Job, Reservation};
use crate::view::{JobView, View};

/// What a reservation takes from others, as of the newest batch.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReservationCost {
    /// GPUs on its nodes.
    pub gpus: GpuCount,
    /// Jobs on its nodes that are no members, by the moment at which they begin to leave. Some stay.
    pub jobs: Vec<DepartingJob>,
}

/// A job that holds nodes of a reservation and is no member of it.
#[derive(Clone, Debug, PartialEq)]
pub struct DepartingJob {
    pub job: JobId,
    pub name: String,
    /// All that it holds, also on other nodes.
    pub gpus: GpuCount,
    /// When it begins to leave, or at the latest ends. For a job that stays: when the reservation begins.
    pub at: Timestamp,
    pub ending: DepartureKind,
}

/// How a job leaves for a reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DepartureKind {
    /// Its time limit ends it before.
    Limit,
    /// It saves, and goes on elsewhere or later.
    Saves,
    /// It is stopped and does not save, as far as the scheduler knows.
    Unsaved,
    /// It must not run twice, so it holds the node until it ends.
    Stays,
}

impl View {
    /// What a reservation takes from others.
    #[must_use]
    pub fn reservation_cost(&self, of: &Reservation) -> ReservationCost {
        self.reservation_costs([of]).remove(&of.id).unwrap_or_default()
    }

    /// What each of some reservations takes from others, in one pass over the jobs.
    #[must_use]
    pub fn reservation_costs<'r>(
        &self,
        of: impl IntoIterator<Item = &'r Reservation>,
    ) -> BTreeMap<ReservationId, ReservationCost> {
        let mut costs = BTreeMap::new();
        let mut by_node: BTreeMap<NodeId, Vec<&Reservation>> = BTreeMap::new();
        for one in of {
            costs.insert(one.id, ReservationCost { gpus: self.gpus_on(&one.nodes), jobs: Vec::new() });
            for node in &one.nodes {
                by_node.entry(*node).or_default().push(one);
            }
        }
        if by_node.is_empty() {
            return costs;
        }
        for shown in self.jobs.values() {
            let Some(held) = &shown.allocation else { continue };
            let slices = held.placement.slices().iter();
            let here = slices.filter_map(|slice| by_node.get(&slice.node)).flatten();
            let reservations: BTreeMap<ReservationId, &Reservation> = here.map(|one| (one.id, *one)).collect();
            for (id, one) in reservations {
                if one.until > self.at && !self.is_member(&shown.job, one) {
                    let leaving = self.departing(shown, held.placement.gpus(), one);
                    costs.entry(id).or_default().jobs.push(leaving);
                }
            }
        }
        for cost in costs.values_mut() {
            cost.jobs.sort_by_key(|one| (one.at, one.job));
        }
        costs
    }

    fn gpus_on(&self, nodes: &BTreeSet<NodeId>) -> GpuCount {
        let shown = nodes.iter().filter_map(|node| self.nodes.get(node));
        let gpus = shown.map(|shown| shown.node.inventory.gpus.len()).sum::<usize>();
        GpuCount(u32::try_from(gpus).unwrap_or(u32::MAX))
    }

    fn departing(&self, shown: &JobView, gpus: GpuCount, of: &Reservation) -> DepartingJob {
        let job = &shown.job;
        let (departure, left) = (shown.departure, job.time_left(self.at));
        let ends_itself = left.is_some_and(|left| self.at + left <= of.from);
        let ending = match (ends_itself, departure.never, departure.saves) {
            (true, ..) => DepartureKind::Limit,
            (false, true, _) => DepartureKind::Stays,
            (false, false, true) => DepartureKind::Saves,
            (false, false, false) => DepartureKind::Unsaved,
        };
        let at = leaves_at(departure, left, self.at, of.from).unwrap_or(of.from).max(self.at);
        DepartingJob { job: job.id, name: job.spec.name.clone(), gpus, at, ending }
    }

    fn is_member(&self, job: &Job, of: &Reservation) -> bool {
        let line = self.project_line(&job.spec.project);
        of.jobs.contains(&job.id)
            || of.users.contains(&job.owner)
            || of.projects.contains(&job.spec.project)
            || line.iter().any(|project| of.projects.contains(&project.name))
    }
}
